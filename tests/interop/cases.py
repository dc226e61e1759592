"""Specs for the tests of this folder: every shipped Slurm profile and kind, with what a site must add."""

from __future__ import annotations

from seatrial.spec import library
from seatrial.spec.profile import load_profile
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec

NANO = "nemotron_3_nano_gb200"
SITE = (
    ("profile.account", "lab"), ("profile.partition", "batch"), ("profile.container.image", "/images/nemo.sqsh"),
    ("profile.paths.runs", "/lustre/runs"), ("profile.env.pass", "[HF_TOKEN, WANDB_API_KEY]"),
    ("data.data_path", '["/lustre/data/text"]'), ("data.tokenizer_model", "/lustre/tokenizer"),
)  # fmt: skip
PROFILES = [name for name in library.names("cluster_profiles") if load_profile(name).data["executor"] == "slurm"]
KINDS = ("gate", "convergence")
CASES = [(profile, kind) for profile in PROFILES for kind in KINDS]
# Everything that a profile may ask of Slurm beside what the shipped ones do.
FULL = (
    ("profile.qos", "high"), ("profile.reservation", "launch week"), ("profile.spare_nodes", "1"),
    ("profile.gpu_request", "gres"),
    ("profile.slurm.capabilities", "[segment, gres, mem, exclusive, requeue, signal, no-kill, comment]"),
)  # fmt: skip


def spec(profile: str = "gb200-8gpu", kind: str = "gate", *more: tuple[str, str]) -> RunSpec:
    return resolve(NANO, profile, kind, [*SITE, *more])
