"""Tasks: what they refuse, what admits a convergence run, and the script around the archive."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.interop.nemo_run.admitted import admitted
from seatrial.interop.nemo_run.parcel import Parcel
from seatrial.interop.nemo_run.portable import portable
from seatrial.interop.nemo_run.task import run_folder, script, task
from seatrial.slurm.admission_identity import identity
from seatrial.spec.resolve import resolve
from tests.environments.build import build
from tests.interop.cases import NANO, spec

REPO = Path(__file__).resolve().parents[2]
PAGE = REPO / "docs" / "how-to" / "nemo-run.md"


def facts(kind: str = "gate", profile: str = "gb200-8gpu", *more: tuple[str, str]) -> dict[str, Any]:
    run = spec(profile, kind, *more)
    return {"run_id": f"a-{kind}", "folder": f"/lustre/runs/a-{kind}", "kind": kind, "same": identity(run)}


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ([("profile.paths.runs", "runs")], "profile.paths.runs"),
        ([("profile.paths.runs", "~/runs")], "profile.paths.runs"),
        ([("profile.host_python", "python3")], "profile.host_python"),
        ([("profile.container.image", "null")], "profile.rank_python"),
        ([("parallel.expert_model_parallel_size", "7")], "parallel.expert_model_parallel_size"),
    ],
)
def test_what_would_not_do_there_is_refused(settings: list[tuple[str, str]], key: str) -> None:
    with pytest.raises(SeatrialError) as error:
        task(spec("gb200-8gpu", "gate", *settings), allow_dirty=True)
    assert error.value.key == key
    assert error.value.fix and error.value.rule


def test_a_rehearsal_on_this_machine_is_no_task() -> None:
    with pytest.raises(SeatrialError) as error:
        task(resolve(NANO, "local-cpu", "gate"), allow_dirty=True)
    assert error.value.key == "profile.executor"


@pytest.mark.parametrize(
    ("image", "given", "python"),
    [("/i.sqsh", "null", "python3"), ("/i.sqsh", "/opt/python", "/opt/python"), ("null", "/opt/python", "/opt/python")],
)
def test_the_ranks_python(image: str, given: str, python: str) -> None:
    run = spec("gb200-8gpu", "gate", ("profile.container.image", image), ("profile.rank_python", given))
    assert portable(run).profile["rank_python"] == python


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        ("gate", {"no_gate": "why"}, "a gate needs nothing"),
        ("convergence", {}, "admitted by one gate"),
        ("convergence", {"no_gate": "why", "gate": "/a"}, "admitted by one gate"),
        ("convergence", {"no_gate": " "}, "needs a reason"),
        ("convergence", {"gate": "/nonexistent"}, "no run"),
        ("convergence", {"after": facts("convergence")}, "does not admit"),
        ("convergence", {"after": facts("gate", "gb200-8gpu", ("model.num_layers", "8"))}, "does not admit"),
        ("convergence", {"after": facts("gate", "gb200-8gpu", ("profile.gpu_type", "gb300"))}, "does not admit"),
    ],
)
def test_what_does_not_admit(kind: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(SeatrialError, match=words):
        admitted(spec("gb200-64gpu", kind), given.get("gate"), given.get("after"), given.get("no_gate"))


def test_what_admits() -> None:
    run = spec("gb200-64gpu", "convergence")
    assert admitted(spec(), None, None, None) is None
    without = admitted(run, None, None, "the vendor's acceptance test")
    assert without is not None and (without.how, without.reason) == ("none", "the vendor's acceptance test")
    after = admitted(run, None, facts(), None)
    assert after is not None
    assert (after.how, after.gate, after.folder) == ("after-gate", "a-gate", "/lustre/runs/a-gate")


@pytest.mark.parametrize(
    "python", ["/usr/bin/python3", "/opt/nemo_run/bin/python", "/nemo_run", "/a b/nemo_run/it's/nemo_run x"]
)
def test_the_script_runs_its_archive(python: str, tmp_path: Path) -> None:
    """NeMo-Run replaces /nemo_run wherever it stands: here by what would show."""
    program = tmp_path / python.lstrip("/")
    program.parent.mkdir(parents=True, exist_ok=True)
    program.symlink_to(sys.executable)
    archive = b"import sys; print(sys.argv[1:])\n" + os.urandom(3000).hex().encode().join([b"#", b"\n"])
    text = script(Parcel("a-gate", "/lustre/runs/a-gate", archive), str(program))
    assert "/nemo_run" not in text
    assert max(map(len, text.splitlines())) < 200
    path = tmp_path / "gate.sh"
    path.write_text("#!/usr/bin/bash\n" + text.replace("/nemo_run", "/REPLACED"))
    done = subprocess.run(
        ["bash", str(path)], env={"TMPDIR": str(tmp_path), "PATH": os.environ["PATH"]}, capture_output=True, text=True
    )
    assert done.stdout == f"{[str(path)]}\n", done.stderr
    assert base64.b64decode("".join(re.findall(r"(?ms)<<'END'\n(.*)END$", text))) == archive


def test_another_task_is_named() -> None:
    with pytest.raises(SeatrialError, match="not a task of ours"):
        run_folder(object())


@pytest.mark.campaign
def test_the_example_of_the_page(tmp_path: Path) -> None:
    """All of it but for the last step: it is rendered, and not sent."""
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert "experiment.run(detach=True)" in example
    code = example.replace("experiment.run(detach=True)", "experiment.dryrun()")
    code = code.replace("nemo_run.task(gate", "nemo_run.task(gate, allow_dirty=True")
    code = code.replace("nemo_run.task(convergence", "nemo_run.task(convergence, allow_dirty=True")
    environment = os.environ | {"NEMORUN_HOME": str(tmp_path)}
    words = [str(build("nemo-run")), "-c", code]
    done = subprocess.run(words, cwd=REPO, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("/lustre/me/runs/nemotron_3_nano_gb200-")]
    assert done.stdout.count("#SBATCH --job-name=seatrial.") == 2
