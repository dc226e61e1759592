"""The state of jobs, from every mixture of answers. A table of cases, asked through fake commands."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from seatrial.slurm.commands import Done
from seatrial.slurm.state import JobState, states
from seatrial.slurm.table import iso
from tests.slurm_room.fakes import FakeCommands, Reply, Told, lines, queue_row
from tests.slurm_room.state_cases import CASES, EMPTY, LATER, REF, RUN, SILENT, SUBMITTED, Case, accounting, row


def ask(fake: FakeCommands, case: Case) -> JobState:
    fake.script("squeue", case.queue)
    fake.script("sacct", case.accounting)
    fake.script("scontrol", case.scontrol)
    return states([case.ref], fake.slurm(), own=lambda _: case.own, now=lambda: SUBMITTED + 60.0)[RUN]


@pytest.mark.parametrize("name", CASES)
def test_state(fake: FakeCommands, name: str) -> None:
    case = CASES[name]
    state = ask(fake, case)
    assert (state.state, state.final, state.source) == (case.state, case.final, case.source)
    assert {key: getattr(state, key) for key in case.more} == case.more
    assert state.job_id == case.ref.job_id
    assert state.state != "UNKNOWN" or state.reason
    assert json.loads(json.dumps(state.to_json()))["state"] == state.state
    asked = case.ref.job_id is not None
    assert [len(fake.calls(name)) for name in ("squeue", "sacct")] == [asked, asked]


def test_history_keeps_every_attempt(fake: FakeCommands) -> None:
    state = ask(fake, CASES["requeued twice, done; records in any order"])
    assert [(a.state, a.restarts) for a in state.history] == [("REQUEUED", 0), ("REQUEUED", 1), ("COMPLETED", 2)]
    assert [a.started for a in state.history] == [iso(SUBMITTED + n) for n in (100, 2100, 4100)]


def test_all_reasons_are_given_where_nobody_knows(fake: FakeCommands) -> None:
    state = ask(fake, CASES["nobody answers"])
    for words in ("squeue: slurm_load_jobs error: Unable", "scontrol: ", "sacct: error: slurm_persist", SILENT.words):
        assert words in state.reason, state.reason


def test_hanging_commands_are_given_up(fake: FakeCommands) -> None:
    for name in ("squeue", "sacct", "scontrol"):
        fake.script(name, Reply(rc="hang"))
    state = states([REF], fake.slurm(status_seconds=0.4), own=lambda _: SILENT)[RUN]
    assert state.state == "UNKNOWN" and "squeue gave no answer within" in state.reason


def test_without_any_slurm_command() -> None:
    state = states([REF], Told(), own=lambda _: SILENT)[RUN]
    assert state.state == "UNKNOWN" and "there is no command 'squeue' here" in state.reason


def test_an_old_slurm_lacks_columns(fake: FakeCommands) -> None:
    old = accounting(row("REQUEUED", old=True), row("COMPLETED", old=True, **LATER))
    fake.script("squeue", EMPTY)
    fake.script("sacct", Reply(err='sacct: error: Invalid field requested: "Restarts"\n', rc=1), old)
    slurm = fake.slurm()
    for _ in range(2):
        state = states([REF], slurm, own=lambda _: SILENT)[RUN]
        assert (state.state, state.restarts, len(state.history)) == ("COMPLETED", 1, 2)
    assert ["Restarts" in call[-1] for call in fake.calls("sacct")] == [True, False, False]


def test_questions_are_free_of_the_users_filters_and_formats(fake: FakeCommands) -> None:
    fake.script("squeue", EMPTY)
    fake.script("sacct", EMPTY)
    environment = {
        "SQUEUE_STATES": "PENDING",
        "SLURM_TIME_FORMAT": "relative",
        "SACCT_FEDERATION": "1",
        "SLURM_CONF": "/c",
    }
    states([REF], fake.slurm(environment), own=lambda _: SILENT)
    for name in ("squeue", "sacct"):
        seen = {key: value for key, value in fake.environment(name).items() if key.startswith(("SLURM", "SQ", "SACCT"))}
        assert seen == {"SLURM_TIME_FORMAT": "%s", "SLURM_CONF": "/c"}


def test_one_call_each_for_many_runs_and_one_more_pair_for_another_cluster() -> None:
    refs = [replace(REF, run_id=f"run-{n}", job_id=str(n), cluster="red" if n % 2 else None) for n in range(1, 1001)]
    squeue = Done(0, lines(*(queue_row(n, f"run-{n}", "RUNNING") for n in range(1, 1001))), "")
    slurm = Told(replies={"squeue": squeue, "sacct": Done(0, "", "")})
    found = states(refs, slurm)
    assert [call[0] for call in slurm.asked] == ["squeue", "sacct"] * 2
    assert sum("--clusters=red" in call for call in slurm.asked) == 2
    assert {state.state for state in found.values()} == {"RUNNING"} and list(found) == [ref.run_id for ref in refs]


def test_numbers_that_fill_an_argument_are_split() -> None:
    refs = [replace(REF, run_id=f"run-{n}", job_id=str(n)) for n in range(10**8, 10**8 + 20_000)]
    slurm = Told(replies={"squeue": Done(0, "", ""), "sacct": Done(0, "", "")})
    states(refs, slurm, own=lambda _: SILENT)
    assert len(slurm.asked) == 4 and max(len(word) for call in slurm.asked for word in call) < 128 * 1024


def test_no_jobs_no_calls() -> None:
    slurm = Told()
    assert states([], slurm) == {} and slurm.asked == []
