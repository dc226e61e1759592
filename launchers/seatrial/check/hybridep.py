"""HybridEP's own rules. Megatron-Core accepts most violations when it parses and fails, or crawls, much later.

Sources: ``csrc/hybrid_ep/config.cuh`` and ``deep_ep/hybrid_ep_buffer.py`` of DeepEP's ``hybrid-ep`` branch;
``fused_a2a.py`` and ``token_dispatcher.py`` of Megatron-Core 0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.check.blame import Finding, argument, environment, set_flag
from seatrial.check.layout import Layout, experts_of, uses_hybridep
from seatrial.spec.runspec import RunSpec

RANKS = "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"
CHUNKS = ("NUM_OF_TOKENS_PER_CHUNK_DISPATCH_API", "NUM_OF_TOKENS_PER_CHUNK_COMBINE_API")
DEFAULT_CHUNK = 64
# Streaming multiprocessors of a device. An unknown device is held to the smallest.
MULTIPROCESSORS = {"gb200": 152, "gb300": 160, "b200": 148, "b300": 160, "h100": 132, "h200": 132}
SM_COUNTS = ("moe_flex_dispatcher_num_sms", "moe_hybridep_num_sms", "moe_hybridep_num_sms_preprocessing")


def check_dispatcher(spec: RunSpec) -> Iterator[Finding]:
    """HybridEP runs where it was asked for: through the flex dispatcher, with experts, between ranks."""
    backend, kind = spec.get("moe_flex_dispatcher_backend"), spec.get("moe_token_dispatcher_type")
    if backend == "hybridep" and not experts_of(spec):
        rule = "HybridEP carries tokens to experts: a dense model has none"
        yield argument(spec, "moe_flex_dispatcher_backend", rule, "leave the moe section out, or set moe.num_experts")
        return
    if backend == "hybridep" and kind != "flex":
        rule = f"HybridEP needs the flex dispatcher; with {kind or 'none'} Megatron ignores the backend in silence"
        yield argument(spec, "moe_token_dispatcher_type", rule, set_flag(spec, "moe_token_dispatcher_type", "flex"))
    if uses_hybridep(spec) and Layout.of(spec).ep == 1:
        rule = "HybridEP needs more than one expert-parallel rank: at 1 there is nothing to carry"
        yield argument(spec, "expert_model_parallel_size", rule, "take 2 or more, or the alltoall dispatcher")
    gpu = str(spec.profile.get("gpu_type") or "")
    if experts_of(spec) and kind == "flex" and backend in (None, "deepep") and gpu.startswith("gb"):
        rule = f"DeepEP's own mode reaches the GPUs of one node only and does not run on {gpu}"
        fix = set_flag(spec, "moe_flex_dispatcher_backend", "hybridep")
        yield argument(spec, "moe_flex_dispatcher_backend", rule, fix)


def check_hybridep_sizes(spec: RunSpec) -> Iterator[Finding]:
    """The sizes that HybridEP's kernels are built for."""
    at, experts = Layout.of(spec), experts_of(spec)
    if not uses_hybridep(spec) or not experts or experts % at.ep:
        return
    width = "moe_latent_size" if spec.get("moe_latent_size") else "hidden_size"
    if spec.get(width) and int(spec.get(width)) % 16:
        yield argument(spec, width, "a multiple of 16: HybridEP moves tokens in units of 16 elements")
    ranks = _ranks_per_domain(spec)
    if not ranks:
        return
    here = experts // at.ep
    if here * ranks % 4:
        rule = f"HybridEP: experts per rank x ranks per NVLink domain = {here} x {ranks} is a multiple of 4"
        yield argument(spec, "expert_model_parallel_size", rule, "take one that leaves more experts to a rank")
    for name in CHUNKS:
        chunk = _number(spec.environment.get(name, str(DEFAULT_CHUNK)))
        if not chunk:
            yield environment(spec, name, "a whole number of tokens, at least 1")
        elif chunk * ranks % 4:
            rule = f"HybridEP: tokens per chunk x ranks per NVLink domain = {chunk} x {ranks} is a multiple of 4"
            yield environment(spec, name, rule)


def check_hybridep_environment(spec: RunSpec) -> Iterator[Finding]:
    """The number of ranks in an NVLink domain is stated, not detected: detection is known to be wrong on NVL72."""
    at = Layout.of(spec)
    if not uses_hybridep(spec) or at.ep == 1:
        return
    stated = spec.environment.get(RANKS)
    fix = f'--set profile.env.set.{RANKS}="{at.ep}"'
    if stated is None:
        if not spec.rehearsal:
            yield environment(spec, RANKS, f"set to the expert-parallel size, {at.ep}", fix)
    elif _number(stated) != at.ep:
        rule = f"equals the expert-parallel size, {at.ep}: the group lies in one NVLink domain"
        yield environment(spec, RANKS, rule, fix)
    nodes = -(-at.ep_block // int(spec.profile["gpus_per_node"]))
    if nodes > 1 and spec.environment.get("USE_MNNVL", "1").lower() in ("0", "false"):
        rule = f"on: an expert-parallel group spans {nodes} nodes, which only multi-node NVLink joins"
        yield environment(spec, "USE_MNNVL", rule, '--set profile.env.set.USE_MNNVL="1"')


def check_hybridep_numbers(spec: RunSpec) -> Iterator[Finding]:
    """Multiprocessors and types that HybridEP can work with."""
    if not uses_hybridep(spec):
        return
    gpu = str(spec.profile.get("gpu_type") or "unknown")
    limit = MULTIPROCESSORS.get(gpu, min(MULTIPROCESSORS.values()))
    for dest in SM_COUNTS:
        count = spec.get(dest)
        if count is not None and not 1 <= count <= limit:
            yield argument(spec, dest, f"between 1 and the {limit} multiprocessors of a GPU ({gpu})")
    new, old = (spec.get(dest) for dest in SM_COUNTS[:2])
    if new is not None and old is not None and new != old:
        rule = f"moe_flex_dispatcher_num_sms says {new}: Megatron refuses two different counts"
        yield argument(spec, "moe_hybridep_num_sms", rule, "leave it out: it is deprecated")
    if not spec.rehearsal and not spec.get("bf16", False):
        rule = "on: HybridEP carries BF16 tokens"
        yield argument(spec, "bf16", rule, set_flag(spec, "bf16", "true"), value=bool(spec.get("bf16", False)))


def _ranks_per_domain(spec: RunSpec) -> int:
    """Return what the environment states, else the expert-parallel size within the domain; 0 for nonsense."""
    ep = Layout.of(spec).ep
    stated = spec.environment.get(RANKS)
    return _number(stated) if stated is not None else min(ep, int(spec.profile.get("nvlink_domain") or ep))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
