"""Megatron's own parser, validation and configuration classes over a run's arguments, at the real world size.

``python -m seatrial.train.deep_check SPEC_OR_PLAN_JSON`` starts no ranks and builds no model. The last line of its
output is one JSON object; the exit code is 0 if Megatron takes the arguments, else 1.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import io
import json
import os
import sys
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seatrial.errors import SeatrialError

RESOLVED_ARGUMENTS = (
    "world_size", "data_parallel_size", "global_batch_size", "micro_batch_size", "train_iters",
    "lr_decay_iters", "lr_warmup_iters", "lr", "min_lr", "weight_decay", "start_weight_decay",
    "end_weight_decay", "seq_length", "num_layers", "padded_vocab_size", "params_dtype",
    "check_for_nan_in_loss_and_grad", "ckpt_format", "rerun_mode",
)  # fmt: skip
RESOLVED_MODEL = (
    "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups",
    "num_moe_experts", "moe_router_topk", "moe_router_dtype", "moe_token_dispatcher_type",
    "moe_flex_dispatcher_backend", "moe_flex_dispatcher_num_sms", "expert_model_parallel_size",
    "mtp_num_layers", "experimental_attention_variant", "is_hybrid_model", "transformer_impl",
    "cuda_graph_impl", "attention_dropout", "hidden_dropout",
)  # fmt: skip


@dataclasses.dataclass
class Report:
    """The answer. ``findings`` hold severity (``error`` or ``warning``) and message."""

    ok: bool = False
    stand_in: list[str] = dataclasses.field(default_factory=list)
    findings: list[dict[str, str]] = dataclasses.field(default_factory=list)
    resolved: dict[str, Any] = dataclasses.field(default_factory=dict)

    def add(self, severity: str, message: str) -> None:
        """Add a finding once."""
        finding = {"severity": severity, "message": message}
        if finding not in self.findings:
            self.findings.append(finding)


def check(arguments: list[str], world_size: int) -> Report:
    """Feed ``arguments`` to Megatron as rank 0 of ``world_size``; changes this process, so run it in its own."""
    from seatrial.train import arguments as parser
    from seatrial.train import models, requirements, stand_in

    requirements.check_imports()
    os.environ.update(RANK="0", WORLD_SIZE=str(world_size), LOCAL_RANK="0")
    report = Report()
    errors = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stderr(errors):
        warnings.simplefilter("always")
        try:
            from megatron.training.argument_utils import pretrain_cfg_container_from_args
            from megatron.training.arguments import parse_args, validate_args

            report.stand_in = stand_in.declare()
            before = len(caught)
            with parser.command_line(arguments):
                args = parse_args()
            validate_args(args)
            if args.padded_vocab_size is None and args.vocab_size is None:
                args.vocab_size = 32000
                report.stand_in.append("a vocabulary of 32,000: it is the tokenizer's, which is not loaded here")
            config = models.model_config(args)
            config.finalize()
            pretrain_cfg_container_from_args(args, config)
        except SystemExit:
            report.add("error", (errors.getvalue().strip().splitlines() or ["Megatron's parser exited"])[-1])
            return report
        except Exception as error:
            report.add("error", describe(error))
            return report
    for warning in caught[before:]:
        if issubclass(warning.category, UserWarning):
            report.add("warning", str(warning.message))
    report.ok = True
    report.resolved = resolved(args, config.transformer)
    return report


def describe(error: Exception) -> str:
    """Return the error's text and where it was raised; an assertion without text gives its source line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error) or f"{type(error).__name__}: {frame.line}"
    return f"{text} ({Path(frame.filename).name}:{frame.lineno})"


def resolved(args: Any, transformer: Any) -> dict[str, Any]:
    """Return the values that Megatron arrived at, as plain data."""
    values = {f"arguments.{name}": getattr(args, name, None) for name in RESOLVED_ARGUMENTS}
    values |= {f"model.{name}": getattr(transformer, name, None) for name in RESOLVED_MODEL}
    return {name: plain(value) for name, value in values.items()}


def plain(value: Any) -> Any:
    """Return ``value`` if JSON has it, an enumeration's name, else its text."""
    if isinstance(value, enum.Enum):
        return value.name
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def read(path: Path) -> tuple[list[str], int]:
    """Return arguments and world size of a spec.json or plan.json; raises :class:`SeatrialError`."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SeatrialError(f"cannot read the spec: {error}", file=path) from error
    if not isinstance(document, Mapping) or not {"arguments", "world_size"} <= document.keys():
        raise SeatrialError("neither a spec nor a plan: it needs arguments and world_size", file=path)
    return [str(word) for word in document["arguments"]], int(document["world_size"])


def main(words: list[str]) -> int:
    """Check the file that ``words`` names, print the report, return the exit code."""
    if len(words) != 1:
        print("usage: python -m seatrial.train.deep_check SPEC_OR_PLAN_JSON", file=sys.stderr)
        return 2
    try:
        arguments, world_size = read(Path(words[0]))
        with contextlib.redirect_stdout(sys.stderr):  # Megatron prints what it parsed
            report = check(arguments, world_size)
    except SeatrialError as error:
        print(f"seatrial: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(dataclasses.asdict(report)))
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
