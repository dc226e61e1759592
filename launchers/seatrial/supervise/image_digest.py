"""Puts the digest of the container's image on record while the ranks train: reading 20 GB takes minutes."""

from __future__ import annotations

import threading
from dataclasses import asdict
from pathlib import Path
from typing import Optional

from seatrial.run import images
from seatrial.supervise.journal import Journal


class ImageDigest:
    """``image``: the profile's, None for none. ``runs``: the folder of runs, which keeps what is known already."""

    def __init__(self, image: Optional[str], runs: Path, journal: Journal) -> None:
        self._image, self._runs, self._journal = image, runs, journal
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="image", daemon=True)

    def start(self) -> None:
        """Begin, where the profile names an image."""
        if self._image:
            self._thread.start()

    def finish(self) -> None:
        """Give up what is not done: the next attempt begins anew, and a job does not wait for it."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _look(self) -> None:
        try:
            found = images.image_of(str(self._image), images.known_for(self._runs), self._stopped.is_set)
        except images.Stopped:
            return
        except OSError as error:
            found = images.Image(str(self._image), None, f"it cannot be read: {error}")
        self._journal.event(images.EVENT, **asdict(found))
