"""Run folders and Megatron logs become one kind of curve, whatever of them is missing or torn."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.errors import SeatrialError
from seatrial.judge.configuration import differences, of_arguments, of_spec, plain
from seatrial.judge.curves import log_interval, read_curve
from seatrial.judge.evidence import LOG, RUN
from seatrial.run import records
from seatrial.run.layout import RunFolder
from tests.judge.gate_builder import LOGS, argument_dump, loss_at, megatron_lines
from tests.judge.run_builder import Builder

FIELDS = {
    "model.seq_length": 64, "model.attention_backend": "unfused", "schedule.seed": 1234, "optimizer.lr": 1e-05,
    "data.split": "90,5,5", "data.data_path": ["/data/a"], "checkpoint.save_optim": True, "data.tokenizer_model": None,
}  # fmt: skip
PRINTED = {
    "seq_length": "64", "attention_backend": "AttnBackend.unfused", "seed": "1234", "lr": "1e-05", "split": "90,5,5",
    "data_path": "['/data/a']", "no_save_optim": "None", "tokenizer_model": "None", "world_size": "8",
    "something_else": "3",
}  # fmt: skip
EVIDENCE = {
    "when": "end", "iteration": 3, "world_size": 8, "rehearsal": False, "versions": {"torch": "2.11.0"},
    "gpu": "NVIDIA GB200",
}  # fmt: skip


def spec(**changes: Any) -> dict[str, Any]:
    return {
        "recipe": "nano", "kind": "gate", "world_size": 8, "rehearsal": False, "environment": {"NCCL_X": "1"},
        "profile": {"name": "p", "gpu_type": "gb200", "paths": {"runs": "/r"}}, "curve": "abc",
        "fields": {key: {"value": value, "owner": "recipe"} for key, value in FIELDS.items()}, **changes,
    }  # fmt: skip


def run_folder(root: Path, name: str = "run-1", **changes: Any) -> RunFolder:
    builder = Builder(root, name)
    records.write_json(builder.folder.spec, spec(**changes))
    return builder.folder


def put_steps(folder: RunFolder, attempt: int, losses: dict[int, float]) -> None:
    for step, loss in losses.items():
        line = {"attempt": attempt, "step": step, "of": 4, "losses": {"lm loss": loss}, "global_batch_size": 16}
        records.append_line(folder.metrics, line)


def test_a_run_with_two_attempts(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    put_steps(folder, 0, {1: 5.0, 2: 4.0, 3: 3.0})
    put_steps(folder, 1, {3: 3.5, 4: math.nan})
    for step, loss in ((2, 9.0), (2, 4.5)):
        event = {"event": "evaluation", "iteration": step, "which": "interval", "losses": {"lm loss": loss}}
        records.append_line(folder.events, event)
    records.append_line(folder.events, {"event": "evidence", **EVIDENCE})
    curve = read_curve(folder.path)
    assert [(record.step, record.losses["lm loss"]) for record in curve.steps[:3]] == [(1, 5.0), (2, 4.0), (3, 3.5)]
    assert math.isnan(curve.steps[3].losses["lm loss"])
    assert (curve.repeated, curve.target) == ((3,), 4)
    assert [dict(record.losses) for record in curve.evaluations] == [{"lm loss": 4.5}]
    assert (curve.name, curve.kind, curve.recipe, curve.arguments) == ("run-1", RUN, "nano", "abc")
    assert (curve.gpus, curve.tokens_per_step, curve.seed, curve.gpu_type) == (8, 16 * 64, 1234, "gb200")
    assert curve.versions == {"torch": "2.11.0"}


def test_torn_and_odd_records_are_passed_over(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, fields=["odd"], profile="odd", same=3, environment=None)
    put_steps(folder, 0, {1: 5.0})
    with folder.metrics.open("a") as stream:
        stream.write('["a list"]\n{"step": "x", "of": 1}\n{"step": 2, "of')
    with folder.events.open("a") as stream:
        stream.write('{"event": "evaluation", "iteration": 1}\n{"event": "evidence", "when": 1}\n{"event": "eval')
    curve = read_curve(folder.path)
    assert [record.step for record in curve.steps] == [1]
    assert (curve.evaluations, curve.versions, curve.gpus, curve.tokens_per_step) == ((), {}, 8, None)


def test_a_spec_that_cannot_be_read_leaves_the_curve(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    put_steps(folder, 0, {1: 5.0})
    folder.spec.write_text('{"torn')
    curve = read_curve(folder.path)
    assert (len(curve.steps), curve.configuration, curve.recipe) == (1, None, None)


def test_a_run_before_its_first_step(tmp_path: Path) -> None:
    curve = read_curve(run_folder(tmp_path).path)
    assert (curve.steps, curve.target, curve.tokens_per_step) == ((), None, None)


def log_text(losses: list[float], first_step: int = 1, printed: dict[str, str] | None = None) -> str:
    lines = [*argument_dump(PRINTED if printed is None else printed), *megatron_lines(losses, first_step)]
    return "\n".join([*lines, f"[seatrial evidence] {json.dumps(EVIDENCE)}", ""])


def test_without_records_a_run_is_read_from_its_logs(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    losses = [loss_at(step) for step in range(1, 9)]
    for number, (first, last) in enumerate(((1, 6), (5, 8))):
        attempt = folder.attempt(number)
        attempt.path.mkdir()
        attempt.rank_log(0).write_text("no iteration line here\n")
        attempt.rank_log(1).write_text(log_text(losses[first - 1 : last], first))
    curve = read_curve(folder.path)
    assert [record.losses["lm loss"] for record in curve.steps] == pytest.approx(losses, abs=1e-5)
    assert curve.repeated == (5, 6)
    assert curve.versions == {"torch": "2.11.0"}


@pytest.mark.parametrize("form", ["plain", "gz", "folder"])
def test_a_log(tmp_path: Path, form: str) -> None:
    losses = [loss_at(step) for step in range(1, 9)]
    path = tmp_path / "x.log"
    if form == "gz":
        path = tmp_path / "x.log.gz"
        path.write_bytes(gzip.compress(log_text(losses).encode()))
    elif form == "folder":
        path = tmp_path / "x"
        path.mkdir()
        (path / "a.log").write_text(log_text(losses[:5]))
        (path / "b.log.gz").write_bytes(gzip.compress(log_text(losses[5:], 6).encode()))
        (path / "notes.txt").write_text("rank 0 says nothing")
        (path / ".hidden").write_bytes(b"\xff")
        (path / "below").mkdir()
    else:
        path.write_text(log_text(losses))
    curve = read_curve(path)
    assert [record.losses["lm loss"] for record in curve.steps] == pytest.approx(losses, abs=1e-5)
    assert (curve.name, curve.kind, curve.recipe, curve.arguments) == (path.name, LOG, None, None)
    assert (curve.gpus, curve.sequence_length, curve.seed, curve.gpu_type) == (8, 64, 1234, "gb200")


def test_real_logs() -> None:
    curve = read_curve(LOGS / "ok100.log")
    assert (len(curve.steps), len(curve.evaluations), curve.gpus) == (100, 4, 2)
    assert read_curve(LOGS / "nano100.log").configuration is None


@pytest.mark.parametrize("what", ["nothing", "empty folder", "no line"])
def test_what_is_no_curve(tmp_path: Path, what: str) -> None:
    path = tmp_path / "x"
    if what == "empty folder":
        path.mkdir()
    elif what == "no line":
        path.write_text("hello\n")
    with pytest.raises(SeatrialError) as error:
        read_curve(path)
    assert str(path) in str(error.value)


def test_a_torn_argument_dump_is_no_configuration(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("\n".join([*argument_dump(PRINTED)[:-1], *megatron_lines([5.0, 4.0])]) + "\n")
    curve = read_curve(path)
    assert curve.configuration is None
    assert curve.sequence_length == 64


def test_a_run_and_its_log_have_the_same_configuration() -> None:
    run, log = of_spec(spec()), of_arguments(PRINTED)
    assert differences([run, log], [RUN, LOG]) == []
    other = of_arguments(PRINTED | {"no_save_optim": "True", "lr": "2e-05", "something_else": "4"})
    assert differences([run, other], [RUN, LOG]) == [
        {"key": "lr", "values": [1e-05, 2e-05]}, {"key": "save_optim", "values": [True, False]},
    ]  # fmt: skip
    assert [row["key"] for row in differences([log, other], [LOG, LOG])] == ["lr", "something_else", "save_optim"]


def test_of_two_runs_what_one_does_not_set_differs_and_run_controls_come_last() -> None:
    one = of_spec(spec())
    other = of_spec(spec(kind="convergence", environment={}, profile={"name": "q", "gpu_type": "h100"}, commit=1))
    assert [row["key"] for row in differences([one, other], [RUN, RUN])] == [
        "environment.NCCL_X", "profile.gpu_type", "profile.name", "profile.paths.runs", "run.kind",
    ]  # fmt: skip
    assert differences([one, None, one], [RUN, LOG, RUN]) == []


def test_what_megatron_bridge_was_told_is_configuration() -> None:
    bridge = {"recipe": "its_config", "overrides": ["train.train_iters=100", 'model.cuda_graph_impl="none"']}
    found = of_spec({**spec(), "bridge": bridge})
    assert (found["run.bridge_recipe"], found["bridge.train.train_iters"]) == ("its_config", 100)
    assert found["bridge.model.cuda_graph_impl"] == "none"


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ("None", None), ("True", True), ("3", 3), ("1.0", 1), ("1e-05", 1e-05), ("inf", "inf"), ("1e999", "1e999"),
        ("torch.bfloat16", "torch.bfloat16"), ("AttnBackend.auto", "auto"), ("['a', '1']", ["a", "1"]),
        ("Tokenizer.model", "Tokenizer.model"), ("{1, 2}", "{1, 2}"), ("a b", "a b"), (math.inf, "inf"), ("", ""),
    ],
)  # fmt: skip
def test_printed_values(printed: object, value: object) -> None:
    assert plain(printed) == value
    assert type(plain(printed)) is type(value)


def test_true_is_not_one() -> None:
    assert differences([{"a": True}, {"a": 1}], [LOG, LOG])


@given(st.dictionaries(st.text(), st.text()))
def test_any_printed_configuration_is_json(printed: dict[str, str]) -> None:
    json.dumps(of_arguments(printed), allow_nan=False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(spec())), JSON))
def test_any_spec_has_a_configuration(odd: dict[str, Any]) -> None:
    found = of_spec(spec(**odd))
    json.dumps(differences([found, of_spec(spec())], [RUN, RUN]), allow_nan=False)


@pytest.mark.parametrize(
    ("steps", "interval"), [([], 1), ([7], 1), ([1, 2, 3, 9], 1), ([1, 10, 20, 30], 10), ([10, 20, 21, 30, 40], 10)]
)
def test_log_interval(steps: list[int], interval: int) -> None:
    assert log_interval(steps) == interval
