"""Is a checkpoint whole? Told without torch: metadata is read by an unpickler that builds inert stand-ins only.

Whole means: `.metadata` lists files, each of them exists and is at least as long as its last piece reaches, the
common state can be read, and `metadata.json` is there (torch_dist format). Megatron-Core 0.19 keeps the common state
inside the shards, as `common_state`; before that it was the file `common.pt`. Flipped bits in a tensor are not seen.
"""

from __future__ import annotations

import collections
import io
import json
import pickle
import re
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Optional, Union

TRACKER = "latest_checkpointed_iteration.txt"
DELETED = "checkpoints_deleted.json"  # in a run folder: what the checkpoints were when they were deleted after a PASS
_STEP = re.compile(r"^iter_(\d{7,})$")
_SAFE = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "dict"): dict,
    ("builtins", "list"): list,
    ("builtins", "tuple"): tuple,
    ("builtins", "slice"): slice,
}  # fmt: skip


@dataclass(frozen=True)
class _Piece:
    """Where one entry of the checkpoint lies: bytes ``offset`` to ``end`` of ``file``."""

    file: str
    offset: int
    end: int


@dataclass(frozen=True)
class CheckpointState:
    """What is known of one checkpoint folder. ``reason`` says what makes it not whole, or what was found."""

    step: Optional[int]
    whole: bool
    reason: str


class _Inert:
    """Stands in for any object of a pickle: keeps what it was built from, does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.__dict__.update(kwargs)

    def __setstate__(self, state: Any) -> None:
        # Dataclasses with slots pickle a pair; its second half holds the slots.
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.__dict__.update({k: v for k, v in part.items() if isinstance(k, str)})

    def __setitem__(self, key: Any, value: Any) -> None:
        """Items of an unknown mapping are dropped."""

    def append(self, value: Any) -> None:
        """Items of an unknown sequence are dropped."""

    extend = append


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # Nothing is ever imported: a hostile pickle can name any function and gets an inert class of that name.
        return _SAFE.get((module, name)) or type(name.rpartition(".")[2] or "Inert", (_Inert,), {})

    def persistent_load(self, pid: Any) -> Any:
        return _Inert(pid)


def check(folder: Path) -> CheckpointState:
    """Return whether the checkpoint in ``folder`` (``iter_0000100``) is whole. Never raises for what lies there."""
    match = _STEP.match(folder.name)
    step = int(match[1]) if match else None
    problem = _problem(folder)
    return CheckpointState(step, problem is None, problem or "every listed file is there and long enough")


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint folders under ``folder`` (Megatron's --save), oldest step first."""
    found = [p for p in folder.glob("iter_*") if _STEP.match(p.name) and p.is_dir()] if folder.is_dir() else []
    return sorted(found, key=lambda p: int(p.name[5:]))


def checkpoint_folder(folder: Path, step: int) -> Path:
    """Return where Megatron puts the checkpoint of ``step``."""
    return folder / f"iter_{step:07d}"


def tracked_step(folder: Path) -> Optional[int]:
    """Return the step that Megatron's tracker file names, or None (no tracker, or no number in it)."""
    try:
        text = (folder / TRACKER).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() else None


def _problem(folder: Path) -> Optional[str]:
    if not folder.is_dir():
        return "there is no such folder"
    try:
        pieces = _pieces(folder / ".metadata")
    except FileNotFoundError:
        return ".metadata is missing"
    except Exception as error:
        # Damaged pickles raise nearly anything; whatever it is, the checkpoint cannot be trusted.
        return f".metadata cannot be read: {type(error).__name__}: {error}"
    if not pieces:
        return ".metadata lists no file"
    return _files_problem(folder, pieces) or _common_problem(folder, pieces) or _format_problem(folder)


def _files_problem(folder: Path, pieces: Mapping[str, _Piece]) -> Optional[str]:
    lengths: dict[str, int] = {}
    for piece in pieces.values():
        lengths[piece.file] = max(lengths.get(piece.file, 0), piece.end)
    for name, length in sorted(lengths.items()):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            return f".metadata lists {name!r}, outside the checkpoint"
        try:
            status = (folder / name).stat()
        except FileNotFoundError:
            return f"{name} is missing"
        except (OSError, ValueError) as error:
            return f"{name!r} cannot be looked at: {error}"
        if not stat.S_ISREG(status.st_mode):
            return f"{name!r} is no file"
        if status.st_size < length:
            return f"{name} has {status.st_size} bytes of at least {length}"
    return None


def _common_problem(folder: Path, pieces: Mapping[str, _Piece]) -> Optional[str]:
    inside = next((piece for name, piece in pieces.items() if name.split("/")[0] == "common_state"), None)
    try:
        if inside is None:
            return _archive_problem("common.pt", folder / "common.pt")
        with (folder / inside.file).open("rb") as stream:
            stream.seek(inside.offset)
            return _archive_problem("common_state", io.BytesIO(stream.read(inside.end - inside.offset)))
    except FileNotFoundError:
        return "the common state is missing: neither common_state in .metadata nor common.pt"
    except Exception as error:
        # As above: zipfile raises many kinds for a damaged archive (BadZipFile, zlib.error, RuntimeError ...).
        return f"the common state cannot be read: {type(error).__name__}: {error}"


def _archive_problem(name: str, file: Union[Path, BinaryIO]) -> Optional[str]:
    """Return what is wrong with an archive that ``torch.save`` wrote (a zip file with checksums)."""
    with zipfile.ZipFile(file) as archive:
        if not any(entry.rpartition("/")[2] == "data.pkl" for entry in archive.namelist()):
            return f"{name} holds no state"
        damaged = archive.testzip()
    return f"{name} is damaged at {damaged}" if damaged else None


def _format_problem(folder: Path) -> Optional[str]:
    try:
        json.loads((folder / "metadata.json").read_text())
    except FileNotFoundError:
        return "metadata.json is missing"
    except (OSError, ValueError, RecursionError) as error:
        return f"metadata.json cannot be read: {error}"
    return None


def _pieces(path: Path) -> dict[str, _Piece]:
    """Return entry -> place, from torch.distributed.checkpoint's ``Metadata.storage_data``.

    An entry's name is its fully qualified name; pieces of one tensor are numbered.
    """
    with path.open("rb") as stream:
        metadata = _InertUnpickler(stream).load()
    pieces: dict[str, _Piece] = {}
    for index, info in vars(metadata)["storage_data"].items():
        place = vars(info)
        file, offset, length = place["relative_path"], place["offset"], place["length"]
        if not (isinstance(file, str) and isinstance(offset, int) and isinstance(length, int)):
            raise TypeError("a place is not (file, offset, length)")
        if not file or offset < 0 or length < 0:
            raise ValueError(f"{file!r} from {offset}, {length} bytes")
        pieces[f"{vars(index)['fqn']}#{len(pieces)}"] = _Piece(file, offset, offset + length)
    return pieces
