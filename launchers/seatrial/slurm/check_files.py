"""What the job needs besides Slurm: variables, image, mounts, and a folder and a tokenizer that compute nodes see."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

from seatrial.check.blame import Finding, argument, profile
from seatrial.slurm.environment import scrubbed
from seatrial.spec.runspec import RunSpec

_NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm", "/run")
_PATHS = ("data_path", "train_data_path", "valid_data_path", "test_data_path", "per_split_data_args_path",
          "data_args_path", "data_cache_path", "vocab_file", "merge_file", "tokenizer_model")  # fmt: skip
_ON = ("1", "true", "yes", "on")


def check_files(spec: RunSpec, shell: Mapping[str, str]) -> Iterator[Finding]:
    """Look at this machine's files and at the names in ``shell`` (the submitting environment); shows no value of it."""
    yield from _passed(spec, shell)
    yield from _webhook(spec, shell)
    yield from _image(spec)
    yield from _mounts(spec)
    yield from _run_folder(spec)
    yield from _visible(spec)
    yield from _tokenizer(spec, shell)


def look(path: str) -> Literal["there", "unreadable", "missing", "unseen"]:
    """Return what this login node knows of a path; "unseen": not even its file system is here, so it may exist."""
    place = Path(path).expanduser()
    if os.access(place, os.R_OK):
        return "there"
    if os.path.lexists(place):
        return "unreadable"
    return "missing" if Path(*place.parts[:2]).exists() else "unseen"


def on_host(spec: RunSpec, path: str) -> str | None:
    """Return the host's path of what the ranks see as ``path``; None where no mount shows it to them."""
    container = spec.profile["container"]
    if not container["image"]:
        return path
    runs = spec.profile["paths"]["runs"]
    pairs = [mount.split(":")[:2] for mount in container["mounts"]] + [[runs, runs]]
    for pair in sorted(pairs, key=lambda pair: -len(pair[-1])):
        inside = PurePosixPath(pair[-1])
        if PurePosixPath(path).is_relative_to(inside):
            return str(PurePosixPath(pair[0]) / PurePosixPath(path).relative_to(inside))
    return None


def _passed(spec: RunSpec, shell: Mapping[str, str]) -> Iterator[Finding]:
    names = spec.profile["env"]["pass"]
    unset = [name for name in names if name not in shell]
    if unset:
        rule = "unset in this shell, so the ranks would not get " + ("it" if len(unset) == 1 else "them")
        yield profile(spec, "env.pass", rule, f"export {' '.join(unset)}, or take out what is not needed", value=unset)
    kept = scrubbed(shell)
    lost = [name for name in names if name in shell and name not in kept]
    if lost:
        rule = "Slurm's own variables of this shell are kept from the job"
        yield profile(spec, "env.pass", rule, "write the value to profile.env.set", value=lost)


def _webhook(spec: RunSpec, shell: Mapping[str, str]) -> Iterator[Finding]:
    name = spec.profile["notify"]["webhook"]
    if name and name not in scrubbed(shell):
        lost = "Slurm's own variables of this shell are kept from the job"
        rule = lost if name in shell else "unset in this shell, so the webhook would be told nothing"
        yield profile(spec, "notify.webhook", rule, f"export {name}", severity="warning", value=name)


def _image(spec: RunSpec) -> Iterator[Finding]:
    image = spec.profile["container"]["image"]
    if not image:
        return
    if not image.startswith("/"):
        if image.startswith((".", "~")) or image.endswith(".sqsh"):
            yield profile(
                spec, "container.image", "the path of an image is absolute", "write it from / on", value=image
            )
        else:
            rule = "a reference to a registry: every node imports it at every start, so the nodes must reach it"
            fix = "enroot import it once to a file on a shared file system"
            yield profile(spec, "container.image", rule, fix, severity="note", value=image)
        return
    yield from _seen(spec, "container.image", image, "readable on this login node")


def _mounts(spec: RunSpec) -> Iterator[Finding]:
    container = spec.profile["container"]
    for mount in container["mounts"] if container["image"] else ():
        host, *rest = mount.split(":")
        if "," in mount or len(rest) > 2 or not all(part.startswith("/") for part in (host, *rest[:1])):
            rule = "HOST:CONTAINER[:FLAGS] with absolute paths, no comma"
            yield profile(spec, "container.mounts", rule, value=mount)
        else:
            yield from _seen(spec, "container.mounts", host, "the host's side of a mount exists and is readable")


def _seen(spec: RunSpec, key: str, path: str, rule: str) -> Iterator[Finding]:
    state = look(path)
    if state == "unseen":
        rule += "; nothing of its file system is here, so only the compute nodes know"
        yield profile(spec, key, rule, severity="warning", value=path)
    elif state != "there":
        yield profile(spec, key, f"{rule}; it is {state}", f"--set profile.{key}=…", value=path)


def _run_folder(spec: RunSpec) -> Iterator[Finding]:
    runs = Path(spec.profile["paths"]["runs"])
    local = next((p for p in (*_NODE_LOCAL, spec.profile["paths"]["node_local"]) if runs.is_relative_to(p)), None)
    if local:
        rule = f"{local} is each node's own: the compute nodes would not see the run folder"
        fix = "--set profile.paths.runs=… on a shared file system"
        yield profile(spec, "paths.runs", rule, fix, severity="warning", value=str(runs))


def _visible(spec: RunSpec) -> Iterator[Finding]:
    """Warn of files that the run names and that no mount shows to the ranks; the image itself may hold them."""
    named: list[tuple[str, str]] = []
    for dest in _PATHS:
        value = spec.get(dest)
        items = value if isinstance(value, list) else [value]
        named += [(dest, item) for item in items if isinstance(item, str) and item.startswith("/")]
    for dest in dict.fromkeys(dest for dest, path in named if on_host(spec, path) is None):
        rule = "no mount shows it to the ranks, so it must be in the image"
        fix = "add its file system to profile.container.mounts"
        yield argument(spec, dest, rule, fix, severity="warning")


def _tokenizer(spec: RunSpec, shell: Mapping[str, str]) -> Iterator[Finding]:
    model, kind = spec.get("tokenizer_model"), spec.get("tokenizer_type")
    if not model or kind == "NullTokenizer":
        return
    if kind != "HuggingFaceTokenizer" or model.startswith(("/", ".", "~")):
        if not model.startswith("/"):
            yield argument(spec, "tokenizer_model", "a file is named from / on: ranks start in their run folder")
            return
        place = on_host(spec, model)
        state = look(place) if place else "there"  # where no mount shows it, that is said already
        if state in ("missing", "unreadable"):
            yield argument(
                spec, "tokenizer_model", f"the tokenizer's files are readable; this is {state}", "name its path"
            )
        elif state == "unseen":
            rule = "nothing of the tokenizer's file system is here, so only the compute nodes know"
            yield argument(spec, "tokenizer_model", rule, severity="warning")
        return
    cache = hub_cache(spec, shell)
    place = on_host(spec, cache)
    if place and _cached(Path(place), model):
        return
    offline = [name for name in ("TRANSFORMERS_OFFLINE", "HF_HUB_OFFLINE") if _is_on(spec, shell, name)]
    rule = f"not in {cache}" + ("" if place else " (which no mount shows to the ranks)")
    rule += f", and {offline[0]} is on: compute nodes may be offline" if offline else ": every rank asks the hub for it"
    fix = "download it to a shared folder that a mount shows, and name that folder in profile.env.set HF_HOME"
    yield argument(spec, "tokenizer_model", rule, fix, severity="warning" if offline else "note")


def hub_cache(spec: RunSpec, shell: Mapping[str, str]) -> str:
    """Return where the ranks' Hugging Face libraries look for what was downloaded."""
    hub, home, xdg = (_of_rank(spec, shell, name) for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"))
    if hub or home:
        return hub or f"{home}/hub"
    return f"{xdg or shell.get('HOME', '~') + '/.cache'}/huggingface/hub"


def _cached(cache: Path, model: str) -> bool:
    folder = cache / f"models--{model.replace('/', '--')}" / "snapshots"
    try:
        return any(file.exists() for file in folder.glob("*/tokenizer*"))
    except OSError:
        return False


def _of_rank(spec: RunSpec, shell: Mapping[str, str], name: str) -> str | None:
    """Return a variable as the ranks get it: set by recipe or profile, else passed from the shell."""
    passed = shell.get(name) if name in spec.profile["env"]["pass"] else None
    return spec.environment.get(name) or passed


def _is_on(spec: RunSpec, shell: Mapping[str, str], name: str) -> bool:
    return (_of_rank(spec, shell, name) or "").lower() in _ON
