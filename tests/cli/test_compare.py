"""`seatrial compare` and `seatrial reference` as a user types them."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.reference import read_reference
from tests.cli.verbs import verb
from tests.judge.gate_builder import LOGS
from tests.judge.run_builder import Builder

NANO, RESUMED, OK, EXIT = (str(LOGS / f"{name}.log") for name in ("nano100", "nano_resumed_at_50", "ok100", "exit60"))


def run(root: Path, name: str, last: int, **spec: Any) -> Path:
    builder = Builder(root, name)
    data = json.loads(builder.folder.spec.read_text()) | spec
    records.write_json(builder.folder.spec, data)
    builder.steps(0, 1, last, 0)
    return builder.folder.path


@pytest.mark.parametrize(
    ("words", "code", "last"),
    [
        ([NANO, RESUMED, "--exact", "--from", "51"], 0, "SAME bit for bit as printed, from step 51"),
        ([NANO, RESUMED], 3, "INCOMPLETE within 1% + 1e-06"),
        ([NANO, RESUMED, "--to", "50"], 3, "NOTHING TO COMPARE within 1% + 1e-06, to step 50"),
        ([OK, EXIT], 1, "DIFFERENT within 1% + 1e-06"),
        ([OK, EXIT, "--relative", "0.6", "--absolute", "0", "--to", "60"], 0, "SAME within 60% + 0, to step 60"),
        ([OK, EXIT, "--loss", "no such"], 3, "NOTHING TO COMPARE within 1% + 1e-06, no such only"),
    ],
)
def test_logs(words: list[str], code: int, last: str) -> None:
    done = verb("compare", *words)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (code, last), done.stderr


def test_json_and_a_packed_log(tmp_path: Path) -> None:
    packed = tmp_path / "nano.log.gz"
    packed.write_bytes(gzip.compress(Path(NANO).read_bytes()))
    done = verb("compare", NANO, str(packed), "--json", "--exact")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["schema"], data["verdict"]) == (1, "same")
    assert data["tolerance"].items() >= {"relative": 0.0, "absolute": 0.0}.items()
    assert [one["name"] for one in data["runs"]] == ["nano100.log", "nano.log.gz"]
    assert data["pairs"][0]["compared"] == len(data["runs"][1]["series"]["lm loss"]) == 100


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([NANO], "one run is nothing to compare"),
        ([NANO, "no-such-run"], "no run 'no-such-run'"),
        ([NANO, str(LOGS / "nancheck.log.gz")], "no run"),
        ([NANO, "README.md"], "no Megatron iteration line"),
        ([NANO, NANO, "--exact", "--relative", "0.1"], "--exact leaves no band"),
        ([NANO, NANO, "--relative", "nan"], "a finite number, 0 or more"),
        ([NANO, NANO, "--absolute", "inf"], "a finite number, 0 or more"),
        ([NANO, NANO, "--from", "9", "--to", "8"], "at most --to 8"),
        ([NANO, NANO, "--html", "/no/such/folder/x.html"], "cannot write"),
    ],
)
def test_a_mistake_is_one_message(words: list[str], said: str) -> None:
    done = verb("compare", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_runs_by_name_and_a_page(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    run(runs, "aa-1", 100)
    run(runs, "bb-1", 100)
    page = tmp_path / "x.html"
    done = verb("compare", "aa", "bb-1", "--runs", str(runs), "--html", str(page))
    assert done.returncode == 0, done.stderr
    assert "bb-1 against aa-1: same" in done.stdout
    assert "aa-1" in page.read_text() and "bb-1" in page.read_text()


def test_a_group_stands_for_its_runs(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    members = [run(runs, name, 100) for name in ("aa-1", "bb-1", "cc-1")]
    records_of = [{"run": path.name, "folder": str(path), "recipe": "nano"} for path in members[:2]]
    (runs / ".seatrial").mkdir()
    group = {
        "schema": 1, "id": "trio-20261201-100000-abcdef", "name": "trio", "created": "2026-12-01T10:00:00+00:00",
        "kind": "convergence", "same": {}, "other_data": None, "runs": records_of,
    }  # fmt: skip
    records.write_json(runs / ".seatrial" / "group-trio-20261201-100000-abcdef.json", group)
    done = verb("compare", "trio", "cc", "--runs", str(runs), "--json")
    assert done.returncode == 0, done.stderr
    assert [one["name"] for one in json.loads(done.stdout)["runs"]] == ["aa-1", "bb-1", "cc-1"]
    refused = verb("reference", "trio", str(tmp_path / "r.json"), "--runs", str(runs))
    assert refused.returncode == 2 and "a group of 2 runs" in refused.stderr


def test_reference_of_a_run(tmp_path: Path) -> None:
    folder, file = run(tmp_path / "runs", "aa-1", 100, curve="abc"), tmp_path / "r.json"
    done = verb("reference", str(folder), str(file), "--note", "the first one")
    assert done.returncode == 0, done.stderr
    assert "100 steps" in done.stdout
    found = read_reference(file)
    assert (found.name, found.arguments, found.note, len(found.steps)) == ("aa-1", "abc", "the first one", 100)
    again = verb("reference", str(folder), str(file))
    assert again.returncode == 2 and "the file exists" in again.stderr
    assert read_reference(file).note == "the first one"
    assert verb("reference", str(folder), str(file), "--overwrite").returncode == 0
    assert read_reference(file).note == ""


def test_no_reference_of_a_run_that_goes_on(tmp_path: Path) -> None:
    folder, file = run(tmp_path / "runs", "aa-1", 60), tmp_path / "r.json"
    done = verb("reference", str(folder), str(file))
    assert done.returncode == 2 and "step 60 of 100" in done.stderr
    assert not file.exists()


def test_no_reference_of_half_a_curve(tmp_path: Path) -> None:
    copied = tmp_path / "logs"
    copied.mkdir()
    shutil.copy(RESUMED, copied)
    done = verb("reference", str(copied), str(tmp_path / "r.json"))
    assert done.returncode == 2 and "no step 1-50" in done.stderr
