"""Reads a run folder, or anybody's Megatron logs, into one curve that can be held against another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from seatrial.errors import SeatrialError
from seatrial.judge.collect import read_log, read_steps
from seatrial.judge.configuration import Configuration, of_arguments, of_spec, plain
from seatrial.judge.evidence import LOG, RUN
from seatrial.judge.merge import merge_logs, merge_steps
from seatrial.judge.records import ArgumentDump, EvaluationRecord, Evidence, Record, StepRecord
from seatrial.judge.speed import gpu_type_of
from seatrial.run.fields import mapping, text, whole
from seatrial.run.layout import RunFolder
from seatrial.run.records import read_object, read_objects

_MOST_GAPS = 8


@dataclass(frozen=True)
class RunCurve:
    """One run. ``source``: its folder, or its log files. ``kind``: "run" or "log". None: nobody knows.

    ``steps``: of all attempts, in order; of a step that ran again (``repeated``) the last time counts. ``evaluations``:
    the last of each step and kind. ``configuration``: see judge.configuration. ``arguments``: hash of what a gate and
    its run must share. ``gpu_type``: a profile's word ("gb200"), else the driver's. ``versions``: by name.
    """

    name: str
    source: str
    kind: str
    steps: tuple[StepRecord, ...] = ()
    repeated: tuple[int, ...] = ()
    evaluations: tuple[EvaluationRecord, ...] = ()
    recipe: Optional[str] = None
    gpus: Optional[int] = None
    sequence_length: Optional[int] = None
    seed: Optional[int] = None
    configuration: Optional[Configuration] = None
    rehearsal: bool = False
    arguments: Optional[str] = None
    gpu_type: Optional[str] = None
    versions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tokens_per_step(self) -> Optional[int]:
        """Tokens of a global batch, the last one known."""
        batch = next((step.global_batch_size for step in reversed(self.steps) if step.global_batch_size), None)
        return batch * self.sequence_length if batch and self.sequence_length else None

    @property
    def interval(self) -> int:
        """The distance of its steps: what it was set to, else what most neighbours show."""
        asked = whole((self.configuration or {}).get("log_interval"))
        return asked if asked is not None and asked > 0 else log_interval(one.step for one in self.steps)

    @property
    def target(self) -> Optional[int]:
        """The step that the loop was to reach, as it said last."""
        return self.steps[-1].of if self.steps else None


def read_curve(path: Path) -> RunCurve:
    """Read a run folder, a log (also .gz), or a folder of logs that are one run.

    Of a run folder anything may be missing or torn. Raises SeatrialError where nothing is there, where a log cannot be
    read, and where logs hold no iteration line.
    """
    if (path / "spec.json").is_file():
        return _read_run(RunFolder(path))
    if path.is_file():
        return _read_logs(path, [path])
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
        return _read_logs(path, files)
    raise SeatrialError("no such run or log", file=path, rule="a run folder, a Megatron log, or a folder of logs")


def log_interval(steps: Iterable[int]) -> int:
    """Return the distance that most neighbours among ``steps``, in order, have; 1 where there are none."""
    ordered = list(steps)
    gaps = Counter(after - before for before, after in zip(ordered, ordered[1:]))
    return max(gaps, key=lambda gap: (gaps[gap], -gap)) if gaps else 1


def gaps(steps: Iterable[int], interval: int, first: Optional[int] = None, last: Optional[int] = None) -> str:
    """Return, for people, what is missing between ``steps``, and between them and ``first`` and ``last``.

    Up to ``interval`` from one to the next is no gap.
    """
    bounds = sorted(steps)
    if not bounds:
        return ""
    if first is not None:
        bounds.insert(0, first - 1)
    if last is not None:
        bounds.append(last + 1)
    found = [(before + 1, after - 1) for before, after in zip(bounds, bounds[1:]) if after - before > interval]
    words = [str(begin) if begin == end else f"{begin}-{end}" for begin, end in found]
    return ", ".join(words[:_MOST_GAPS]) + (" …" if len(words) > _MOST_GAPS else "")


def _read_run(folder: RunFolder) -> RunCurve:
    spec = read_object(folder.spec)
    steps, evaluations, lines = _recorded(folder) if folder.metrics.is_file() else _logged(folder)
    curve = merge_steps(steps)
    configuration = None if spec is None else of_spec(spec)
    said = configuration or {}
    spec = spec or {}
    profile = mapping(spec.get("profile"))
    return RunCurve(
        name=folder.path.resolve().name, source=str(folder.path), kind=RUN, steps=curve.steps, repeated=curve.repeated,
        evaluations=_last_of_each(evaluations), recipe=text(spec.get("recipe")),
        gpus=whole(said.get("world_size")) or _world_size(lines), sequence_length=whole(said.get("seq_length")),
        seed=whole(said.get("seed")), configuration=configuration,
        rehearsal=spec.get("rehearsal") is True or any(line.rehearsal for line in lines),
        arguments=text(spec.get("curve")), gpu_type=text(profile.get("gpu_type")) or _gpu_type(lines),
        versions=_versions(lines),
    )  # fmt: skip


def _recorded(folder: RunFolder) -> tuple[Iterable[StepRecord], list[EvaluationRecord], list[Evidence]]:
    """Return what the supervisor put on record: it costs no look into the logs of a thousand ranks."""
    evaluations, lines = [], []
    for event in read_objects(folder.events):
        try:
            if event.get("event") == "evaluation":
                evaluations.append(EvaluationRecord.from_json(event))
            elif event.get("event") == "evidence":
                lines.append(Evidence.from_json(event))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            continue
    return read_steps(folder.metrics), evaluations, lines


def _logged(folder: RunFolder) -> tuple[Iterable[StepRecord], list[EvaluationRecord], list[Evidence]]:
    steps: list[StepRecord] = []
    records: list[Record] = []
    for attempt in folder.attempts():
        logs = [read_log(path, attempt.number) for path in sorted(attempt.path.glob("rank-*.log"))]
        steps.extend(merge_logs([[record for record in log if isinstance(record, StepRecord)] for log in logs]))
        records.extend(record for log in logs for record in log)
    evaluations = [record for record in records if isinstance(record, EvaluationRecord)]
    return steps, evaluations, [record for record in records if isinstance(record, Evidence)]


def _read_logs(path: Path, files: Sequence[Path]) -> RunCurve:
    logs = [read_log(file) for file in files]
    curve = merge_steps(merge_logs([[record for record in log if isinstance(record, StepRecord)] for log in logs]))
    if not curve.steps:
        raise SeatrialError(
            "no Megatron iteration line", file=path,
            rule="the loop prints 'iteration N/ M | consumed samples: … | lm loss: … |' on the last rank",
            fix="give a run folder, or the last rank's log",
        )  # fmt: skip
    records = [record for log in logs for record in log]
    dumps = [record for record in records if isinstance(record, ArgumentDump)]
    dump = next((dump for dump in reversed(dumps) if dump.complete), None)
    said = of_arguments(dump.values) if dump else None
    lines = [record for record in records if isinstance(record, Evidence)]
    known = said or {name: plain(text) for dump in dumps for name, text in dump.values.items()}
    return RunCurve(
        name=path.resolve().name, source=str(path), kind=LOG, steps=curve.steps, repeated=curve.repeated,
        evaluations=_last_of_each(record for record in records if isinstance(record, EvaluationRecord)),
        gpus=whole(known.get("world_size")) or _world_size(lines), sequence_length=whole(known.get("seq_length")),
        seed=whole(known.get("seed")), configuration=said, rehearsal=any(line.rehearsal for line in lines),
        gpu_type=_gpu_type(lines), versions=_versions(lines),
    )  # fmt: skip


def _last_of_each(evaluations: Iterable[EvaluationRecord]) -> tuple[EvaluationRecord, ...]:
    last = {(record.iteration, record.which): record for record in evaluations}
    return tuple(last[key] for key in sorted(last))


def _world_size(lines: Sequence[Evidence]) -> Optional[int]:
    return next((line.world_size for line in reversed(lines) if line.world_size), None)


def _gpu_type(lines: Sequence[Evidence]) -> Optional[str]:
    """Return a profile's word for the GPU that the driver names, the driver's own where there is none."""
    gpu = next((line.gpu for line in reversed(lines) if line.gpu), None)
    return gpu_type_of(gpu) or gpu


def _versions(lines: Sequence[Evidence]) -> Mapping[str, Any]:
    return next((line.versions for line in reversed(lines) if line.versions), {})
