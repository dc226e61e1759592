"""Batches, steps, learning rate, saves and evaluations."""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.check.blame import Finding, argument, count_text, profile, set_flag
from seatrial.check.layout import Layout
from seatrial.spec.runspec import RunSpec


def check_batch(spec: RunSpec) -> Iterator[Finding]:
    """The global batch divides into micro batches of each data-parallel rank; evaluation's too."""
    dp = Layout.of(spec).dp
    if dp is None:
        return
    for prefix in ("", "eval_"):
        if prefix and spec.get("eval_global_batch_size") is None and spec.get("eval_micro_batch_size") is None:
            continue
        batch = int(spec.get(f"{prefix}global_batch_size", spec.get("global_batch_size")))
        micro = int(spec.get(f"{prefix}micro_batch_size", spec.get("micro_batch_size")))
        if batch % (micro * dp):
            step = micro * dp
            near = sorted({max(step, batch // step * step), (batch // step + 1) * step})
            yield argument(
                spec, f"{prefix}global_batch_size",
                f"a multiple of micro batch x data-parallel ranks = {micro} x {dp} = {step}",
                f"take {' or '.join(map(str, near))}, another micro batch, or other nodes", value=batch,
            )  # fmt: skip


def check_learning_rate(spec: RunSpec) -> Iterator[Finding]:
    """Warm-up ends before the decay does, and the rate does not end above its top."""
    decay = int(spec.get("lr_decay_iters", spec.get("train_iters")))
    warm_up = int(spec.get("lr_warmup_iters", 0))
    if warm_up >= decay:
        rule = f"less than the {decay} steps of the decay (schedule.lr_decay_iters, else train_iters)"
        yield argument(spec, "lr_warmup_iters", rule)
    fraction = spec.get("lr_warmup_fraction")
    if fraction is not None and warm_up:
        rule = "unset where lr_warmup_iters is set: Megatron takes one of the two"
        yield argument(spec, "lr_warmup_fraction", rule, set_flag(spec, "lr_warmup_fraction", "null"))
    elif fraction is not None and not 0 <= fraction < 1:
        yield argument(spec, "lr_warmup_fraction", "from 0 to less than 1")
    top, bottom = spec.get("lr"), spec.get("min_lr")
    if top is not None and bottom is not None and bottom > top:
        yield argument(spec, "min_lr", f"at most lr, {top}")


def check_by_iterations(spec: RunSpec) -> Iterator[Finding]:
    """Runs are counted in steps, not in samples, and the batch size does not change on the way."""
    for dest in ("train_samples", "lr_decay_samples", "rampup_batch_size", "step_batch_size_schedule"):
        if spec.get(dest) is not None:
            rule = "unset: a run here is a number of equal steps (schedule.train_iters)"
            yield argument(spec, dest, rule, set_flag(spec, dest, "null"))


def check_saves(spec: RunSpec) -> Iterator[Finding]:
    """At least one checkpoint is saved on the way, or at the last step."""
    steps, every = int(spec.get("train_iters")), spec.get("save_interval")
    if every is None:
        yield argument(spec, "save_interval", "set: without it nothing is saved", f"at most {steps}")
    elif every > steps:
        rule = f"at most the {steps} steps of the run, so that a save falls within it"
        yield argument(spec, "save_interval", rule, set_flag(spec, "save_interval", steps))
    keep = spec.profile["recovery"]["checkpoints_kept_every"]
    if every and keep and keep % every and spec.kind == "convergence":
        rule = f"a multiple of save_interval, {every}: only a checkpoint that is saved can be kept"
        yield profile(spec, "recovery.checkpoints_kept_every", rule, severity="warning", value=keep)


def check_evaluations(spec: RunSpec) -> Iterator[Finding]:
    """Validation and test run at the end: their losses are part of the verdict."""
    if int(spec.get("eval_iters", 100)) < 1:
        yield argument(spec, "eval_iters", "at least 1: validation and test loss are part of the verdict")
    if spec.get("eval_interval") is None:
        yield argument(spec, "eval_interval", "set: Megatron counts the evaluations by it", "800, for example")


def note_tokens(spec: RunSpec) -> Iterator[Finding]:
    """Say how many tokens the run trains on."""
    steps, batch, length = (int(spec.get(d)) for d in ("train_iters", "global_batch_size", "seq_length"))
    tokens = steps * batch * length
    rule = f"{steps:,} steps x {batch:,} sequences x {length:,} tokens = {count_text(tokens)} tokens"
    yield argument(spec, "train_iters", rule, severity="note")
