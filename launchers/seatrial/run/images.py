"""Which bytes a container image was: its digest, by its reference or by its file. A name or a path says less."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional

from seatrial.run import records

EVENT = "image"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_CHUNK = 1 << 22  # bytes read at a time


@dataclass(frozen=True)
class Image:
    """``digest`` is None where it cannot be had; ``how``: by the reference, by the file's bytes, or why not."""

    image: str
    digest: Optional[str]
    how: str
    size: Optional[int] = None
    mtime_ns: Optional[int] = None


class Stopped(Exception):
    """The hash was given up before its end."""


def image_of(image: str, known: Path, stopped: Callable[[], bool] = lambda: False) -> Image:
    """Return what ``image`` (of a profile) is. A file is read once: ``known`` keeps the digests of files as they were.

    A registry's tag has no digest of its own, and may name another image tomorrow; no registry is asked.
    Raises Stopped where ``stopped`` says so meanwhile, OSError where the file cannot be read.
    """
    named = named_digest(image)
    if named:
        return Image(image, named, "the reference names it")
    if not image.startswith("/"):
        return Image(image, None, "a tag: the registry may give it to another image at any time")
    there = Path(image).stat()
    before = _known(known, image, there.st_size, there.st_mtime_ns)
    if before:
        return Image(image, before, "the SHA-256 of the file", there.st_size, there.st_mtime_ns)
    digest = f"sha256:{_hash(Path(image), stopped)}"
    after = Path(image).stat()
    if (after.st_size, after.st_mtime_ns) != (there.st_size, there.st_mtime_ns):
        return Image(image, None, "the file changed while it was read")
    found = Image(image, digest, "the SHA-256 of the file", there.st_size, there.st_mtime_ns)
    known.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    records.append_line(known, {"schema": records.SCHEMA, "time": records.now(), **asdict(found)})
    return found


def named_digest(reference: str) -> Optional[str]:
    """Return the digest that an image's reference names, or None. Pure."""
    found = _DIGEST.search(reference)
    return found[0] if found else None


def known_for(runs: Path) -> Path:
    """Return the file with the digests of images that runs in ``runs`` have used."""
    return runs / ".seatrial" / "images.jsonl"


def digest_in(events: Iterable[Mapping[str, Any]]) -> Optional[str]:
    """Return the newest digest that the run's events tell, or None."""
    said = [str(event.get("digest")) for event in events if event.get("event") == EVENT]
    return next((digest for digest in reversed(said) if _DIGEST.fullmatch(digest)), None)


def _known(path: Path, image: str, size: int, mtime_ns: int) -> Optional[str]:
    if not path.is_file():
        return None
    as_it_is = {"image": image, "size": size, "mtime_ns": mtime_ns}
    lines = [line for line in records.read_lines(path) if isinstance(line, dict)]
    same = [line for line in lines if as_it_is.items() <= line.items()]
    digest = str(same[-1].get("digest")) if same else ""
    return digest if _DIGEST.fullmatch(digest) else None


def _hash(path: Path, stopped: Callable[[], bool]) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            if stopped():
                raise Stopped
            found.update(chunk)
    return found.hexdigest()
