"""Which gate admits a run: the same thing, passed, and not long ago. Told apart by one change at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm import admission_identity
from seatrial.slurm.admission import Admission, Wanted, admit, admitting, differences, gates, read_gate, require
from seatrial.slurm.admission_identity import identity, image_identity
from seatrial.slurm.admission_measured import measured
from seatrial.spec.owners import RUN_CONTROLS
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec

NANO = "nemotron_3_nano_gb200"
HARDWARE = [("profile.container.image", "/images/nemo.sqsh")]
NOW = datetime(2027, 3, 1, tzinfo=timezone.utc)


def spec(kind: str = "convergence", profile: str = "gb200-64gpu", *changes: tuple[str, str]) -> RunSpec:
    return resolve(NANO, profile, kind, [*(HARDWARE if profile.startswith("gb200") else []), *changes])


def make_gate(
    runs: Path, name: str = "gate-1", profile: str = "gb200-8gpu", *changes: tuple[str, str],
    verdict: str | None = "PASS", days: float = 1, **more: Any,
) -> RunFolder:  # fmt: skip
    """Write the folder of a gate that was judged ``days`` before NOW; ``more`` goes into its spec.json."""
    runs.mkdir(exist_ok=True)
    folder = RunFolder.create(runs / name)
    gate = spec("gate", profile, *changes)
    records.write_json(folder.spec, gate.to_json() | {"run_id": name, "same": identity(gate)} | more)
    if verdict:
        records.write_json(folder.verdict, {"verdict": verdict, "rehearsal": gate.rehearsal, "kind": "gate"})
        time = (NOW - timedelta(days=days)).isoformat()
        records.append_line(folder.events, {"schema": 1, "time": time, "event": "verdict", "verdict": verdict})
    return folder


def why(run: RunSpec, folder: RunFolder, days: float = 14) -> list[str]:
    gate = read_gate(folder)
    assert gate is not None
    return differences(Wanted(run, identity(run), NOW, days), gate)


def test_a_gate_of_8_gpus_admits_the_run_of_64(tmp_path: Path) -> None:
    folder = make_gate(tmp_path)
    assert why(spec(), folder) == []
    wanted = Wanted(spec(), identity(spec()), NOW)
    record = admit(wanted, gates([tmp_path])).admission()
    assert record == Admission("gate", "gate-1", str(folder.path), None, (NOW - timedelta(days=1)).isoformat())
    assert json.loads(json.dumps(record.to_json())) == record.to_json()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("moe.moe_router_topk", "8"), "arguments differ: moe_router_topk (8 there, 6 here)"),
        (("optimizer.clip_grad", "0.5"), "arguments differ: clip_grad (0.5 there, 1.0 here)"),
        (("data.data_path", "[/other]"), "arguments differ: data_path (/other there, default here)"),
        (("profile.gpu_type", "h200"), "its GPU type was h200, this run's is gb200"),
        (("profile.container.image", "/images/other.sqsh"), "its image was /images/other.sqsh, this run's is"),
        # What a gate may do otherwise: run controls, the place, the size.
        (("schedule.train_iters", "200"), None),
        (("schedule.global_batch_size", "256"), None),
        (("profile.account", "other"), None),
        (("profile.nodes", "4"), None),
        (("env", ""), None),
    ],
)
def test_what_makes_another_thing(tmp_path: Path, change: tuple[str, str], said: str | None) -> None:
    found = why(spec(), make_gate(tmp_path, "gate-1", "gb200-8gpu", *([change] if change[1] else [])))
    assert (found == []) if said is None else (len(found) == 1 and said in found[0])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"verdict": "FAIL"}, "its verdict is FAIL"),
        ({"verdict": "INCONCLUSIVE"}, "its verdict is INCONCLUSIVE"),
        ({"verdict": None}, "it has no verdict yet"),
        ({"days": 14.5}, "its verdict is 14.5 days old (more than 14)"),
        ({"days": 13.9}, None),
        ({"same": None}, "it has no record of what it was"),
        ({"rehearsal": True}, "it is a rehearsal, which proves nothing about hardware"),
    ],
)
def test_what_keeps_the_same_thing_from_admitting(tmp_path: Path, more: dict[str, Any], said: str | None) -> None:
    found = why(spec(), make_gate(tmp_path, **more))
    assert (found == []) if said is None else (len(found) == 1 and said in found[0])


def test_the_age_may_be_set(tmp_path: Path) -> None:
    folder = make_gate(tmp_path, days=20)
    assert why(spec(), folder, days=30) == []
    assert "more than 1)" in why(spec(), folder, days=1)[0]


def test_a_rehearsal_admits_rehearsals_only(tmp_path: Path) -> None:
    folder = make_gate(tmp_path, "gate-1", "local-cpu")
    assert why(spec("convergence", "local-cpu"), folder) == []
    assert any("rehearsal" in words for words in why(spec(), folder))
    assert any("GPU type" in words for words in why(spec("convergence", "slurm-sandbox"), folder))


def test_the_training_code_counts_and_the_rest_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_gate(tmp_path)
    monkeypatch.setattr(admission_identity, "train_hash", lambda: "0" * 64)
    assert why(spec(), folder) == ["the code in train/ has changed since"]


def test_the_image(tmp_path: Path) -> None:
    digest = "sha256:" + "a" * 64
    assert image_identity(None) is None
    assert image_identity(f"registry.example#nvidia/nemo@{digest}") == digest
    assert image_identity("registry.example#nvidia/nemo:25.11") == "registry.example#nvidia/nemo:25.11"
    file = tmp_path / "nemo.sqsh"
    file.write_text("an image")
    os.utime(file, ns=(1, 1))
    first = image_identity(str(file))
    assert first == f"{file} size=8 mtime_ns=1"
    os.utime(file, ns=(1, 2))
    assert image_identity(str(file)) != first
    file.write_text("another image")
    os.utime(file, ns=(1, 1))
    assert image_identity(str(file)) != first
    assert image_identity("bad\0name") == "bad\0name"


def test_run_controls_and_defaults_are_no_part_of_it() -> None:
    assert identity(spec("gate")) == identity(spec("convergence"))
    words = admission_identity.argument_words(spec())
    assert not RUN_CONTROLS & set(words)
    assert words["moe_flex_dispatcher_backend"] == ["--moe-flex-dispatcher-backend", "hybridep"]
    # A value that is Megatron's own default has no words.
    assert identity(spec("gate", "gb200-8gpu", ("optimizer.adam_beta1", "0.9"))) == identity(spec("gate"))


def test_the_newest_that_admits_is_taken(tmp_path: Path) -> None:
    make_gate(tmp_path / "a", "old", days=3)
    make_gate(tmp_path / "b", "new", days=2)
    make_gate(tmp_path / "b", "newest-but-failed", verdict="FAIL", days=1)
    RunFolder.create(tmp_path / "b" / "broken").spec.write_text("{")
    convergence = RunFolder.create(tmp_path / "b" / "a-run")
    records.write_json(convergence.spec, spec().to_json())
    found = gates([tmp_path / "a", tmp_path / "b", tmp_path / "b", tmp_path / "absent"])
    assert [gate.run_id for gate in found] == ["newest-but-failed", "new", "old"]
    chosen = admitting(Wanted(spec(), identity(spec()), NOW), found)
    assert chosen is not None and chosen.run_id == "new"
    assert read_gate(convergence) is None


def test_a_refusal_names_the_nearest_what_differs_and_the_ways_out(tmp_path: Path) -> None:
    wanted = Wanted(spec(), identity(spec()), NOW)
    with pytest.raises(SeatrialError, match="no gate of this recipe is there"):
        admit(wanted, [])
    make_gate(tmp_path, "far", "gb200-8gpu", ("moe.moe_router_topk", "8"), verdict="FAIL", days=20)
    make_gate(tmp_path, "near", days=15)
    with pytest.raises(SeatrialError) as caught:
        admit(wanted, gates([tmp_path]))
    said = str(caught.value)
    assert said.index("near: its verdict is 15.0 days old") < said.index(
        "far: its verdict is FAIL; its verdict is 20.0"
    )
    assert "moe_router_topk (8 there, 6 here)" in said
    for way in (f"seatrial gate {NANO} --profile gb200-64gpu", "--after-gate", '--no-gate "reason"', "--gate-max-age"):
        assert way in said
    near = read_gate(RunFolder(tmp_path / "near"))
    assert near is not None
    with pytest.raises(SeatrialError, match="near does not admit this run"):
        require(wanted, near)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda folder: folder.verdict.write_text("PASS"),
        lambda folder: folder.verdict.write_text("[]"),
        lambda folder: folder.events.write_text('["verdict"]\n{"event":"verdict","time":7,"verdict":"PASS"}\n'),
        lambda folder: records.write_json(folder.spec, {"kind": "gate", "recipe": NANO, "same": {}}),
        lambda folder: records.write_json(folder.spec, {"kind": "gate", "fields": 3, "same": []}),
    ],
)
def test_a_damaged_folder_is_no_traceback(tmp_path: Path, break_it: Callable[[RunFolder], None]) -> None:
    folder = make_gate(tmp_path)
    break_it(folder)
    wanted = Wanted(spec(), identity(spec()), NOW)
    try:
        admit(wanted, gates([tmp_path]))
    except SeatrialError:
        return
    # Only a time that cannot be read leaves a gate: then its file's time counts.
    assert folder.events.read_text().startswith('["verdict"]')


def test_no_gate_needs_a_reason() -> None:
    assert Admission.without_gate(" the rack\n was proven  by hand").reason == "the rack was proven by hand"
    for reason in ("", "  ", "\n"):
        with pytest.raises(SeatrialError, match="needs a reason"):
            Admission.without_gate(reason)


def test_what_it_measured(tmp_path: Path) -> None:
    folder = make_gate(tmp_path)
    gate = read_gate(folder)
    assert gate is not None and measured(gate) is None
    for step in range(1, 101):
        time = 60_000.0 if step <= 90 else "nan" if step == 91 else 12_000.0 + step
        records.append_line(folder.metrics, {"step": step, "of": 100, "step_time_ms": time})
    found = measured(gate)
    assert found is not None
    assert (found.run, found.gpus, found.tokens_per_step) == ("gate-1", 8, 512 * 4096)
    assert found.step_seconds == pytest.approx(12.096)
    assert (found.startup_seconds, found.save_seconds) == (None, None)
    record = {"saved_steps": [50, 100], "seconds": {"startup": 300.5, "saving": 90.0, "productive": 1200.0}}
    records.write_json(folder.new_attempt().record, record)
    found = measured(gate)
    assert found is not None and (found.startup_seconds, found.save_seconds) == (300.5, 45.0)
