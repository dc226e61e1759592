from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.data import indexed
from seatrial.data.indexed import HEADER, encode_index, read_index, token_ids, tokens_between
from seatrial.errors import SeatrialError

LENGTHS = [5, 1, 300, 44]
UINT16 = 8


def write(folder: Path, lengths: list[int], code: int = UINT16) -> str:
    prefix = folder / "set"
    size = indexed.TOKEN_TYPES[code][1]
    (folder / "set.idx").write_bytes(encode_index(lengths, code))
    (folder / "set.bin").write_bytes(bytes(size * sum(lengths)))
    return str(prefix)


def test_summary(tmp_path: Path) -> None:
    prefix = write(tmp_path, LENGTHS)
    summary = read_index(prefix)
    assert (summary.dtype, summary.sequences, summary.documents, summary.tokens) == ("uint16", 4, 4, 350)
    assert summary.bin_bytes == summary.expected_bin_bytes == 700
    assert tokens_between(summary, 0, 4) == 350
    assert tokens_between(summary, 1, 3) == 301
    assert tokens_between(summary, 4, 4) == tokens_between(summary, 3, 1) == 0
    with pytest.raises(IndexError):
        tokens_between(summary, 0, 5)


@given(st.lists(st.integers(0, 2000), max_size=40), st.sampled_from([1, 4, 5, 8]))
def test_any_lengths(tmp_path_factory: pytest.TempPathFactory, lengths: list[int], code: int) -> None:
    summary = read_index(write(tmp_path_factory.mktemp("d"), lengths, code))
    assert summary.tokens == sum(lengths)
    for cut in range(len(lengths) + 1):
        assert tokens_between(summary, 0, cut) == sum(lengths[:cut])


def test_token_ids(tmp_path: Path) -> None:
    prefix = write(tmp_path, [3])
    (tmp_path / "set.bin").write_bytes(array("H", [7, 256, 65535]).tobytes())
    assert list(token_ids(read_index(prefix))) == [7, 256, 65535]


def patched(offset: int, form: str, value: int) -> Callable[[bytes], bytes]:
    def patch(data: bytes) -> bytes:
        size = struct.calcsize(form)
        return data[:offset] + struct.pack(form, value) + data[offset + size :]

    return patch


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "not a Megatron index"),
        (lambda data: b"PK" + data[2:], "not a Megatron index"),
        (lambda data: data[:20], "cut short"),
        (lambda data: data[:-8], "cut short"),
        (lambda data: data + b"\0", "bytes long"),
        (patched(9, "<Q", 2), "version 2"),
        (patched(17, "<B", 99), "type code 99"),
        (patched(18, "<Q", 2**62), "cut short"),
        (patched(HEADER.size, "<i", 6), "lengths and offsets disagree"),
        (patched(HEADER.size + 4, "<i", -1), "lengths and offsets disagree"),
        (patched(HEADER.size + 12, "<i", -1), "negative"),
        (patched(HEADER.size + 12 * 4 + 8 * 4, "<q", 3), "ends at sequence 3"),
    ],
)
def test_damaged_index(tmp_path: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    prefix = write(tmp_path, LENGTHS)
    path = Path(prefix + ".idx")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SeatrialError, match=message) as caught:
        read_index(prefix)
    assert caught.value.file == path
    assert caught.value.rule


@given(st.binary(max_size=200), st.integers(0, 100))
def test_any_bytes_are_an_index_or_an_error(tmp_path_factory: pytest.TempPathFactory, junk: bytes, keep: int) -> None:
    prefix = write(tmp_path_factory.mktemp("d"), LENGTHS)
    path = Path(prefix + ".idx")
    path.write_bytes(path.read_bytes()[:keep] + junk)
    try:
        read_index(prefix)
    except SeatrialError as error:
        assert error.file in (path, prefix + ".bin")


def test_missing_and_short_data(tmp_path: Path) -> None:
    prefix = write(tmp_path, LENGTHS)
    data = Path(prefix + ".bin")
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(SeatrialError, match="cut short: 699 bytes") as caught:
        read_index(prefix)
    assert "700 bytes" in str(caught.value)
    data.unlink()
    with pytest.raises(SeatrialError, match="not found"):
        read_index(prefix)
    with pytest.raises(SeatrialError, match="not found"):
        read_index(str(tmp_path / "absent"))


def test_longer_data_is_reported_not_refused(tmp_path: Path) -> None:
    prefix = write(tmp_path, LENGTHS)
    Path(prefix + ".bin").write_bytes(bytes(800))
    summary = read_index(prefix)
    assert summary.bin_bytes > summary.expected_bin_bytes


def test_large_index_is_not_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexed, "FULLY_VERIFIED_SEQUENCES", 3)
    monkeypatch.setattr(indexed, "_walk", None)
    assert read_index(write(tmp_path, LENGTHS)).tokens == 350
