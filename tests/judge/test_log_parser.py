"""Megatron log text to records."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.judge.parse import LogParser
from seatrial.judge.records import (
    ArgumentDump,
    EvaluationRecord,
    Evidence,
    ExitNotice,
    Record,
    SaveRecord,
    Start,
    StepRecord,
)
from tests.judge.gate_builder import LOGS, argument_dump, megatron_lines

STEP = (
    " [2026-12-01 02:27:42.570068] iteration        1/     100 | consumed samples:            4 |"
    " elapsed time per iteration (ms): 89.7 | throughput per GPU (TFLOP/s/GPU): 12.5 | learning rate: 2.083333E-06 |"
    " global batch size:     4 | lm loss: 4.851285E+00 | load_balancing_loss: 1.000250E+00 | mtp_1 loss: 4.9E+00 |"
    " loss scale: 1.0 | grad norm: 1.090 | num zeros: 12 | number of skipped iterations:   0 |"
    " number of nan iterations:   0 |"
)


def parse(text: str, **options: bool) -> list[Record]:
    parser = LogParser(**options)
    return parser.feed(text) + parser.close()


def steps(text: str, **options: bool) -> list[StepRecord]:
    return [record for record in parse(text, **options) if isinstance(record, StepRecord)]


def test_reads_every_field_of_an_iteration_line() -> None:
    assert steps(STEP) == [
        StepRecord(
            step=1,
            of=100,
            time="2026-12-01T02:27:42.570068",
            consumed_samples=4,
            step_time_ms=89.7,
            tflops_per_gpu=12.5,
            learning_rate=2.083333e-06,
            global_batch_size=4,
            losses={"lm loss": 4.851285, "load_balancing_loss": 1.00025, "mtp_1 loss": 4.9},
            loss_scale=1.0,
            grad_norm=1.09,
            skipped=0,
            nan=0,
        )
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"Number of parameters in transformer block in billions:  0.00{STEP}",
        f"{STEP}WARNING:megatron.core: | something: 1.0 | else",
        f"7: {STEP}\r\n",
        f"progress 10%\r progress 20%\r{STEP}\n",
        f"\x1b[32m{STEP}\x1b[0m",
    ],
)
def test_finds_an_iteration_record_glued_to_other_output(text: str) -> None:
    assert steps(text) == steps(STEP)


def test_finds_two_records_in_one_line() -> None:
    second = STEP.replace("  1/", "  2/")
    assert [record.step for record in steps(STEP + second)] == [1, 2]


@pytest.mark.parametrize("printed", ["nan", "NAN", "-nan", "inf", "INF", "-inf"])
def test_reads_non_finite_numbers(printed: str) -> None:
    record = steps(STEP.replace("1.090", printed).replace("4.851285E+00", printed))[0]
    assert record.grad_norm is not None and not math.isfinite(record.grad_norm)
    assert not math.isfinite(record.losses["lm loss"])


def test_never_invents_a_loss() -> None:
    record = steps(STEP.replace(" lm loss: 4.851285E+00 |", ""))[0]
    assert "lm loss" not in record.losses
    assert steps(STEP[: STEP.index("4.85") + 4])[0].losses == {}  # torn in the number


def test_a_line_without_time_or_throughput_is_read() -> None:
    record = steps(" iteration 7/ 10 | elapsed time per iteration (ms): 5.0 | lm loss: 1.0E+00 |")[0]
    assert (record.step, record.time, record.tflops_per_gpu, record.skipped) == (7, None, None, None)


def test_a_skipped_and_a_nan_iteration_are_counted() -> None:
    text = STEP.replace("skipped iterations:   0", "skipped iterations:   1").replace(
        "nan iterations:   0", "nan iterations:   2"
    )
    assert (steps(text)[0].skipped, steps(text)[0].nan) == (1, 2)


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (
            " validation loss at iteration 50 | lm loss value: 4.5E+00 | lm loss PPL: 9.6E+01 | ",
            EvaluationRecord(50, "interval", {"lm loss": 4.5}),
        ),
        (
            "x validation loss at iteration 100 on validation set | lm loss value: 3.6E+00 |"
            " mtp_1 loss value: 4.0E+00 |W: |",
            EvaluationRecord(100, "validation", {"lm loss": 3.6, "mtp_1 loss": 4.0}),
        ),
        (
            " validation-code loss at iteration 100 on test set | lm loss value: 3.6E+00 | lm loss PPL: 3.7E+01 | ",
            EvaluationRecord(100, "test", {"lm loss (code)": 3.6}),
        ),
        (
            "[2026-12-01 02:27:43.659484] saving checkpoint at iteration      50 to /a b/ck in torch_dist format",
            SaveRecord(50, "/a b/ck", "started"),
        ),
        (
            "  [x] successfully saved checkpoint from iteration      50 to /a b/ck [ t 1/1, gtp_remat 1/1, p 1/1 ]",
            SaveRecord(50, "/a b/ck", "finished"),
        ),
        (
            "[exiting program after receiving SIGTERM.] datetime: 2026-12-01 02:29:12 ",
            ExitNotice("signal", "exiting program after receiving SIGTERM"),
        ),
        (
            "[exiting program at iteration 60] datetime: 2026-12-01 02:29:12.155993 ",
            ExitNotice("interval", "exiting program at iteration 60"),
        ),
        (
            "[exiting program after 3.25 minutes] datetime: 2026-12-01 ",
            ExitNotice("duration", "exiting program after 3.25 minutes"),
        ),
        ("[after training is done] datetime: 2026-12-01 ", ExitNotice("done", "after training is done")),
        ("[before the start of training step] datetime: 2026-12-01 ", Start(None)),
        (
            'x [seatrial evidence] {"schema":1,"when":"end","iteration":100,"world_size":2,"device":"cpu",'
            '"deep_ep":{"stand_in":true},"dispatch_calls":4,"cuda_graphs_captured":0} trailing',
            Evidence("end", 100, 2, "cpu", deep_ep={"stand_in": True}, dispatch_calls=4, cuda_graphs_captured=0),
        ),
    ],
)  # fmt: skip
def test_reads_each_kind_of_line(line: str, record: Record) -> None:
    assert parse(line + "\n") == [record]
    assert type(record).from_json(record.to_json()) == record


@pytest.mark.parametrize(
    "line",
    [
        "[Rank 0] (after 1 iterations) memory (MB) | allocated: 0.00 | max allocated: 0.00 |",
        "Evaluating iter 1/2",
        "Overwriting rerun_state_machine.current_iteration from -1 to 0...",
        '[seatrial evidence] {"when": "end", "iter',
        '[seatrial evidence] {"no": "evidence"}',
        "[seatrial evidence]",
        "iteration 1 of 5 | done",
    ],
)
def test_passes_over_what_says_nothing(line: str) -> None:
    assert parse(line + "\n") == []


def test_reads_the_argument_dump() -> None:
    long = "inference_dynamic_batching_cuda_graph_sizing_distribution"
    text = "\n".join(argument_dump({"world_size": 2, "num_experts": None, "override_ckpt_iteration": 3, long: "x y"}))
    assert parse(f"glued{text}\n") == [
        ArgumentDump(
            {"world_size": "2", "num_experts": "None", "override_ckpt_iteration": "3", long: "x y"},
            complete=True,
        )
    ]


@pytest.mark.parametrize("lost", [0, -1])
def test_a_torn_argument_dump_says_so(lost: int) -> None:
    lines = argument_dump({"world_size": 2})
    del lines[lost]
    dumps = [record for record in parse("\n".join(lines)) if isinstance(record, ArgumentDump)]
    assert [dump.complete for dump in dumps] == [False]


def test_a_start_knows_which_checkpoint_was_loaded() -> None:
    text = (
        "  successfully loaded checkpoint from ck1 [ t 1/1, gtp_remat 1/1, p 1/1 ] at iteration 50\n"
        "[before the start of training step] datetime: x\n"
    )
    assert parse(text) == [Start(50)]


# The second line after a start prints the mean of two steps.

LOSSES = [4.851285, 4.854105, 4.860721, 4.867235]


def test_recovers_the_second_step_after_a_start() -> None:
    records = steps("\n".join(megatron_lines(LOSSES)))
    assert [record.losses["lm loss"] for record in records] == pytest.approx(LOSSES, abs=2.5e-6)
    assert [record.recovered for record in records] == [False, True, False, False]
    assert [record.step_time_ms for record in records] == [200.0, 20.0, 20.0, 20.0]


@pytest.mark.parametrize(
    "between",
    [
        ["[before the start of training step] datetime: x"],
        argument_dump({"world_size": 2}),
        [*argument_dump({"world_size": 2}), "[before the start of training step] datetime: x"],
    ],
)
def test_recovers_after_a_resume_in_the_same_log(between: list[str]) -> None:
    lines = [*megatron_lines(LOSSES), *between, *megatron_lines(LOSSES, first_step=5)]
    records = steps("\n".join(lines))
    assert [record.step for record in records if record.recovered] == [2, 6]
    assert records[5].losses["lm loss"] == pytest.approx(LOSSES[1], abs=2.5e-6)


def test_going_back_is_a_start_too() -> None:
    records = steps("\n".join([*megatron_lines(LOSSES), *megatron_lines(LOSSES, first_step=3)]))
    assert [(record.step, record.recovered) for record in records][-3:] == [(4, True), (5, False), (6, False)]


def test_a_start_line_that_comes_late_is_no_second_start() -> None:
    first, *rest = megatron_lines(LOSSES)
    lines = [*argument_dump({"a": 1}), first, "[before the start of training step] datetime: x", *rest]
    assert [record.step for record in steps("\n".join(lines)) if record.recovered] == [2]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("\n".join(megatron_lines(LOSSES)), {"at_start": False}),
        ("\n".join(megatron_lines(LOSSES)[::2]), {}),
        ("\n".join(megatron_lines([math.nan, 4.0, 4.0])), {}),
        ("\n".join(megatron_lines(LOSSES)).replace("skipped iterations:   0", "skipped iterations:   1"), {}),
    ],
    ids=["tail of a log", "log interval above 1", "first loss NaN", "skipped step"],
)
def test_recovers_nothing_where_the_line_is_no_such_mean(text: str, options: dict[str, bool]) -> None:
    assert [record.step for record in steps(text, **options) if record.recovered] == []


def test_a_skip_at_the_first_step_is_counted_once() -> None:
    lines = megatron_lines(LOSSES)
    for index in (0, 1):
        lines[index] = lines[index].replace("skipped iterations:   0", "skipped iterations:   1")
    assert [record.skipped for record in steps("\n".join(lines))] == [1, 0, 0, 0]


@given(st.lists(st.floats(1e-3, 2e4), min_size=2, max_size=2))
def test_recovery_is_exact_to_the_printed_digits(losses: list[float]) -> None:
    recovered = steps("\n".join(megatron_lines(losses)))[1].losses["lm loss"]
    largest = max(losses)
    unit = 10.0 ** (math.floor(math.log10(largest)) - 6)
    assert abs(recovered - losses[1]) <= 2 * unit + 2**-23 * 2 * largest


# Real logs, and text of any kind.


@pytest.mark.parametrize(
    ("name", "last", "without_loss", "evaluations", "saved", "reasons"),
    [
        ("ok100", 100, [], 4, [50, 100], ["done"]),
        ("nan", 60, list(range(2, 61)), 8, [], ["done"]),
        ("nancheck", 1, [], 0, [], []),
        ("exit60", 60, [], 6, [], ["interval"]),
    ],
)
def test_reads_real_logs(
    name: str, last: int, without_loss: list[int], evaluations: int, saved: list[int], reasons: list[str]
) -> None:
    records = parse((LOGS / f"{name}.log").read_text(encoding="utf-8"))
    found = [record for record in records if isinstance(record, StepRecord)]
    assert [record.step for record in found] == list(range(1, last + 1))
    assert [record.step for record in found if "lm loss" not in record.losses] == without_loss
    assert all(record.skipped == 0 and record.nan == 0 and record.grad_norm is not None for record in found)
    assert sum(isinstance(record, EvaluationRecord) for record in records) == evaluations
    assert [r.iteration for r in records if isinstance(r, SaveRecord) and r.phase == "finished"] == saved
    assert [record.reason for record in records if isinstance(record, ExitNotice)] == reasons
    dump = next(record for record in records if isinstance(record, ArgumentDump))
    assert dump.complete and dump.values["world_size"] == "2" and len(dump.values) > 800


def test_real_second_line_is_recovered() -> None:
    found = steps((LOGS / "ok100.log").read_text(encoding="utf-8"))
    # Printed: 4.851285E+00, then the mean 4.852695E+00; 89.7 ms, then the mean 59.9 ms.
    assert (found[1].losses["lm loss"], found[1].step_time_ms, found[1].recovered) == (4.854105, 30.1, True)


PIECES = st.sampled_from(
    [
        STEP, STEP.replace("  1/", "  2/"), "\n", "\r\n", " | ", "iteration ", "9/ 10 |", "lm loss: nan |",
        "[exiting program",
        "------------------------ arguments ------------------------\n", "  world_size ..... 2\n", "  a  b\n",
        "-------------------- end of arguments ---------------------\n", "[before the start of training step]",
        " validation loss at iteration 100 on test set | lm loss value: NAN |", '[seatrial evidence] {"when":"end",',
        '"iteration":1}', "saving checkpoint at iteration 5 to x in y format", "\x00", "é", "1e999 |", ": |", "-" * 9,
    ]
)  # fmt: skip
TEXT = st.lists(PIECES | st.text(max_size=6), max_size=30).map("".join)


@given(TEXT, st.lists(st.integers(0, 2000), max_size=8))
def test_pieces_of_any_size_give_the_same_records(text: str, cuts: list[int]) -> None:
    parser, pieced, at = LogParser(), [], 0
    for cut in [*sorted(cuts), len(text)]:
        pieced += parser.feed(text[at:cut])
        at = max(at, min(cut, len(text)))
    pieced += parser.close()
    assert [repr(record) for record in pieced] == [repr(record) for record in parse(text)]


@given(TEXT)
def test_records_survive_json(text: str) -> None:
    for record in parse(text):
        assert repr(type(record).from_json(record.to_json())) == repr(record)
