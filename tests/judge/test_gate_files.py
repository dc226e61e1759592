"""Verdicts from files: plain Megatron logs and whole run folders."""

from __future__ import annotations

import gzip
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.errors import SeatrialError
from seatrial.judge.gate import judge_logs, judge_run
from seatrial.judge.parse import LogParser
from seatrial.judge.records import StepRecord
from seatrial.judge.verdict import RuleResult, Verdict, schema
from tests.judge.gate_builder import (
    LOGS,
    argument_dump,
    change_step,
    evaluation_lines,
    evidence_line,
    loss_at,
    megatron_lines,
    spec,
    write_attempt,
    write_metrics,
)


def rule(verdict: Verdict, name: str) -> RuleResult:
    return next(result for result in verdict.rules if result.rule == name)


@pytest.mark.parametrize(
    ("log", "verdict", "rules"),
    [
        ("ok100", "PASS", {"step set": ("PASS", []), "checkpoints": ("PASS", []), "learning": ("PASS", [])}),
        ("nan", "FAIL", {"losses": ("FAIL", list(range(2, 22))), "step set": ("FAIL", list(range(61, 81)))}),
        ("nancheck", "FAIL", {"step set": ("FAIL", list(range(2, 22))), "checkpoints": ("FAIL", [50, 100])}),
        ("exit60", "FAIL", {"step set": ("FAIL", list(range(61, 81))), "losses": ("INCONCLUSIVE", [])}),
    ],
)
def test_real_logs(log: str, verdict: str, rules: dict[str, Any]) -> None:
    judged = judge_logs([LOGS / f"{log}.log"])
    assert (judged.verdict, judged.scope, judged.rehearsal) == (verdict, "log", False)
    for name, (outcome, steps) in rules.items():
        found = rule(judged, name)
        assert (found.verdict, found.to_json()["steps"]) == (outcome, steps), name
        assert found.evidence == str(LOGS / f"{log}.log")


def hold(verdict: dict[str, Any]) -> None:
    """Hold a verdict against the schema that is published."""
    jsonschema.validate(json.loads(json.dumps(verdict, allow_nan=False)), schema())


def test_the_published_schema_is_one_and_refuses_what_is_no_verdict() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    good = judge_logs([LOGS / "ok100.log"]).to_json()
    for change in ({"verdict": "NOT JUDGED"}, {"more": 1}, {"rules": [{"rule": "x"}]}, {"schema": 2}):
        with pytest.raises(jsonschema.ValidationError):
            hold({**good, **change})


def test_the_shape_of_verdict_json() -> None:
    data = json.loads(json.dumps(judge_logs([LOGS / "nan.log"]).to_json(), allow_nan=False))
    assert set(data) == {"schema", "verdict", "rehearsal", "scope", "subject", "kind", "rules", "speed"}
    hold(data)


def test_the_steps_of_a_gate_can_be_another_number() -> None:
    judged = judge_logs([LOGS / "exit60.log"], steps=60, save_steps=(30, 60))
    assert rule(judged, "step set").verdict == "PASS"
    assert judged.verdict == "INCONCLUSIVE"  # no saves, no evaluation at the end


def test_rank_logs_are_judged_together_in_any_order(tmp_path: Path) -> None:
    lines = (LOGS / "ok100.log").read_text(encoding="utf-8").splitlines(keepends=True)
    of_last = [line for line in lines if "consumed samples" in line or "validation loss" in line]
    of_first = [line for line in lines if line not in of_last]
    for name, kept in (("last", of_last), ("first", of_first)):
        (tmp_path / name).write_text("".join(kept), encoding="utf-8")
    for order in (["first", "last"], ["last", "first"], ["last", "first", "last"]):
        judged = judge_logs([tmp_path / name for name in order])
        assert judged.verdict == "PASS"
        assert "2 (arguments)" in rule(judged, "world size").seen


def test_a_packed_log_is_read(tmp_path: Path) -> None:
    packed = tmp_path / "ok100.log.gz"
    packed.write_bytes(gzip.compress((LOGS / "ok100.log").read_bytes()))
    assert judge_logs([packed]).verdict == "PASS"
    packed.write_bytes(packed.read_bytes()[:2000])
    with pytest.raises(SeatrialError, match="cannot read"):
        judge_logs([packed])


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot read the log"), ("", "no Megatron iteration"), ("hello\n\0", "no Megatron iteration")],
)
def test_what_is_no_log_is_a_clear_error(tmp_path: Path, text: Any, message: str) -> None:
    file = tmp_path / "a log.txt"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(SeatrialError, match=message) as error:
        judge_logs([file])
    assert str(file) in str(error.value)


def test_a_folder_or_nothing_is_a_clear_error(tmp_path: Path) -> None:
    for paths in ([tmp_path], []):
        with pytest.raises(SeatrialError):
            judge_logs(paths)


NEEDED_LINES = [
    "consumed samples",
    "on validation set",
    "on test set",
    "successfully saved checkpoint from iteration      50",
    "successfully saved checkpoint from iteration     100",
    "end of arguments",
    "iteration       73/",
]


@pytest.mark.parametrize("mark", NEEDED_LINES)
def test_a_log_without_one_needed_line_does_not_pass(tmp_path: Path, mark: str) -> None:
    lines = (LOGS / "ok100.log").read_text(encoding="utf-8").splitlines(keepends=True)
    drop = next(index for index in reversed(range(len(lines))) if mark in lines[index])
    del lines[drop]
    (tmp_path / "log").write_text("".join(lines), encoding="utf-8")
    assert judge_logs([tmp_path / "log"]).verdict != "PASS"


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(["nan", "nancheck", "exit60"]), st.sets(st.integers(0, 1600), min_size=1, max_size=400))
def test_dropping_lines_never_makes_a_bad_log_pass(
    tmp_path_factory: pytest.TempPathFactory, log: str, dropped: set[int]
) -> None:
    lines = (LOGS / f"{log}.log").read_text(encoding="utf-8").splitlines(keepends=True)
    file = tmp_path_factory.mktemp("dropped") / "log"
    file.write_text("".join(line for index, line in enumerate(lines) if index not in dropped), encoding="utf-8")
    try:
        assert judge_logs([file]).verdict != "PASS"
    except SeatrialError as error:
        assert "no Megatron iteration line" in str(error)


# A run folder, written as the supervisor and the ranks write it.

LOSSES = [loss_at(step) for step in range(1, 101)]


def rank_lines(first: int, last: int) -> list[list[str]]:
    """What each of two ranks prints from step ``first`` to ``last``."""
    ends = [evidence_line("first step", first), evidence_line("end", last)]
    evidence = [
        f"[seatrial evidence] {json.dumps({**line.to_json(), 'device': 'cpu', 'rehearsal': True})}" for line in ends
    ]
    return [
        [
            *argument_dump({"world_size": 2, "num_experts": None}),
            "[before the start of training step] x",
            *evidence,
        ],
        [
            *megatron_lines(LOSSES[first - 1 : last], first_step=first),
            *(evaluation_lines() if last == 100 else []),
        ],
    ]


class Plain:
    """Pickles as a class with attributes, as the checkpoint's metadata does."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def write_checkpoint(folder: Path, step: int) -> None:
    """Write a whole checkpoint: one shard of 100 bytes, the metadata that lists it, the common state."""
    path = folder / "checkpoints" / f"iter_{step:07d}"
    path.mkdir(parents=True)
    (path / "__0_0.distcp").write_bytes(bytes(100))
    place = Plain(relative_path="__0_0.distcp", offset=0, length=100)
    (path / ".metadata").write_bytes(pickle.dumps(Plain(storage_data={Plain(fqn="weight"): place})))
    with zipfile.ZipFile(path / "common.pt", "w") as archive:
        archive.writestr("common/data.pkl", b"state")
    (path / "metadata.json").write_text('{"sharded_backend": "torch_dist"}', encoding="utf-8")


def build_run(folder: Path, parts: list[tuple[int, int]], **gate: Any) -> Path:
    """Write the folder of a run whose attempts trained the given spans of steps."""
    folder.mkdir()
    (folder / "spec.json").write_text(json.dumps(spec(**gate)), encoding="utf-8")
    records = []
    for number, (first, last) in enumerate(parts):
        ranks = rank_lines(first, last)
        write_attempt(folder, number, ranks)
        parser = LogParser(number)
        records += [r for r in parser.feed("\n".join(ranks[1]) + "\n") if isinstance(r, StepRecord)]
    write_metrics(folder, records)
    for step in (50, 100):
        write_checkpoint(folder, step)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return build_run(tmp_path / "a run", [(1, 100)])


def test_a_good_run_passes(run: Path) -> None:
    verdict = judge_run(run)
    assert (verdict.verdict, verdict.scope, verdict.rehearsal, verdict.kind) == ("PASS", "run", True, "gate")
    nothing_asked = {"reference curve", "speed", "resume check", "HybridEP dispatch"}  # a dense model
    assert {r.rule for r in verdict.rules if r.verdict != "PASS"} == nothing_asked
    assert "2 (evidence line (end)); 2 (arguments)" in rule(verdict, "world size").seen


def test_a_run_that_was_resumed_without_replay_passes(tmp_path: Path) -> None:
    assert judge_run(build_run(tmp_path / "run", [(1, 50), (51, 100)])).verdict == "PASS"


def test_replayed_steps_fail_a_gate(tmp_path: Path) -> None:
    found = rule(judge_run(build_run(tmp_path / "run", [(1, 60), (51, 100)])), "step set")
    assert (found.verdict, found.steps) == ("FAIL", tuple(range(51, 61)))
    assert "0 with another loss" in found.seen


def edit_metrics(change: Callable[[list[StepRecord]], Any]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        write_metrics(folder, change([StepRecord.from_json(json.loads(line)) for line in lines]))

    return edit


def edit_log(rank: int, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        log = folder / f"attempts/000/rank-{rank:05d}.log"
        text = log.read_text(encoding="utf-8")
        assert old in text
        log.write_text(text.replace(old, new), encoding="utf-8")

    return edit


def remove(name: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / name).unlink()

    return edit


def cut_shard(folder: Path) -> None:
    (folder / "checkpoints/iter_0000050/__0_0.distcp").write_bytes(bytes(99))


def exit_code(folder: Path) -> None:
    (folder / "attempts/000/exit-00001.json").write_text('{"rank": 1, "code": 17}', encoding="utf-8")


def torn_exit(folder: Path) -> None:
    (folder / "attempts/000/exit-00001.json").write_text('{"rank": 1, "co', encoding="utf-8")


@pytest.mark.parametrize(
    ("edit", "name", "outcome", "steps"),
    [
        (edit_metrics(lambda r: [x for x in r if x.step != 73]), "step set", "FAIL", [73]),
        (edit_metrics(lambda r: change_step(r, 100, losses={"lm loss": float("nan")})), "losses", "FAIL", [100]),
        (edit_metrics(lambda r: change_step(r, 9, losses={})), "logs agree with records", "FAIL", [9]),
        (edit_metrics(lambda r: change_step(r, 9, losses={})), "losses", "FAIL", [9]),
        (remove("metrics.jsonl"), "logs agree with records", "INCONCLUSIVE", []),
        (remove("attempts/000/rank-00001.log"), "logs agree with records", "FAIL", None),
        (remove("attempts/000/rank-00001.log"), "validation and test loss", "INCONCLUSIVE", []),
        (remove("attempts/000/rank-00000.log"), "world size", "INCONCLUSIVE", []),
        (remove("attempts/000/rank-00000.log"), "CUDA graphs", "INCONCLUSIVE", []),
        (remove("attempts/000/exit-00000.json"), "exit records", "INCONCLUSIVE", []),
        (exit_code, "exit records", "FAIL", []),
        (torn_exit, "exit records", "INCONCLUSIVE", []),
        (cut_shard, "checkpoints", "FAIL", [50]),
        (remove("checkpoints/iter_0000100/common.pt"), "checkpoints", "FAIL", [100]),
        (edit_log(0, '"cuda_graphs_captured": 0', '"cuda_graphs_captured": 3'), "CUDA graphs", "FAIL", []),
        (edit_log(0, '"device": "cpu"', '"device": "cuda"'), "device", "FAIL", []),
        (edit_log(0, '"world_size": 2', '"world_size": 1'), "world size", "FAIL", []),
        (edit_log(1, "on test set", "on the moon"), "validation and test loss", "INCONCLUSIVE", []),
        (edit_log(1, "3.300000E+00", "NAN"), "validation and test loss", "FAIL", [100]),
        (edit_log(1, "grad norm: 1.050", "grad norm: nan"), "logs agree with records", "FAIL", [50]),
    ],
)  # fmt: skip
def test_a_run_with_one_thing_wrong(
    run: Path, edit: Callable[[Path], None], name: str, outcome: str, steps: Any
) -> None:
    edit(run)
    verdict = judge_run(run)
    found = rule(verdict, name)
    assert (found.verdict, verdict.verdict != "PASS") == (outcome, True)
    assert steps is None or list(found.steps) == steps


def test_a_torn_last_line_of_the_records_is_passed_over(run: Path) -> None:
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"schema": 1, "step": 10')
    assert judge_run(run).verdict == "PASS"


def test_the_learning_ratio_is_the_specs_or_the_least(tmp_path: Path) -> None:
    for ratio, verdict in ((None, "PASS"), (0.5, "FAIL")):
        folder = build_run(tmp_path / str(ratio), [(1, 100)], learning_ratio=ratio)
        assert rule(judge_run(folder), "learning").verdict == verdict


def test_hybridep_asked_for_by_the_spec_needs_evidence(run: Path) -> None:
    data = spec()
    asked = {"num_experts": 8, "moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep"}
    data["fields"] = {f"moe.{key}": {"value": value} for key, value in asked.items()}
    (run / "spec.json").write_text(json.dumps(data), encoding="utf-8")
    assert rule(judge_run(run), "HybridEP dispatch").verdict == "PASS"
    edit_log(0, '"dispatch_calls": 2400', '"dispatch_calls": 0')(run)
    assert rule(judge_run(run), "HybridEP dispatch").verdict == "FAIL"


@pytest.mark.parametrize("text", [None, "{", "[]", "{}", '{"gate": {"steps": "x"}, "fields": {}}'])
def test_a_folder_without_a_readable_spec_is_a_clear_error(tmp_path: Path, text: Any) -> None:
    if text is not None:
        (tmp_path / "spec.json").write_text(text, encoding="utf-8")
    with pytest.raises(SeatrialError) as error:
        judge_run(tmp_path)
    assert "spec.json" in str(error.value)


def test_a_run_that_never_began_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(json.dumps(spec()), encoding="utf-8")
    assert judge_run(tmp_path).verdict == "FAIL"  # no checkpoint lies on disk
    assert rule(judge_run(tmp_path), "step set").verdict == "INCONCLUSIVE"


def test_a_run_whose_nodes_were_not_fit_is_inconclusive_and_names_them(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "attempts").mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps(spec()))
    failed = {"n3": ["gpus: 3 are visible", "imex: no channel"]}
    for event in ({"event": "preflight", "failed": failed}, {"event": "node_failed", "node": "n3"}):
        with (folder / "events.jsonl").open("a") as stream:
            stream.write(json.dumps(event) + "\n")
    judged = judge_run(folder)
    assert judged.verdict == "INCONCLUSIVE"
    assert rule(judged, "undisturbed").seen == "node_failure of n3: gpus: 3 are visible; imex: no channel"
