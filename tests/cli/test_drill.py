"""`seatrial gate --drill` with real training: it passes where the run recovers, and fails where that is broken."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from tests.cli.test_cli import NANO, seatrial

# A short gate that learns at once, so that a drill takes seconds.
SHORT = {
    "schedule.train_iters": 16, "checkpoint.save_interval": 16, "schedule.lr_warmup_iters": 1, "optimizer.lr": 0.01,
    "evaluation.eval_iters": 1,
}  # fmt: skip
# Stands where a rank's Python would, and spoils what a resumed rank does. The plan says whether it is one.
BROKEN = """#!{python}
import json, runpy, sys
from pathlib import Path
path = Path(sys.argv[-1])
plan = json.loads(path.read_text()) if path.suffix == ".json" else {{}}
words = plan.get("arguments", [])
sys.path.insert(0, {sources!r})
if "--load" in words and {how!r} == "from scratch":
    for word in ("--load", "--ckpt-step"):
        del words[words.index(word) : words.index(word) + 2]
    words.remove("--exit-on-missing-checkpoint")
    path.write_text(json.dumps(plan))
if "--load" in words and {how!r} == "weights":
    from seatrial.train import forward
    real = forward.ForwardStep.__call__
    def spoiled(self, batches, model):
        if not getattr(self, "spoiled", False):
            self.spoiled = True
            for parameter in model.parameters():
                parameter.data.mul_(1.02)  # less would be rounded away in BF16
        return real(self, batches, model)
    forward.ForwardStep.__call__ = spoiled
if "--load" in words and {how!r} == "data":
    from seatrial.train import forward
    real = forward.ForwardStep.batch
    def late(self, batches):
        if not getattr(self, "late", False):
            self.late = True
            real(self, batches)
        return real(self, batches)
    forward.ForwardStep.batch = late
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name=__name__)
"""


def words(settings: dict[str, Any]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def short(runs: Path) -> dict[str, Any]:
    """The settings; the text has a place of its own, as each test's home is another."""
    return SHORT | {"profile.paths.runs": runs, "profile.paths.data": runs.parent / "data"}


def drill(runs: Path, text: str, *more: str, **settings: Any) -> tuple[int, dict[str, Any], RunFolder, str]:
    """Run a drill in the foreground; return the exit code, its verdict, its folder and what was printed."""
    given = short(runs) | {key.replace("__", "."): value for key, value in settings.items()}
    done = seatrial("gate", NANO, "--drill", text, *more, *words(given))
    said = done.stdout + done.stderr
    named = [line.partition(": ")[2] for line in done.stdout.splitlines() if line.startswith("run folder: ")]
    assert named, said
    folder = RunFolder(Path(named[-1]))
    return done.returncode, dict(records.read_json(folder.verdict)), folder, said


def rules(verdict: dict[str, Any]) -> dict[str, str]:
    return {rule["rule"]: rule["verdict"] for rule in verdict["rules"]}


def passed(code: int, verdict: dict[str, Any], said: str) -> None:
    assert code == 0, said
    not_asked = ("reference curve", "speed", "resume check")
    assert {name: told for name, told in rules(verdict).items() if told != "PASS"} == dict.fromkeys(
        not_asked, "NOT JUDGED"
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs with an undisturbed gate and the first drill, which had it run."""
    folder = tmp_path_factory.mktemp("drills") / "runs"
    code, verdict, drilled, said = drill(folder, "kill-rank@6")
    passed(code, verdict, said)
    assert "PASS of the drill kill-rank@6, which admits no run (rehearsal" in said
    assert f"compared with: {undisturbed(folder)}" in said
    assert len(list(folder.glob("*-gate-*"))) == 2
    assert drilled.path != undisturbed(folder)
    return folder


def undisturbed(runs: Path) -> Path:
    """The folder of the one gate that is no drill."""
    (found,) = (path.parent for path in runs.glob("*/spec.json") if not records.read_json(path)["drill"])
    return found


@pytest.mark.train
def test_a_rank_is_killed_and_the_run_trains_on_as_if_nothing_had_been(runs: Path) -> None:
    drilled = min(path for path in runs.glob("*-gate-*") if path != undisturbed(runs))
    again = seatrial("verdict", str(drilled), "--json")
    assert again.returncode == 0, "the records alone must be enough"
    assert json.loads(again.stdout)["drill"] == "kill-rank@6"
    spec = records.read_json(drilled / "spec.json")
    assert spec["drill"] == {"fault": "kill-rank", "step": 6, "reference": str(undisturbed(runs))}


def broken(root: Path, runs: Path, how: str) -> tuple[int, dict[str, Any], RunFolder]:
    program = root / "python"
    sources = Path(__file__).resolve().parents[2] / "launchers"
    program.write_text(BROKEN.format(python=sys.executable, sources=str(sources), how=how))
    program.chmod(0o755)
    code, verdict, folder, said = drill(runs, "kill-rank@6", profile__rank_python=program)
    assert f"compared with: {undisturbed(runs)}" in said
    assert (code, verdict["verdict"]) == (1, "FAIL"), said
    return code, verdict, folder


@pytest.mark.train
@pytest.mark.campaign
@pytest.mark.parametrize("how", ["weights", "data"])
def test_a_resumed_run_that_trains_otherwise_fails_its_drill(runs: Path, tmp_path: Path, how: str) -> None:
    _, verdict, folder = broken(tmp_path, runs, how)
    told = rules(verdict)
    assert told["drill: recovered"] == "PASS", "by its steps and checkpoints nothing is wrong"
    assert told["drill: losses equal the undisturbed run's"] == "FAIL"
    assert records.read_json(folder.attempt(1).record)["class"] == "complete"


@pytest.mark.campaign
def test_a_run_that_begins_again_instead_of_resuming_fails_its_drill(runs: Path, tmp_path: Path) -> None:
    _, verdict, folder = broken(tmp_path, runs, "from scratch")
    assert rules(verdict)["drill: recovered"] == "FAIL"
    assert records.read_json(folder.attempt(1).record)["class"] == "resume_mismatch"


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("text", "settings", "name", "resumed"),
    [
        ("hang@9", {"profile__hang__step_minimum_seconds": 10}, "hang", 8),
        ("kill-node@6", {}, "node_failure", 4),
        ("truncate-checkpoint@6", {}, "unknown", 2),
        ("stop-signal@4", {}, "cancelled", None),
    ],
)
def test_every_other_fault(runs: Path, text: str, settings: dict[str, Any], name: str, resumed: int | None) -> None:
    code, verdict, folder, said = drill(runs, text, **settings)
    passed(code, verdict, said)
    first, second = (records.read_json(folder.attempt(number).record) for number in (0, 1))
    assert first["class"] == name
    assert second["resume_step"] == (first["last_step"] if resumed is None else resumed)


@pytest.mark.train
def test_another_reference_is_refused_before_anything_starts(runs: Path) -> None:
    before = sorted(runs.iterdir())
    drilled = min(path for path in runs.glob("*-gate-*") if path != undisturbed(runs))
    given = words(short(runs))
    for named, said in ((drilled.name, "it is a drill (kill-rank@6)"), ("nobody", "no run 'nobody'")):
        done = seatrial("gate", NANO, "--drill", "kill-rank@6", "--reference", named, *given)
        assert done.returncode == 2 and said in done.stderr, done.stdout + done.stderr
    other = words(short(runs) | {"schedule.train_iters": 20})
    done = seatrial("gate", NANO, "--drill", "kill-rank@6", "--reference", undisturbed(runs).name, *other)
    assert done.returncode == 2 and "train_iters was 16, here it is 20" in done.stderr, done.stderr
    assert sorted(runs.iterdir()) == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--drill", "kill-rnak@30"], "did you mean 'kill-rank'?"),
        (["--drill", "kill-rank@100"], "a step from 3 to 99"),
        (["--drill", "kill-rank@30", "--detach"], "leave --detach out, or run the gate first"),
        (["--reference", "x"], "--drill FAULT@STEP"),
        (["--drill", "kill-node@30", "--profile", "slurm-sandbox"], "--set profile.spare_nodes=1"),
    ],
)
def test_a_mistake_is_one_message_and_leaves_nothing(tmp_path: Path, given: list[str], said: str) -> None:
    done = seatrial("gate", NANO, *given, *words({"profile.paths.runs": tmp_path / "runs"}))
    assert done.returncode == 2 and said in done.stderr, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
