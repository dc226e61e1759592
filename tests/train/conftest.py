"""What the training tests share. The rehearsal's text is built once for all of them."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The prefix of indexed English text, byte by byte."""
    from seatrial.data.text import ensure_text

    return ensure_text(tmp_path_factory.mktemp("text"))
