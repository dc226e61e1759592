"""What single lines of a Megatron log mean. Pure functions from text to records.

Formats: ``training_log``, ``evaluate_and_print_results``, ``print_datetime``, ``save_checkpoint`` and ``_print_args``
of megatron-core 0.19.2. Ranks share one stream, so anything may be glued before or after a statement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Optional

from seatrial.judge.records import EvaluationRecord, Evidence, ExitNotice, SaveRecord, StepRecord

EVIDENCE_MARK = "[seatrial evidence]"
DUMP_HEADER = "--- arguments ---"
DUMP_FOOTER = "--- end of arguments ---"
# Megatron-Bridge's loop: a line of its rank 0 before each step's, and what our ranks say before they begin.
BRIDGE_MARKS = ("s GPU utilization: ", "[seatrial] engine: megatron-bridge")
BEFORE_TRAINING = "[before the start of training step]"

_ITERATION = re.compile(
    r"(?:\[(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d{1,9})?)\] {1,2})?iteration +(\d{1,12})/ *(\d{1,12}) *\|"
)
_EVALUATION = re.compile(r"validation(\S*) loss at iteration (\d{1,12})(?: on (validation|test) set)? \|")
_EVALUATION_VALUE = re.compile(r"^ *(.*?) value: *(\S+) *$")
_SAVING = re.compile(r"saving checkpoint at iteration +(\d{1,12}) to (.*?) in \S+ format")
_SAVED = re.compile(r"successfully saved checkpoint from iteration +(\d{1,12}) to (.*?)(?: \[ t .*)?$")
_LOADED = re.compile(r"successfully loaded checkpoint from .* at iteration (\d{1,12})")
_EXIT = re.compile(r"\[exiting program (after receiving|at iteration|after)([^\]]*)\]")
_ARGUMENT = re.compile(r"  ([A-Za-z_]\w*) (\.*) (.*)$")

# Numeric fields of an iteration line that are no loss, by what StepRecord calls them (None: not kept).
KNOWN_FIELDS = {
    "consumed samples": "consumed_samples",
    "skipped samples": None,
    "elapsed time per iteration (ms)": "step_time_ms",
    "throughput per GPU (TFLOP/s/GPU)": "tflops_per_gpu",
    "energy per GPU (J/iter/GPU)": None,
    "power per GPU (W/GPU)": None,
    "learning rate": "learning_rate",
    "global batch size": "global_batch_size",
    "loss scale": "loss_scale",
    "grad norm": "grad_norm",
    "num zeros": None,
    "params norm": None,
    "number of skipped iterations": "skipped",
    "number of nan iterations": "nan",
}
_INTEGERS = {"consumed_samples", "global_batch_size", "skipped", "nan"}
_LAST_FIELD = "number of nan iterations"


def number(text: str) -> Optional[float]:
    """Return ``text`` as a float ("nan", "NAN", "inf" included), or None where it is no number."""
    try:
        return float(text)
    except ValueError:
        return None


def _whole(value: float) -> Optional[int]:
    return int(value) if value - value == 0 else None


def step_records(line: str, attempt: int = 0) -> Iterator[StepRecord]:
    """Yield one record per iteration record in ``line``, values as printed (nothing recovered yet)."""
    match = _ITERATION.search(line)
    while match is not None:
        following = _ITERATION.search(line, match.end())
        yield _step_record(match, line[match.end() : following.start() if following else None], attempt)
        match = following


def _step_record(match: re.Match[str], text: str, attempt: int) -> StepRecord:
    date, clock, step, of = match.groups()
    known: dict[str, Optional[float]] = {}
    losses: dict[str, float] = {}
    # What follows the last "|" is other output, or a number torn in the middle: never read.
    for field in text.split("|")[:-1]:
        label, colon, printed = field.rpartition(":")
        name = label.strip()
        value = number(printed)
        if not colon or not name or value is None:
            continue
        if name not in KNOWN_FIELDS:
            losses[name] = value
            continue
        kept = KNOWN_FIELDS[name]
        if kept is not None:
            known[kept] = _whole(value) if kept in _INTEGERS else value
        if name == _LAST_FIELD:
            break
    return StepRecord(
        step=int(step),
        of=int(of),
        attempt=attempt,
        time=f"{date}T{clock}" if date else None,
        losses=losses,
        **known,  # type: ignore[arg-type]
    )


def evaluation_records(line: str) -> Iterator[EvaluationRecord]:
    """Yield the evaluations in ``line``; of several validation sets, each loss is named with its set."""
    match = _EVALUATION.search(line)
    while match is not None:
        following = _EVALUATION.search(line, match.end())
        suffix, iteration, which = match.groups()
        losses: dict[str, float] = {}
        for field in line[match.end() : following.start() if following else None].split("|")[:-1]:
            found = _EVALUATION_VALUE.match(field)
            value = number(found.group(2)) if found else None
            if found and value is not None:
                losses[found.group(1) + (f" ({suffix.lstrip('-')})" if suffix else "")] = value
        yield EvaluationRecord(int(iteration), which or "interval", losses)
        match = following


def save_record(line: str) -> Optional[SaveRecord]:
    """Return the start or the end of a checkpoint save that ``line`` tells of."""
    for pattern, phase in ((_SAVED, "finished"), (_SAVING, "started")):
        match = pattern.search(line)
        if match is not None:
            return SaveRecord(int(match.group(1)), match.group(2), phase)
    return None


def loaded_iteration(line: str) -> Optional[int]:
    """Return the iteration of the checkpoint that ``line`` says was loaded."""
    match = _LOADED.search(line)
    return int(match.group(1)) if match else None


def evidence(line: str) -> Optional[Evidence]:
    """Return the evidence in ``line``; None where its JSON is torn or not an evidence object."""
    start = line.find("{", line.index(EVIDENCE_MARK))
    if start < 0:
        return None
    try:
        data, _ = json.JSONDecoder().raw_decode(line, start)
        return Evidence.from_json(data)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None


def exit_notice(line: str) -> Optional[ExitNotice]:
    """Return why the loop says it ends."""
    if "[after training is done]" in line:
        return ExitNotice("done", "after training is done")
    match = _EXIT.search(line)
    if match is None:
        return None
    reason = {"after receiving": "signal", "at iteration": "interval", "after": "duration"}[match.group(1)]
    return ExitNotice(reason, match.group(0)[1:-1].rstrip("."))


def argument(line: str) -> Optional[tuple[str, str]]:
    """Return name and printed value of one line of the argument dump (names over 47 letters have no dots)."""
    match = _ARGUMENT.search(line)
    return (match.group(1), match.group(3).strip()) if match else None
