"""A real sshd on a loopback port of its own, for keys made on the spot: what a laptop reaches a cluster through."""

from __future__ import annotations

import contextlib
import getpass
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SERVER = "/usr/sbin/sshd"
NEEDED = ("rsync", "ssh", "ssh-keygen", SERVER)
_SEPARATION = Path("/run/sshd")  # sshd does not start without
_CONFIGURATION = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile {folder}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AllowUsers {user}
"""
# OpenSSH's client looks for its settings in the home of the passwd entry, whatever HOME says.
_CLIENT = """\
#!/bin/sh
exec /usr/bin/ssh -F none -o BatchMode=yes -o UserKnownHostsFile={folder}/known_hosts -o GlobalKnownHostsFile=none "$@"
"""


def missing() -> list[str]:
    """Return the programs that this machine lacks (apt-get install openssh-server rsync)."""
    return [name for name in NEEDED if shutil.which(name) is None]


@dataclass(frozen=True)
class Server:
    """``identity``: the user's private key. ``programs``: a folder for PATH, whose ssh knows the host's key."""

    port: int
    user: str
    identity: Path
    programs: Path


@contextlib.contextmanager
def server(folder: Path) -> Iterator[Server]:
    """Run an sshd until the end of the block; everything of it lies in ``folder``."""
    for name in ("host_key", "user_key"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
        subprocess.run(words, check=True)
    port, user = _free_port(), getpass.getuser()
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
    (folder / "sshd_config").write_text(_CONFIGURATION.format(port=port, folder=folder, user=user))
    programs = folder / "programs"
    programs.mkdir()
    (programs / "ssh").write_text(_CLIENT.format(folder=folder))
    (programs / "ssh").chmod(0o755)
    made = not _SEPARATION.exists()
    _SEPARATION.mkdir(mode=0o755, exist_ok=True)
    try:
        with (folder / "sshd.log").open("wb") as log:
            daemon = subprocess.Popen([SERVER, "-D", "-e", "-f", str(folder / "sshd_config")], stdout=log, stderr=log)
        try:
            _wait(port, daemon, folder / "sshd.log")
            yield Server(port, user, folder / "user_key", programs)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(10)
    finally:
        if made:
            with contextlib.suppress(OSError):
                _SEPARATION.rmdir()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _wait(port: int, daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 10
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert daemon.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
