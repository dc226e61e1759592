"""The failure signatures: every shipped row against its own example; a site's rows, and the mistakes in them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from seatrial.errors import SeatrialError
from seatrial.spec.failures import LogClass, load_failures
from seatrial.spec.profile import load_profile
from seatrial.supervise import classes
from tests.test_rooms import old_python

ROWS = load_failures(site=False)
# Decided by more than a log's line: exit codes, what Slurm answers, what was proven.
WITHOUT_A_LINE = {
    classes.COMPLETE, classes.CANCELLED, classes.RESULT_VALIDATION, classes.RESUME_MISMATCH, classes.NO_PROGRESS,
    classes.CRASH_LOOP, classes.DEPENDENCY_FAILED, classes.SUPERVISOR_ERROR,
}  # fmt: skip


def write_site(home: Path, text: str) -> None:
    path = home / ".config" / "seatrial" / "site.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("number", range(len(ROWS)), ids=[f"{row['class']}-{n}" for n, row in enumerate(ROWS)])
def test_an_example_belongs_to_its_own_row(number: int) -> None:
    example = ROWS[number]["example"]
    assert next(n for n, row in enumerate(ROWS) if re.search(row["pattern"], example)) == number
    assert "\n" not in example


# The same text as it comes in other places, and what is like it and none.
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("srun: error: Node failure on n7", "node_failure"),
        ("slurmstepd: error: *** STEP 7.4 ON n1 CANCELLED AT 2026-12-02T16:40:34 ***", None),
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-12-02T16:40:34 DUE TO JOB REQUEUE ***", "preempted"),
        ("NVRM: Xid (PCI:0000:23:00): 79, pid=1122, GPU has fallen off the bus.", "gpu_fault"),
        ("NVRM: Xid (PCI:0019:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6)", "gpu_fault"),
        ("NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained ECC error", "gpu_fault"),
        ("NVRM: Xid (PCI:0000:00:06): 31, pid=79749, name=exe, MMU Fault: ENGINE GRAPHICS", "unknown"),
        ("n1:1:2 [0] NCCL WARN Cuda failure 'uncorrectable ECC error encountered'", "gpu_fault"),
        ("n1:1:2 [0] NCCL WARN Cuda failure 2 'out of memory'", "oom_gpu"),
        ("n1:1:2 [0] NCCL WARN NCCL_MAX_CTAS is not set", None),
        ("slurmstepd: error: Detected 2 oom-kill event(s) in step 3756240.batch cgroup.", "oom_host"),
        ("srun: error: n1: task 0: Out Of Memory", "oom_host"),
        ("srun: error: n1: task 0: Killed", None),
        ("[rank3]: MemoryError", "oom_host"),
        ("Local worker 0 encountered an error: [enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598",
         "disk_full"),
        ("torch.save: OSError: [Errno 28] No space left on device: '/lustre/x'", "disk_full"),
        ("Unexpected result nan on rank 0 at iteration #3 invocation #1 (message='found NaN in local forward loss "
         "calculation')", "nan"),
        ("check_for_nan_in_loss_and_grad .................. True", None),
        ("exit_on_missing_checkpoint ...................... True", None),
        ("WARNING: could not find the metadata file checkpoints/latest_checkpointed_iteration.txt", None),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'c/iter_0000050/common.pt'", "checkpoint_bad"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'tokenizer.model'", None),
        ("RuntimeError: DataLoader worker (pid(s) 23164, 9) exited unexpectedly", "unknown"),
        ("OSError: Caught OSError in DataLoader worker process 0.", None),
        ("usage: rank.py [-h]", None),
        ("rank.py: error: argument --num-layers: invalid int value: 'x'", "user_error"),
        ("[rank0]: ImportError: cannot import name 'x' from 'megatron.core'", "user_error"),
        ("    raise ValueError(", None),
        ("AssertionError", "user_error"),
        ("torch.distributed.DistStoreError: Timed out after 7 seconds waiting for clients. 1/2 clients joined.",
         "network"),
        ("BrokenPipeError: [Errno 32] Broken pipe", "network"),
        ("[seatrial] SIGTERM received: asking the loop to save and exit (SIGUSR2)", None),
        (" [2026-12-01 02:28:49] iteration        1/      60 | lm loss: 4.851285E+00 | number of nan iterations:   0 |",
         None),
    ],
)  # fmt: skip
def test_other_lines(line: str, expected: str | None) -> None:
    assert next((row["class"] for row in ROWS if re.search(row["pattern"], line)), None) == expected


def test_every_class_has_a_row_or_is_decided_otherwise() -> None:
    assert set(get_args(LogClass)) <= set(classes.MEANINGS)
    assert {row["class"] for row in ROWS} == set(classes.MEANINGS) - WITHOUT_A_LINE


def test_rows_travel_as_json_and_compile_on_the_hosts_python() -> None:
    text = json.dumps(ROWS)
    assert json.loads(text) == ROWS
    python = old_python()
    if python is None:
        pytest.skip("no Python older than 3.12 on this machine")
    code = "import json, re, sys; [re.compile(row['pattern']) for row in json.load(sys.stdin)]"
    assert subprocess.run([python, "-I", "-c", code], input=text, text=True, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("megatron/training/checkpointing.py", ">> '--exit-on-missing-checkpoint' set ... exiting. <<"),
        ("megatron/training/checkpointing.py", "ERROR: Invalid metadata file {}. Exiting"),
        ("megatron/training/checkpointing.py", "Unable to load rng state from checkpoint {}"),
        ("megatron/training/checkpointing.py", "Unable to load optimizer from checkpoint {}"),
        ("megatron/training/checkpointing.py", "but unable to load iteration from checkpoint {}, exiting"),
        ("megatron/training/checkpointing.py", "could not load the checkpoint"),
        ("megatron/training/checkpointing.py", "value from checkpoint ({}) is not equal to the input argument value"),
        ("megatron/core/distributed/param_and_grad_buffer.py", "found NaN in local grad norm for bucket #"),
        ("megatron/core/distributed/param_and_grad_buffer.py", "found Inf in local grad norm for bucket #"),
        ("megatron/core/datasets/indexed_dataset.py", "One or both of the .idx and .bin files cannot be found"),
        ("megatron/core/datasets/blended_megatron_dataset_builder.py",
         "Failed to write dataset materials to the data cache directory"),
        ("torch/distributed/checkpoint/api.py", "CheckpointException ranks:"),
        ("torch/utils/data/dataloader.py", "DataLoader worker (pid(s) 7) exited unexpectedly"),
    ],
)  # fmt: skip
def test_the_installed_software_still_writes_it(file: str, text: str) -> None:
    path = next((Path(p) / file for p in sys.path if (Path(p) / file).is_file()), None)
    if path is None:
        pytest.skip(f"{file} is not installed")
    assert text.replace("(pid(s) 7)", "(pid(s) {pids_str})") in path.read_text()
    assert any(re.search(row["pattern"], text) for row in ROWS)


def test_causes_stand_above_what_follows_from_them() -> None:
    first_weak_network = next(n for n, row in enumerate(ROWS) if row["class"] == "network" and row["weak"])
    strong = [n for n, row in enumerate(ROWS) if not row["weak"]]
    assert max(strong) < first_weak_network


def test_a_sites_rows_come_first_and_leave_the_profile_alone(own_home: Path) -> None:
    write_site(
        own_home,
        "account: lab\nfailures:\n  - class: network\n    pattern: 'FABRIC DOWN'\n    example: 'n1: FABRIC DOWN'\n"
        "    source: our fabric daemon\n    weak: true\n",
    )
    rows = load_failures()
    assert rows[0] == {
        "class": "network", "pattern": "FABRIC DOWN", "example": "n1: FABRIC DOWN", "source": "our fabric daemon",
        "weak": True,
    }  # fmt: skip
    assert rows[1:] == ROWS
    assert load_failures(site=False) == ROWS
    assert load_profile("gb200-8gpu").data["account"] == "lab"


@pytest.mark.parametrize("text", ["", "account: lab\n", "failures:\n", "failures: []\n"])
def test_a_site_need_not_write_any(own_home: Path, text: str) -> None:
    write_site(own_home, text)
    assert load_failures() == ROWS


def test_changing_the_rows_that_were_returned_changes_no_others(own_home: Path) -> None:
    load_failures()[0]["class"] = "nan"
    assert load_failures() == ROWS


GOOD = {"class": "network", "pattern": "FABRIC", "example": "FABRIC DOWN", "source": "ours"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"class": "netwrok"}, ["netwrok", "failures[0].class", "did you mean 'network'?"]),
        ({"class": "complete"}, ["unknown failure class 'complete'", "gpu_fault"]),
        ({"class": None}, ["failures[0].class"]),
        ({"patern": "x"}, ["unknown key 'patern'", "did you mean 'pattern'?"]),
        ({"pattern": "FABRIC ("}, ["failures[0].pattern", "FABRIC (", "regular expression"]),
        ({"pattern": "FABRIC|"}, ["must not match an empty line"]),
        ({"pattern": "LINK"}, ["must match its example 'FABRIC DOWN'"]),
        ({"pattern": "F(?>ABRIC)"}, ["Python 3.9"]),
        ({"pattern": "F++ABRIC|FABRIC"}, ["Python 3.9"]),
        ({"pattern": ""}, ["failures[0].pattern"]),
        ({"pattern": 7}, ["failures[0].pattern", "7"]),
        ({"weak": "yes"}, ["failures[0].weak", "'yes'"]),
        ({"example": ...}, ["lacks 'example'"]),
    ],
)
def test_a_sites_mistake_is_named(own_home: Path, change: dict[str, object], words: list[str]) -> None:
    row = {key: value for key, value in {**GOOD, **change}.items() if value is not ...}
    write_site(own_home, f"account: lab\nfailures: [{json.dumps(row)}]\n")
    with pytest.raises(SeatrialError) as error:
        load_failures()
    for word in [*words, "site.yaml:2"]:
        assert word in str(error.value)


@pytest.mark.parametrize("text", ["failures: {a: 1}\n", "failures: x\n", "failures: [x]\n"])
def test_what_is_no_list_of_rows_is_refused(own_home: Path, text: str) -> None:
    write_site(own_home, text)
    with pytest.raises(SeatrialError, match=r"site\.yaml:1"):
        load_failures()


@pytest.mark.parametrize("pattern", ["C[+]+", r"C\++", "C[*+]+", r"C\+\+"])
def test_plus_signs_that_are_no_possessive_quantifier(own_home: Path, pattern: str) -> None:
    write_site(own_home, f"failures: [{json.dumps({**GOOD, 'pattern': pattern, 'example': 'OC++'})}]\n")
    assert load_failures()[0]["pattern"] == pattern


def test_the_rows_that_the_docs_show_are_right(own_home: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "failures.md").read_text()
    write_site(own_home, page.partition("```yaml\n")[2].partition("```")[0])
    assert len(load_failures()) == len(ROWS) + 2
