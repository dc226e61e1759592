"""Data: named once, readable, and enough of it in each split."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from seatrial.check.blame import Finding, Severity, argument, count_text
from seatrial.check.datasets import PER_SPLIT, Data, Part, named_sources, read_data
from seatrial.data.blend import SPLITS
from seatrial.data.splits import Requests, epochs, requested_samples, samples_in, share_of
from seatrial.spec.runspec import RunSpec

NAMES = {"train": "train", "valid": "validation", "test": "test"}


def check_source(spec: RunSpec) -> Iterator[Finding]:
    """Data is named, and in one way; mock data only where asked for by name, and never to convergence."""
    named = named_sources(spec)
    ways = {"split" if dest in PER_SPLIT else dest for dest in named}
    mock = bool(spec.get("mock_data", False))
    if not named and not mock:
        fix = "--set data.data_path='[\"/path/to/prefix\"]' (without .bin); "
        fix += "for a gate on made-up tokens: --set data.mock_data=true" if spec.kind == "gate" else ""
        yield argument(spec, "data_path", "data is named: without it Megatron makes some up", fix.rstrip("; "))
    if len(ways) + mock > 1:
        sources = ", ".join([*named, *(["mock_data"] if mock else [])])
        yield argument(spec, named[0], f"one source of data; here are {sources}", "leave all but one out")
    if mock and spec.kind == "convergence":
        rule = "off: a convergence run on made-up tokens shows nothing"
        yield argument(spec, "mock_data", rule, "name data in data.data_path")
    elif mock:
        rule = "mock data: made-up tokens, so the losses show nothing and learning is not judged"
        yield argument(spec, "mock_data", rule, severity="warning")


def check_data(spec: RunSpec) -> Iterator[Finding]:
    """The files are there and whole, and each split has enough tokens."""
    if not named_sources(spec):
        return
    data = read_data(spec)
    yield from data.findings
    yield from check_splits(spec, data)


def check_splits(spec: RunSpec, data: Data) -> Iterator[Finding]:
    """Each split gives what the run takes from it without a repeat. Pure: ``data`` was read before."""
    samples = _requests(spec, int(spec.get("train_iters")))
    for split in SPLITS:
        parts = data.parts.get(split)
        if parts is None:
            if split not in data.source and not data.findings:
                dest = f"{split}_data_path"
                yield argument(spec, dest, f"the run needs {NAMES[split]} data", "name a prefix")
            continue
        wanted = samples._asdict()[split]
        found = list(_shortages(spec, split, parts, wanted, data.source[split]))
        yield from found
        if split == "train" and not found:
            yield from _schedule_repeats(spec, parts, data.source[split])


def _shortages(spec: RunSpec, split: str, parts: Sequence[Part], wanted: int | None, source: str) -> Iterator[Finding]:
    """Yield what is missing in one split.

    Train data that repeats, or a split too small for one evaluation, is an error; later evaluations may meet their
    samples again. A rehearsal may repeat all data: it shows the path, not the model.
    """
    length = int(spec.get("seq_length"))
    used = [part for part in parts if part.share is None or part.share > 0]
    empty = [part.prefix for part in used if samples_in(part.tokens, length) == 0]
    # A weighted set that is empty keeps Megatron counting epochs for ever; without weights it adds nothing.
    weighted = used[0].share is not None
    if len(empty) == len(used) or (weighted and empty):
        rule = f"a {NAMES[split]} split of at least one sample ({length} tokens and one more) in {', '.join(empty)}"
        yield argument(spec, _dest(spec, source), rule, "give the split a larger part, or add data")
        return
    if wanted is None:
        return
    once = wanted if split == "train" else min(wanted, _one_evaluation(spec))
    too_little = {name for name, _, _ in _lacking(parts, once, length)}
    for name, needed, there in _lacking(parts, wanted, length):
        severity: Severity = "error" if name in too_little and not spec.rehearsal else "warning"
        fix = "add data, or give the split a larger part"
        if split != "train":
            fix += "; else lower evaluation.eval_iters"
        rule = f"{NAMES[split]} takes {count_text(needed)} tokens, {count_text(there)} are in {name}"
        if weighted or len(used) == 1:
            rule += f": each would be read {needed / there:.2f} times"
        else:
            rule += ": without weights, Megatron ends there"
        yield argument(spec, _dest(spec, source), rule, fix, severity=severity)


def _lacking(parts: Sequence[Part], wanted: int, length: int) -> Iterator[tuple[str, int, int]]:
    """Yield (data, tokens needed, tokens there) where ``wanted`` samples need more than one pass."""
    if parts[0].share is None:
        there = sum(samples_in(part.tokens, length) for part in parts)
        if wanted > there:
            yield ", ".join(part.prefix for part in parts), wanted * length + 1, sum(p.tokens for p in parts)
        return
    shares = [part.share or 0.0 for part in parts]
    for i, part in enumerate(parts):
        mine = share_of(wanted, shares, i)
        if shares[i] and epochs(mine, part.tokens, length) > 1:
            yield part.prefix, mine * length + 1, part.tokens


def _schedule_repeats(spec: RunSpec, parts: Sequence[Part], source: str) -> Iterator[Finding]:
    """Warn where this run has enough, and the schedule that it is a part of has not."""
    steps, decay = int(spec.get("train_iters")), int(spec.get("lr_decay_iters", spec.get("train_iters")))
    length = int(spec.get("seq_length"))
    lacking = list(_lacking(parts, _requests(spec, decay).train, length)) if decay > steps else []
    for name, needed, there in lacking:
        rule = f"the schedule's {decay:,} steps take {count_text(needed)} tokens, {count_text(there)} are in {name}"
        fix = f"the full run would read them {math.ceil(needed / there)} times; this one may meet one twice"
        yield argument(spec, source, rule, fix, severity="note" if spec.rehearsal else "warning")


def _one_evaluation(spec: RunSpec) -> int:
    """Return the samples of one evaluation."""
    batch = spec.get("eval_global_batch_size") or spec.get("global_batch_size")
    return int(spec.get("eval_iters", 100)) * int(batch)


def _requests(spec: RunSpec, steps: int) -> Requests:
    return requested_samples(
        train_iters=steps,
        global_batch_size=int(spec.get("global_batch_size")),
        eval_iters=int(spec.get("eval_iters", 100)),
        eval_interval=spec.get("eval_interval"),
        eval_global_batch_size=spec.get("eval_global_batch_size"),
        start_eval_at_iter=spec.get("start_eval_at_iter"),
        full_validation=bool(spec.get("full_validation", False)),
    )


def _dest(spec: RunSpec, source: str) -> str:
    """Return the argument to blame for a small split: the split, where one text cuts all three."""
    return "split" if source in ("data_path", "data_args_path") and spec.get("split") else source
