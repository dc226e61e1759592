"""A run folder that a group may read: nobody else, nothing but reading, and no secret in it."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.errors import SeatrialError
from seatrial.report import secrets
from seatrial.report.sharing import share
from seatrial.run import records
from seatrial.run.layout import RunFolder
from tests.synthetic_run import write_run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has groups to give folders to")

USERS, STAFF = 100, 50
NOBODY = 65534
SECRET = 's3cr3t/+value"with\\signs'


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = write_run(tmp_path_factory.mktemp("runs") / "run", steps=40, attempts=2, logs=True)
    for name in ("submitit", "code", "tensorboard", "data_cache"):
        (run.path / name).mkdir()
        (run.path / name / "file").write_text("x")
    (run.path / "uncommitted.diff").write_text("+key = 1")
    (run.path / "supervisor.lock").touch()
    return run.path


@pytest.fixture
def run(template: Path) -> Iterator[RunFolder]:
    """A run folder that other users can get at; pytest's own folders let none pass."""
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        yield RunFolder(Path(shutil.copytree(template, Path(above) / "run")))


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Return name -> (group, mode) of everything in the folder."""
    found = [folder, *folder.rglob("*")]
    return {str(path): (path.lstat().st_gid, stat.S_IMODE(path.lstat().st_mode)) for path in found}


def can(command: str, *, group: int, user: int = NOBODY) -> bool:
    done = subprocess.run(
        ["/bin/sh", "-c", command], user=user, group=group, extra_groups=[], capture_output=True, check=False, cwd="/"
    )
    return done.returncode == 0


def test_the_group_reads_and_nobody_writes(run: RunFolder) -> None:
    (run.path / "submitit").chmod(0o755)
    said = share(run, "users", {})
    assert said[0] == f"group users may now read {run.path}, and what the run writes there; nobody but you can write"
    assert said[1] == "yours alone as before: submitit, code, uncommitted.diff, supervisor.lock"
    assert len(said) == 2
    for name, (group, mode) in state(run.path).items():
        path = Path(name)
        if path.relative_to(run.path).parts[:1] in [("submitit",), ("code",)] and path.parent != run.path:
            continue  # nobody gets there
        if path.name in ("submitit", "code", "uncommitted.diff", "supervisor.lock"):
            assert mode & 0o077 == 0, name
        else:
            assert group == USERS and mode & 0o027 == 0 and mode & 0o040, name
            assert not path.is_dir() or mode == 0o2750, name
    record = run.attempt(0).record
    readable = [run.spec, run.events, record, run.attempt(1).rank_log(63), run.checkpoints / "iter_0000040/.metadata"]
    for path in readable:
        assert can(f"cat {path}", group=USERS) and not can(f"cat {path}", group=STAFF)
        assert not can(f"echo x >> {path}", group=USERS) and not can(f"rm -f {path}", group=USERS)
    assert can(f"ls {run.path}/attempts/000", group=USERS) and not can(f"ls {run.path}", group=STAFF)
    assert not can(f"touch {run.path}/new", group=USERS) and not can(f"mkdir {run.path}/attempts/009", group=USERS)
    for closed in ("submitit/file", "code/file", "uncommitted.diff", "supervisor.lock"):
        assert not can(f"cat {run.path}/{closed}", group=USERS)
    assert share(run, "users", {})[0].startswith("group users could read already ")


def test_what_the_run_writes_later_is_readable_too(run: RunFolder) -> None:
    share(run, "users", {})
    records.append_event(run.events, "note")
    records.write_json(run.verdict, {"verdict": "PASS"})
    attempt = run.new_attempt()
    records.write_json(attempt.record, {})
    before = os.umask(0o022)  # as ranks write
    try:
        attempt.rank_log(0).write_text("line\n")
        (run.checkpoints / "iter_0000050").mkdir()
        (run.checkpoints / "iter_0000050" / ".metadata").write_text("x")
    finally:
        os.umask(before)
    for path in (
        run.events,
        run.verdict,
        attempt.record,
        attempt.rank_log(0),
        run.checkpoints / "iter_0000050/.metadata",
    ):
        assert path.stat().st_gid == USERS
        assert can(f"cat {path}", group=USERS) and not can(f"cat {path}", group=STAFF)
        assert not can(f"echo x >> {path}", group=USERS)


def test_links_are_not_followed(run: RunFolder) -> None:
    outside = run.path.parent / "outside"
    outside.mkdir(mode=0o700)
    (outside / "file").write_text(SECRET)
    (run.path / "link").symlink_to(outside)
    (run.path / "tensorboard" / "link").symlink_to(outside / "file")
    before = state(outside)
    share(run, "users", {"HF_TOKEN": SECRET})
    assert state(outside) == before


PLACES = ("spec.json", "events.jsonl", "attempts/001/rank-00063.log", "tensorboard/file", "batch-1.log", "deep/er/file")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "my_api_key", "DB_PASSWORD", "CLIENT_SECRET", "PASSED", "HOOK", "W_AND_B"]
)
def test_a_secret_is_refused_and_named_but_not_shown(name: str, place: str, run: RunFolder) -> None:
    spec = records.read_json(run.spec)
    spec["profile"]["env"]["pass"] = ["PASSED"]
    spec["profile"]["notify"]["webhook"] = "HOOK"
    spec["profile"]["wandb"] |= {"enabled": True, "key": "W_AND_B"}
    records.write_json(run.spec, spec)
    path = run.path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        stream.write(json.dumps({"note": f"key={SECRET}!"}) if path.suffix.startswith(".json") else f"key={SECRET}!")
    if place == "spec.json":  # still one document
        records.write_json(run.spec, spec | {"note": SECRET})
    before = state(run.path)
    with pytest.raises(SeatrialError) as caught:
        share(run, "users", {name: SECRET, "HOME": "/root"})
    words = str(caught.value)
    assert f"holds the value of {name}" in words and str(path) in words
    assert "s3cr3t" not in words
    assert state(run.path) == before


def test_where_no_secret_can_be_read_none_is_looked_for(run: RunFolder) -> None:
    for place in ("submitit/file", "code/file", "uncommitted.diff", "checkpoints/iter_0000040/common.pt"):
        with (run.path / place).open("a") as stream:
            stream.write(SECRET)
    share(run, "users", {"HF_TOKEN": SECRET, "SHORT_KEY": "1234567", "EMPTY_KEY": ""})


def test_a_variable_that_is_not_set_here_is_told_of(run: RunFolder) -> None:
    spec = records.read_json(run.spec)
    spec["profile"]["env"]["pass"] = ["HF_TOKEN", "OTHER"]
    records.write_json(run.spec, spec)
    said = share(run, "users", {"HF_TOKEN": "a value"})
    assert "not set here, so their values could not be looked for in the files: OTHER" in said


@pytest.mark.parametrize("spec", [None, "{", "[]", '{"profile": 3}'])
def test_a_spec_that_cannot_be_read_is_no_sign_of_no_secret(spec: str | None, run: RunFolder) -> None:
    if spec is None:
        run.spec.unlink()
    else:
        run.spec.write_text(spec)
    before = state(run.path)
    with pytest.raises(SeatrialError, match="which variables hold secrets is not known"):
        share(run, "users", {})
    assert state(run.path) == before


@pytest.mark.parametrize("where", ["", "attempts", "attempts/000/record.json", "submitit/file"])
def test_what_is_somebody_elses_is_left_alone(where: str, run: RunFolder) -> None:
    os.chown(run.path / where, NOBODY, -1)
    before = state(run.path)
    if where == "submitit/file":  # stays closed, whosever it is
        share(run, "users", {})
        return
    with pytest.raises(SeatrialError, match="belongs to nobody") as caught:
        share(run, "users", {})
    assert str(run.path / where) in str(caught.value)
    assert state(run.path) == before


def test_groups_that_there_are_not(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    before = state(run.path)
    with pytest.raises(SeatrialError, match="no such group") as caught:
        share(run, "rooot", {})
    assert "did you mean 'root'?" in str(caught.value)
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    monkeypatch.setattr(os, "getgroups", lambda: [USERS])
    with pytest.raises(SeatrialError, match="you are not in this group") as caught:
        share(run, "staff", {})
    assert grp.getgrgid(USERS).gr_name in str(caught.value)
    assert state(run.path) == before


def test_folders_above_are_told_of_and_left(run: RunFolder) -> None:
    run.path.parent.chmod(0o700)
    said = share(run, "users", {})
    assert f"group users cannot enter {run.path.parent}: chmod o+x {run.path.parent} lets users pass" in said
    assert stat.S_IMODE(run.path.parent.stat().st_mode) == 0o700
    os.chown(run.path.parent, -1, USERS)
    assert any(f"chmod g+x {run.path.parent}" in one for one in share(run, "users", {}))


def test_a_run_at_work_may_lose_and_gain_files(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    from seatrial.report import sharing as report_sharing

    def meanwhile(*_: object) -> list[str]:
        shutil.rmtree(run.checkpoints)
        (run.path / "late.json").write_text("{}")
        return []

    monkeypatch.setattr(report_sharing, "_no_secrets", meanwhile)
    share(run, "users", {})
    assert can(f"cat {run.path}/late.json", group=USERS)


@given(
    before=st.binary(max_size=40), value=st.text(min_size=8, max_size=30), after=st.binary(max_size=20),
    block=st.integers(1, 40), form=st.integers(0, 3),
)  # fmt: skip
def test_a_value_is_found_wherever_blocks_end(before: bytes, value: str, after: bytes, block: int, form: int) -> None:
    with contextlib.suppress(UnicodeEncodeError):
        written = sorted(secrets.forms(value))[form % len(secrets.forms(value))].encode()
        with tempfile.NamedTemporaryFile() as file, pytest.MonkeyPatch.context() as patch:
            patch.setattr(secrets, "_BLOCK", block)
            file.write(before + written + after)
            file.flush()
            assert secrets.find([Path(file.name)], {"NAME": value}) == (Path(file.name), "NAME")
            assert secrets.find([Path(file.name)], {}) is None


def test_a_value_that_is_no_text_is_found(tmp_path: Path) -> None:
    value = os.fsdecode(b"\xff\xfe not UTF-8")
    (tmp_path / "file").write_bytes(b"... \xff\xfe not UTF-8")
    assert secrets.find([tmp_path / "gone", tmp_path / "file"], {"NAME": value}) == (tmp_path / "file", "NAME")


def test_values_give_way_to_names() -> None:
    text = f"a {SECRET} b {json.dumps(SECRET)} c"
    shown = secrets.without(text, {"KEY": SECRET})
    assert shown == 'a (KEY) b "(KEY)" c'


def test_a_name_that_no_variable_can_have_is_no_traceback(run: RunFolder) -> None:
    spec = json.loads(run.spec.read_text())
    spec["profile"]["env"]["pass"] = ["ODD\ud800"]
    run.spec.write_text(json.dumps(spec))
    assert any("ODD" in sentence for sentence in share(run, "users"))
