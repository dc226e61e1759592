"""Are runs the same? Curves held against the first one's, speeds and configurations side by side. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from seatrial.judge.comparison_pair import DIFFERENT, INCOMPLETE, NOTHING, Tolerance, compare_pair
from seatrial.judge.configuration import differences
from seatrial.judge.curves import RunCurve
from seatrial.judge.records import LM_LOSS, encode_losses, finite
from seatrial.judge.rules import spans
from seatrial.judge.speed import Setting, Window, after_warm_up, tokens_per_second, windows

SCHEMA = 1


def compare_curves(curves: Sequence[RunCurve], tolerance: Tolerance) -> dict[str, Any]:
    """Return the comparison of two curves or more as plain data, with no number that JSON lacks.

    ``verdict``: "different" where any pair is; "same" where all are; "nothing to compare" where no pair has a step in
    common; else "incomplete". Speeds are of whole runs, whichever steps are asked about.
    """
    pairs = [
        {"a": 0, "b": index, **compare_pair(curves[0], curve, tolerance)}
        for index, curve in enumerate(curves[1:], start=1)
    ]
    speeds = [_window(curve) for curve in curves]
    return {
        "schema": SCHEMA,
        "verdict": overall([str(pair["verdict"]) for pair in pairs]),
        "tolerance": {
            "relative": tolerance.relative, "absolute": tolerance.absolute, "window": tolerance.window,
            "from": tolerance.first, "to": tolerance.last, "losses": list(tolerance.losses) or None,
        },
        "runs": [
            _run(curve, name, speed, _ratio(curve, speed, curves[0], speeds[0]), tolerance)
            for curve, name, speed in zip(curves, distinct_names(curves), speeds)
        ],
        "pairs": pairs,
        "configuration": differences([curve.configuration for curve in curves], [curve.kind for curve in curves]),
    }  # fmt: skip


def overall(verdicts: Sequence[str]) -> str:
    """Return the verdict over those of pairs: what is missing in one is never made good by another."""
    if DIFFERENT in verdicts:
        return DIFFERENT
    if len(set(verdicts)) == 1:
        return verdicts[0]
    return INCOMPLETE if verdicts else NOTHING


def distinct_names(curves: Sequence[RunCurve]) -> list[str]:
    """Return a name for each curve: where one stands twice, its source; where that does too, a number besides."""
    names = [curve.name for curve in curves]
    names = [curve.source if names.count(curve.name) > 1 else curve.name for curve in curves]
    return [f"{name} #{names[: at + 1].count(name)}" if names.count(name) > 1 else name
            for at, name in enumerate(names)]  # fmt: skip


def _run(
    curve: RunCurve, name: str, speed: Optional[Window], ratio: Optional[float], tolerance: Tolerance
) -> dict[str, Any]:
    steps = [record for record in curve.steps if tolerance.asks_for(record.step)]
    return {
        "name": name, "source": curve.source, "kind": curve.kind, "recipe": curve.recipe,
        "rehearsal": curve.rehearsal, "gpus": curve.gpus, "tokens_per_step": curve.tokens_per_step,
        "configuration_known": curve.configuration is not None, "repeated": spans(curve.repeated),
        "steps": [record.step for record in steps],
        "series": {
            LM_LOSS: [finite(record.losses.get(LM_LOSS)) for record in steps],
            "grad norm": [finite(record.grad_norm) for record in steps],
            "learning rate": [finite(record.learning_rate) for record in steps],
            "step time (ms)": [finite(record.step_time_ms) for record in steps],
            "tokens/s/GPU": [
                finite(tokens_per_second(record, curve.gpus, curve.sequence_length)) for record in steps
            ],
        },
        "evaluations": [
            {"step": record.iteration, "which": record.which, "losses": encode_losses(record.losses)}
            for record in curve.evaluations if tolerance.asks_for(record.iteration)
        ],
        "speed": _speed(speed, ratio),
    }  # fmt: skip


def _window(curve: RunCurve) -> Optional[Window]:
    """Return the speed of a run after its warm-up; None where a step has no time."""
    return after_warm_up(windows(curve.steps, Setting(curve.gpus, curve.sequence_length)))


def _speed(window: Optional[Window], ratio: Optional[float]) -> dict[str, Any]:
    keys = ("mean_ms", "median_ms", "p99_ms", "tokens_per_second_per_gpu", "tflops_per_gpu")
    return {
        "steps": window.steps if window else 0, "first": window.first if window else None,
        "last": window.last if window else None,
        **{key: getattr(window, key) if window else None for key in keys}, "ratio": ratio,
    }  # fmt: skip


def _ratio(curve: RunCurve, speed: Optional[Window], first: RunCurve, its: Optional[Window]) -> Optional[float]:
    """Return how fast a run is as a multiple of the first: tokens/s/GPU, or steps/s where tokens or GPUs are not known.

    None where nothing is known, or where steps are not known to be the same work.
    """
    if speed is None or its is None:
        return None
    rate, base = speed.tokens_per_second_per_gpu, its.tokens_per_second_per_gpu
    if rate is not None and base:
        return rate / base
    batches = (curve.steps[-1].global_batch_size, first.steps[-1].global_batch_size)
    same_work = batches[0] == batches[1] and len({curve.sequence_length, first.sequence_length} - {None}) <= 1
    return its.mean_ms / speed.mean_ms if same_work and curve.gpus == first.gpus else None
