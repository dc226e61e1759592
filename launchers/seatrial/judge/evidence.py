"""What a gate is judged on, and what it is held against: plain frozen data, no files."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Optional

from seatrial.judge.merge import Curve, merge_steps
from seatrial.judge.records import (
    LM_LOSS,
    ArgumentDump,
    EvaluationRecord,
    Evidence,
    ExitNotice,
    SaveRecord,
    StepRecord,
)
from seatrial.judge.verdict import RuleResult
from seatrial.run.reference import Held

RUN = "run"
LOG = "log"
# The least that a loss must fall where a recipe says nothing: a flat curve has learned nothing.
DEFAULT_LEARNING_RATIO = 0.99


@dataclass(frozen=True)
class RankExit:
    """A rank's own exit record. ``code`` None: the record cannot be read."""

    rank: int
    code: Optional[int]
    how: Optional[str] = None
    message: Optional[str] = None


@dataclass(frozen=True)
class CheckpointFound:
    """What opening a checkpoint showed. ``whole``: its metadata and every shard are there in full length."""

    whole: bool
    reason: str
    step: Optional[int]


@dataclass(frozen=True)
class Injected:
    """A fault that a drill put in, by its event. ``node``: where; ``what``: in words."""

    attempt: Optional[int]
    fault: str
    step: Optional[int]
    node: Optional[str]
    what: str


@dataclass(frozen=True)
class DrilledAttempt:
    """An attempt of a drill. ``name``: its class; None: it left no record, and nothing else is known."""

    number: int
    name: Optional[str] = None
    resume_step: Optional[int] = None
    first_step: Optional[int] = None
    last_step: Optional[int] = None
    saved_steps: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DrillEvidence:
    """What is known of a drill: ``fault`` was to come at ``step``.

    ``reference``: the folder of the undisturbed run, ``reference_problem`` why it is nothing to compare with (None: it
    is). ``has_spares``: a node that is lost has another to take its place.
    """

    fault: str
    step: int
    injected: tuple[Injected, ...] = ()
    attempts: tuple[DrilledAttempt, ...] = ()
    reference: Optional[str] = None
    reference_steps: tuple[StepRecord, ...] = ()
    reference_problem: Optional[str] = None
    has_spares: bool = False


@dataclass(frozen=True)
class SecondPass:
    """A gate's resume check, as its own root shows it. ``loaded``: the checkpoint that it began with. ``name``: the
    class of its attempt, ``reason`` how that ended; None: no record. ``interrupted``: what ended it from outside.
    """

    loaded: Optional[int] = None
    steps: tuple[StepRecord, ...] = ()
    name: Optional[str] = None
    reason: Optional[str] = None
    interrupted: Optional[str] = None


@dataclass(frozen=True)
class GateEvidence:
    """Everything known of one gate.

    ``steps``: all records in the order printed, repetitions included. ``logged_steps``: the same read again from
    the rank logs, None where there are no logs (scope "run" only). ``evidence_lines``: of the last attempt.
    ``exits``: of the last attempt, None where nothing could hold any. ``checkpoints``: save step -> finding.
    ``interrupted``: what ended the gate from outside before it was over (a node's failure, a preemption), in words.
    ``places``: what to open to see it, by topic ("steps", "log", "exits", "checkpoints"). ``drill``: of a gate that a
    fault was put into; None for any other. ``second_pass``: of its resume check, None where nothing is there.
    """

    scope: str
    subject: str
    rehearsal: bool = False
    steps: tuple[StepRecord, ...] = ()
    logged_steps: Optional[tuple[StepRecord, ...]] = None
    evaluations: tuple[EvaluationRecord, ...] = ()
    saves: tuple[SaveRecord, ...] = ()
    evidence_lines: tuple[Evidence, ...] = ()
    arguments: Optional[ArgumentDump] = None
    exits: Optional[tuple[RankExit, ...]] = None
    checkpoints: Mapping[int, CheckpointFound] = field(default_factory=dict)
    notices: tuple[ExitNotice, ...] = ()
    interrupted: Optional[str] = None
    places: Mapping[str, str] = field(default_factory=dict)
    drill: Optional[DrillEvidence] = None
    second_pass: Optional[SecondPass] = None

    @cached_property
    def curve(self) -> Curve:
        """One record a step, the last one: merged once, as most rules ask for it."""
        return merge_steps(self.steps)

    def result(
        self, rule: str, verdict: str, expected: str, seen: str, place: str, steps: Iterable[int] = ()
    ) -> RuleResult:  # fmt: skip
        """Return what a rule came to. ``place``: a topic of ``places``; ``steps``: those that broke it."""
        return RuleResult(rule, verdict, expected, seen, tuple(sorted(steps)), self.places.get(place, ""))


@dataclass(frozen=True)
class Expectations:
    """What a gate must show. None means that nobody said, so the log's own arguments are asked.

    ``hybridep``/``graphs_off``: whether the run was asked to dispatch by HybridEP, to capture no CUDA graph.
    ``required_losses``: loss names that every step must print, whether or not any step printed them.
    ``learning_ratio``: most that mean(last losses) / mean(first losses) may be. ``resume_from``: the checkpoint that
    the resume check loads; None: none is asked for. ``held``: the reference that the run is held against.
    """

    steps: int = 100
    save_steps: tuple[int, ...] = (50, 100)
    learning_ratio: float = DEFAULT_LEARNING_RATIO
    world_size: Optional[int] = None
    device: Optional[str] = None
    hybridep: Optional[bool] = None
    graphs_off: Optional[bool] = None
    required_losses: tuple[str, ...] = (LM_LOSS,)
    resume_from: Optional[int] = None
    gpu_type: Optional[str] = None
    sequence_length: Optional[int] = None
    global_batch_size: Optional[int] = None
    held: Held = field(default_factory=Held)

    @property
    def tokens_per_step(self) -> Optional[int]:
        """Tokens of a global batch."""
        known = self.sequence_length and self.global_batch_size
        return self.sequence_length * self.global_batch_size if known else None  # type: ignore[operator]


def asks_for_hybridep(arguments: Mapping[str, Any]) -> Optional[bool]:
    """Tell whether Megatron ``arguments`` (values or their printed form) ask for HybridEP; None: they do not say."""
    experts = _value(arguments, "num_experts")
    dispatcher = _value(arguments, "moe_token_dispatcher_type")
    backend = _value(arguments, "moe_flex_dispatcher_backend")
    if "num_experts" in arguments and experts in (None, 0):
        return False
    if dispatcher is not None and dispatcher != "flex":
        return False
    if dispatcher == "flex" and backend is not None:
        return bool(backend == "hybridep")
    return None


def graphs_asked_off(arguments: Mapping[str, Any]) -> Optional[bool]:
    """Tell whether Megatron ``arguments`` leave CUDA graphs off; None: they do not say."""
    switches = ("enable_cuda_graph", "external_cuda_graph", "optimizer_cuda_graph")
    if any(_value(arguments, name) is True for name in switches):
        return False
    if "cuda_graph_impl" in arguments:
        return _value(arguments, "cuda_graph_impl") in (None, "none")
    return True if "enable_cuda_graph" in arguments else None


def required_losses(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the losses that a run with these ``arguments`` must print on every line.

    Megatron leaves a NaN loss out of the line, so a loss that is NaN from the first step on is never printed:
    it has to be known beforehand. Source: ``training_log`` of megatron-core 0.19.2.
    """
    names = [LM_LOSS]
    layers = _value(arguments, "mtp_num_layers")
    if isinstance(layers, int):
        names += [f"mtp_{layer + 1} loss" for layer in range(layers)]
    if _value(arguments, "num_experts"):
        kinds = _value(arguments, "moe_router_load_balancing_type")
        kinds = kinds if isinstance(kinds, (list, tuple)) else [kinds]
        printed = {
            "aux_loss": "load_balancing_loss",
            "seq_aux_loss": "seq_load_balancing_loss",
            "global_aux_loss": "global_load_balancing_loss",
        }
        names += [printed[kind] for kind in kinds if kind in printed]
    return tuple(names)


def _value(arguments: Mapping[str, Any], name: str) -> Any:
    """Return an argument; a printed value ("None", "2", "['aux_loss']") becomes what was printed."""
    value = arguments.get(name)
    if isinstance(value, str):
        try:
            return ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return value
    return value
