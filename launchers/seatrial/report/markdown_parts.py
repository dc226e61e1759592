"""The rows of a run's Markdown block, each from the records that it rests on. Pure but for ``checkpoints``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seatrial.judge.history import AttemptRecord
from seatrial.judge.rules import spans
from seatrial.report.markdown_text import UNKNOWN, code, count, text
from seatrial.run import records
from seatrial.run.checkpoint import DELETED, check, list_checkpoints
from seatrial.run.fields import at
from seatrial.run.images import digest_in, named_digest
from seatrial.run.layout import RunFolder

# Megatron's arguments that tell one run from another at a glance, by dest.
_ARGUMENTS = (
    ("sequence length", "seq_length"), ("global batch", "global_batch_size"), ("micro batch", "micro_batch_size"),
    ("TP", "tensor_model_parallel_size"), ("PP", "pipeline_model_parallel_size"),
    ("CP", "context_parallel_size"), ("EP", "expert_model_parallel_size"),
    ("dispatcher", "moe_token_dispatcher_type"), ("backend", "moe_flex_dispatcher_backend"),
)  # fmt: skip
_VERSIONS = (("megatron-core", "megatron_core"), ("torch", "torch"), ("CUDA", "cuda"),
             ("Transformer Engine", "transformer_engine"), ("Python", "python"))  # fmt: skip


def what(spec: Mapping[str, Any]) -> str:
    """Return the recipe, and the arguments that matter."""
    fields = spec.get("fields")
    values = {
        key.partition(".")[2]: at(field, "value")
        for key, field in (fields.items() if isinstance(fields, Mapping) else ())
    }
    said = [f"{name} {code(values[dest])}" for name, dest in _ARGUMENTS if values.get(dest) is not None]
    bridge = at(spec, "bridge", "recipe")
    engine = [f"engine megatron-bridge, its recipe {code(bridge)}"] if bridge else []
    return "; ".join([f"recipe {code(spec.get('recipe'))}", *engine, ", ".join(said) or f"arguments {UNKNOWN}"])


def where(spec: Mapping[str, Any], events: Sequence[Mapping[str, Any]], rehearsal: bool | None) -> str:
    """Return the profile, how many GPUs of which type, and the image; of a rehearsal that it had no GPU."""
    profile = spec.get("profile") if isinstance(spec.get("profile"), Mapping) else {}
    nodes, each = at(profile, "nodes"), at(profile, "gpus_per_node")
    if rehearsal:
        shape = f"{text(spec.get('world_size', UNKNOWN))} CPU ranks: a rehearsal, no GPU"
    else:
        shape = f"{text(nodes or UNKNOWN)} nodes x {text(each or UNKNOWN)} GPUs"
        shape += f"; GPU type {code(at(profile, 'gpu_type'))} by the profile, {_seen_gpu(events)}"
    return f"profile {code(at(profile, 'name'))}: {shape}; image {image(at(profile, 'container', 'image'), events)}"


def _seen_gpu(events: Iterable[Mapping[str, Any]]) -> str:
    seen = {str(event["gpu"]) for event in events if event.get("event") == "evidence" and event.get("gpu")}
    if not seen:
        return "the driver's name is not on record"
    return f"{' and '.join(code(name) for name in sorted(seen))} by the driver of rank 0"


def image(named: Any, events: Iterable[Mapping[str, Any]]) -> str:
    """Return the image's name without where it is kept, and its digest: the reference's, or the file's."""
    if not named:
        return "none"
    digest = named_digest(str(named)) or digest_in(events)
    name = str(named).partition("@sha256:")[0].rstrip("/").rpartition("/")[2]
    return f"{code(name)}, {f'`{digest}`' if digest else f'digest {UNKNOWN}'}"


def jobs(history: Iterable[AttemptRecord], events: Iterable[Mapping[str, Any]]) -> str:
    """Return the jobs of all attempts, and which attempts each carried."""
    carried: dict[str, list[int]] = {}
    for event in events:
        if event.get("event") == "submitted" and event.get("executor") == "slurm" and event.get("job_id"):
            carried.setdefault(str(event["job_id"]), [])
    local: list[int] = []
    for one in history:
        number = at(one.data.get("job"), "id")
        (local if number is None else carried.setdefault(str(number), [])).append(one.number)
    parts = [f"{code(job)} ({_attempts(numbers)})" for job, numbers in carried.items()]
    if local:
        parts.append(f"no Slurm job ({_attempts(local)})")
    return "; ".join(parts) or "none on record"


def _attempts(numbers: Sequence[int]) -> str:
    return f"attempt{'' if len(numbers) == 1 else 's'} {spans(numbers)}" if numbers else "no attempt on record"


def checkpoints(folder: RunFolder, events: Iterable[Mapping[str, Any]]) -> str:
    """Return how many saves were finished, and which checkpoints are whole: on disk, or when they were deleted."""
    saved = {event["step"] for event in events if event.get("event") == "checkpoint_saved" and _step(event)}
    if not saved:
        return "no finished save is on record"
    head = f"saved at {spans(saved)}" if len(saved) <= 4 else f"{count(len(saved), 'save')}, the last at {max(saved)}"
    states = [check(path) for path in list_checkpoints(folder.checkpoints)]
    whole = {state.step for state in states if state.whole and state.step is not None}
    broken = {state.step for state in states if not state.whole and state.step is not None}
    deleted = records.read_object(folder.path / DELETED) or {}
    before = {int(step) for step, state in deleted.items() if _is_number(step) and at(state, "whole") is True} - whole
    parts = [
        f"whole on disk: {spans(whole)}" if whole else "",
        f"whole at the verdict, deleted since: {spans(before)}" if before else "",
        f"**not whole**: {spans(broken)}" if broken else "",
    ]
    return "; ".join([head, *filter(None, parts)]) + ("" if whole or before else f"; whether any is whole is {UNKNOWN}")


def evaluations(events: Sequence[Mapping[str, Any]], total: int | None) -> str:
    """Return the final losses on the validation and the test set; they count only at the target step."""
    parts = []
    for which in ("validation", "test"):
        found = [event for event in events if event.get("event") == "evaluation" and event.get("which") == which]
        last = next((event for event in reversed(found) if total is not None and event.get("step") == total), None)
        losses = at(last, "losses")
        if not isinstance(losses, Mapping) or not losses:
            parts.append(f"no final {which} loss is on record")
        else:
            values = ", ".join(f"{text(name)} {text(value)}" for name, value in losses.items())
            parts.append(f"{which} {values} at step {total:,}")
    return "; ".join(parts)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) < 12


def _step(event: Mapping[str, Any]) -> bool:
    return isinstance(event.get("step"), int) and not isinstance(event["step"], bool)


def speed(verdict: Mapping[str, Any]) -> str:
    """Return the last steps' speed as the verdict has it."""
    windows = at(verdict, "speed", "windows")
    windows = [one for one in windows if isinstance(one, Mapping)] if isinstance(windows, list) else []
    window = next((one for one in windows if str(one.get("name")).startswith("last ")), None)
    if window is None:
        return f"{UNKNOWN}: no verdict has measured it"
    parts = [
        words for key, form, unit in (
            ("mean_ms", "{:,.1f}", "ms/step"), ("tokens_per_second_per_gpu", "{:,.0f}", "tokens/s/GPU"),
            ("tflops_per_gpu", "{:,.1f}", "TFLOP/s/GPU"),
        ) if (words := _number(window.get(key), form, unit))
    ]  # fmt: skip
    peak = at(verdict, "speed", "peak")
    mfu = _number(window.get("mfu"), "{:.1%}", "")
    parts.append(f"MFU {mfu} of {text(peak)}" if mfu else f"MFU {UNKNOWN}{f' ({text(peak)})' if peak else ''}")
    return f"{text(window['name'])}: {', '.join(parts)}"


def _number(value: Any, form: str, unit: str) -> str:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) < 1e15:
        return ""
    return f"{form.format(value)} {unit}".rstrip()


def heads(spec: Mapping[str, Any]) -> str:
    """Return the commit that ran, and whether it was that commit alone."""
    source = spec.get("provenance")
    commit, dirty = at(source, "commit"), at(source, "dirty")
    if not commit:
        return f"seatrial {code(at(source, 'seatrial'))}, commit {UNKNOWN}"
    changed = at(source, "changed"), at(source, "untracked")
    files = sum(len(names) for names in changed if isinstance(names, list))
    differs = f"**dirty**: {count(files, 'file')} of its own" if files else "**dirty**"
    state = "clean" if dirty is False else differs if dirty is True else f"whether clean is {UNKNOWN}"
    return f"seatrial {code(commit)}, {state}"


def versions(spec: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> str:
    """Return the versions that rank 0 said it ran with; else megatron-core's that was asked for."""
    said = [event["versions"] for event in events
            if event.get("event") == "evidence" and isinstance(event.get("versions"), Mapping)]  # fmt: skip
    if not said:
        return f"megatron-core {code(spec.get('megatron_core'))} asked for; what ran is {UNKNOWN}"
    return ", ".join(f"{name} {code(said[-1][key])}" for name, key in _VERSIONS if said[-1].get(key))
