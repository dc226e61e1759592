"""What a recipe needs of the image, and what is wrong with what the image said. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.check.blame import Finding, Severity, profile
from seatrial.check.layout import uses_hybridep
from seatrial.run.releases import same_line
from seatrial.slurm.image_program import MARK
from seatrial.spec.runspec import RunSpec


@dataclass(frozen=True)
class Need:
    """A module, the distribution that names its version, the oldest that fits, what needs it, and how to get it."""

    module: str
    distribution: str
    needed_for: str
    install: str
    least: str | None = None
    attribute: str | None = None


_TRAIN = "pip install 'seatrial[train]'"
_EVERY = (
    Need("torch", "torch", "every run", _TRAIN),
    Need("einops", "einops", "Mamba and gated delta net layers", _TRAIN),
    Need("psutil", "psutil", "Megatron's loop", _TRAIN),
    Need("tensorboard", "tensorboard", "the scalars of every run", _TRAIN),
    Need("megatron.core", "megatron-core", "every run", _TRAIN),
    Need("megatron.training", "megatron-core", "every run", _TRAIN),
)
_HUGGING_FACE = Need("transformers", "transformers", "tokenizer_type HuggingFaceTokenizer", _TRAIN, "4.57")
_WANDB = Need(
    "wandb", "wandb", "profile.wandb", "pip install 'seatrial[wandb]', or --set profile.wandb.enabled=false", "0.22"
)
_BRIDGE = Need(
    "megatron.bridge", "megatron-bridge", "the engine megatron-bridge",
    "an image with it (NeMo's have it), or --engine megatron-core", "0.5",
)  # fmt: skip
_TRANSFORMER_ENGINE = Need(
    "transformer_engine.pytorch", "transformer-engine", "the layers", "pip install 'transformer-engine[pytorch]'", "2.8"
)
_HYBRID_EP = Need(
    "deep_ep", "deep-ep", "moe_flex_dispatcher_backend hybridep",
    "build DeepEP's hybrid-ep branch: docs/how-to/container", attribute="HybridEPBuffer",
)  # fmt: skip
_MAMBA = (
    Need("mamba_ssm", "mamba-ssm", "Mamba layers", "pip install --no-build-isolation mamba-ssm", "2.2.6"),
    Need("causal_conv1d", "causal-conv1d", "Mamba layers", "pip install --no-build-isolation causal-conv1d", "1.5.3"),
)
_GATED_DELTA_NET = Need(
    "fla", "flash-linear-attention", "gated delta net layers", "pip install flash-linear-attention", "0.4"
)


def needs_of(spec: RunSpec) -> list[Need]:
    """Return the modules that the run imports, in the order in which the image is asked. A rehearsal needs few."""
    needs = [*_EVERY, *([_BRIDGE] if spec.bridge else [])]
    if spec.get("tokenizer_type") == "HuggingFaceTokenizer":
        needs.append(_HUGGING_FACE)
    if (spec.profile.get("wandb") or {}).get("enabled"):
        needs.append(_WANDB)
    if spec.rehearsal:
        return needs
    if spec.get("transformer_impl", "transformer_engine") == "transformer_engine":
        needs.append(_TRANSFORMER_ENGINE)
    if uses_hybridep(spec):
        needs.append(_HYBRID_EP)
    pattern = spec.get("hybrid_layer_pattern") or ""
    if "M" in pattern:
        needs.extend(_MAMBA)
    if spec.get("experimental_attention_variant") == "gated_delta_net" or "G" in pattern:
        needs.append(_GATED_DELTA_NET)
    return needs


def programs_of(spec: RunSpec) -> list[str]:
    """Return the programs that a rank starts: HybridEP compiles its kernels, and numactl binds."""
    compiler = ["nvcc"] if uses_hybridep(spec) and not spec.rehearsal else []
    return [*compiler, *(["numactl"] if spec.profile["numa_bind"] else [])]


def question(spec: RunSpec) -> str:
    """Return the argument of the program that runs in the image."""
    modules = [[need.module, need.distribution, need.attribute] for need in needs_of(spec)]
    return json.dumps({"modules": modules, "programs": programs_of(spec)})


def facts_in(text: str) -> list[dict[str, Any]]:
    """Return the facts among the lines that the step printed."""
    found = []
    for line in text.splitlines():
        _, mark, rest = line.partition(MARK)
        try:
            fact = json.loads(rest) if mark else None
        except ValueError:
            continue
        if isinstance(fact, dict):
            found.append(fact)
    return found


def judge_image(spec: RunSpec, facts: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Return what the image lacks, and a note with the versions that it has."""
    modules = {fact["module"]: fact for fact in facts if "module" in fact}
    importing = {fact["importing"] for fact in facts if "importing" in fact} - set(modules)
    for need in needs_of(spec):
        yield from _judge(spec, need, modules.get(need.module), need.module in importing)
    for fact in facts:
        if "program" in fact and not fact["found"]:
            name = str(fact["program"])
            what = (
                "HybridEP compiles its kernels at run time" if name == "nvcc" else "the profile binds ranks (numa_bind)"
            )
            yield _blame(spec, f"{what}, and the image has no {name}", f"add {name} to the image", value=name)
        if "gpu" in fact and fact["gpu"] is None and not spec.rehearsal and spec.profile["gpu_request"] != "none":
            words = f": {fact['words']}" if fact.get("words") else f" (built for CUDA {fact.get('cuda')})"
            yield _blame(spec, f"torch sees no GPU{words}", "an image whose CUDA fits the nodes' driver", value="torch")
    yield from _note(spec, facts, modules)


def release(text: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with: 2.8.0+cu13 -> (2, 8, 0)."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(map(int, match[1].split("."))) if match else ()


def _judge(spec: RunSpec, need: Need, fact: Mapping[str, Any] | None, ended: bool) -> Iterator[Finding]:
    why = f"needed for {need.needed_for}"
    if ended:
        yield _blame(spec, f"importing {need.module} ended Python; {why}", need.install, value=need.module)
    elif fact is None:
        yield _blame(spec, f"{need.module} was not reached; {why}", value=need.module, severity="warning")
    elif fact["state"] == "missing":
        yield _blame(spec, f"{need.module} is missing; {why}", need.install, value=need.module)
    elif fact["state"] != "there":
        yield _blame(spec, f"{need.module} is {fact['state']}; {why}: {fact['words']}", need.install, value=need.module)
    else:
        version = str(fact.get("version") or "")
        if need.module == "megatron.core" and release(version) != release(spec.megatron_core):
            rule = (
                f"megatron-core {spec.megatron_core}, whose arguments this run is written in; the image has {version}"
            )
            fix = f"pip install megatron-core=={spec.megatron_core}, or name the image's line in profile.megatron_core"
            # Megatron-Bridge is told in its own words; and a patch of the same line has the same arguments.
            mild = spec.bridge is not None or same_line(version, spec.megatron_core)
            yield _blame(spec, rule, fix, value=version, severity="warning" if mild else "error")
        elif need.least and version and release(version) < release(need.least):
            rule = f"{need.distribution} {need.least} or newer; the image has {version}"
            yield _blame(spec, rule, need.install, value=version, severity="warning")


def _note(
    spec: RunSpec, facts: Sequence[Mapping[str, Any]], modules: Mapping[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    python = next((fact for fact in facts if "python" in fact), {})
    gpu = next((fact["gpu"] for fact in facts if fact.get("gpu")), None)
    there = [f"{n} {f.get('version') or '(no version)'}" for n, f in modules.items() if f["state"] == "there"]
    said = [f"Python {python.get('python')} on {python.get('machine')}", *there, *([gpu] if gpu else [])]
    yield _blame(spec, f"looked at on node {python.get('node')}: {', '.join(said)}", severity="note")


def _blame(
    spec: RunSpec, rule: str, fix: str = "", *, severity: Severity = "error", value: str | None = None
) -> Finding:
    image = spec.profile["container"]["image"]
    key = "container.image" if image else "rank_python"
    return profile(spec, key, rule, fix, severity=severity, value=value or image or spec.profile["rank_python"])
