"""`check --deep`: Megatron's own parser, validation and config, in a process of its own (this one imports no torch)."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from seatrial.check.findings import Finding
from seatrial.errors import SeatrialError
from seatrial.run.releases import installed, same_line
from seatrial.spec.arguments import arguments
from seatrial.spec.runspec import RunSpec

_PACKAGE_ROOT = Path(__file__).resolve().parents[2]


def need_megatron(what: str, spec: RunSpec) -> None:
    """Raise SeatrialError unless this Python has torch and megatron-core of the spec's line; or, where that is its
    engine, Megatron-Bridge, which brings its own. Imports none of them."""
    missing = [name for name in ("torch", "megatron") if importlib.util.find_spec(name) is None]
    if missing:
        packages = ", ".join({"megatron": "megatron-core"}.get(name, name) for name in missing)
        raise SeatrialError(
            f"{what} needs {packages}, which {sys.executable} does not have",
            fix="pip install 'seatrial[train]'",
        )
    if spec.bridge:
        if importlib.util.find_spec("megatron.bridge") is None:
            raise SeatrialError(
                f"{what} needs megatron-bridge, which {sys.executable} does not have",
                key="engine", value="megatron-bridge",
                fix="a Python with megatron-bridge 0.5, or --engine megatron-core",
            )  # fmt: skip
        return
    release, there = spec.megatron_core, installed("megatron-core")
    if there is not None and not same_line(there, release):
        raise SeatrialError(
            f"{what} needs megatron-core {release}, and {sys.executable} has {there}",
            key="profile.megatron_core", value=release, rule="the release whose arguments the ranks are given",
            fix=f"name the line of {there} in profile.megatron_core, or take a Python with {release}",
        )  # fmt: skip


def deep_check(spec: RunSpec, timeout_seconds: float = 300) -> tuple[list[Finding], list[str]]:
    """Return what Megatron finds, and what a stand-in was declared for while it looked.

    Runs ``seatrial.train.deep_check`` (``seatrial.train.bridge.resolve`` where Megatron-Bridge trains) at the spec's
    real world size on one CPU process. Raises SeatrialError where Megatron is missing or the check itself breaks.
    """
    need_megatron("check --deep", spec)
    module = "seatrial.train.bridge.resolve" if spec.bridge else "seatrial.train.deep_check"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.json"
        path.write_text(json.dumps(spec.to_json() | {"arguments": arguments(spec)}))
        try:
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-m", module, str(path)],
                cwd=_PACKAGE_ROOT, capture_output=True, text=True, timeout=timeout_seconds,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise SeatrialError(f"Megatron's validation did not end within {timeout_seconds:.0f} s") from None
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        tail = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise SeatrialError(f"the deep check broke (exit code {done.returncode}):\n{tail}") from None
    source = "megatron-bridge" if spec.bridge else f"megatron-core {spec.megatron_core}"
    findings = [Finding(item["severity"], "megatron", None, item["message"], source, "") for item in answer["findings"]]
    return findings, list(answer["stand_in"])
