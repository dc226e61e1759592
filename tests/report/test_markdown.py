"""The block for a pull request: what the records prove, no more, and nothing that text from them could do to it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.judge.gate import judge_run
from seatrial.report.markdown import validation_block
from seatrial.report.markdown_parts import what, where
from seatrial.report.markdown_text import code, text
from seatrial.run import records
from seatrial.run.layout import RunFolder
from tests.synthetic_run import BEGAN, COMMIT, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    root = tmp_path_factory.mktemp("runs")
    return {
        "gate": write_run(root / "gate", kind="gate"),
        "convergence": write_run(root / "convergence", steps=200, attempts=5),
        "live": write_run(root / "live", steps=60, attempts=2, over=False),
    }


@pytest.fixture
def run(runs: dict[str, RunFolder], request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    """A copy to break."""
    which = getattr(request, "param", "gate")
    return RunFolder(Path(shutil.copytree(runs[which].path, tmp_path / which)))


def rows(block: str) -> dict[str, str]:
    """Return name -> value of the table; fails where a row has any other number of cells."""
    lines = [line for line in block.splitlines() if line.startswith("|")]
    assert lines[:2] == ["| | |", "|---|---|"]
    cells = [line.split("|") for line in lines[2:]]
    assert all(len(row) == 4 for row in cells), cells
    return {row[1].strip(): row[2].strip() for row in cells}


def change_spec(run: RunFolder, change: Callable[[dict[str, Any]], None]) -> None:
    spec = records.read_json(run.spec)
    change(spec)
    records.write_json(run.spec, spec)


def change_lines(path: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    kept = [change(line) for line in records.read_objects(path)]
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in kept if line is not None))


def judged_again(run: RunFolder) -> None:
    records.write_json(run.verdict, judge_run(run.path).to_json())


def test_a_gate_that_passes(runs: dict[str, RunFolder]) -> None:
    block = validation_block(runs["gate"])
    assert block.startswith("## Validation\n\n**PASS**: gate `gate`.\n") and "do not pass" not in block
    said = rows(block)
    assert {name: said[name] for name in said if name not in ("on", "speed", "versions", "resume check", "loss")} == {
        "what ran": "recipe `nemotron_3_nano_gb200`; sequence length `4096`, global batch `512`, micro batch `2`, "
        "TP `1`, PP `1`, CP `1`, EP `8`, dispatcher `flex`, backend `hybridep`",
        "jobs": "`481516` (attempt 0)",
        "verdict": "PASS; rules: 14 PASS, 2 NOT JUDGED",
        "end": "done (exit code 0, complete): 100 steps, whole checkpoint, final evaluation",
        "steps": "100 of 100",
        "finite": "loss at 100 of 100 steps, grad norm at 100 of 100",
        "skipped, NaN": "0 skipped, 0 NaN",
        "checkpoints": "saved at 50, 100; whole at the verdict, deleted since: 50, 100",
        "validation, test": "validation lm loss 4.020018 at step 100; test lm loss 4.028018 at step 100",
        "attempts": "1: 1 complete",
        "heads": f"seatrial `{COMMIT}`, clean",
    }
    assert said["on"].startswith(
        "profile `gb200-64gpu`: 16 nodes x 4 GPUs; GPU type `gb200` by the profile, `NVIDIA GB200` by the driver of "
        "rank 0; image `megatron:25.11`, `sha256:4d1f"
    )
    assert said["loss"].endswith("4.00802 at step 100") and said["resume check"].startswith("PASS: ")
    assert re.fullmatch(
        r"last 10 steps: [\d,.]+ ms/step, [\d,]+ tokens/s/GPU, [\d.]+ TFLOP/s/GPU, MFU [\d.]+% of 2500 TFLOP/s, dense"
        r" BF16 of GB200", said["speed"],
    )  # fmt: skip
    assert "megatron-core `0.19.2`, torch `2.11.0+cu130`" in said["versions"]
    assert "registry.example" not in block  # where the image is kept is nobody's business


def test_the_engine_and_the_bytes_of_the_image() -> None:
    digest = "sha256:" + "a" * 64
    spec = {"recipe": "r", "bridge": {"recipe": "its_config"}, "profile": {"container": {"image": "/i/nemo.sqsh"}}}
    assert "engine megatron-bridge, its recipe `its_config`" in what(spec)
    known = [{"event": "image", "digest": digest}]
    assert f"image `nemo.sqsh`, `{digest}`" in where(spec, known, False)
    assert "image `nemo.sqsh`, digest unknown" in where(spec, [{"event": "image", "digest": None}], False)


def test_a_convergence_run(runs: dict[str, RunFolder]) -> None:
    said = rows(validation_block(runs["convergence"]))
    assert said["steps"].startswith("200 of 200; ") and "made again after a resume, 0 of them" in said["steps"]
    assert said["attempts"] == "5: 2 time limit, 1 network, 1 GPU fault, 1 complete"
    assert re.fullmatch(r"[\d.]+% of the wall time, [\d.]+% without the queue", said["goodput"])
    assert re.fullmatch(r"\d+ saves, the last at 200; whole on disk: [\d, -]+200", said["checkpoints"])
    assert said["jobs"] == "`481516` (attempts 0-4)"


def nan_at_7(run: RunFolder) -> None:
    change_lines(run.metrics, lambda one: one | ({"losses": {"lm loss": "nan"}, "nan": 1} if one["step"] == 7 else {}))
    judged_again(run)


def inf_norm_at_8(run: RunFolder) -> None:
    change_lines(run.metrics, lambda one: one | ({"grad_norm": "inf", "skipped": 1} if one["step"] == 8 else {}))
    judged_again(run)


def without_steps(run: RunFolder) -> None:
    change_lines(run.metrics, lambda one: None if one["step"] in (3, 4, 9) else one)
    judged_again(run)


def no_counts(run: RunFolder) -> None:
    change_lines(run.metrics, lambda one: one | {"skipped": None if one["step"] < 3 else 0, "nan": None})


def rehearsed(run: RunFolder) -> None:
    change_spec(run, lambda spec: spec.update(rehearsal=True, world_size=2))


def no_verdict(run: RunFolder) -> None:
    run.verdict.unlink()


def odd_verdict(run: RunFolder) -> None:
    run.verdict.write_text('{"verdict": "PASSED", "rules": []}')


def gone_on(run: RunFolder) -> None:
    records.append_event(run.events, "attempt_started", attempt=1, why="requeued by hand")


def gone_on_to_another_end(run: RunFolder) -> None:
    gone_on(run)
    records.append_event(run.events, "decision", decision="stop", attempt=1, exit_code=1, reason="it broke")


def no_test_loss(run: RunFolder) -> None:
    change_lines(run.events, lambda one: None if one.get("which") == "test" else one)


def early_validation(run: RunFolder) -> None:
    change_lines(run.events, lambda one: one | ({"step": 50} if one.get("which") == "validation" else {}))


def no_state(run: RunFolder) -> None:
    (run.path / "checkpoints_deleted.json").unlink()


def damaged(run: RunFolder) -> None:
    (run.checkpoints / "iter_0000100").mkdir(parents=True)


def dirty(run: RunFolder) -> None:
    change_spec(run, lambda spec: spec["provenance"].update(dirty=True, changed=["a.py"], untracked=["b.py"]))


def no_commit(run: RunFolder) -> None:
    change_spec(run, lambda spec: spec["provenance"].update(commit=None, dirty=None))


def no_evidence(run: RunFolder) -> None:
    change_lines(run.events, lambda one: None if one["event"] == "evidence" else one)


def no_speed(run: RunFolder) -> None:
    records.write_json(run.verdict, {key: v for key, v in records.read_json(run.verdict).items() if key != "speed"})


def no_peak(run: RunFolder) -> None:
    verdict = records.read_json(run.verdict)
    verdict["speed"] |= {"peak": "no peak is known for these GPUs", "peak_tflops": None}
    verdict["speed"]["windows"][0] |= {"mfu": None}
    records.write_json(run.verdict, verdict)


def drilled(run: RunFolder) -> None:
    records.write_json(run.verdict, records.read_json(run.verdict) | {"drill": "kill@60"})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (nan_at_7, ["**FAIL**: gate", "loss at 99 of 100 steps", "0 skipped, 1 NaN", "- **losses** FAIL: expected "]),
        (inf_norm_at_8, ["**FAIL**: gate", "grad norm at 99 of 100", "1 skipped, 0 NaN", "- **grad norm** FAIL"]),
        (without_steps, ["97 of 100; missing: 3-4, 9", "loss at 97 of 100", "- **step set** FAIL"]),
        (no_counts, ["0 skipped (unknown at 2 steps), NaN unknown"]),
        (rehearsed, ["**Rehearsal on 2 CPU ranks: proves the path, not the hardware**", "no GPU"]),
        (no_verdict, ["**no verdict** (no verdict is on record): gate", "| speed | unknown"]),
        (odd_verdict, ["**no verdict** (the verdict on record cannot be read): gate"]),
        (gone_on, ["**no verdict** (the run has gone on since", "nothing here is final", "| end | not over |"]),
        (gone_on_to_another_end, ["**no verdict** (the last attempt began after", "stop (exit code 1): it broke"]),
        (no_test_loss, ["validation lm loss 4.020018 at step 100; no final test loss is on record"]),
        (early_validation, ["no final validation loss is on record; test lm loss"]),
        (no_state, ["saved at 50, 100; whether any is whole is unknown"]),
        (damaged, ["**not whole**: 100"]),
        (dirty, [f"`{COMMIT}`, **dirty**: 2 files of its own"]),
        (no_commit, ["commit unknown"]),
        (no_evidence, ["the driver's name is not on record", "`0.19.2` asked for; what ran is unknown"]),
        (no_speed, ["| speed | unknown: no verdict has measured it |"]),
        (no_peak, ["MFU unknown (no peak is known for these GPUs)"]),
        (drilled, ["a drill (kill@\u200b60): it admits no run"]),
    ],
)  # fmt: skip
def test_nothing_is_claimed_that_is_not_proven(
    change: Callable[[RunFolder], None], told: list[str], run: RunFolder
) -> None:
    change(run)
    block = validation_block(run)
    rows(block)
    for words in told:
        assert words in block


def test_a_run_that_goes_on(runs: dict[str, RunFolder]) -> None:
    block = validation_block(runs["live"], now=BEGAN + 10_000)
    said = rows(block)
    assert "**The run is not over: nothing here is final**" in block and "**PASS**" not in block
    assert "of 60; missing: " in said["steps"] and said["attempts"] == "2: 1 time limit, 1 goes on"
    assert said["validation, test"] == "no final validation loss is on record; no final test loss is on record"


@pytest.mark.parametrize("run", ["gate", "convergence"], indirect=True)
def test_every_record_may_be_torn_or_gone(run: RunFolder) -> None:
    found = run.path.rglob("*.json*")
    files = [path for path in found if path.parent.parent != run.checkpoints and not path.name.startswith("exit-")]
    for path in sorted(files):
        whole = path.read_bytes()
        for left in (b"", whole[: len(whole) // 2], b"[1, 2]", b"null", b"\xff\xfe{", None):
            if left is None:
                path.unlink()
            else:
                path.write_bytes(left)
            said = rows(validation_block(run))
            assert {"what ran", "steps", "heads"} <= said.keys()
        path.write_bytes(whole)
    for path in files:
        path.unlink()
    block = validation_block(run)
    assert "**no verdict**" in block and "unknown" in block and "PASS" not in block


HOSTILE = "`</td>|<script>alert(1)</script>\n## PASS ![x](https://evil.example/a.png) **PASS** @all #1 /home/jane/k $x$"


def test_hostile_text_does_nothing(run: RunFolder) -> None:
    change_spec(run, lambda spec: spec.update(recipe=HOSTILE, world_size=HOSTILE, megatron_core=HOSTILE))
    change_spec(run, lambda spec: spec["provenance"].update(commit=HOSTILE))
    change_spec(run, lambda spec: spec["profile"].update(name=HOSTILE, nodes=HOSTILE, gpu_type=HOSTILE))
    change_spec(run, lambda spec: spec["profile"]["container"].update(image=f"/home/jane/{HOSTILE}"))
    change_spec(run, lambda spec: spec["fields"]["model.seq_length"].update(value=HOSTILE))
    change_lines(run.events, lambda one: one | {"gpu": HOSTILE, "versions": {"torch": HOSTILE}, "reason": HOSTILE})
    change_lines(run.events, lambda one: one | ({"losses": {HOSTILE: HOSTILE}} if "losses" in one else {}))
    verdict = records.read_json(run.verdict)
    verdict |= {"verdict": "FAIL", "drill": HOSTILE}
    verdict["rules"][0] |= {"verdict": "FAIL", "rule": HOSTILE, "expected": HOSTILE, "seen": HOSTILE}
    verdict["speed"] |= {"peak": HOSTILE}
    records.write_json(run.verdict, verdict)
    record = records.read_json(run.attempt(0).record)
    records.write_json(run.attempt(0).record, record | {"class": HOSTILE, "job": {"id": HOSTILE, "restart": 0}})
    block = validation_block(run)
    rows(block)
    for sign in ("<", "](", "**PASS**", "\n## PASS", "@all", "#1 ", "/home/jane", "://", "$x", "`<"):
        assert sign not in block, sign
    assert block.count("&lt;script&gt;") > 10
    assert len([line for line in block.splitlines() if line.startswith("- ")]) == 1


def test_values_of_secrets_are_left_out(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = records.read_json(run.verdict)
    verdict["rules"][0] |= {"verdict": "FAIL", "seen": "401 of hf_abc*def$ghi and plain-value"}
    records.write_json(run.verdict, verdict | {"verdict": "FAIL"})
    monkeypatch.setenv("HF_TOKEN", "hf_abc*def$ghi")
    monkeypatch.setenv("OTHER_KEY", "plain-value")
    block = validation_block(run)
    assert "401 of (HF_TOKEN) and (OTHER_KEY)" in block and "hf_abc" not in block


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("/scratch/jane/runs/x/iter_0000050: .metadata is missing", "…/iter_0000050: .metadata is missing"),
        ("cannot read '/a b/c'", "cannot read '…/a b/c'"),
        ("~/runs/x and file:///etc/passwd", "…/x and …/passwd"),
        ("--save=/data/x", "--save=…/x"),
        ("step 3/100, 5 ms/step", "step 3/100, 5 ms/step"),
        ("https://jane:pw@host/x", "https:\u200b//…@\u200bhost/x"),
        ("a_b _c_ 5*6", "a_b &#95;c&#95; 5&#42;6"),
        ("a\x00\u202eb\r\nc\ud800d", "a b c d"),
        ("x" * 500, "x" * 400 + " …"),
        ("", "unknown"),
    ],
)  # fmt: skip
def test_text(value: str, shown: str) -> None:
    assert text(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [("a_b-1.2+cu", "`a_b-1.2+cu`"), (None, "unknown"), ("", "unknown"), (0, "`0`"), ("a`b", "a&#96;b"),
     ("/a/b", "…/b"), (" a", "a"), ("flex /x/y", "flex …/y")],
)  # fmt: skip
def test_code(value: Any, shown: str) -> None:
    assert code(value) == shown


@given(st.text(max_size=60))
def test_any_text_stays_in_its_cell(words: str) -> None:
    for shown in (text(words), code(words)):
        assert "\n" not in shown and "|" not in shown and "<" not in shown and shown.encode()
        assert shown.count("`") in (0, 2)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3), max_leaves=6,
)  # fmt: skip


@given(data=st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_odd_value_breaks_it(data: st.DataObject, runs: dict[str, RunFolder]) -> None:
    run = runs["convergence"]
    path = data.draw(st.sampled_from([run.spec, run.events, run.metrics, run.attempt(1).record, run.attempt(4).record]))
    whole = path.read_bytes()
    lines = path.suffix == ".jsonl"
    documents = [json.loads(line) for line in whole.splitlines()] if lines else [json.loads(whole)]
    document = data.draw(st.sampled_from(documents[-40:]))
    while True:
        key = data.draw(st.sampled_from(sorted(document)))
        inner = document[key]
        if not isinstance(inner, dict) or not inner or data.draw(st.booleans()):
            document[key] = data.draw(JSON)
            break
        document = inner
    try:
        path.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in documents))
        rows(validation_block(run, now=BEGAN))
    finally:
        path.write_bytes(whole)
