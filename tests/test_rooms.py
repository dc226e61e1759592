"""The rooms: what each part of the package may import, and the Python that it must run on."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "launchers" / "seatrial"

# Room -> the rooms of ours it may import, and the libraries beyond the standard one.
LOGIN = {"pydantic", "yaml", "typer", "rich", "submitit"}
ROOMS: dict[str, tuple[set[str], set[str]]] = {
    "run": (set(), set()),
    "data": (set(), set()),
    "judge": ({"run"}, set()),
    "supervise": ({"run", "judge"}, set()),
    "train": (
        {"run"},
        {"torch", "megatron", "packaging", "deep_ep", "transformer_engine", "mamba_ssm", "causal_conv1d", "fla"}
        | {"wandb"},
    ),
    "spec": ({"data", "run"}, LOGIN),
    "check": ({"spec", "data", "run"}, LOGIN),
    "slurm": ({"spec", "check", "data", "run", "supervise"}, LOGIN),
    "report": ({"check", "spec", "run", "judge"}, LOGIN),
    "interop": ({"spec", "check", "slurm", "run", "data", "supervise"}, LOGIN | {"nemo_run"}),
    "sandbox": ({"run"}, set()),
    "cli": ({"spec", "check", "slurm", "report", "run", "judge", "data", "sandbox"}, LOGIN),
}
COMPUTE_HOST = ("run", "data", "judge", "supervise")


def imports(path: Path) -> set[str]:
    """Return every module that a file imports anywhere, as dotted names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    ours, libraries = ROOMS[room]
    files = sorted((PACKAGE / room).rglob("*.py"))
    assert files
    for path in files:
        for name in imports(path):
            top, _, rest = name.partition(".")
            if top == "seatrial":
                target = rest.split(".")[0]
                assert target in ours | {room, "errors", "__version__", ""}, f"{path} imports {name}"
            else:
                assert top in sys.stdlib_module_names or top in libraries, f"{path} imports {name}"


def test_every_folder_is_a_room() -> None:
    folders = {p.name for p in PACKAGE.iterdir() if p.is_dir() and not p.name.startswith("_")}
    assert folders == set(ROOMS)


def test_compute_host_rooms_compile_for_python_3_9() -> None:
    for room in COMPUTE_HOST:
        for path in [*(PACKAGE / room).rglob("*.py"), PACKAGE / "errors.py"]:
            ast.parse(path.read_text(), feature_version=(3, 9))


def old_python() -> str | None:
    """Return a Python between 3.9 and 3.11 of this machine, as a compute host may have."""
    pyenv = sorted(map(str, Path("~root").expanduser().glob(".pyenv/versions/3.9*/bin/python3.9")))
    candidates = [*pyenv, *(shutil.which(f"python3.{minor}") for minor in (9, 10, 11)), "/usr/bin/python3"]
    for candidate in filter(None, candidates):
        done = subprocess.run(
            [candidate, "-c", "import sys; print(sys.version_info[:2] < (3, 12))"],
            capture_output=True,
            text=True,
        )
        if done.returncode == 0 and done.stdout.strip() == "True":
            return candidate
    return None


def test_compute_host_rooms_import_on_the_host_python() -> None:
    python = old_python()
    if python is None:
        pytest.skip("no Python older than 3.12 on this machine")
    modules = [
        "seatrial." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for room in COMPUTE_HOST
        for path in (PACKAGE / room).rglob("*.py")
        if path.stem not in ("__init__", "__main__")
    ]
    code = f"import sys, importlib; sys.path.insert(0, {str(PACKAGE.parent)!r})\n" + "\n".join(
        f"importlib.import_module({m!r})" for m in modules
    )
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_modules_stay_small() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 300, f"{path} does too much"
