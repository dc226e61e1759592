# make gate: set up, then rehearse the 100-step gate.   make test: set up, then pass every test.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell command -v python3.12 || command -v ~/.pyenv/versions/3.12*/bin/python3.12 | tail -n 1)
READY := $(VENV)/.ready

# What tests use beside Python: shellcheck for batch scripts, a C compiler for the sandbox's stand-in of pyxis,
# Chromium for the pages.
PROGRAMS := shellcheck:shellcheck cc:gcc chromium:chromium

.PHONY: system gate test test-host test-slurm setup lint unit train campaign benchmarks schema golden lock clean

gate: $(READY)
	$(BIN)/seatrial gate nemotron_3_nano_gb200 --profile local-cpu --resume-check

# Tests on the real Slurm wait more than they compute, so the others run beside them.
test: system $(READY) lint
	+$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-host test-slurm

test-host: $(READY)
	$(BIN)/python -m pytest -m "not campaign and not slurm"

test-slurm: $(READY)
	$(BIN)/python -m pytest -m "not campaign and slurm"

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.12 is needed: install it, or name it with make PYTHON=/path/to/python3.12" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e ".[train,dev]"
	touch $(READY)

system:
	@missing=""; for pair in $(PROGRAMS); do command -v $${pair%%:*} > /dev/null || missing="$$missing $${pair##*:}"; done; \
	test -z "$$missing" && exit 0; \
	test "$$(id -u)" = 0 || { echo "the tests need:$$missing (apt-get install$$missing)" >&2; exit 2; }; \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing > /dev/null

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(READY)
	$(BIN)/python -m pytest -m "not campaign and not train and not slurm"

train: $(READY)
	$(BIN)/python -m pytest -m train

# Beside that, what the campaign logs in by.
campaign: PROGRAMS += /usr/sbin/sshd:openssh-server rsync:rsync
campaign: system $(READY)
	$(BIN)/python tests/campaign.py

benchmarks: $(READY)
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

schema: $(READY)
	for python in $(BIN)/python $$($(BIN)/python -m tests.environments.build megatron-core-0.18); do \
	  $$python -W ignore -m seatrial.train.argument_schema launchers/seatrial/spec/schemas 2> /dev/null || exit 1; done

golden: $(READY)
	SEATRIAL_WRITE_GOLDEN=1 $(BIN)/python -m pytest -q tests/spec/test_golden.py tests/slurm_room/test_script.py

lock: $(READY)
	$(BIN)/pip-compile --quiet --strip-extras --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	  --no-emit-trusted-host --no-emit-options --allow-unsafe --extra train --extra dev --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) .venv-* build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
