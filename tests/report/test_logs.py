"""Which log, its last lines, and following it over attempts."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.errors import SeatrialError
from seatrial.report import logs
from seatrial.run.layout import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run of two attempts with four ranks, submitted as job 7 and before as job 5."""
    made = RunFolder.create(tmp_path / "run")
    for number in range(2):
        attempt = made.new_attempt()
        for rank in range(4):
            attempt.rank_log(rank).write_text(f"attempt {number} rank {rank}\n")
    (made.path / "batch-5.log").write_text("five\n")
    (made.path / "batch-7.log").write_text("seven\n")
    return made


@pytest.mark.parametrize(
    ("rank", "attempt", "said"),
    [("0", None, "attempt 1 rank 0"), ("last", None, "attempt 1 rank 3"), ("2", 0, "attempt 0 rank 2")],
)
def test_a_rank(rank: str, attempt: int | None, said: str, folder: RunFolder) -> None:
    assert logs.rank_log(folder, rank, attempt).read_text() == said + "\n"


@pytest.mark.parametrize(
    ("rank", "attempt", "said"),
    [("4", None, "0 to 3"), ("-1", None, "0 to 3"), ("x", None, "0 to 3"), ("0", 2, "0, 1"), ("²", None, "0 to 3")],
)
def test_what_is_not_there_is_said_with_what_is(rank: str, attempt: int | None, said: str, folder: RunFolder) -> None:
    with pytest.raises(SeatrialError, match=said):
        try:
            logs.rank_log(folder, rank, attempt)
        except SeatrialError as error:
            raise SeatrialError(str(error)) from None


def test_the_batch_log_is_the_newest_jobs(folder: RunFolder) -> None:
    assert logs.batch_log(folder, {"job_id": "5"}).read_text() == "five\n"
    assert logs.batch_log(folder, {"job_id": "7"}).read_text() == "seven\n"
    # Job 9 waits: the newest that there is.
    assert logs.batch_log(folder, {"job_id": "9"}).name in ("batch-5.log", "batch-7.log")


def test_nothing_yet(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    with pytest.raises(SeatrialError, match="no batch log yet"):
        logs.batch_log(folder, {})
    with pytest.raises(SeatrialError, match="no attempt yet"):
        logs.rank_log(folder, "0")


@given(
    st.lists(st.text(alphabet="ab\r", max_size=30), max_size=30), st.booleans(), st.integers(0, 40), st.integers(1, 64)
)
def test_last_lines(lines: list[str], torn: bool, count: int, block: int) -> None:
    data = "".join(line + "\n" for line in lines).encode() + (b"torn" if torn else b"")
    wanted = [part + b"\n" for part in data.split(b"\n")[:-1]] + ([b"torn"] if torn else [])
    before, logs._BLOCK = logs._BLOCK, block
    try:
        with tempfile.TemporaryDirectory() as root:
            path = Path(root) / "log"
            path.write_bytes(data)
            assert logs.last_lines(path, count) == (b"".join(wanted[-count:] if count else []), len(data))
    finally:
        logs._BLOCK = before


def test_following_goes_over_to_a_new_attempt_and_ends_with_the_run(folder: RunFolder) -> None:
    path = logs.rank_log(folder, "0", 0)
    looks = iter([True, True, True, False])
    grown = iter([path, path, logs.rank_log(folder, "0", 1), logs.rank_log(folder, "0", 1)])

    def choose() -> Path:
        with path.open("a") as stream:
            stream.write("more\n")
        return next(grown)

    out = io.BytesIO()
    logs.follow(choose, path, 0, lambda: next(looks), out)
    said = out.getvalue().decode()
    assert said.startswith("attempt 0 rank 0\nmore\nmore\nmore\n\n==> ")
    assert said.endswith("rank-00000.log <==\nattempt 1 rank 0\n")
