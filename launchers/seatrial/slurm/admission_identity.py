"""What makes two runs the same thing: a gate admits a run of the same arguments, training code, image and GPUs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seatrial.run.images import named_digest
from seatrial.slurm.snapshot import train_hash
from seatrial.spec.bridge import KEYS as BRIDGE_KEYS
from seatrial.spec.owners import RUN_CONTROLS, RUN_OWNED
from seatrial.spec.runspec import RunSpec
from seatrial.spec.schema import load_schema

# Run controls that shape the curve, and arguments that only say where things lie.
_SHAPE_THE_CURVE = ("global_batch_size", "seq_length", "lr_warmup_iters", "lr_decay_iters")
_PLACES = frozenset({"data_path", "tokenizer_model", "num_workers", "mmap_bin_files"})


def identity(spec: RunSpec) -> dict[str, Any]:
    """Return what stands as ``same`` in spec.json. Reads the training code's files, and looks at the image's."""
    words, told = argument_words(spec), _bridge(spec)
    text = json.dumps([words, *told] if told else words, sort_keys=True)
    return {
        "arguments": hashlib.sha256(text.encode()).hexdigest(),
        "train": train_hash(),
        "image": image_identity(spec.profile["container"]["image"]),
        "gpu_type": spec.profile["gpu_type"],
    }


def _bridge(spec: RunSpec) -> list[Any]:
    """Return what Megatron-Bridge is told, but for run controls and where things lie; nothing where it does not run."""
    if spec.bridge is None:
        return []
    free = {key for dest in RUN_CONTROLS | _PLACES for key in BRIDGE_KEYS.get(dest, ())}
    words = spec.bridge["overrides"]
    return [spec.bridge["recipe"], sorted(word for word in words if word.partition("=")[0] not in free)]


def curve_identity(spec: RunSpec) -> str:
    """Return a hash of the arguments that decide a loss curve, wherever the data and the tokenizer lie."""
    words = argument_words(spec)
    shape = {name: spec.get(name) for name in _SHAPE_THE_CURVE}
    kept = {dest: said for dest, said in words.items() if dest not in _PLACES}
    return hashlib.sha256(json.dumps([kept, shape, *_bridge(spec)], sort_keys=True).encode()).hexdigest()


def argument_words(spec: RunSpec) -> dict[str, list[str]]:
    """Return dest -> words of the command line, of what is neither a run control nor the run's own.

    What is left at Megatron's default has no words, so naming a default in a recipe makes no other run.
    """
    schema = load_schema(spec.megatron_core)
    found: Mapping[str, list[str]] = {
        dest: schema.argument(dest).render(field.value)
        for dest, field in ((full.partition(".")[2], field) for full, field in spec.fields.items())
        if dest not in RUN_CONTROLS | RUN_OWNED
    }
    return {dest: words for dest, words in found.items() if words}


def image_identity(image: str | None) -> str | None:
    """Return the digest where the reference has one, else path, size and mtime of the file, else the reference."""
    if image is None:
        return None
    digest = named_digest(image)
    if digest:
        return digest
    try:
        there = Path(image).stat()
    except (OSError, ValueError):
        return image
    return f"{image} size={there.st_size} mtime_ns={there.st_mtime_ns}"
