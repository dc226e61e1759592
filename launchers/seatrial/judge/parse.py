"""Incremental reader of a Megatron log: text in pieces of any size, records out, in the order of the text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Optional

from seatrial.judge import lines
from seatrial.judge.records import ArgumentDump, Record, Start, StepRecord

# A line that says anything to us holds one of these. str.find over a whole block costs far less than a look at
# every line, and most lines of a real log are warnings.
_MARKS = (
    "iteration ",
    lines.EVIDENCE_MARK,
    lines.DUMP_HEADER,
    lines.DUMP_FOOTER,
    *lines.BRIDGE_MARKS,
    "[before the start of training",
    "[after training is done]",
    "[exiting program",
)
_BLOCK = 1 << 20
# A "line" this long is no log line; it is read as it stands so that memory stays bounded.
_LONGEST_LINE = 1 << 22


class LogParser:
    """Turns log text into records. One parser per log: it remembers the line before.

    Megatron prints the first step after a start, does not reset its totals there, and so prints the *mean* of the
    first two steps on the second line (``should_reset`` in ``training_log``). That line's losses, step time and
    throughput are recovered (2 x printed - previous), its counts are made those of its own step. Megatron-Bridge's loop
    resets them after each line: where a line tells that it runs, nothing is recovered.

    ``at_start``: the text begins where a process began (a whole log, as opposed to the tail of one).
    """

    def __init__(self, attempt: int = 0, *, at_start: bool = True) -> None:
        self._attempt = attempt
        self._pending: list[str] = []
        self._pending_size = 0
        # Lines printed since the last start; -1: nobody knows.
        self._since_start = 0 if at_start else -1
        self._means = True  # the second line holds a mean: Megatron-Core's own loop
        self._previous: Optional[StepRecord] = None
        self._dump: Optional[dict[str, str]] = None
        self._dump_was_start = False
        self._loaded: Optional[int] = None

    def feed(self, text: str) -> list[Record]:
        """Return the records of the lines that ``text`` completes. Never raises on any text."""
        text = text.replace("\r", "\n")
        end = text.rfind("\n") + 1
        if end == 0:
            self._keep(text)
            if self._pending_size <= _LONGEST_LINE:
                return []
            text, end = "", 0
        block = "".join(self._pending) + text[:end]
        self._pending, self._pending_size = [], 0
        self._keep(text[end:])
        return list(self._block(block))

    def close(self) -> list[Record]:
        """Return the records of an unfinished last line and of an unfinished argument dump."""
        block = "".join(self._pending)
        self._pending, self._pending_size = [], 0
        records = list(self._block(block))
        records.extend(self._end_dump(complete=False))
        return records

    def _keep(self, text: str) -> None:
        if text:
            self._pending.append(text)
            self._pending_size += len(text)

    def _block(self, block: str) -> Iterator[Record]:
        start = 0
        while start < len(block):
            # Block ends fall on line ends, so that no mark is cut.
            end = len(block) if len(block) - start <= _BLOCK else block.find("\n", start + _BLOCK) + 1 or len(block)
            piece = block[start:end] if (start, end) != (0, len(block)) else block
            yield from self._piece(piece)
            start = end

    def _piece(self, block: str) -> Iterator[Record]:
        marked = _marked_lines(block, _MARKS)
        position = 0
        for start, end in marked:
            if self._dump is not None and start > position:
                self._arguments(block[position:start])
            yield from self._line(block[start:end])
            position = end
        if self._dump is not None and position < len(block):
            self._arguments(block[position:])

    def _arguments(self, text: str) -> None:
        assert self._dump is not None
        for line in text.split("\n"):
            found = lines.argument(line)
            if found is not None:
                self._dump[found[0]] = found[1]

    def _line(self, line: str) -> Iterator[Record]:
        if lines.DUMP_HEADER in line:
            yield from self._end_dump(complete=False)
            self._dump, self._means = {}, True
            self._since_start, self._dump_was_start, self._loaded = 0, True, None
            return
        if lines.DUMP_FOOTER in line:
            if self._dump is None:
                yield ArgumentDump({}, complete=False)
            yield from self._end_dump(complete=True)
        if any(mark in line for mark in lines.BRIDGE_MARKS):
            self._means = False
        if self._dump is not None and "iteration " in line:
            found = lines.argument(line)
            if found is not None:
                self._dump[found[0]] = found[1]
        if lines.BEFORE_TRAINING in line:
            # Rank 0 prints this, the last rank the iteration lines: it may come late, but not twice per dump.
            if not self._dump_was_start:
                self._since_start = 0
            self._dump_was_start = False
            yield Start(self._loaded)
            self._loaded = None
        if "iteration " in line:
            yield from self._statements(line)
        if lines.EVIDENCE_MARK in line:
            evidence = lines.evidence(line)
            if evidence is not None:
                yield evidence
        notice = lines.exit_notice(line) if "[exiting" in line or "[after training" in line else None
        if notice is not None:
            yield notice

    def _statements(self, line: str) -> Iterator[Record]:
        if "/" in line:
            for record in lines.step_records(line, self._attempt):
                yield from self._end_dump(complete=False)
                yield self._step(record)
        if "checkpoint" in line:
            save = lines.save_record(line)
            if save is not None:
                yield save
            loaded = lines.loaded_iteration(line)
            self._loaded = self._loaded if loaded is None else loaded
        if " loss at iteration " in line:
            yield from lines.evaluation_records(line)

    def _end_dump(self, *, complete: bool) -> Iterator[Record]:
        if self._dump is not None:
            values, self._dump = self._dump, None
            yield ArgumentDump(values, complete)

    def _step(self, record: StepRecord) -> StepRecord:
        previous, self._previous = self._previous, record
        if previous is not None and record.step <= previous.step:
            self._since_start = 0  # only a new process goes back
        if self._since_start < 0 or not self._means:
            return record
        self._since_start += 1
        if self._since_start == 2 and previous is not None and record.step == previous.step + 1:
            return recover_second_step(previous, record)
        return record


def recover_second_step(first: StepRecord, second: StepRecord) -> StepRecord:
    """Return what ``second`` would have printed, had Megatron reset its totals after ``first``.

    printed = (first + own) / 2 for each total, so own = 2 x printed - first; losses only where neither step was
    skipped (the divisor counts steps that advanced) and both values are finite. Rounded to the printed digits.
    """
    losses = dict(second.losses)
    recovered = False
    if not first.skipped and not second.skipped:
        for name, printed in second.losses.items():
            before = first.losses.get(name)
            # Megatron keeps totals of losses only; any other number on the line is of this step alone.
            if name.lower().endswith("loss") and before is not None and math.isfinite(before + printed):
                losses[name] = _rounded(2 * printed - before, 6 - min(exponent(before), exponent(printed)))
                recovered = True
    time, throughput = second.step_time_ms, second.tflops_per_gpu
    if first.step_time_ms is not None and time is not None and 2 * time - first.step_time_ms > 0:
        own = round(2 * time - first.step_time_ms, 1)
        # Throughput is work over time and the work is that of one step: it scales with the time.
        throughput = throughput if throughput is None or own <= 0 else round(throughput * time / own, 1)
        time = own
    return replace(
        second,
        losses=losses,
        step_time_ms=time,
        tflops_per_gpu=throughput,
        skipped=_own_count(first.skipped, second.skipped),
        nan=_own_count(first.nan, second.nan),
        recovered=recovered,
    )


def exponent(value: float) -> int:
    """Return the decimal exponent of finite ``value`` (0 for 0): losses are printed as d.dddddd x 10^exponent."""
    return math.floor(math.log10(abs(value))) if value else 0


def _rounded(value: float, digits: int) -> float:
    try:
        return round(value, digits)
    except OverflowError:
        return value


def _own_count(first: Optional[int], total: Optional[int]) -> Optional[int]:
    return total - first if first is not None and total is not None and total >= first else total


def _marked_lines(block: str, marks: Iterable[str]) -> list[tuple[int, int]]:
    """Return (start, end) of each line of ``block`` that holds one of ``marks``, in order; end excludes the newline."""
    found: dict[int, int] = {}
    for mark in marks:
        at = block.find(mark)
        while at >= 0:
            end = block.find("\n", at)
            end = len(block) if end < 0 else end
            found[block.rfind("\n", 0, at) + 1] = end
            at = block.find(mark, end)
    return sorted(found.items())
