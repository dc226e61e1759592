"""A gate that passes, in memory and as a run folder, for tests to break in one place."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial.judge.evidence import CheckpointFound, Expectations, GateEvidence, RankExit
from seatrial.judge.records import EvaluationRecord, Evidence, StepRecord

LOGS = Path(__file__).parent / "logs"
RANKS = 2


def loss_at(step: int) -> float:
    """A loss that falls from 5 towards 3, with 7 digits as Megatron prints them."""
    return float(f"{3 + 2 * 0.98**step:.6E}")


def good_steps(first: int = 1, last: int = 100, attempt: int = 0) -> tuple[StepRecord, ...]:
    return tuple(
        StepRecord(
            step=step,
            of=100,
            attempt=attempt,
            time=f"2026-01-01T00:{step // 60:02d}:{step % 60:02d}.{attempt:06d}",
            consumed_samples=4 * step,
            step_time_ms=30.0,
            learning_rate=1e-6 * step,
            global_batch_size=4,
            losses={"lm loss": loss_at(step), "mtp_1 loss": loss_at(step) / 2},
            loss_scale=1.0,
            grad_norm=1.0 + step / 1000,
            skipped=0,
            nan=0,
        )
        for step in range(first, last + 1)
    )


def evidence_line(when: str, iteration: int, **changes: Any) -> Evidence:
    line = Evidence(
        when=when,
        iteration=iteration,
        world_size=RANKS,
        device="cuda",
        dispatcher="MoEFlexTokenDispatcher",
        dispatcher_backend="hybridep",
        deep_ep={"file": "/opt/deep_ep/__init__.py", "version": "1.2", "stand_in": False},
        dispatch_calls=24 * iteration,
        cuda_graphs_captured=0,
    )
    return replace(line, **changes)


def good_gate() -> GateEvidence:
    return GateEvidence(
        scope="run",
        subject="/runs/x",
        steps=good_steps(),
        logged_steps=good_steps(),
        evaluations=(
            EvaluationRecord(50, "interval", {"lm loss": 4.1}),
            EvaluationRecord(100, "validation", {"lm loss": 3.3}),
            EvaluationRecord(100, "test", {"lm loss": 3.4}),
        ),
        evidence_lines=(evidence_line("first step", 1), evidence_line("end", 100)),
        exits=tuple(RankExit(rank, 0, "completed") for rank in range(RANKS)),
        checkpoints={50: CheckpointFound(True, "whole", 50), 100: CheckpointFound(True, "whole", 100)},
    )


GOOD_EXPECTATIONS = Expectations(
    steps=100,
    save_steps=(50, 100),
    learning_ratio=0.85,
    world_size=RANKS,
    device="cuda",
    hybridep=True,
    graphs_off=True,
    required_losses=("lm loss", "mtp_1 loss"),
)


def change_step(steps: Iterable[StepRecord], step: int, **changes: Any) -> tuple[StepRecord, ...]:
    return tuple(replace(record, **changes) if record.step == step else record for record in steps)


def with_steps(gate: GateEvidence, steps: Iterable[StepRecord]) -> GateEvidence:
    """Replace the steps in the records and in the logs alike."""
    kept = tuple(steps)
    return replace(gate, steps=kept, logged_steps=kept)


def float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]  # type: ignore[no-any-return]


def megatron_lines(losses: Sequence[float], first_step: int = 1, of: int = 100, ms: float = 20.0) -> list[str]:
    """Print ``losses`` as Megatron's loop does after a start: totals in float32, not reset after the first step."""
    lines, total, advanced, elapsed = [], 0.0, 0, 0.0
    for index, loss in enumerate(losses):
        step = first_step + index
        total, advanced = float32(total + float32(loss)), advanced + 1
        elapsed += ms * (10 if index == 0 else 1)
        lines.append(
            f" [2026-01-01 00:{step // 60:02d}:{step % 60:02d}.000000] iteration {step:8d}/{of:8d} |"
            f" consumed samples: {4 * step:12d} | elapsed time per iteration (ms): {elapsed / advanced:.1f} |"
            f" learning rate: {1e-6 * step:.6E} | global batch size: {4:5d} |"
            + (f" lm loss: {total / advanced:.6E} |" if total >= 0 else "")
            + f" loss scale: 1.0 | grad norm: {1 + step / 1000:.3f} |"
            f" number of skipped iterations: {0:3d} | number of nan iterations: {0:3d} |"
        )
        if index > 0:
            total, advanced, elapsed = 0.0, 0, 0.0
    return lines


def argument_dump(values: Mapping[str, Any]) -> list[str]:
    """Print ``values`` as Megatron's argument dump."""
    body = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in sorted(values.items())]
    return [
        "------------------------ arguments ------------------------",
        *body,
        "-------------------- end of arguments ---------------------",
    ]


def evaluation_lines(step: int = 100) -> list[str]:
    return [
        f" validation loss at iteration {step} on {which} set | lm loss value: 3.300000E+00 | lm loss PPL: 2.7E+01 | "
        for which in ("validation", "test")
    ]


def spec(**gate: Any) -> dict[str, Any]:
    """A run's spec.json, as far as the judge reads it: a dense model rehearsed on a CPU."""
    return {
        "schema": 1,
        "world_size": RANKS,
        "rehearsal": True,
        "gate": {"steps": 100, "save_steps": [50, 100], "learning_ratio": 0.85, **gate},
        "profile": {"device": "cpu"},
        "fields": {"model.num_layers": {"value": 2, "owner": "recipe", "source": "recipe:1"}},
    }


def write_attempt(folder: Path, number: int, rank_lines: Sequence[Sequence[str]], code: int = 0) -> Path:
    """Write one attempt: a log and an exit record per rank."""
    attempt = folder / "attempts" / f"{number:03d}"
    attempt.mkdir(parents=True)
    for rank, lines in enumerate(rank_lines):
        (attempt / f"rank-{rank:05d}.log").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        record = {"schema": 1, "rank": rank, "code": code, "how": "completed", "message": None}
        (attempt / f"exit-{rank:05d}.json").write_text(json.dumps(record), encoding="utf-8")
    return attempt


def write_metrics(folder: Path, records: Iterable[StepRecord]) -> None:
    text = "".join(json.dumps(record.to_json()) + "\n" for record in records)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
