"""What the nodes are told to check: one JSON document, from the spec. It holds no secret. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Optional

from seatrial.supervise.plan import value

# The profile's block, for specs that are older than it.
DEFAULTS: Mapping[str, Any] = {
    "enabled": True, "tries": 3, "seconds": 60, "clock_seconds": 5.0, "node_local_gb": 1.0, "commands": {},
}  # fmt: skip
_NODES_SHARE = 0.7  # of the seconds: the rest is for the step to begin and to end
_PREFIXES = ("data_path", "train_data_path", "valid_data_path", "test_data_path")
_FILES = ("per_split_data_args_path", "data_args_path", "tokenizer_model", "vocab_file", "merge_file")
_MOST_FILES = 400  # what is asked of each node travels on a command line


def wanted(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the profile's ``preflight`` block, whole."""
    return {**DEFAULTS, **(spec["profile"].get("preflight") or {})}


def for_nodes(spec: Mapping[str, Any], folder: Path, program: Path) -> dict[str, Any]:
    """Return what ``preflight_node.py`` reads. ``program``: a file of the code that the ranks will run."""
    profile, block = spec["profile"], wanted(spec)
    return {
        "device": profile["device"],
        "nodes": int(profile.get("nodes") or 1),
        "gpus_per_node": int(profile.get("gpus_per_node") or 0),
        "gpu_type": profile.get("gpu_type"),
        "nvlink_domain": profile.get("nvlink_domain"),
        "folder": str(folder),
        "readable": [str(program), *dict.fromkeys(_readable(spec))][:_MOST_FILES],
        "image": (profile.get("container") or {}).get("image"),
        "node_local": str((profile.get("paths") or {}).get("node_local") or "/tmp"),
        "node_local_gb": block["node_local_gb"],
        "commands": block["commands"],
        "seconds": block["seconds"] * _NODES_SHARE,
    }


def _readable(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the host's paths of what the run reads: its mounts, and the files that it names from / on."""
    profile = spec["profile"]
    container = profile.get("container") or {}
    mounts = [mount.split(":") for mount in container.get("mounts") or ()] if container.get("image") else None
    yield from (mount[0] for mount in mounts or ())
    for dest in _FILES:
        yield from _on_host([value(spec, dest)], mounts)
    for dest in _PREFIXES:
        named = value(spec, dest) or []
        for prefix in _on_host(named if isinstance(named, list) else [named], mounts):
            yield from (f"{prefix}.idx", f"{prefix}.bin")


def _on_host(paths: list[Any], mounts: Optional[list[list[str]]]) -> Iterator[str]:
    """Yield the host's paths of what ranks see as ``paths``, but for what no mount shows: that is in the image."""
    for path in paths:
        if not isinstance(path, str) or not path.startswith("/"):
            continue
        if mounts is None:
            yield path
            continue
        inside = [m for m in mounts if len(m) > 1 and _under(path, m[1])]
        if inside:
            host, target = max(inside, key=lambda m: len(m[1]))[:2]
            yield str(PurePosixPath(host) / PurePosixPath(path).relative_to(target))


def _under(path: str, folder: str) -> bool:
    return PurePosixPath(folder) in (PurePosixPath(path), *PurePosixPath(path).parents)
