"""Whatever Slurm's commands print and however they end, no job is called failed without a record that says so."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from seatrial.slurm.commands import Done
from seatrial.slurm.state import JobRef, states
from seatrial.slurm.state_parse import parse_accounting, parse_control, parse_queue
from seatrial.slurm.state_records import ENDS, Own
from tests.slurm_room.fakes import Told, account_row, lines, queue_row

RUNS = {"7": "run-seven", "8": "run-eight"}
REFS = [JobRef(name, number, "ada", None, Path("/nonexistent")) for number, name in RUNS.items()]
STATES = [
    "PENDING", "RUNNING", "COMPLETING", "COMPLETED", "FAILED", "CANCELLED by 0", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
    "REQUEUED", "RESIZING", "OUT_OF_MEMORY", "REQUEUE_HOLD", "SPECIAL_EXIT", "LATER_WORD", "", "failed", "?",
]  # fmt: skip
BAD = ENDS - {"COMPLETED"}

row = st.tuples(
    st.sampled_from(sorted(RUNS)), st.sampled_from([*RUNS.values(), "other", "run-seven FAILED", "a\x1fFAILED"]),
    st.sampled_from(STATES), st.sampled_from(["ada", "bob"]), st.integers(1_799_000_000, 1_801_000_000),
)  # fmt: skip
damage = st.sampled_from(["", "", "", "garbage\n", "7\x1fFAILED\n", "\x00\n", "FAILED", "run-seven FAILED\n"])
error = st.sampled_from([
    "", "", "slurm_load_jobs error: Socket timed out on send/recv operation\n",
    "Slurm accounting storage is disabled\n",
    "slurm_load_jobs error: Invalid job id specified\n", 'Invalid field requested: "Restarts"\n', "FAILED\n",
])  # fmt: skip
code = st.sampled_from([0, 0, 0, 1, 127, -9, None])
answer = st.tuples(st.lists(row, max_size=5), damage, error, code, st.integers(0, 400))


def told(name: str, given_answer: tuple[list[tuple[str, str, str, str, int]], str, str, int | None, int]) -> Done:
    rows, spoiled, err, ended, cut = given_answer
    if name == "squeue":
        table = lines(*(queue_row(int(j), n, s, user=u, submitted=t) for j, n, s, u, t in rows))
    else:
        table = lines(*(account_row(int(j), n, s, user=u, submitted=t) for j, n, s, u, t in rows))
    text = spoiled + table
    return Done(ended, text[: len(text) - cut] if cut < len(text) else text, err, name)


@given(answer, answer, st.text(max_size=60), code)
def test_no_failure_without_a_record(queue: tuple, accounting: tuple, control: str, control_code: int | None) -> None:  # type: ignore[type-arg]
    slurm = Told(replies={
        "squeue": told("squeue", queue), "sacct": told("sacct", accounting),
        "scontrol": Done(control_code, control, "", "scontrol"),
    })  # fmt: skip
    found = states(REFS, slurm, own=lambda _: Own("nothing"))
    said = [(j, n, s.split(" ")[0]) for rows, *_ in (queue, accounting) for j, n, s, u, _ in rows if u == "ada"]
    for ref in REFS:
        state = found[ref.run_id]
        if state.final or state.state in BAD:
            assert (ref.job_id, ref.run_id, state.state) in said
        if state.state == "UNKNOWN":
            assert state.reason and not state.final
    assert [call[0] for call in slurm.asked].count("squeue") == 1


@given(st.text(max_size=200))
def test_parsers_take_any_text(text: str) -> None:
    for parse in (
        parse_queue,
        parse_control,
        lambda t: parse_accounting(t, ()),
        lambda t: parse_accounting(t, {"Reason"}),
    ):
        assert all(job.isdigit() and entries for job, entries in parse(text).items())
