"""Which bytes an image was: by its reference, by its file, once for each state of the file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from seatrial.run import images

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("image", "digest", "how"),
    [
        (f"registry/nemo@{DIGEST}", DIGEST, "the reference names it"),
        (f"registry/nemo:26.06@{DIGEST}", DIGEST, "the reference names it"),
        ("registry#nvidia/nemo:26.06", None, "a tag: the registry may give it to another image at any time"),
        ("registry/nemo@sha256:abc", None, "a tag: the registry may give it to another image at any time"),
    ],
)
def test_a_reference(image: str, digest: str | None, how: str, tmp_path: Path) -> None:
    assert images.image_of(image, tmp_path / "known") == images.Image(image, digest, how)


def test_a_file_is_read_once_for_each_state_of_it(tmp_path: Path) -> None:
    file, known = tmp_path / "nemo 26.sqsh", images.known_for(tmp_path)
    file.write_bytes(b"one" * 3_000_000)
    expected = "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()
    first = images.image_of(str(file), known)
    assert (first.digest, first.size) == (expected, 9_000_000)

    stopped = lambda: True  # whoever begins to read now raises  # noqa: E731
    assert images.image_of(str(file), known, stopped) == first
    before = file.stat().st_mtime_ns
    file.write_bytes(b"two" * 3_000_000)
    os.utime(file, ns=(before + 1, before + 1))
    with pytest.raises(images.Stopped):
        images.image_of(str(file), known, stopped)
    assert images.image_of(str(file), known).digest != expected


def test_what_is_known_is_believed_only_where_it_is_a_digest(tmp_path: Path) -> None:
    file, known = tmp_path / "i.sqsh", images.known_for(tmp_path)
    file.write_bytes(b"image")
    right = images.image_of(str(file), known).digest
    known.write_text(known.read_text().replace(str(right), "none") + "half a li")
    assert images.image_of(str(file), known).digest == right


def test_a_file_that_changes_while_it_is_read_has_no_digest(tmp_path: Path) -> None:
    file = tmp_path / "i.sqsh"
    file.write_bytes(b"image")

    def touched() -> bool:
        os.utime(file, ns=(1, 1))
        return False

    found = images.image_of(str(file), tmp_path / "known", touched)
    assert (found.digest, found.how) == (None, "the file changed while it was read")
    assert not (tmp_path / "known").exists()


def test_the_newest_digest_of_the_events_counts() -> None:
    said = [{"event": "image", "digest": DIGEST}, {"event": "image", "digest": None}, {"event": "log", "digest": "x"}]
    assert images.digest_in(said) == DIGEST
    assert images.digest_in(said[1:]) is None
