"""The code a job runs: copied at submission, so that no later edit reaches a waiting, requeued or restarted job.

    code/
      seatrial/          the rooms that the supervisor and the ranks need
      host_libraries/    submitit and what it needs: for the supervisor, outside the container
      SNAPSHOT.json      versions, the sha256 of each file, the tree hash

Pure Python only: the login node may have another processor and another Python than the compute hosts. The libraries
stand apart because a rank puts ``code/`` first on its path, where they would hide the container's own.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path, PurePath
from typing import Any

import seatrial
from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.spec.provenance import SOURCE_SUFFIXES

SNAPSHOT_FILE = "SNAPSHOT.json"
ROOMS = ("judge", "run", "supervise", "train")  # what supervise and train import, and what that imports
_PACKAGE = Path(seatrial.__file__).resolve().parent
_LIBRARIES = ("submitit", "cloudpickle", "typing_extensions")
_LIBRARY_FOLDER = "host_libraries"
_NATIVE_SUFFIXES = (".so", ".pyd", ".dll", ".dylib")
# On Python 3.9 submitit 1.5.4 ends with KeyError where no installed package offers it a plugin. This one offers what
# it has already.
_PLUGIN = "[submitit]\njob_environment = submitit.slurm.slurm:SlurmJobEnvironment\n"


@dataclass(frozen=True)
class Snapshot:
    """A written snapshot: the hash of all files, that of ``seatrial/train`` alone, their number and size in bytes."""

    tree_hash: str
    train_hash: str
    files: int
    bytes: int

    def record(self) -> dict[str, Any]:
        """Return it for the run's record."""
        return asdict(self)


def write_code(folder: Path) -> Snapshot:
    """Copy what a job needs into the new ``folder``, read-only. SNAPSHOT.json comes last, so it means "whole".

    Raises:
        SeatrialError: a library is missing or has compiled modules; the folder exists or cannot be written.
    """
    contents = {**_seatrial_files(), **_library_files()}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(contents.items())}
    snapshot = _snapshot(hashes, sum(map(len, contents.values())))
    try:
        folder.mkdir()
        for name, content in contents.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o444)
        document = {"schema": records.SCHEMA, **snapshot.record(), "versions": _versions(), "sha256": hashes}
        records.write_json(folder / SNAPSHOT_FILE, document)
        (folder / SNAPSHOT_FILE).chmod(0o444)
    except OSError as error:
        raise SeatrialError(f"cannot write the code snapshot: {error.strerror}", file=folder) from error
    return snapshot


def verify_code(folder: Path) -> Snapshot:
    """Hash the files again. Raises SeatrialError naming those that changed, are missing or were added."""
    try:
        document = records.read_json(folder / SNAPSHOT_FILE)
        then: dict[str, str] = document["sha256"]
        recorded = document["tree_hash"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SeatrialError(f"no whole code snapshot: {SNAPSHOT_FILE} is not there", file=folder) from error
    contents = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path != folder / SNAPSHOT_FILE
    }
    now = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    wrong = [
        f"{'missing' if name not in now else 'added' if name not in then else 'changed'}: {name}"
        for name in sorted(then.keys() | now.keys())
        if then.get(name) != now.get(name)
    ]
    snapshot = _snapshot(now, sum(map(len, contents.values())))
    if not wrong and snapshot.tree_hash != recorded:
        wrong = [f"changed: {SNAPSHOT_FILE}"]
    if wrong:
        raise SeatrialError("\n    ".join(["the code snapshot is not what it was:", *wrong[:20]]), file=folder)
    return snapshot


def train_hash() -> str:
    """Return the hash that a snapshot made now would have as its ``train_hash``."""
    return _snapshot({k: hashlib.sha256(v).hexdigest() for k, v in _room_files("train").items()}, 0).train_hash


def python_path(code: PurePath) -> str:
    """Return the supervisor's PYTHONPATH (ranks need none); pure. Raises SeatrialError where a path cannot be in it."""
    if ":" in str(code):
        raise SeatrialError(
            "a run folder whose path has a colon cannot be on PYTHONPATH", file=code,
            fix="set profile.paths.runs to another folder",
        )  # fmt: skip
    return f"{code}:{code / _LIBRARY_FOLDER}"


def tree_hash(hashes: Mapping[str, str]) -> str:
    """Return the sha256 of the lines that `sha256sum` prints for the files, sorted by name."""
    lines = "".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes))
    return hashlib.sha256(lines.encode()).hexdigest()


def _snapshot(hashes: Mapping[str, str], size: int) -> Snapshot:
    train = {name: value for name, value in hashes.items() if name.startswith("seatrial/train/")}
    return Snapshot(tree_hash(hashes), tree_hash(train), len(hashes), size)


def _seatrial_files() -> dict[str, bytes]:
    files = {f"seatrial/{name}": (_PACKAGE / name).read_bytes() for name in ("__init__.py", "errors.py")}
    for room in ROOMS:
        files |= _room_files(room)
    return files


def _room_files(room: str) -> dict[str, bytes]:
    return {f"seatrial/{room}/{name}": path.read_bytes() for name, path in _sources(_PACKAGE / room, "seatrial")}


def _library_files() -> dict[str, bytes]:
    files = {}
    for library in _LIBRARIES:
        spec = importlib.util.find_spec(library)
        if spec is None or spec.origin is None:
            raise SeatrialError(f"{library} is not installed, and a job needs it", fix=f"pip install {library}")
        if not spec.submodule_search_locations:
            _refuse_native(Path(spec.origin), library)
            files[f"{library}.py"] = Path(spec.origin).read_bytes()
            continue
        for name, path in _sources(Path(spec.origin).parent, library):
            if not name.rpartition("/")[2].startswith(("test_", "conftest.")):
                files[f"{library}/{name}"] = path.read_bytes()
    info = f"seatrial_snapshot-{seatrial.__version__}.dist-info"
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: seatrial-snapshot\nVersion: {seatrial.__version__}\n".encode()
    )
    files[f"{info}/entry_points.txt"] = _PLUGIN.encode()
    return {f"{_LIBRARY_FOLDER}/{name}": content for name, content in files.items()}


def _sources(folder: Path, package: str) -> Iterator[tuple[str, Path]]:
    """Yield the source files under ``folder`` with their names relative to it."""
    for path in sorted(folder.rglob("*")):
        _refuse_native(path, package)
        if path.suffix in SOURCE_SUFFIXES and path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder).as_posix(), path


def _refuse_native(path: Path, package: str) -> None:
    if path.suffix in _NATIVE_SUFFIXES:
        raise SeatrialError(
            f"{package} has a compiled module, which the compute hosts' Python or processor may not load", file=path,
            fix=f"install a pure-Python {package}: pip install --force-reinstall --no-binary {package} {package}",
        )  # fmt: skip


def _versions() -> dict[str, Any]:
    """Return the version of each package, and the Python it asks for."""
    found: dict[str, Any] = {"seatrial": {"version": seatrial.__version__}}
    for library in _LIBRARIES:
        try:
            about = metadata(library)
        except PackageNotFoundError:  # importable without being installed
            found[library] = {"version": None}
        else:
            found[library] = {"version": about["Version"], "requires_python": about["Requires-Python"]}
    return found
