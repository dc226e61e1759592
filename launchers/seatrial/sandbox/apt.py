"""Packages of any Debian suite, fetched beside the host's own apt: its lists, its cache and dpkg stay as they are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from seatrial.errors import SeatrialError

_NAMES = ("stable", "oldstable", "testing")  # what a sources line may say in place of the codename
_ONE_LINE = re.compile(r"^\s*deb\s+(\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+(.+?)\s*(#.*)?$")
_CONFIGURATION = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Install-Pkgs;
#clear DPkg::Post-Invoke;
APT::Sandbox::User "root";
APT::Get::Assume-Yes "true";
APT::Install-Recommends "false";
Acquire::Retries "3";
Acquire::Languages "none";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "{folder}/sources";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "{folder}/state";
Dir::State::lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Log "{folder}/log";
"""


def host_sources(etc: Path = Path("/etc/apt")) -> dict[str, str]:
    """Return the host's apt source files, name -> text."""
    files = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    return {p.name: p.read_text() for p in files if p.is_file() and p.suffix in (".list", ".sources")}


def derive_sources(files: Mapping[str, str], codename: str, suite: str) -> dict[str, str]:
    """Return source files for ``suite``, made from the lines by which the host gets its own suite ``codename``.

    Mirror, components, keys and options stay; what serves other archives (updates, security, third parties) is left
    out. Raises SeatrialError where the host has no line for its suite.
    """
    own = {codename, *_NAMES}
    derived = {}
    for name, text in files.items():
        parts = _stanzas(text, own, suite) if name.endswith(".sources") else _lines(text, own, suite)
        if parts:
            derived[name] = "\n".join(parts)
    if not derived:
        raise SeatrialError(
            f"apt has no source for Debian {codename}",
            file="/etc/apt/sources.list.d",
            rule=f"packages of {suite} come from where this machine gets its own",
        )
    return derived


def _lines(text: str, own: set[str], suite: str) -> list[str]:
    matches = filter(None, map(_ONE_LINE.match, text.splitlines()))
    return [f"deb {m[1] or ''}{m[2]} {suite} {m[4]}\n" for m in matches if m[3] in own]


def _stanzas(text: str, own: set[str], suite: str) -> list[str]:
    derived = []
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        fields = {key.strip().lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        if not own & set(fields.get("suites", "").split()) or fields.get("enabled", "yes").lower() == "no":
            continue
        if "deb" not in fields.get("types", "").split():
            continue
        kept = [line for line in lines if not re.match(r"(?i)(suites|types)\s*:", line)]
        derived.append("\n".join([f"Types: deb\nSuites: {suite}", *kept]) + "\n")
    return derived


def download(folder: Path, sources: Mapping[str, str], packages: Sequence[str]) -> list[Path]:
    """Download ``packages`` and all that they depend on into ``folder``; return the .deb files.

    The empty dpkg status makes apt give everything down to the C library. Raises SeatrialError with apt's words.
    """
    for part in ("sources", "lists/partial", "cache/archives/partial", "state", "log"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for name, text in sources.items():
        (folder / "sources" / name).write_text(text)
    (folder / "status").write_text("")
    configuration = folder / "apt.conf"
    configuration.write_text(_CONFIGURATION.format(folder=folder))
    apt = ["apt-get", "-c", str(configuration), "-qq"]
    _run([*apt, "update"])
    _run([*apt, "--download-only", "install", *packages])
    return sorted((folder / "cache" / "archives").glob("*.deb"))


def install_compiler() -> str:
    """Return the host's C compiler, installed by apt where it has none."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        _run(["apt-get", "-qq", "update"])
        _run(["apt-get", "-qq", "-y", "--no-install-recommends", "install", "gcc", "libc6-dev"])
        compiler = shutil.which("gcc")
    if compiler is None:
        raise SeatrialError("no C compiler", rule="the stand-in for pyxis is built when the sandbox starts")
    return compiler


def unpack(package: Path, folder: Path, exclude: Sequence[str] = ()) -> None:
    """Unpack a .deb below ``folder``, running nothing of it."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as archive:
        skip = [f"--exclude={pattern}" for pattern in exclude]
        tar = ["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", str(folder), *skip]
        done = subprocess.run(tar, stdin=archive.stdout, capture_output=True, text=True)
    if done.returncode or archive.returncode:
        raise SeatrialError(f"cannot unpack {package.name}: {done.stderr.strip()}", file=package)


def _run(command: Sequence[str]) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        words = "\n".join((done.stderr or done.stdout).strip().splitlines()[-6:])
        raise SeatrialError(f"{command[0]} failed ({done.returncode}): {words}", value=" ".join(command))
