"""The sandbox's software: Slurm, MUNGE and MariaDB of one Debian suite, unpacked privately and kept in a cache.

Nothing is installed. The programs of another suite need its C library, so each is patched to use the loader and the
libraries unpacked beside it (DT_RPATH, which the plugins that it loads inherit). Jobs keep the host's libraries:
nothing is exported.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from seatrial.errors import SeatrialError
from seatrial.sandbox import apt
from seatrial.sandbox.config import Version

SUITES: dict[Version, str] = {"22.05": "bookworm", "24.11": "trixie"}
PACKAGES = (
    "slurmctld", "slurmd", "slurmdbd", "slurm-client", "slurm-wlm-basic-plugins", "slurm-wlm-mysql-plugin",
    "libslurm-dev", "munge", "mariadb-server-core", "mariadb-client-core", "patchelf",
)  # fmt: skip
CLIENTS = (
    "sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol", "scrontab", "sdiag", "sinfo",
    "sprio", "squeue", "sreport", "srun", "sshare", "sstat", "strigger",
)  # fmt: skip
# Name -> the program below usr/.
_DAEMONS = {
    "slurmctld": "sbin/slurmctld-wlm", "slurmd": "sbin/slurmd-wlm", "slurmstepd": "sbin/slurmstepd-wlm",
    "slurmdbd": "sbin/slurmdbd", "munged": "sbin/munged", "munge": "bin/munge", "mariadbd": "sbin/mariadbd",
    "mariadb": "bin/mariadb",
}  # fmt: skip
_HELPERS = ("bin/my_print_defaults", "bin/resolveip")  # of mariadb-install-db
_LEAVE_OUT = ("./usr/share/doc", "./usr/share/man", "./usr/share/locale", "./usr/share/perl*", "./etc", "./var")
_RECIPE = 1  # raised when what is built here changes: an older cache is then built anew


@dataclass(frozen=True)
class Software:
    """One unpacked Slurm and what it needs."""

    version: Version
    prefix: Path

    @property
    def clients(self) -> Path:
        """The folder of Slurm's commands, for PATH; it holds nothing else."""
        return self.prefix / "commands"

    def program(self, name: str) -> str:
        """Return a daemon or tool by its plain name: slurmctld refuses to run under Debian's, slurmctld-wlm."""
        return str(self.prefix / "daemons" / name)

    @property
    def plugins(self) -> Path:
        """Slurm's PluginDir."""
        return self.prefix / "usr" / "lib" / _triplet() / "slurm-wlm"

    @property
    def headers(self) -> Path:
        """The include folder that has ``slurm/spank.h``."""
        return self.prefix / "usr" / "include"


def cache_folder() -> Path:
    """Return where unpacked software is kept."""
    return Path.home() / ".cache" / "seatrial"


def ensure(version: Version, cache: Path | None = None, say: Callable[[str], None] = lambda _: None) -> Software:
    """Return the software of ``version``, downloading it the first time (about 40 MB).

    Raises SeatrialError on a machine that is not Debian, or where apt fails.
    """
    software = Software(version, (cache or cache_folder()).absolute() / f"slurm-{version}")
    stamp = software.prefix / "complete.json"
    if not _complete(stamp):
        codename = debian_codename()
        software.prefix.parent.mkdir(parents=True, exist_ok=True)
        with (software.prefix.parent / f".slurm-{version}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _complete(stamp):
                say(f"fetching Slurm {version} of Debian {SUITES[version]}")
                _build(software, codename)
    return software


def debian_codename(os_release: Path = Path("/etc/os-release")) -> str:
    """Return the host's codename. Raises SeatrialError where the host is not Debian."""
    text = os_release.read_text() if os_release.exists() else ""
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    name = fields.get("ID", "an unknown system").strip('"')
    codename = fields.get("VERSION_CODENAME", "").strip('"')
    if name != "debian" or not codename or not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise SeatrialError(
            f"the sandbox does not run on {name}",
            file=os_release,
            rule="its Slurm is unpacked from Debian's packages, so the machine (or container) must be Debian",
        )
    return codename


def require_root(uid: int | None = None) -> None:
    """Raise SeatrialError unless this is root: Slurm's daemons start tasks as the users who submitted them."""
    if (os.geteuid() if uid is None else uid) != 0:
        raise SeatrialError(
            "the sandbox needs root", rule="its Slurm daemons run as root, like a cluster's", fix="sudo"
        )


def _complete(stamp: Path) -> bool:
    try:
        return bool(json.loads(stamp.read_text()) == {"recipe": _RECIPE})
    except (FileNotFoundError, ValueError):
        return False


def _build(software: Software, codename: str) -> None:
    sources = apt.derive_sources(apt.host_sources(), codename, SUITES[software.version])
    with tempfile.TemporaryDirectory(dir=software.prefix.parent, prefix=".fetch-") as scratch:
        aside = Path(scratch) / "prefix"
        aside.mkdir()
        for package in apt.download(Path(scratch) / "apt", sources, PACKAGES):
            apt.unpack(package, aside, _LEAVE_OUT)
        _patch(aside, software.prefix)
        (aside / "complete.json").write_text(json.dumps({"recipe": _RECIPE}))
        if software.prefix.exists():
            shutil.rmtree(software.prefix)
        aside.rename(software.prefix)
    done = subprocess.run([software.program("slurmd"), "-V"], capture_output=True, text=True)
    if done.returncode or software.version not in done.stdout:
        (software.prefix / "complete.json").unlink()
        words = (done.stdout + done.stderr).strip()
        raise SeatrialError(f"the unpacked Slurm is not {software.version}: {words}", file=software.prefix)


def _patch(aside: Path, final: Path) -> None:
    """Point the programs unpacked in ``aside`` at the loader they will have in ``final``, and collect the commands."""
    triplet = _triplet()
    loader = next(path for path in sorted(aside.glob(f"**/{triplet}/ld-linux-*")) if path.is_file())
    libraries = f"{aside}/usr/lib/{triplet}:{aside}/lib/{triplet}"
    # patchelf is of that suite too, and not patched yet: its loader is called by name.
    patchelf = [str(loader), "--library-path", libraries, str(aside / "usr/bin/patchelf")]
    search = ":".join(f"$ORIGIN/{at}/{triplet}{tail}" for at, tail in (
        ("../lib", "/slurm-wlm"), ("../lib", ""), ("../../lib", ""),
    ))  # fmt: skip
    commands = {name: f"bin/{name}" for name in CLIENTS if (aside / "usr" / "bin" / name).exists()}
    programs = [aside / "usr" / path for path in (*commands.values(), *_DAEMONS.values(), *_HELPERS)]
    options = ["--set-interpreter", str(final / loader.relative_to(aside)), "--force-rpath", "--set-rpath", search]
    _run([*patchelf, *options, *map(str, programs)])
    # A run path of a plugin's own would hide the program's.
    plugins = sorted((aside / "usr/lib" / triplet / "slurm-wlm").glob("*.so"))
    _run([*patchelf, "--remove-rpath", *map(str, plugins)])
    for folder, links in (("commands", commands), ("daemons", _DAEMONS)):
        (aside / folder).mkdir()
        for name, path in links.items():
            (aside / folder / name).symlink_to(f"../usr/{path}")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SeatrialError(f"patchelf failed: {done.stderr.strip()[-600:]}")


def _triplet() -> str:
    return f"{platform.machine()}-linux-gnu"
