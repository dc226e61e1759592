"""Which variables hold a secret, as far as their names tell it. Pure. Standard library, Python 3.9 or newer."""

from __future__ import annotations

import re

_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL|_JWT$|_KEY$", re.IGNORECASE)
_SHORTEST = 8


def is_secret(name: str, value: str) -> bool:
    """Tell whether ``value`` must not be shown: its variable's name says so. Short values and paths are none."""
    return len(value) >= _SHORTEST and _SECRET_NAME.search(name) is not None and not value.startswith("/")
