"""What every test gets: a home of its own, so that no user's site file or cache changes an outcome."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

# No test is timed: a loaded machine makes any of them slow.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Started in the background, by nohup or `&`, a process ignores Ctrl-C, and so would every command that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPO = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty home folder; variables that would pick a recipe or another configuration are unset."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "MODEL_RECIPE_NAME"):
        monkeypatch.delenv(name, raising=False)
    return home
