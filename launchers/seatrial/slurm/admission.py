"""Which gate admits a convergence run: one that passed lately, and was the same thing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.admission_identity import argument_words, identity
from seatrial.spec.runspec import RunSpec

MAX_AGE_DAYS = 14.0
_SHOWN = 3  # gates that are near
_KEYS = 5  # arguments that differ


@dataclass(frozen=True)
class Admission:
    """What let a convergence run be submitted. ``verdict_time``: ISO 8601 in UTC; None: not judged yet, or no gate."""

    how: Literal["gate", "after-gate", "none"]
    gate: str | None = None
    folder: str | None = None
    reason: str | None = None
    verdict_time: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def without_gate(cls, reason: str) -> Admission:
        """Admit for ``reason``, which stands in every record. Raises SeatrialError for an empty one."""
        plain = " ".join(reason.split())
        if not plain:
            raise SeatrialError(
                "--no-gate needs a reason: it stands in every record of the run", key="--no-gate", value=reason,
                fix='--no-gate "what proved this hardware, container and recipe instead"',
            )  # fmt: skip
        return cls("none", reason=plain)


@dataclass(frozen=True)
class Gate:
    """A gate's folder. ``spec``: spec.json. ``verdict``: of verdict.json, None where there is none yet."""

    folder: RunFolder
    spec: Mapping[str, Any]
    verdict: Mapping[str, Any] | None
    judged: datetime | None

    @property
    def run_id(self) -> str:
        return self.folder.path.name

    def admission(self, how: Literal["gate", "after-gate"] = "gate") -> Admission:
        """Return the record of having been admitted by it."""
        judged = self.judged.isoformat() if self.judged else None
        return Admission(how, self.run_id, str(self.folder.path), verdict_time=judged)


@dataclass(frozen=True)
class Wanted:
    """What a gate is held against: the run, its identity, the time, and how old a verdict may be, in days."""

    spec: RunSpec
    same: Mapping[str, Any]
    now: datetime
    max_age_days: float = MAX_AGE_DAYS

    @classmethod
    def of(cls, spec: RunSpec, max_age_days: float = MAX_AGE_DAYS) -> Wanted:
        """Hold gates against ``spec``, now."""
        return cls(spec, identity(spec), datetime.now(timezone.utc), max_age_days)


def read_gate(folder: RunFolder) -> Gate | None:
    """Return the gate in ``folder``; None where it holds none. Never raises for what lies in it."""
    spec = records.read_object(folder.spec)
    if spec is None or spec.get("kind") != "gate":
        return None
    verdict = records.read_object(folder.verdict)
    return Gate(folder, spec, verdict, _judged(folder) if verdict else None)


def gates(folders: Iterable[Path]) -> list[Gate]:
    """Return every gate in the folders of runs, the newest verdict first."""
    paths = {path.parent.resolve() for folder in folders for path in folder.glob("*/spec.json")}
    found = [gate for gate in map(read_gate, map(RunFolder, sorted(paths, reverse=True))) if gate]
    return sorted(found, key=lambda gate: gate.judged.timestamp() if gate.judged else 0.0, reverse=True)


def admitting(wanted: Wanted, found: Iterable[Gate]) -> Gate | None:
    """Return the first of ``found`` that admits the run."""
    return next((gate for gate in found if not differences(wanted, gate)), None)


def admit(wanted: Wanted, found: Sequence[Gate]) -> Gate:
    """Return the first of ``found`` that admits the run. Raises SeatrialError that tells why the nearest do not."""
    gate = admitting(wanted, found)
    if gate:
        return gate
    spec = wanted.spec
    # A gate of another recipe is no near one, however little the rest differs.
    best = [(differences(wanted, gate), gate) for gate in found if gate.spec.get("recipe") == spec.recipe]
    best.sort(key=lambda pair: len(pair[0]))
    lines = [f"{gate.run_id}: {'; '.join(why)}" for why, gate in best[:_SHOWN]]
    more = [f"and {len(best) - _SHOWN} more"] if len(best) > _SHOWN else []
    said = ["no gate admits this run; the nearest:", *lines, *more] if lines else ["no gate of this recipe is there"]
    fix = f'seatrial gate {spec.recipe} --profile {spec.profile["name"]}; or --after-gate; or --no-gate "reason"'
    raise SeatrialError("\n    ".join(said), rule=_rule(wanted), fix=fix)


def require(wanted: Wanted, gate: Gate) -> Gate:
    """Return ``gate`` if it admits the run. Raises SeatrialError that says what differs."""
    why = differences(wanted, gate)
    if why:
        raise SeatrialError(
            "\n    ".join([f"{gate.run_id} does not admit this run:", *why]), file=gate.folder.path, key="--gate",
            rule=_rule(wanted), fix='a new gate; or --after-gate; or --no-gate "reason"',
        )  # fmt: skip
    return gate


def differences(wanted: Wanted, gate: Gate) -> list[str]:
    """Return why ``gate`` does not admit the run, as people say it; nothing: it does."""
    return [words for rule in _RULES for words in rule(wanted, gate)]


def _drill(wanted: Wanted, gate: Gate) -> Iterator[str]:
    drill = gate.spec.get("drill")
    if drill:
        yield f"it is a drill ({drill.get('fault')}@{drill.get('step')}), and no undisturbed gate"


def _verdict(wanted: Wanted, gate: Gate) -> Iterator[str]:
    if gate.verdict is None:
        yield "it has no verdict yet"
    elif gate.verdict.get("verdict") != "PASS":
        yield f"its verdict is {gate.verdict.get('verdict')}"
    rehearsed = gate.spec.get("rehearsal", True) or (gate.verdict is not None and gate.verdict.get("rehearsal", True))
    if rehearsed and not wanted.spec.rehearsal:
        yield "it is a rehearsal, which proves nothing about hardware"


def _age(wanted: Wanted, gate: Gate) -> Iterator[str]:
    if gate.judged is None and gate.verdict is not None:
        yield "nobody can say how old its verdict is"
    elif gate.judged is not None and wanted.now - gate.judged > timedelta(days=wanted.max_age_days):
        days = (wanted.now - gate.judged) / timedelta(days=1)
        yield f"its verdict is {days:.1f} days old (more than {wanted.max_age_days:g})"


def _same(wanted: Wanted, gate: Gate) -> Iterator[str]:
    same = gate.spec.get("same")
    if not isinstance(same, dict):
        yield "it has no record of what it was (an older Seatrial submitted it)"
        return
    for key, name in (("gpu_type", "GPU type"), ("image", "image")):
        if same.get(key) != wanted.same[key]:
            yield f"its {name} was {same.get(key) or 'none'}, this run's is {wanted.same[key] or 'none'}"
    if same.get("train") != wanted.same["train"]:
        yield "the code in train/ has changed since"
    if same.get("arguments") != wanted.same["arguments"]:
        yield f"arguments differ: {_arguments(wanted.spec, gate.spec)}"


_RULES: tuple[Callable[[Wanted, Gate], Iterator[str]], ...] = (_drill, _verdict, _age, _same)


def _arguments(spec: RunSpec, other: Mapping[str, Any]) -> str:
    """Name the arguments that differ, with the gate's value and the run's."""
    try:
        then = argument_words(RunSpec.from_json(other))
    except (SeatrialError, OSError, KeyError, TypeError, AttributeError):
        return "its arguments cannot be read any more"
    now = argument_words(spec)
    keys = [key for key in sorted(then.keys() | now.keys()) if then.get(key) != now.get(key)]
    if not keys:
        return "they are written otherwise than this Seatrial writes them"
    named = [f"{key} ({_shown(then.get(key))} there, {_shown(now.get(key))} here)" for key in keys[:_KEYS]]
    return ", ".join([*named, *([f"and {len(keys) - _KEYS} more"] if len(keys) > _KEYS else [])])


def _shown(words: Sequence[str] | None) -> str:
    return "default" if words is None else " ".join(words[1:]) or words[0]


def _rule(wanted: Wanted) -> str:
    return (
        f"verdict PASS, at most {wanted.max_age_days:g} days old (--gate-max-age-days); equal arguments but for run "
        "controls, equal train/, image and GPU type"
    )


def _judged(folder: RunFolder) -> datetime | None:
    """Return when the verdict was given: its event's time, else its file's."""
    try:
        events = records.read_objects(folder.events)
        times = [event["time"] for event in events if event.get("event") == "verdict"]
        if times:
            return datetime.fromisoformat(times[-1]).astimezone(timezone.utc)
    except (OSError, ValueError, TypeError, KeyError):
        pass
    try:
        return datetime.fromtimestamp(folder.verdict.stat().st_mtime, timezone.utc)
    except OSError:
        return None
