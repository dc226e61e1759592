"""The image's digest goes on record beside the training, and never keeps a job from its end."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from seatrial.run import images, records
from seatrial.run.layout import RunFolder
from seatrial.supervise.image_digest import ImageDigest
from seatrial.supervise.journal import Journal


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs" / "r")


def events(folder: RunFolder) -> list[dict[str, object]]:
    return [event for event in records.read_lines(folder.events) if event["event"] == images.EVENT]


def look(folder: RunFolder, image: str | None) -> list[dict[str, object]]:
    journal = Journal(folder)
    digest = ImageDigest(image, folder.path.parent, journal)
    digest.start()
    if image:
        digest._thread.join()
    digest.finish()
    journal.close()
    return events(folder)


def test_of_a_file(folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "nemo.sqsh").write_bytes(b"image")
    (found,) = look(folder, str(tmp_path / "nemo.sqsh"))
    assert str(found["digest"]).startswith("sha256:")
    assert images.known_for(folder.path.parent).is_file()


def test_of_what_is_not_there(folder: RunFolder, tmp_path: Path) -> None:
    (found,) = look(folder, str(tmp_path / "none.sqsh"))
    assert found["digest"] is None
    assert "cannot be read" in str(found["how"])


def test_without_an_image_there_is_nothing_to_tell(folder: RunFolder) -> None:
    assert look(folder, None) == []


def test_the_end_does_not_wait_for_a_large_file(folder: RunFolder, tmp_path: Path) -> None:
    pipe = tmp_path / "endless.sqsh"
    os.mkfifo(pipe)
    ended = threading.Event()

    def feed() -> None:
        with pipe.open("wb", buffering=0) as writer:
            while not ended.is_set():
                try:
                    writer.write(b"x" * 65536)
                except BrokenPipeError:
                    return

    writing = threading.Thread(target=feed)
    writing.start()
    journal = Journal(folder)
    digest = ImageDigest(str(pipe), folder.path.parent, journal)
    digest.start()
    time.sleep(0.2)
    digest.finish()
    ended.set()
    writing.join()
    journal.close()
    assert events(folder) == []
