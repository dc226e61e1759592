"""A whole checkpoint, told without torch; and pickles that try to do something."""

from __future__ import annotations

import collections
import io
import json
import os
import pickle
import sys
import types
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.run import checkpoint

COMMON_SIZE = 400


class MetadataIndex:
    def __init__(self, fqn: str) -> None:
        self.fqn, self.offset, self.index = fqn, None, None


class _StorageInfo:
    def __init__(self, relative_path: str, offset: int, length: int) -> None:
        self.relative_path, self.offset, self.length = relative_path, offset, length


class Metadata:
    def __init__(self, storage_data: dict[Any, Any]) -> None:
        self.storage_data, self.state_dict_metadata, self.planner_data = storage_data, {}, None


@pytest.fixture(autouse=True)
def torchs_names() -> Iterator[None]:
    """Let the look-alikes pickle under the names that torch's classes have; the reader must not need them."""
    name = "torch.distributed.checkpoint.metadata_for_tests"
    module = types.ModuleType(name)
    for cls in (MetadataIndex, _StorageInfo, Metadata):
        cls.__module__ = name
        setattr(module, cls.__name__, cls)
    sys.modules[name] = module
    yield
    del sys.modules[name]


def archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        zipped.writestr("archive/data.pkl", b"state")
    return buffer.getvalue()


def make(root: Path, step: int = 100, common: str = "inside") -> Path:
    """Write a whole checkpoint of the 0.19 form (common state inside a shard) or the older one (common.pt)."""
    folder = root / f"iter_{step:07d}"
    folder.mkdir(parents=True)
    state = archive()
    entries = {
        "model.weight": _StorageInfo("__0_0.distcp", 0, 1000),
        "optimizer": _StorageInfo("__1_0.distcp", 0, 2000),
    }
    first = b"\0" * 1000
    if common == "inside":
        entries["common_state/shard_0_1"] = _StorageInfo("__0_0.distcp", 1000, len(state))
        first += state
    else:
        (folder / "common.pt").write_bytes(state)
    (folder / "__0_0.distcp").write_bytes(first)
    (folder / "__1_0.distcp").write_bytes(b"\0" * 2000)
    (folder / ".metadata").write_bytes(pickle.dumps(Metadata({MetadataIndex(k): v for k, v in entries.items()})))
    (folder / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist"}))
    return folder


@pytest.mark.parametrize("common", ["inside", "file"])
def test_whole(tmp_path: Path, common: str) -> None:
    state = checkpoint.check(make(tmp_path, 100, common))
    assert (state.step, state.whole) == (100, True)


def truncate(name: str, size: int) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, size)


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def write(name: str, data: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return damage


def listing(path: Any, offset: Any = 0, length: Any = 1) -> Callable[[Path], None]:
    # Pickled when called: the look-alikes need their names.
    return lambda folder: write(
        ".metadata", pickle.dumps(Metadata({MetadataIndex("w"): _StorageInfo(path, offset, length)}))
    )(folder)


@pytest.mark.parametrize(
    ("common", "damage", "reason"),
    [
        ("inside", remove(".metadata"), ".metadata is missing"),
        ("inside", truncate(".metadata", 50), ".metadata cannot be read"),
        ("inside", write(".metadata", b""), ".metadata cannot be read"),
        ("inside", write(".metadata", pickle.dumps({"a": 1})), ".metadata cannot be read"),
        ("inside", write(".metadata", b"\x80\x04."), ".metadata cannot be read"),
        ("inside", remove("__1_0.distcp"), "__1_0.distcp is missing"),
        ("inside", truncate("__1_0.distcp", 1999), "__1_0.distcp has 1999 bytes of at least 2000"),
        ("inside", truncate("__0_0.distcp", 1000), "__0_0.distcp has 1000 bytes"),
        ("inside", write("__0_0.distcp", b"\0" * 2000), "common state cannot be read"),
        ("inside", remove("metadata.json"), "metadata.json is missing"),
        ("inside", write("metadata.json", b"{"), "metadata.json cannot be read"),
        ("inside", listing("../../etc/passwd"), "outside the checkpoint"),
        ("inside", listing("/etc/passwd"), "outside the checkpoint"),
        ("inside", listing(7), "a place is not"),
        ("inside", listing("__1_0.distcp", -1), "__1_0.distcp' from -1"),
        ("inside", listing("__1_0.distcp", 0, "1"), "a place is not"),
        ("inside", listing(""), ".metadata cannot be read"),
        ("inside", listing("a\0b"), "cannot be looked at"),
        ("inside", listing("x" * 5000), "cannot be looked at"),
        ("inside", listing("."), "is no file"),
        ("inside", write("metadata.json", b"[" * 100_000), "metadata.json cannot be read"),
        ("file", remove("common.pt"), "common state is missing"),
        ("file", write("common.pt", b"PK" + b"\0" * 100), "common state cannot be read"),
        ("file", truncate("common.pt", 30), "common state cannot be read"),
    ],
)
def test_damaged(tmp_path: Path, common: str, damage: Callable[[Path], None], reason: str) -> None:
    folder = make(tmp_path, 100, common)
    damage(folder)
    state = checkpoint.check(folder)
    assert not state.whole
    assert reason in state.reason


def test_flipped_bits_in_the_common_state_are_seen(tmp_path: Path) -> None:
    folder = make(tmp_path)
    shard = folder / "__0_0.distcp"
    data = bytearray(shard.read_bytes())
    data[data.index(b"state", 1000)] ^= 1
    shard.write_bytes(data)
    assert "common_state is damaged" in checkpoint.check(folder).reason


def test_no_folder(tmp_path: Path) -> None:
    assert checkpoint.check(tmp_path / "iter_0000100") == checkpoint.CheckpointState(
        100, False, "there is no such folder"
    )


class Hostile:
    """A pickle that runs a command, were it read by the ordinary unpickler."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def test_a_hostile_pickle_does_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "owned"
    folder = make(tmp_path)
    (folder / ".metadata").write_bytes(pickle.dumps(Hostile(marker)))
    assert not checkpoint.check(folder).whole
    evil = Metadata({MetadataIndex("w"): _StorageInfo("__1_0.distcp", 0, 10)})
    evil.planner_data = Hostile(marker)
    (folder / ".metadata").write_bytes(pickle.dumps(evil))
    checkpoint.check(folder)
    assert not marker.exists()


@pytest.mark.parametrize(
    "opcodes",
    [
        b"cos\nsystem\n(Vtouch {marker}\ntR.",
        b"(Vtouch {marker}\nios\nsystem\n.",
        b"(cos\nsystem\nVtouch {marker}\no.",
        b"cbuiltins\neval\n(V__import__('os').system('touch {marker}')\ntR.",
        b"c__builtin__\nexec\n(V__import__('os').system('touch {marker}')\ntR.",
        b"cos\nsystem\n(Vtouch {marker}\nt\x81.",
        b"\x80\x04\x8c\x08builtins\x8c\x0cgetattr.real\x93(Vx\nVy\ntR.",
        b"\x80\x04cbuiltins\ndict\n(V__class__\ntR.",
        b"ccollections\nOrderedDict\n(V__init__\ncos\nsystem\ntb.",
        b"ccollections\nOrderedDict\nN(dVget\ncos\nsystem\nst\x86b.",
    ],
)
def test_no_opcode_imports_or_calls_anything(tmp_path: Path, opcodes: bytes) -> None:
    marker = tmp_path / "owned"
    folder = make(tmp_path)
    (folder / ".metadata").write_bytes(opcodes.replace(b"{marker}", str(marker).encode()))
    before = set(sys.modules)
    assert not checkpoint.check(folder).whole
    assert not marker.exists()
    assert set(sys.modules) == before
    assert collections.OrderedDict.get is dict.get


@given(st.binary(max_size=200))
def test_any_bytes_are_survived(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as root:
        folder = make(Path(root))
        (folder / ".metadata").write_bytes(data)
        assert not checkpoint.check(folder).whole


def test_listing_and_tracker(tmp_path: Path) -> None:
    for step in (200, 50, 100):
        make(tmp_path, step)
    (tmp_path / "iter_x").mkdir()
    assert [p.name for p in checkpoint.list_checkpoints(tmp_path)] == ["iter_0000050", "iter_0000100", "iter_0000200"]
    assert checkpoint.list_checkpoints(tmp_path / "none") == []
    assert checkpoint.tracked_step(tmp_path) is None
    for text, step in (("200\n", 200), ("release", None), ("", None)):
        (tmp_path / checkpoint.TRACKER).write_text(text)
        assert checkpoint.tracked_step(tmp_path) == step


@pytest.mark.train
def test_what_torch_writes_is_read_without_torch(tmp_path: Path) -> None:
    import argparse

    import torch
    import torch.distributed.checkpoint as dcp

    state = {
        "model.weight": torch.arange(1000, dtype=torch.float32),
        "model.bias": torch.ones(3, dtype=torch.bfloat16),
        "common_state/shard_0_1": argparse.Namespace(iteration=100),
    }
    folder = tmp_path / "iter_0000100"
    dcp.save(state, checkpoint_id=folder, no_dist=True)
    (folder / "metadata.json").write_text("{}")
    assert checkpoint.check(folder) == checkpoint.CheckpointState(
        100, True, "every listed file is there and long enough"
    )
    (shard,) = folder.glob("*.distcp")
    os.truncate(shard, shard.stat().st_size - 1)
    assert "bytes of at least" in checkpoint.check(folder).reason
