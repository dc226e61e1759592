"""`seatrial gate --all-nodes`: gates side by side over a set of nodes, followed together; a result for each node."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from seatrial.cli.resolving import checked, refuse_errors
from seatrial.errors import SeatrialError

if TYPE_CHECKING:
    from pathlib import Path

    from seatrial.judge.nodes import GroupGate
    from seatrial.report.all_nodes import GroupRow
    from seatrial.report.status import Row
    from seatrial.run.layout import RunFolder
    from seatrial.slurm.all_nodes import Group
    from seatrial.slurm.all_nodes_record import Gate, Qualification
    from seatrial.slurm.state_records import JobState
    from seatrial.slurm.submit import Submission
    from seatrial.spec.runspec import RunSpec

# A spare would stand in for the very node that is to be judged.
ONE_GATE = ("profile.spare_nodes=0",)
_ASK_SECONDS = 10.0


def run_all_nodes(
    spec: RunSpec, *, nodes: str | None, at_most: int | None, again: bool, resume: str | None, detach: bool,
    other: Mapping[str, Any], **source: Any,
) -> None:  # fmt: skip
    """Submit a gate for each group of nodes, follow them, and print what they say of each node; end with its exit code.

    ``again``: try suspects once more, with nodes that have passed. ``resume``: follow those of an earlier command.
    ``other``: options that do not go with it. ``source``: what the submission is told of the source tree.
    """
    _refuse(spec, other, nodes, at_most, resume)
    from seatrial.slurm.all_nodes import groups_of, node_set
    from seatrial.slurm.all_nodes_record import FIRST, Qualification, submit_groups
    from seatrial.slurm.client import Slurm
    from seatrial.slurm.submit import submit

    slurm = Slurm()

    def start(groups: Sequence[Group], number: int) -> None:
        def one(words: list[str]) -> Submission:
            return submit(spec, options=words, slurm=slurm, **source)

        submit_groups(made, groups, number, one, at_most)

    if resume is not None:
        made = Qualification.read(spec, resume)
    else:
        refuse_errors(checked(spec))
        found = node_set(spec, nodes, slurm)
        grouping = groups_of(found.nodes, int(spec.profile["nodes"]), found.blocks)
        made = Qualification.new(spec, found, grouping.left)
        _say_left(made)
        if not grouping.groups:
            raise SeatrialError("no node can be judged", key="--nodes", value=nodes, fix="see the reasons above")
        count = len(found.nodes) - len(grouping.left)
        made.write()
        typer.echo(f"{len(grouping.groups)} gates over {count} nodes, on record as {made.id}")
    try:
        if resume is None:
            start(grouping.groups, FIRST)
        if detach:
            typer.echo(_how_to_look(made))
            return
        raise typer.Exit(_see_through(made, start if again else None, int(spec.profile["nodes"])))
    except KeyboardInterrupt:
        typer.echo(f"\nstopped following; the gates go on\n{_how_to_look(made)}", err=True)
        raise typer.Exit(130) from None


def _refuse(
    spec: RunSpec, other: Mapping[str, Any], nodes: str | None, at_most: int | None, resume: str | None
) -> None:
    if spec.profile["executor"] != "slurm":
        raise SeatrialError(
            "--all-nodes is for Slurm, and this profile runs on this machine", key="profile.executor",
            value=spec.profile["executor"], fix="name a Slurm profile",
        )  # fmt: skip
    for option, given in other.items():
        if given:
            raise SeatrialError(f"{option} is for one gate", key=option, fix="leave one of the two out")
    if resume is not None and (nodes is not None or at_most is not None):
        raise SeatrialError(
            "--resume follows gates that are submitted", key="--resume", value=resume,
            fix="leave --nodes and --at-most out",
        )  # fmt: skip


def _say_left(made: Qualification) -> None:
    for node, why in made.left.items():
        typer.echo(f"not judged: {node}: {why}", err=True)


def _how_to_look(made: Qualification) -> str:
    words = f"seatrial gate {made.recipe} --profile {made.profile} --all-nodes --resume {made.id}"
    runs = " ".join(gate.run for gate in made.gates if gate.run is not None)
    return f"results, with the same --set: {words}\nhow they stand: seatrial status {runs}"


def _see_through(made: Qualification, start: Callable[..., None] | None, size: int) -> int:
    """Follow the gates, try suspects again by ``start``, print the results and record them; return the exit code."""
    from seatrial.judge.nodes import exit_code, first_look, judge_nodes
    from seatrial.report.all_nodes import print_results
    from seatrial.report.terminal import console
    from seatrial.slurm.all_nodes import in_service, second_round
    from seatrial.slurm.all_nodes_record import SECOND, note
    from seatrial.slurm.client import Slurm

    gates = _follow(made)
    suspects, passed = first_look(gates)
    left = dict(made.left)
    if start is not None and suspects and size > 1 and not any(gate.round == SECOND for gate in made.gates):
        down = in_service([*suspects, *passed], Slurm())
        trial = second_round(
            [n for n in suspects if n not in down], [n for n in passed if n not in down], size, made.blocks
        )
        left |= {**trial.left, **{node: why for node, why in down.items() if node in suspects}}
        if trial.groups:
            names = ", ".join(group.nodes[0] for group in trial.groups)
            typer.echo(f"second round, with nodes that have passed: {names}")
            start(trial.groups, SECOND)
            gates = _follow(made)
    results = judge_nodes(made.nodes, gates, left)
    print_results(console(), results, made.blocks)
    if made.result is None:
        note(made, {node: (one.result, one.why, one.runs) for node, one in results.items()})
        made.result = {node: one.to_json() for node, one in results.items()}
        made.write()
    typer.echo(f"on record: {made.path}")
    return exit_code(results[node] for node in made.asked)


def _follow(made: Qualification) -> list[GroupGate]:
    """Show the gates until all are over; return what each has come to."""
    from seatrial.judge.nodes import GroupGate, gate_of
    from seatrial.report.all_nodes import follow
    from seatrial.report.terminal import console

    look = _Look(made)
    follow(look, console())
    found = []
    for gate in made.gates:
        if gate.run is None:
            found.append(GroupGate(gate.nodes, None, None, f"it was not submitted: {gate.error}", gate.of))
        else:
            found.append(gate_of(look.folder(gate), gate.nodes, gate.of, look.rows[gate.run].state))
    return found


class _Look:
    """The rows of the gates; Slurm is asked every so often, for all of them at once."""

    def __init__(self, made: Qualification) -> None:
        self._made = made
        self._asked_at = float("-inf")
        self._jobs: dict[Path, JobState] = {}
        self.rows: dict[str, Row] = {}

    def folder(self, gate: Gate) -> RunFolder:
        from seatrial.run.layout import RunFolder

        return RunFolder(self._made.runs / str(gate.run))

    def __call__(self) -> list[GroupRow]:
        from seatrial.report.all_nodes import group_row
        from seatrial.report.facts import read_facts
        from seatrial.report.status import row
        from seatrial.slurm.client import Slurm
        from seatrial.slurm.jobs import RunJob, job_states

        folders = [self.folder(gate) for gate in self._made.gates if gate.run is not None]
        if time.monotonic() - self._asked_at >= _ASK_SECONDS:
            asked = [read_facts(folder) for folder in folders]
            self._jobs = job_states([RunJob(one.path, one.submitted, one.host) for one in asked], Slurm())
            self._asked_at = time.monotonic()
        # Read after the question: what a dying job wrote last is still seen.
        facts = [read_facts(folder) for folder in folders]
        self.rows = {one.run_id: row(one, self._jobs[one.path], time.time()) for one in facts}
        return [group_row(g.nodes, g.run, g.error, self.rows.get(g.run or "")) for g in self._made.gates]
