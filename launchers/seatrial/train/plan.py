"""The attempt's plan, as the supervisor wrote it, and a rank's place in it. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.errors import SeatrialError

DEVICES = ("cpu", "cuda")
SLURM_NAMES = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"}


@dataclass(frozen=True)
class Fault:
    """What a drill has these ranks do at the beginning of ``step``; ``name``: see train.drill."""

    name: str
    step: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Tracker:
    """What the rank that logs to Weights & Biases needs: the NAME of the key's variable, None offline; variables."""

    key: str | None
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Bridge:
    """What Megatron-Bridge's loop is told: the exported name of its recipe, and KEY=VALUE overrides."""

    recipe: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What one attempt runs. Paths are absolute; ``schedule_iters`` counts the steps that datasets are sized for.

    ``drill``: the fault that is put into this attempt, None for none. ``tracker``: None where W&B is not asked for.
    ``bridge``: None where Megatron-Core's own loop runs, with ``arguments``.
    """

    run_id: str
    attempt: int
    arguments: tuple[str, ...]
    megatron_core: str
    world_size: int
    device: str
    rehearsal: bool
    attempt_folder: Path
    stop_file: Path
    exit_signal: str
    schedule_iters: int
    environment: Mapping[str, str]
    drill: Fault | None = None
    tracker: Tracker | None = None
    bridge: Bridge | None = None


@dataclass(frozen=True)
class Place:
    """Where this rank stands."""

    rank: int
    local_rank: int
    world_size: int


def read_plan(path: Path) -> Plan:
    """Read ``plan.json``.

    Raises:
        SeatrialError: the file is unreadable, no plan, or of another schema.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SeatrialError(f"cannot read the plan: {error}", file=path) from error
    return plan_from_json(document, file=path)


def plan_from_json(document: Any, *, file: object = None) -> Plan:
    """Build a :class:`Plan` from the parsed document; raises :class:`SeatrialError` where it does not fit."""
    if not isinstance(document, dict) or document.get("schema") != 1:
        raise SeatrialError("not a plan of schema 1", file=file, key="schema")
    try:
        plan = Plan(
            run_id=str(document["run_id"]),
            attempt=int(document["attempt"]),
            arguments=tuple(str(argument) for argument in document["arguments"]),
            megatron_core=str(document["megatron_core"]),
            world_size=int(document["world_size"]),
            device=str(document["device"]),
            rehearsal=bool(document["rehearsal"]),
            attempt_folder=Path(document["attempt_folder"]),
            stop_file=Path(document["stop_file"]),
            exit_signal=str(document["exit_signal"]),
            schedule_iters=int(document["schedule_iters"]),
            environment=_variables(document["environment"]),
            drill=_fault(document.get("drill")),
            tracker=_tracker(document.get("wandb")),
            bridge=_bridge(document.get("bridge")),
        )
    except KeyError as error:
        raise SeatrialError("the plan lacks a key", file=file, key=str(error.args[0])) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise SeatrialError(f"the plan has a value of a wrong type: {error}", file=file) from error
    if plan.device not in DEVICES:
        raise SeatrialError(
            "unknown device", file=file, key="device", value=plan.device, rule=f"one of {', '.join(DEVICES)}"
        )
    return plan


def _fault(data: Any) -> Fault | None:
    if data is None:
        return None
    return Fault(str(data["fault"]), int(data["step"]), tuple(int(rank) for rank in data["ranks"]))


def _tracker(data: Any) -> Tracker | None:
    if data is None:
        return None
    return Tracker(None if data["key"] is None else str(data["key"]), _variables(data["environment"]))


def _bridge(data: Any) -> Bridge | None:
    if data is None:
        return None
    return Bridge(str(data["recipe"]), tuple(str(word) for word in data["overrides"]))


def _variables(data: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in data.items()}


def set_place(environment: MutableMapping[str, str]) -> None:
    """Set RANK, WORLD_SIZE and LOCAL_RANK from Slurm's names where the launcher set no RANK.

    Megatron silently takes rank 0 of 1 where they are absent.
    """
    if "RANK" in environment:
        return
    for name, slurm in SLURM_NAMES.items():
        if slurm in environment:
            environment[name] = environment[slurm]


def find_place(environment: Mapping[str, str], plan: Plan) -> Place:
    """Return this rank's place, held against the plan.

    Raises:
        SeatrialError: a variable is missing or no number, or the world is not the plan's.
    """
    numbers = {}
    for name, slurm in SLURM_NAMES.items():
        value = environment.get(name, "")
        if not value.isdecimal():
            raise SeatrialError(
                f"the rank environment has {'no' if not value else 'a wrong'} {name}",
                key=name,
                value=value or None,
                rule=f"{name}, or Slurm's {slurm}, is a whole number",
                fix="start ranks with the supervisor, one task per GPU",
            )
        numbers[name] = int(value)
    place = Place(numbers["RANK"], numbers["LOCAL_RANK"], numbers["WORLD_SIZE"])
    if place.world_size != plan.world_size:
        raise SeatrialError(
            f"the world has {place.world_size} ranks, the plan {plan.world_size}",
            key="WORLD_SIZE",
            value=place.world_size,
            rule="one task per GPU of the plan",
            fix="check nodes and tasks per node of the job step",
        )
    if place.rank >= place.world_size:
        raise SeatrialError(f"rank {place.rank} is outside a world of {place.world_size}", key="RANK", value=place.rank)
    return place
