"""Reads what a gate left behind, a run folder or plain logs, into evidence. The judge's only reader of files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, TypeVar

from seatrial.errors import SeatrialError
from seatrial.judge.evidence import (
    LOG,
    RUN,
    CheckpointFound,
    Expectations,
    GateEvidence,
    RankExit,
    SecondPass,
    required_losses,
)
from seatrial.judge.expectations import count, expectations_of
from seatrial.judge.merge import merge_logs
from seatrial.judge.parse import LogParser
from seatrial.judge.records import (
    LM_LOSS,
    ArgumentDump,
    EvaluationRecord,
    Evidence,
    ExitNotice,
    Record,
    SaveRecord,
    StepRecord,
)
from seatrial.run.checkpoint import DELETED, check, checkpoint_folder
from seatrial.run.layout import RunFolder
from seatrial.run.records import read_lines, read_object, read_objects

_CHUNK = 1 << 20
_R = TypeVar("_R", StepRecord, EvaluationRecord, SaveRecord, Evidence, ArgumentDump, ExitNotice)
# Failure classes (supervise.classes) that say nothing of recipe, container and hardware under test.
_FROM_OUTSIDE = ("node_failure", "preempted", "time_limit", "cancelled")


def read_log(path: Path, attempt: int = 0) -> list[Record]:
    """Return the records of one log (``.gz`` is unpacked). Raises SeatrialError for a file that cannot be read."""
    parser = LogParser(attempt)
    records: list[Record] = []
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8", errors="replace", newline="") as file:
            while True:
                text = file.read(_CHUNK)
                if not text:
                    return records + parser.close()
                records.extend(parser.feed(text))
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SeatrialError(f"cannot read the log: {reason}", file=path, fix="give a Megatron log file") from error


def collect_logs(paths: Sequence[Path], steps: int, save_steps: tuple[int, ...]) -> tuple[GateEvidence, Expectations]:
    """Read the logs of one gate. Raises SeatrialError where no file holds an iteration line."""
    logs = [read_log(path) for path in paths]
    found = merge_logs([_of(log, StepRecord) for log in logs])
    names = ", ".join(str(path) for path in paths)
    if not found:
        raise SeatrialError(
            f"no Megatron iteration line in {names or 'no file at all'}",
            rule="the loop prints 'iteration N/ M | consumed samples: … | lm loss: … |' on the last rank",
            fix="give the last rank's log, or the combined one",
        )
    records = [record for log in logs for record in log]
    dump = _dump(records)
    lines = tuple(_of(records, Evidence))
    evidence = GateEvidence(
        scope=LOG,
        subject=names,
        rehearsal=any(line.rehearsal for line in lines),
        steps=found,
        evaluations=tuple(_of(records, EvaluationRecord)),
        saves=tuple(_of(records, SaveRecord)),
        evidence_lines=lines,
        arguments=dump,
        notices=tuple(_of(records, ExitNotice)),
        places=dict.fromkeys(("steps", "log"), names),
    )
    wanted = required_losses(dump.values) if dump else (LM_LOSS,)
    said = dump.values if dump else {}
    return evidence, Expectations(
        steps=steps, save_steps=save_steps, required_losses=wanted, world_size=None,
        sequence_length=count(said.get("seq_length")), global_batch_size=count(said.get("global_batch_size")),
    )  # fmt: skip


def collect_run(folder: Path) -> tuple[GateEvidence, Expectations]:
    """Read a run folder. Raises SeatrialError where spec.json cannot be read or is none; all else may be missing."""
    spec = _spec(folder)
    expected = expectations_of(spec, folder)
    run = RunFolder(folder)
    attempts = run.attempts()
    logged: list[StepRecord] = []
    records: list[Record] = []
    latest: list[Record] = []
    any_log = False
    for attempt in attempts:
        logs = [read_log(path, attempt.number) for path in sorted(attempt.path.glob("rank-*.log"))]
        any_log = any_log or bool(logs)
        logged.extend(merge_logs([_of(log, StepRecord) for log in logs]))
        latest = [record for log in logs for record in log]
        records.extend(latest)
    recorded = run.metrics.is_file()
    last = attempts[-1].path if attempts else folder / "attempts"
    lines = tuple(_of(latest if spec.get("kind") == "gate" else _newest(records), Evidence))
    evidence = GateEvidence(
        scope=RUN,
        subject=str(folder),
        rehearsal=bool(spec.get("rehearsal", expected.device == "cpu")) or any(line.rehearsal for line in lines),
        steps=tuple(read_steps(run.metrics) if recorded else logged),
        logged_steps=tuple(logged) if any_log and recorded else None,
        evaluations=tuple(_of(records, EvaluationRecord)),
        saves=tuple(_of(records, SaveRecord)),
        evidence_lines=lines,
        arguments=_dump(latest),
        exits=tuple(_exits(last)),
        checkpoints=dict(_checkpoints(run.checkpoints, expected.save_steps)),
        notices=tuple(_of(latest, ExitNotice)),
        interrupted=_interrupted(last / "record.json") if attempts else _unfit(run),
        second_pass=_second_pass(run.second_pass),
        places={
            "record": str(last / "record.json"),
            "steps": str(run.metrics),
            "log": str(last),
            "exits": str(last),
            "checkpoints": str(run.checkpoints),
            "second pass": str(run.second_pass.path),
        },
    )
    return evidence, expected


def read_steps(metrics: Path) -> Iterator[StepRecord]:
    """Yield the records of a metrics.jsonl; a line that is none (torn by a crash) is passed over."""
    for data in read_lines(metrics):
        try:
            yield StepRecord.from_json(data)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            continue


def _spec(folder: Path) -> Mapping[str, Any]:
    file = folder / "spec.json"
    try:
        spec = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SeatrialError(
            f"not a run folder: {error.strerror}",
            file=file,
            fix="give the folder that `seatrial gate` printed",
        ) from error
    except ValueError as error:
        raise SeatrialError(f"not JSON: {error}", file=file) from error
    if not isinstance(spec, dict):
        raise SeatrialError("not a run's spec: a JSON object is needed", file=file)
    return spec


def _second_pass(root: RunFolder) -> Optional[SecondPass]:
    """Return what a gate's resume check left; None where there is nothing."""
    attempts = root.attempts()
    if not attempts:
        return None
    record = read_object(attempts[-1].record) or {}
    loaded, name, reason = record.get("resume_step"), record.get("class"), record.get("reason")
    return SecondPass(
        loaded if isinstance(loaded, int) else None, tuple(read_steps(root.metrics)),
        None if name is None else str(name), None if reason is None else str(reason),
        _interrupted(attempts[-1].record),
    )  # fmt: skip


def _interrupted(record: Path) -> Optional[str]:
    """Return what ended the attempt from outside, in the words of its record; None where nothing did."""
    data = read_object(record) or {}
    name, node = data.get("class"), data.get("failed_node")
    if name not in _FROM_OUTSIDE:
        return None
    return f"{name}{f' of {node}' if node else ''}: {data.get('class_why')}"


def _unfit(run: RunFolder) -> Optional[str]:
    """Return which nodes kept the gate from its first attempt; None where none did."""
    asked = [event for event in read_objects(run.events) if event.get("event") == "preflight"]
    failed = asked[-1].get("failed") if asked else None
    if not isinstance(failed, dict):
        return None
    return "; ".join(f"node_failure of {node}: {'; '.join(map(str, why))}" for node, why in failed.items()) or None


def _exits(attempt: Path) -> Iterator[RankExit]:
    for file in sorted(attempt.glob("exit-*.json")):
        name = file.stem.partition("-")[2]
        if not name.isdecimal():
            continue
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            yield RankExit(int(name), int(data["code"]), data.get("how"), data.get("message"))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            yield RankExit(int(name), None)


def _checkpoints(root: Path, steps: Iterable[int]) -> Iterator[tuple[int, CheckpointFound]]:
    deleted = _deleted(root.parent / DELETED)
    for step in steps:
        path = checkpoint_folder(root, step)
        if path.is_dir():
            state = check(path)
            yield step, CheckpointFound(state.whole, state.reason, state.step)
        elif step in deleted:
            yield step, CheckpointFound(deleted[step], "was whole at the verdict, and deleted after it", step)


def _deleted(path: Path) -> dict[int, bool]:
    """Return step -> whether it was whole, of checkpoints that the supervisor deleted after the verdict."""
    try:
        return {int(step): state["whole"] is True for step, state in (read_object(path) or {}).items()}
    except (ValueError, TypeError, KeyError):
        return {}


def _newest(records: Sequence[Record]) -> list[Record]:
    """Return the evidence lines of the newest attempt that has any: one that only evaluates has none."""
    lines = _of(records, Evidence)
    began = [index for index, line in enumerate(lines) if line.when != "end"]
    return list(lines[began[-1] :] if began else lines)


def _of(records: Iterable[Record], kind: type[_R]) -> list[_R]:
    return [record for record in records if isinstance(record, kind)]


def _dump(records: Iterable[Record]) -> Optional[ArgumentDump]:
    """Return the newest complete argument dump, else the newest."""
    dumps = _of(records, ArgumentDump)
    return next((dump for dump in reversed(dumps) if dump.complete), dumps[-1] if dumps else None)
