"""Runs of a group: all are submitted, or none; and what they must have in common. Slurm's commands are scripted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.groups import find_group
from seatrial.slurm.admission import Admission
from seatrial.slurm.group import Member, Submitted, submit_group
from seatrial.slurm.group_same import differences, foreign_tokens, same_values
from seatrial.slurm.local_job import look
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec
from tests.cli.test_converge import pretend
from tests.slurm_room.fakes import FakeCommands, Reply
from tests.slurm_room.test_after_gate import GONE, REFUSED, UNABLE, commands

NANO, QWEN = "nemotron_3_nano_gb200", "qwen35_9b_gb200"
BATCH = ("schedule.global_batch_size", "16")
FREE = Admission.without_gate("a test")
DENIED = Reply(err="slurm_update error: Access/permission denied\n", rc=1)
TWO = [Reply("7\n"), Reply("8\n")]
FOUR = [Reply(f"{number}\n") for number in (5, 6, 7, 8)]


def spec(recipe: str, runs: Path, *settings: tuple[str, str], kind: str = "convergence") -> RunSpec:
    return resolve(recipe, "slurm-sandbox", kind, [("profile.paths.runs", json.dumps(str(runs))), BATCH, *settings])


def both(fake: FakeCommands, runs: Path, *, gates: bool = False, **other: Any) -> Submitted:
    members = []
    for recipe in (NANO, QWEN):
        gate = spec(recipe, runs, kind="gate") if gates else None
        members.append(Member(spec(recipe, runs), None if gates else FREE, gate))
    return submit_group(members, "pair", allow_dirty=True, slurm=fake.slurm(), **other)


def left(runs: Path) -> list[Path]:
    return sorted(path for path in runs.rglob("*") if path.name != ".seatrial") if runs.exists() else []


def test_all_are_held_until_all_are_there_and_on_record(fake: FakeCommands, tmp_path: Path) -> None:
    commands(fake, sbatch=TWO)
    made = both(fake, tmp_path / "runs", other_data="tokenised per tokenizer")
    assert ["--hold" in call for call in fake.calls("sbatch")] == [True, True]
    assert fake.calls("scontrol") == [["release", "7"], ["release", "8"]]
    assert fake.calls("scancel") == []
    assert find_group("pair", [tmp_path / "runs"]) == made.group
    assert [(run.recipe, run.folder, run.run) for run in made.group.runs] == [
        (recipe, one.folder.path, one.folder.path.name) for recipe, one in zip((NANO, QWEN), made.runs, strict=True)
    ]
    assert (made.group.same["seed"], made.group.same["global_batch_size"]) == (1234, 16)
    assert made.group.other_data == "tokenised per tokenizer"
    for run in made.runs:
        document = records.read_json(run.folder.spec)
        assert (document["group"], document["admission"]["reason"]) == (made.group.id, "a test")


def test_each_run_waits_for_its_own_gate(fake: FakeCommands, tmp_path: Path) -> None:
    commands(fake, sbatch=FOUR)
    made = both(fake, tmp_path / "runs", gates=True)
    assert ["--hold" in call for call in fake.calls("sbatch")] == [True, False, True, False]
    assert fake.calls("scontrol") == [["release", "5"], ["release", "7"]]
    scripts = [(run.folder.path / "batch.sh").read_text() for run in made.runs]
    assert ["afterok:5" in scripts[0], "afterok:7" in scripts[1]] == [True, True]
    for gate, run in zip(made.gates, made.runs, strict=True):
        assert "group" not in records.read_json(gate.folder.spec)
        admission = records.read_json(run.folder.spec)["admission"]
        assert (admission["how"], admission["gate"]) == ("after-gate", gate.folder.path.name)


@pytest.mark.parametrize(
    ("gates", "replies", "cancelled", "said"),
    [
        (False, {"sbatch": [REFUSED]}, [], [NANO, "Invalid partition name", "nothing of the group was submitted"]),
        (False, {"sbatch": [TWO[0], REFUSED]}, ["7"], [QWEN, "nothing of the group was submitted"]),
        (True, {"sbatch": [*FOUR[:2], REFUSED]}, ["6", "5"], [QWEN, "nothing of the group was submitted"]),
        (True, {"sbatch": [*FOUR[:3], REFUSED]}, ["7", "6", "5"], [QWEN, "nothing of the group was submitted"]),
    ],
    ids=["the first", "the second", "the second's gate", "the second's run"],
)
def test_where_one_is_refused_nothing_is_left(
    fake: FakeCommands, tmp_path: Path, gates: bool, replies: dict[str, Any], cancelled: list[str], said: list[str]
) -> None:
    commands(fake, **replies)
    with pytest.raises(SeatrialError) as caught:
        both(fake, tmp_path / "runs", gates=gates)
    assert [call[-1] for call in fake.calls("scancel")] == cancelled
    assert left(tmp_path / "runs") == []
    assert all(words in str(caught.value) for words in said), caught.value
    assert fake.calls("scontrol") == [], "something was let go"


def test_a_job_that_cannot_be_cancelled_is_named_and_keeps_its_folder(fake: FakeCommands, tmp_path: Path) -> None:
    commands(fake, sbatch=[TWO[0], REFUSED], scancel=[UNABLE])
    with pytest.raises(SeatrialError) as caught:
        both(fake, tmp_path / "runs")
    (kept,) = (tmp_path / "runs").iterdir()
    assert "scancel 7" in str(caught.value) and str(kept) in str(caught.value)
    assert "Invalid partition name" in str(caught.value)


@pytest.mark.parametrize(("reply", "said"), [(GONE, "is gone before it could start"), (DENIED, "permission denied")])
def test_a_job_that_was_let_go_keeps_its_folder_where_the_next_cannot_be(
    fake: FakeCommands, tmp_path: Path, reply: Reply, said: str
) -> None:
    commands(fake, sbatch=TWO, scontrol=[Reply(), reply])
    with pytest.raises(SeatrialError) as caught:
        both(fake, tmp_path / "runs")
    assert [call[-1] for call in fake.calls("scancel")] == ["8", "7"]
    assert "job 7 had been let go: it is cancelled" in str(caught.value) and said in str(caught.value).lower()
    kept = [path for path in (tmp_path / "runs").iterdir() if path.name != ".seatrial"]
    assert kept and all(str(path) in str(caught.value) for path in kept)
    assert find_group("pair", [tmp_path / "runs"]) is None, "a group of runs that were taken back is on record"


def test_a_job_that_nobody_knows_of_is_told_and_its_folder_kept(fake: FakeCommands, tmp_path: Path) -> None:
    lost = Reply(err="sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n", rc=1)
    commands(fake, sbatch=[TWO[0], lost], squeue=[Reply(rc=1, err="slurm_load_jobs error: timed out\n")])
    with pytest.raises(SeatrialError) as caught:
        both(fake, tmp_path / "runs")
    (kept,) = (tmp_path / "runs").iterdir()
    assert kept.name.startswith(QWEN)
    assert kept.name in str(caught.value) and "nothing lets it start" in str(caught.value)
    assert [call[-1] for call in fake.calls("scancel")] == ["7"]


def test_a_record_that_cannot_be_written_takes_all_back(fake: FakeCommands, tmp_path: Path) -> None:
    commands(fake, sbatch=TWO)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / ".seatrial").write_text("no folder")
    with pytest.raises(SeatrialError, match="the group's record"):
        both(fake, tmp_path / "runs")
    assert left(tmp_path / "runs") == []
    assert fake.calls("scontrol") == []


def test_a_run_that_has_started_on_this_machine_is_taken_back(tmp_path: Path) -> None:
    words = pretend(tmp_path)
    pairs = [(key, value) for key, _, value in (word.partition("=") for word in words[1::2])]
    (tmp_path / "file").write_text("no folder")
    first, second = (
        resolve(recipe, "local-cpu", "convergence", [*pairs, BATCH, *more])
        for recipe, more in ((NANO, []), (QWEN, [("profile.paths.runs", str(tmp_path / "file" / "runs"))]))
    )
    with pytest.raises(SeatrialError, match="cannot make the run folder") as caught:
        submit_group([Member(first, FREE), Member(second, FREE)], "pair")
    assert "nothing of the group was submitted" in str(caught.value)
    assert left(tmp_path / "runs") == []
    assert not [line for line in look().commands.values() if any(str(tmp_path) in word for word in line)]


# -- what the runs must have in common


def pair(*apart: tuple[str, str]) -> tuple[RunSpec, RunSpec]:
    data = ("data.data_path", '["/data/text"]')
    one = spec(NANO, Path("/runs"), data)
    return one, spec(QWEN, Path("/runs"), data, *apart)


@pytest.mark.parametrize(
    ("key", "value", "shown", "data"),
    [
        ("schedule.seed", "7", ["1234", "7"], False),
        ("schedule.train_iters", "100", ["48000", "100"], False),
        ("schedule.global_batch_size", "32", ["16", "32"], False),
        ("model.seq_length", "32", ["64", "32"], False),
        ("data.data_path", '["/data/other"]', ["/data/text", "/data/other"], True),
        ("data.split", "80,10,10", ["90,5,5", "80,10,10"], True),
        ("data.train_data_path", '["/data/train"]', ["null", "/data/train"], True),
    ],
)
def test_what_differs_is_named_with_both_values_and_places(key: str, value: str, shown: list[str], data: bool) -> None:
    specs = pair((key, value))
    (error,) = differences(specs, other_data=False)
    said = str(error)
    assert key in said and NANO in said and QWEN in said and "command line" in said
    assert all(text in said for text in shown), said
    assert ("--other-data" in said) is data
    assert len(list(differences(specs, other_data=True))) == (0 if data else 1)
    assert key.partition(".")[2] not in same_values(specs)


@pytest.mark.parametrize("key", ["optimizer.lr", "schedule.lr_warmup_iters", "schedule.micro_batch_size"])
def test_what_belongs_to_the_model_may_differ(key: str) -> None:
    assert list(differences(pair((key, "1")), other_data=False)) == []


def test_a_default_that_is_written_out_is_the_same_as_one_that_is_not() -> None:
    one, other = pair()
    bare = {key: field for key, field in one.fields.items() if key not in ("schedule.seed", "data.split")}
    (error,) = differences([replace(one, fields=bare), other], other_data=False)
    assert "does not set it" in str(error) and '"90,5,5"' in str(error)  # Megatron's default split is another one


def test_runs_of_a_group_run_in_one_place() -> None:
    (error,) = differences(pair(("profile.executor", "local")), other_data=False)
    assert "run in one place" in str(error) and "profile.executor" in str(error)


def test_one_tokenizer_wrote_the_token_files() -> None:
    assert foreign_tokens(pair()) is None  # a rehearsal's bytes
    other = (("data.tokenizer_type", "HuggingFaceTokenizer"), ("data.tokenizer_model", "someone/else"))
    assert "someone/else" in str(foreign_tokens(pair(*other)))
    assert foreign_tokens(pair(*other, ("data.data_path", '["/data/other"]'))) is None
