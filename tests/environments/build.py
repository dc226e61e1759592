"""``python -m tests.environments.build NAME`` makes ``.venv-NAME``: NAME.txt's packages before those of ``.venv``.

The packages of ``.venv`` are shared, not copied (torch alone takes gigabytes): a ``.pth`` file adds them after the new
environment's own, so what NAME.txt pins is imported first.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PINS = Path(__file__).parent


def names() -> list[str]:
    """Return the names of the environments, one for each file of pins."""
    return sorted(path.stem for path in PINS.glob("*.txt"))


def python_of(name: str) -> Path:
    """Return the interpreter of environment ``name``, built or not."""
    return REPO / f".venv-{name}" / "bin" / "python"


def build(name: str) -> Path:
    """Build the environment unless it stands and its pins are the same; return its interpreter."""
    pins, python = PINS / f"{name}.txt", python_of(name)
    folder, ready = python.parents[1], python.parents[1] / ".ready"
    if ready.is_file() and ready.read_text() == pins.read_text():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    shared, version = sysconfig.get_path("purelib"), f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "lib" / version / "site-packages" / "shared.pth").write_text(
        f"import site; site.addsitedir({shared!r})\n"
    )
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--requirement", str(pins)], check=True)
    ready.write_text(pins.read_text())
    return python


if __name__ == "__main__":
    for wanted in sys.argv[1:] or names():
        print(build(wanted))
