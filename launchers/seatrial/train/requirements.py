"""What a run needs and does not find: one error that lists all of it, before the model is built."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any, NamedTuple

from seatrial.errors import SeatrialError
from seatrial.run import releases


class Requirement(NamedTuple):
    """A module, what needs it, and how to get it."""

    module: str
    needed_for: str
    install: str


TRAINING = (
    Requirement("torch", "every run", "pip install 'seatrial[train]'"),
    Requirement("megatron.core", "every run", "pip install 'seatrial[train]'"),
    Requirement("megatron.training", "every run", "pip install 'seatrial[train]'"),
    Requirement("einops", "Mamba and gated delta net layers", "pip install 'seatrial[train]'"),
    Requirement("psutil", "Megatron's loop", "pip install 'seatrial[train]'"),
    Requirement("tensorboard", "the scalars of every run", "pip install 'seatrial[train]'"),
)
TRANSFORMER_ENGINE = Requirement(
    "transformer_engine", "the layers", "pip install 'transformer-engine[pytorch]' (in the container image)"
)
HYBRID_EP = Requirement(
    "deep_ep",
    "moe_flex_dispatcher_backend hybridep",
    "build DeepEP's hybrid-ep branch for this CUDA version and architecture (HYBRID_EP_MULTINODE=1 beyond a node)",
)
MAMBA = (
    Requirement("mamba_ssm", "Mamba layers", "pip install --no-build-isolation mamba-ssm"),
    Requirement("causal_conv1d", "Mamba layers", "pip install --no-build-isolation causal-conv1d"),
)
GATED_DELTA_NET = Requirement("fla", "gated delta net layers", "pip install flash-linear-attention")


def found(module: str) -> bool:
    """Return whether ``module`` can be imported, without importing it (its parents are)."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def for_arguments(args: Any) -> list[Requirement]:
    """Return what a GPU run of parsed arguments needs beside torch and Megatron."""
    needs = []
    if args.transformer_impl == "transformer_engine":
        needs.append(TRANSFORMER_ENGINE)
    if args.moe_token_dispatcher_type == "flex" and args.moe_flex_dispatcher_backend == "hybridep":
        needs.append(HYBRID_EP)
    pattern = args.hybrid_layer_pattern or ""
    if "M" in pattern:
        needs.extend(MAMBA)
    if args.experimental_attention_variant == "gated_delta_net" or "G" in pattern:
        needs.append(GATED_DELTA_NET)
    return needs


def missing_error(missing: list[Requirement], *, gpu: bool = True) -> SeatrialError:
    """Return the error that names all of ``missing``, and the GPU if there is none."""
    lines = [] if gpu else ["a GPU (device: cuda, and torch sees none)"]
    lines += [f"{need.module}, for {need.needed_for}" for need in missing]
    fixes = list(dict.fromkeys(need.install for need in missing))
    if not gpu:
        fixes.insert(0, "start the rank on a GPU node, or rehearse with --profile local-cpu")
    return SeatrialError(
        "this rank cannot train; missing: " + "; ".join(lines), key="profile.device", fix="; ".join(fixes)
    )


def check_imports(needs: Sequence[Requirement] = TRAINING) -> None:
    """Raise one :class:`SeatrialError` that lists what of ``needs`` (torch, Megatron, their helpers) is not there."""
    missing = [need for need in needs if not found(need.module)]
    if missing:
        raise missing_error(missing)


def check_release(written_for: str) -> None:
    """Raise :class:`SeatrialError` where the installed megatron-core is of another line than the plan's arguments.

    Of a source tree that does not say, nobody knows; its parser will tell.
    """
    there = releases.installed("megatron-core")
    if there is not None and not releases.same_line(there, written_for):
        raise SeatrialError(
            f"this run is written for megatron-core {written_for}, and {there} is installed",
            key="profile.megatron_core", value=written_for, rule="the release in the image, or of rank_python",
            fix="name that release in profile.megatron_core, or take an image with the one that is named",
        )  # fmt: skip


def check_gpu(args: Any) -> None:
    """Raise one :class:`SeatrialError` that lists everything a GPU run lacks.

    ``deep_ep`` counts as missing too where it has no ``HybridEPBuffer``: the main branch of DeepEP has none.
    """
    import torch

    missing = [need for need in for_arguments(args) if not found(need.module)]
    if HYBRID_EP in for_arguments(args) and HYBRID_EP not in missing:
        import deep_ep

        if not hasattr(deep_ep, "HybridEPBuffer"):
            missing.append(HYBRID_EP._replace(module="deep_ep.HybridEPBuffer"))
    gpu = torch.cuda.is_available()
    if missing or not gpu:
        raise missing_error(missing, gpu=gpu)
