"""What an image must have, what is said of what it lacks, and the one step that asks it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tomllib

from seatrial.slurm import image_program
from seatrial.slurm.client import Slurm
from seatrial.slurm.image import check_image
from seatrial.slurm.image_needs import facts_in, judge_image, needs_of, programs_of, question, release
from seatrial.slurm.image_program import MARK
from seatrial.spec.recipe import recipe_names
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec
from seatrial.train import requirements
from tests.slurm_room.fake_site import FakeSite
from tests.slurm_room.fakes import Reply

REPO = Path(__file__).resolve().parents[2]
IMAGE = "/images/nemo.sqsh"


def spec_of(recipe: str = "nemotron_3_nano_gb200", profile: str = "gb200-8gpu", **settings: str) -> RunSpec:
    known = {
        "account": "lab",
        "partition": "batch",
        "container.image": IMAGE,
        "container.mounts": "['/a:/b', '/c:/c:ro']",
    }
    values = known | {key.replace("__", "."): value for key, value in settings.items()}
    return resolve(recipe, profile, "gate", [(f"profile.{key}", value) for key, value in values.items()])


def good(spec: RunSpec, **changes: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return what an image says that has everything; ``changes`` by the module's last name, None leaves it out."""
    facts: list[dict[str, Any]] = [
        {"python": "3.12.3", "machine": "aarch64", "executable": "/usr/bin/python3", "node": "n1"}
    ]
    facts += [{"program": name, "found": f"/usr/bin/{name}"} for name in programs_of(spec)]
    for need in needs_of(spec):
        version = spec.megatron_core if need.distribution == "megatron-core" else "9.9.0+cu13"
        change = changes.get(need.module.rpartition(".")[2], {})
        if change is not None:
            facts.append({"importing": need.module})
            facts.append({"module": need.module, "state": "there", "version": version} | change)
    return [*facts, {"gpu": "NVIDIA GB200", "cuda": "13.0"}, {"done": True}]


@pytest.mark.parametrize("recipe", recipe_names())
def test_an_image_with_everything_gets_one_note(recipe: str) -> None:
    spec = spec_of(recipe)
    (note,) = judge_image(spec, good(spec))
    assert note.severity == "note" and "Python 3.12.3 on aarch64" in note.rule and "NVIDIA GB200" in note.rule
    assert f"megatron.core {spec.megatron_core}" in note.rule and "torch 9.9.0+cu13" in note.rule


@pytest.mark.parametrize(
    ("name", "change", "severity", "words"),
    [
        ("torch", {"state": "missing", "words": "ModuleNotFoundError"}, "error", "torch is missing; needed for"),
        ("deep_ep", {"state": "incomplete", "words": "it has no HybridEPBuffer"}, "error", "it has no HybridEPBuffer"),
        ("mamba_ssm", {"state": "broken", "words": "ImportError: undefined symbol: x"}, "error", "undefined symbol: x"),
        ("core", {"version": "0.18.2"}, "error", "megatron-core 0.19.2, whose arguments"),
        ("causal_conv1d", {"version": "1.4.0"}, "warning", "causal-conv1d 1.5.3 or newer; the image has 1.4.0"),
        ("pytorch", {"version": "2.8.0+abc"}, None, ""),
        ("pytorch", {"version": "2.10"}, None, ""),
        ("pytorch", {"version": None}, None, ""),
    ],
)  # fmt: skip
def test_a_module_that_is_not_right(name: str, change: dict[str, Any], severity: str | None, words: str) -> None:
    spec = spec_of()
    found = [f for f in judge_image(spec, good(spec, **{name: change})) if f.severity != "note"]
    assert [f.severity for f in found] == ([severity] if severity else []), found
    assert all(words in f.rule and f.field == "profile.container.image" for f in found)


@pytest.mark.parametrize(
    ("settings", "version", "severity"),
    [
        ({"megatron_core": "0.18.2"}, "0.18.2", None),
        ({"megatron_core": "0.18.2"}, "0.18.0rc1", "warning"),
        ({"megatron_core": "0.18.2"}, "0.19.2", "error"),
        ({"megatron_core": "0.18.2"}, None, "error"),
        ({"bridge": {"recipe": "r", "overrides": []}}, "0.18.2", "warning"),
    ],
)
def test_the_release_in_the_image(settings: dict[str, Any], version: str | None, severity: str | None) -> None:
    spec = replace(spec_of(), **settings)
    found = [f for f in judge_image(spec, good(spec, core={"version": version})) if f.severity != "note"]
    assert [f.severity for f in found] == ([severity] if severity else []), found


def test_megatron_bridge_is_asked_for_where_it_trains() -> None:
    spec = replace(spec_of(), bridge={"recipe": "r", "overrides": []})
    facts = [fact for fact in good(spec) if fact.get("module") != "megatron.bridge"]
    missing = {"module": "megatron.bridge", "state": "missing", "words": "ModuleNotFoundError"}
    (found,) = [f for f in judge_image(spec, [*facts, missing]) if f.severity == "error"]
    assert "the engine megatron-bridge" in found.rule
    assert "--engine megatron-core" in found.fix


def test_a_module_whose_import_ends_python() -> None:
    spec = spec_of()
    facts = [f for f in good(spec) if "gpu" not in f and "done" not in f]
    cut = next(i for i, f in enumerate(facts) if f.get("importing") == "deep_ep")
    found = [(f.severity, f.rule) for f in judge_image(spec, facts[: cut + 1])]
    assert ("error", "importing deep_ep ended Python; needed for moe_flex_dispatcher_backend hybridep") in found
    assert ("warning", "mamba_ssm was not reached; needed for Mamba layers") in found


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        ({"program": "nvcc", "found": None}, "HybridEP compiles its kernels at run time, and the image has no nvcc"),
        ({"program": "numactl", "found": None}, "the profile binds ranks (numa_bind), and the image has no numactl"),
        ({"gpu": None, "cuda": "12.4"}, "torch sees no GPU (built for CUDA 12.4)"),
        ({"gpu": None, "cuda": None, "words": "RuntimeError: driver"}, "torch sees no GPU: RuntimeError: driver"),
    ],
)
def test_what_else_may_lack(fact: dict[str, Any], words: str) -> None:
    spec = spec_of()
    key = next(iter(fact))
    same = [f for f in good(spec) if key in f and (key == "gpu" or f[key] == fact[key])]
    facts = [fact if f in same else f for f in good(spec)]
    assert [f.rule for f in judge_image(spec, facts) if f.severity == "error"] == [words]


def test_wandb_is_needed_where_it_is_asked_for() -> None:
    spec = spec_of(wandb="{enabled: true, mode: offline}")
    lacking = good(spec, wandb={"state": "missing", "words": "ModuleNotFoundError"})
    (found,) = [f for f in judge_image(spec, lacking) if f.severity != "note"]
    assert (found.severity, found.value) == ("error", "wandb") and "profile.wandb.enabled=false" in found.fix
    assert "wandb" not in question(spec_of())


def test_needs_are_those_of_the_ranks() -> None:
    """The ranks hold their own list against Megatron's arguments: both must name the same modules."""
    for recipe in recipe_names():
        spec = spec_of(recipe)
        names = ("transformer_impl", "moe_token_dispatcher_type", "moe_flex_dispatcher_backend", "hybrid_layer_pattern",
                 "experimental_attention_variant")  # fmt: skip
        args = SimpleNamespace(**{name: spec.get(name) for name in names})
        wanted = {need.module for need in (*requirements.TRAINING, *requirements.for_arguments(args))}
        ours = {need.module.removesuffix(".pytorch") for need in needs_of(spec)}
        assert ours - {"transformers"} == wanted, recipe


def test_versions_are_those_of_the_project() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    asked = [line for extra in ("gpu", "train", "wandb") for line in project["optional-dependencies"][extra]]
    for recipe in recipe_names():
        for need in needs_of(spec_of(recipe)):
            if need.least:
                assert any(
                    line.partition("[")[0].startswith(need.distribution) and f">={need.least}," in line
                    for line in asked
                )


@pytest.mark.parametrize(
    ("text", "numbers"), [("2.8.0+cu13", (2, 8, 0)), ("v1.5", (1, 5)), ("0.19.2rc1", (0, 19, 2)), ("x", ())]
)
def test_release(text: str, numbers: tuple[int, ...]) -> None:
    assert release(text) == numbers


def ask(wanted: dict[str, Any], *path: Path) -> list[dict[str, Any]]:
    code = Path(image_program.__file__).read_text()
    environment = {
        "PYTHONPATH": ":".join(map(str, path)),
        "PATH": "/usr/bin:/bin",
        "CUDA_HOME": str(path[0]) if path else "/none",
    }
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(wanted)], env=environment, capture_output=True, text=True, cwd="/"
    )
    return facts_in("noise\n" + done.stdout + f"{MARK}torn {{")


def test_the_program_tells_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("__version__ = '1.0'\nprint('noise')\n")
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "ends.py").write_text("import os\nos.abort()\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").write_text("")
    (tmp_path / "bin" / "nvcc").chmod(0o755)
    modules = [
        ["old", "old", None],
        ["old", "old", "Attribute"],
        ["no.such", "x", None],
        ["broken", "x", None],
        ["ends", "x", None],
    ]
    facts = ask({"modules": modules, "programs": ["nvcc", "no-such-program"]}, tmp_path)
    states = [(f["module"], f["state"]) for f in facts if "module" in f]
    assert states == [("old", "there"), ("old", "incomplete"), ("no.such", "missing"), ("broken", "broken")]
    assert next(f for f in facts if f.get("module") == "old")["version"] == "1.0"
    assert [f["found"] for f in facts if "program" in f] == [str(tmp_path / "bin" / "nvcc"), None]
    assert facts[-1] == {"importing": "ends"}


def said(facts: Sequence[dict[str, Any]]) -> Reply:
    return Reply("".join(MARK + json.dumps(fact) + "\n" for fact in facts), "srun: job 7 queued\n")


def test_one_step_asks_the_image(tmp_path: Path) -> None:
    spec = spec_of(qos="urgent", env__pass="[HF_TOKEN]")
    site = FakeSite(tmp_path, srun=said(good(spec)))
    (note,) = check_image(spec, site.slurm(HF_TOKEN="hf_verysecret"), wait_seconds=7)
    assert note.severity == "note"
    (call,) = (call for call in site.calls() if "--job-name=seatrial-image" in call)
    for word in (
        "--nodes=1", "--ntasks=1", "--immediate=7", "--account=lab", "--partition=batch", "--qos=urgent",
        "--gpus-per-node=1", f"--container-image={IMAGE}",
        "--container-mounts=/a:/b,/c:/c:ro", "--no-container-mount-home", "--mem=24G",
        "--cpus-per-task=4", "--export=HOME,LANG,LOGNAME,PATH,SHELL,TERM,USER,HF_TOKEN",
    ):  # fmt: skip
        assert f" {word} " in call
    text = "\n".join(site.calls())
    assert question(spec) in text
    assert "hf_verysecret" not in text and "scancel" not in text.replace(Path(image_program.__file__).read_text(), "")


@pytest.mark.parametrize(
    ("reply", "severity", "words"),
    [
        (
            Reply(err="srun: error: Unable to allocate resources: Requested nodes are busy\n", rc=1),
            "warning",
            "nodes are busy",
        ),
        (Reply(err="srun: error: Unable to allocate resources: Connection refused\n", rc=1), "warning", "refused"),
        (Reply(err="srun: error: pyxis: failed to import docker image\n", rc=1), "error", "pyxis: failed to import"),
        (Reply(err="bash: python3: not found\n", rc=127), "error", "srun said: bash: python3: not found"),
    ],
)
def test_a_step_that_does_not_start(reply: Reply, severity: str, words: str, tmp_path: Path) -> None:
    (finding,) = check_image(spec_of(), FakeSite(tmp_path, srun=reply).slurm())
    assert (finding.severity, finding.field, finding.value) == (severity, "profile.container.image", IMAGE)
    assert words in finding.rule


def test_a_step_without_end_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.slurm.image._MINUTES", -2)
    site = FakeSite(tmp_path, srun=Reply(rc="hang"))
    (finding,) = check_image(spec_of(), site.slurm(), wait_seconds=1)
    assert finding.severity == "warning" and "no answer within 1 s" in finding.rule
    name = site.calls()[0].split("--job-name=")[1].split(" ")[0]
    assert site.calls()[-1] == f"scancel --name={name} --user=1000"


def test_the_node_itself_where_there_is_no_image(tmp_path: Path) -> None:
    spec = spec_of(container__image="null", rank_python="/opt/python", gpu_request="none", memory="null")
    site = FakeSite(tmp_path, srun=said(good(spec, torch={"state": "missing", "words": ""})))
    found = check_image(spec, site.slurm())
    assert [(f.severity, f.field, f.value) for f in found] == [
        ("error", "profile.rank_python", "torch"), ("note", "profile.rank_python", "/opt/python"),
    ]  # fmt: skip
    call = site.calls()[0]
    assert " /opt/python -c " in call and "--container" not in call.partition(" -c ")[0] and "--mem" not in call


def test_a_local_profile_has_no_image() -> None:
    local = resolve("nemotron_3_nano_gb200", "local-cpu", "gate")
    (note,) = check_image(local, Slurm({"PATH": "/nonexistent"}))
    assert note.severity == "note"
