"""The checks that a node makes of itself. Each returns a Check, names a fault in a sentence, and ends in its time.

Standard library, Python 3.9: they run with the node's own Python, outside of the container.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

from seatrial.supervise import preflight_nvidia as nvidia
from seatrial.supervise.ranks import kill_group

OK, FAILED, SKIPPED = "ok", "failed", "skipped"
_IMEX_CHANNELS = Path("/dev/nvidia-caps-imex-channels")
_KERNEL_LOG = Path("/dev/kmsg")
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Check(NamedTuple):
    """How a check went, and why it did not go well."""

    state: str
    why: str = ""


Settings = Mapping[str, Any]
Make = Callable[[Settings, float], Check]  # the settings, and the seconds that it may take


def judged(*found: nvidia.Found, otherwise: str) -> Check:
    """Return a Check of what was found; ``otherwise``: why nothing could be."""
    faults = [fault for one in found for fault in one.faults]
    if faults:
        return Check(FAILED, "; ".join(faults))
    return Check(OK) if any(one.known for one in found) else Check(SKIPPED, otherwise)


def gpus(settings: Settings, seconds: float) -> Check:
    """As many GPUs as promised, of the type promised."""
    code, said = run(nvidia.GPU_QUERY, seconds)
    if code != 0:
        return Check(FAILED, said)
    return judged(nvidia.gpus(said, int(settings["gpus_per_node"]), settings["gpu_type"]), otherwise="")


def ecc(_: Settings, seconds: float) -> Check:
    """No memory error since the driver's start that could not be corrected; no row to be remapped."""
    end = time.monotonic() + seconds
    answers = [run(nvidia.ECC_QUERY, seconds), run(nvidia.ROWS_QUERY, max(1.0, end - time.monotonic()))]
    found = [judge(said) for judge, (code, said) in zip((nvidia.ecc, nvidia.rows), answers) if code == 0]
    refused = next((said for code, said in answers if code != 0), "these GPUs do not tell")
    return judged(*found, otherwise=refused)


def xid(_: Settings, _seconds: float) -> Check:
    """No Xid in the kernel log that only a reset ends."""
    try:
        lines = list(kernel_log(_KERNEL_LOG))
    except OSError as error:
        return Check(SKIPPED, f"{_KERNEL_LOG}: {words_of(error)}")
    return judged(nvidia.xids(lines), otherwise="")


def nvlink(settings: Settings, seconds: float) -> Check:
    """No NVLink down, where the profile says that the GPUs are linked."""
    if not settings["nvlink_domain"]:
        return Check(SKIPPED, "the profile names no nvlink_domain")
    code, said = run(nvidia.NVLINK_QUERY, seconds)
    return Check(SKIPPED, said) if code != 0 else judged(nvidia.nvlink(said), otherwise="nvidia-smi lists no links")


def imex(settings: Settings, _seconds: float) -> Check:
    """A channel for memory that is shared over NVLink between the nodes of a rack. Its number is the site's choice."""
    if not str(settings["gpu_type"] or "").lower().startswith(("gb200", "gb300")) or int(settings["nodes"]) < 2:
        return Check(SKIPPED, "only several nodes of one NVLink domain need it")
    channels = sorted(_IMEX_CHANNELS.glob("channel*"))
    if any(os.access(channel, os.R_OK | os.W_OK) for channel in channels):
        return Check(OK)
    return Check(FAILED, f"no IMEX channel {'may be opened' if channels else 'is'} in {_IMEX_CHANNELS}")


def folders(settings: Settings, _seconds: float) -> Check:
    """The run folder can be read and written, the code and the data can be read."""
    folder = Path(settings["folder"])
    faults = []
    try:
        handle, name = tempfile.mkstemp(dir=folder, prefix=".preflight-")
        os.close(handle)
        Path(name).unlink()
    except OSError as error:
        # A disk that is full is so for every node.
        if error.errno not in _FULL:
            faults.append(f"cannot write to {folder}: {words_of(error)}")
    unreadable = [(path, why) for path in settings["readable"] for why in [why_unreadable(Path(path))] if why]
    faults += [f"cannot read {path}: {why}" for path, why in unreadable]
    return Check(FAILED, "; ".join(faults)) if faults else Check(OK)


def image(settings: Settings, _seconds: float) -> Check:
    """The container's image can be read, where it is a file."""
    path = settings["image"]
    if not path:
        return Check(SKIPPED, "the profile names no image")
    if not path.startswith("/"):
        return Check(SKIPPED, "a reference to a registry")
    why = why_unreadable(Path(path)) or ("it is empty" if not Path(path).stat().st_size else None)
    return Check(FAILED, f"cannot read {path}: {why}") if why else Check(OK)


def disk(settings: Settings, _seconds: float) -> Check:
    """The node's own folder can be written and has room."""
    wanted = Path(settings["node_local"]).expanduser()
    place = next(folder for folder in (wanted, *wanted.parents) if folder.exists())
    try:
        if place == wanted:
            with tempfile.TemporaryFile(dir=place):
                pass
        elif not os.access(place, os.W_OK | os.X_OK):
            return Check(FAILED, f"cannot make {wanted}: {place} is not writable")
        free = shutil.disk_usage(place).free / 1e9
    except OSError as error:
        return Check(FAILED, f"cannot write to {place}: {words_of(error)}")
    least = float(settings["node_local_gb"])
    return Check(FAILED, f"{free:.1f} GB are free in {place}, less than {least:g} GB") if free < least else Check(OK)


GPU_CHECKS: Mapping[str, Make] = {"gpus": gpus, "ecc": ecc, "xid": xid, "nvlink": nvlink, "imex": imex}
HOST_CHECKS: Mapping[str, Make] = {"folders": folders, "image": image, "disk": disk}


def site(words: Sequence[str], folder: str, seconds: float) -> Check:
    """A command of the site's: exit code 0 is good, else its last line says why not."""
    code, said = run(words, seconds, {**os.environ, "SEATRIAL_RUN_FOLDER": folder})
    return Check(OK) if code == 0 else Check(FAILED, said)


def run(words: Sequence[str], seconds: float, environment: Optional[Mapping[str, str]] = None) -> tuple[int, str]:
    """Return a command's exit code and output; where that is not 0, only its last line, or what there is to say.

    After ``seconds`` it is killed, with its children, and the code is -1; so it is where it cannot be started.
    """
    try:
        process = subprocess.Popen(
            list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=environment, start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return -1, f"cannot start {words[0]}: {words_of(error)}"
    try:
        output = process.communicate(timeout=seconds)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        kill_group(process.pid)
        return -1, f"{words[0]} did not end within {seconds:.0f} s"
    if process.returncode == 0:
        return 0, output
    how = f"exit code {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
    return process.returncode, next(reversed([line.strip() for line in output.splitlines() if line.strip()]), how)


def kernel_log(path: Path) -> Iterator[tuple[float, str]]:
    """Yield (age in seconds, text) of the kernel's records, oldest first. Raises OSError where it may not be read.

    The form is the kernel's (Documentation/ABI/testing/dev-kmsg): ``priority,number,microseconds,flags;text``.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                record = os.read(handle, 16384)
            except BlockingIOError:
                return
            except BrokenPipeError:  # overwritten meanwhile
                continue
            if not record:
                return
            for line in record.decode("utf-8", "replace").splitlines():
                head, mark, text = line.partition(";")
                parts = head.split(",")
                if mark and len(parts) > 2 and parts[2].isdecimal():
                    yield max(0.0, time.clock_gettime(time.CLOCK_MONOTONIC) - int(parts[2]) / 1e6), text
    finally:
        os.close(handle)


def why_unreadable(path: Path) -> Optional[str]:
    """Return why a file or folder cannot be read; None where it can. Of what is neither: whether it is there."""
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            with os.scandir(path) as entries:
                next(entries, None)
        elif stat.S_ISREG(kind):
            with path.open("rb") as stream:
                stream.read(1)
    except OSError as error:
        return words_of(error)
    return None


def words_of(error: BaseException) -> str:
    """Return an error in a few words."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
