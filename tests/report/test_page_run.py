"""The page of a run as text: what it tells, what it never tells, and that no record breaks it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.report.page import run_page
from seatrial.run import records
from seatrial.run.layout import RunFolder
from tests.judge.run_builder import Builder, seconds_at, three_attempts
from tests.synthetic_run import write_run

HOSTILE = "</script><!--<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x00\ud800\u202e&"


class Reader(HTMLParser):
    """What a browser makes of a page: its elements, and its text outside of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside: list[str] = []
        self.data = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append("data" if dict(attrs).get("id") == "data" else tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text += data
        elif self._inside[-1] == "data":
            self.data += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return write_run(tmp_path_factory.mktemp("runs") / "gate", kind="gate")


def read(folder: RunFolder, now: float | None = None) -> Reader:
    page = run_page(folder, now)
    assert page.encode()
    reader = Reader(page)
    json.loads(reader.data)
    return reader


def test_a_gate_tells_verdict_speed_resume_check_and_where_it_comes_from(gate: RunFolder) -> None:
    text = read(gate).text
    verdict = records.read_json(gate.verdict)
    for rule in verdict["rules"]:
        assert rule["rule"] in text
        assert rule["seen"] in text
    spec = records.read_json(gate.spec)
    for said in (
        spec["provenance"]["commit"], "last 10 steps", "after warm-up", "Checkpoint 50 was loaded into a new root",
        "2500 TFLOP/s, dense BF16 of GB200", spec["profile"]["container"]["image"], "gb200-[001-016]",
        "schedule.train_iters", "NCCL_NVLS_ENABLE", "torch 2.11.0+cu130", "MoEFlexTokenDispatcher, backend hybridep",
        "Goodput:", "481516",
    ):  # fmt: skip
        assert said in text, said
    assert "A rehearsal" not in text


def test_engine_image_and_what_the_image_says_of_itself(gate: RunFolder) -> None:
    digest = "sha256:" + "a" * 64
    bridge = {"recipe": "nemotron_3_nano_gb200_pretrain_config", "overrides": []}
    records.write_json(gate.spec, records.read_json(gate.spec) | {"bridge": bridge})
    records.append_event(gate.events, "image", image="/i/nemo.sqsh", digest=digest, how="the SHA-256 of the file")
    said = {"NVIDIA_PYTORCH_VERSION": "26.06"}
    records.append_event(gate.events, "evidence", attempt=0, versions={"torch": "2.11"}, container=said)
    text = read(gate).text
    for words in (
        "megatron-bridge, recipe nemotron_3_nano_gb200_pretrain_config",
        digest,
        "NVIDIA_PYTORCH_VERSION=26.06",
    ):
        assert words in text


def test_a_field_that_differs_shows_both_values(gate: RunFolder) -> None:
    page = run_page(gate, None)
    assert re.search(
        r"schedule\.train_iters</code></th><td><del><code>39735</code></del></td><td><ins><code>100<", page
    )


def test_attempts_tell_of_resumes_replays_failures_and_decisions(tmp_path: Path) -> None:
    text = read(three_attempts(tmp_path)).text
    for said in (
        "from checkpoint 40", "10 again", "network", "rank 3 on n2, at step 61", "NCCL WARN timeout",
        "iter_0000060: it lacks 2 files", "restarting in place without n2 in 10 s", "1 ended by a failure",
        "10 steps were trained again after resumes", "All passes printed the same losses",
    ):  # fmt: skip
        assert said in text, said


@pytest.mark.parametrize(
    ("rehearsal", "now", "said"),
    [(True, None, "A rehearsal on CPU ranks."), (False, 250.0, "This run goes on."), (False, None, "")],
)
def test_what_must_not_be_overlooked_stands_above_all(
    tmp_path: Path, rehearsal: bool, now: float | None, said: str
) -> None:
    folder = three_attempts(tmp_path)
    records.write_json(folder.spec, records.read_json(folder.spec) | {"rehearsal": rehearsal})
    text = read(folder, None if now is None else seconds_at(now)).text
    assert ("A rehearsal" in text, "This run goes on" in text) == (rehearsal, now is not None)
    assert text.index(said) < text.index("Curves")


@pytest.mark.parametrize(
    ("verdict_at", "began_again", "said"),
    [
        (282, None, ""), (205, None, "the last attempt began after it."), (282, 300, "the run has gone on since."),
        (None, None, "the last attempt began after it."),
    ],
)  # fmt: skip
def test_a_verdict_that_counts_no_more_is_no_pass(
    tmp_path: Path, verdict_at: float | None, began_again: float | None, said: str
) -> None:
    built = Builder(tmp_path / "scratch")
    folder = three_attempts(tmp_path)
    rule = {"rule": "losses", "verdict": "PASS", "expected": "x", "seen": "y", "steps": [], "evidence": ""}
    records.write_json(folder.verdict, {"verdict": "PASS", "rules": [rule]})
    built.folder = folder
    if verdict_at is not None:
        built.event(verdict_at, "verdict", verdict="PASS")
    if began_again is not None:
        built.event(began_again, "attempt_started", attempt=3, why="by hand", resume_step=100)
    page = run_page(folder, None)
    assert ("counts no more: " + said in page) == bool(said)
    head = page[page.index("<header>") : page.index("</header>")]
    assert (">PASS<" in head) == (not said)


def test_nothing_is_loaded_and_only_its_own_scripts_may_run(gate: RunFolder) -> None:
    page = run_page(gate, None)
    reader = Reader(page)
    for tag, attributes in reader.elements:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith("#") or value == "data:,", (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")]
    assert "http://" not in page
    assert "https://" not in page
    policy = next(a["content"] for _, a in reader.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert len(re.findall("'sha256-", policy)) == 2


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    folder = hostile(tmp_path, HOSTILE)
    reader = read(folder)
    tags = {tag for tag, _ in reader.elements}
    assert not tags & {"img", "iframe", "object", "embed", "base", "form"}
    assert [a for tag, a in reader.elements if tag == "script"] == [{"type": "application/json", "id": "data"}, {}, {}]
    assert reader.text.count("onerror=alert(1)") > 10


def hostile(root: Path, text: str) -> RunFolder:
    """A run with ``text`` wherever a record holds one."""
    folder = three_attempts(root)
    spec = records.read_json(folder.spec) | {
        "recipe": text, "kind": text, "environment": {text: text}, "world_size": 2,
        "profile": {"name": text, "env": {"pass": [text]}, "container": {"image": text}, text: {text: text}},
        "provenance": {"commit": text, "host": text, "dirty": True, "changed": [text]},
        "fields": {text: {"value": text, "owner": text, "source": text, "recipe_value": text},
                   "schedule.train_iters": {"value": 100}},
    }  # fmt: skip
    folder.spec.write_text(json.dumps(spec))
    rule = {"rule": text, "verdict": text, "expected": text, "seen": text, "steps": [1], "evidence": text}
    folder.verdict.write_text(json.dumps({
        "verdict": text, "rules": [rule], "drill": text, "curve": {"reference": text, "steps": [[1, 2.0, 2.0]]},
        "speed": {"peak": text, "windows": [{"name": text}], "reference": {"name": text}},
        "spikes": [{"step": text, "loss": text}], "resume_check": {"from": text, "steps": [{"step": 1}]},
    }))  # fmt: skip
    record = records.read_json(folder.attempt(1).record) | {
        "nodes": [text], "why": text, "reason": text, "class": text, "class_why": text, "last_lines": [text],
        "failed_node": text, "decision": {"action": text, "reason": text, "exclude": [text]},
    }  # fmt: skip
    folder.attempt(1).record.write_text(json.dumps(record))
    with folder.events.open("a") as stream:
        for event in (
            {"event": text, "reason": text}, {"event": "evidence", "gpu": text, "versions": {text: text}},
            {"event": "evaluation", "iteration": 3, "which": text, "losses": {text: 1.0}},
            {"event": "requeue_requested", "by": text, "exclude": [text]},
        ):  # fmt: skip
            stream.write(json.dumps({"time": "2026-12-01T10:05:00+00:00", **event}) + "\n")
    with folder.metrics.open("a") as stream:
        stream.write(json.dumps({"attempt": 2, "step": 101, "of": 100, "losses": {text: 1.0}}) + "\n")
    return folder


def test_values_of_secrets_are_never_on_the_page(gate: RunFolder, tmp_path: Path) -> None:
    folder = three_attempts(tmp_path)
    spec = records.read_json(folder.spec) | {
        "environment": {"PASSED": "swordfish-1", "HF_TOKEN": "swordfish-2", "NCCL_DEBUG": "INFO"},
        "profile": {"name": "p", "env": {"pass": ["PASSED"], "set": {"MY_API_KEY": "swordfish-3"}}},
    }
    records.write_json(folder.spec, spec)
    page = run_page(folder, None)
    assert "swordfish" not in page
    assert "PASSED" in page
    assert "HF_TOKEN" in page
    assert "MY_API_KEY" in page


def test_what_a_rank_printed_of_a_secret_is_taken_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = hostile(tmp_path, "key <swordfish>&4 given")
    monkeypatch.setenv("SERVICE_TOKEN", "<swordfish>&4")
    page = run_page(folder, None)
    assert "swordfish" not in page
    assert "key (SERVICE_TOKEN) given" in page


@pytest.mark.parametrize("missing", ["spec", "events", "metrics", "attempts", "everything"])
def test_what_is_missing_is_said_to_be_unknown(tmp_path: Path, missing: str) -> None:
    folder = three_attempts(tmp_path)
    for path in (folder.spec, folder.events, folder.metrics):
        if missing in (path.stem, "everything"):
            path.unlink()
    if missing in ("attempts", "everything"):
        for attempt in folder.attempts():
            attempt.record.unlink()
            attempt.path.rmdir()
    text = read(folder).text
    assert "too odd" not in text
    if missing in ("metrics", "everything"):
        assert "No step is on record yet" in text
    if missing == "everything":
        assert "No attempt has begun yet" in text
        assert "There is no verdict on record" in text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
    | st.sampled_from(["nan", "inf", "PASS", "2026-12-01T10:00:00+00:00"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["lm loss", "step", "value", "exclude", "reason", "steps", "name", "first", "id", "x"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_record_breaks_the_page(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any key of any record may hold anything."""
    built = Builder(tmp_path_factory.mktemp("odd"))
    folder = built.folder
    folder.attempt(0).path.mkdir()

    def odd(record: dict[str, Any], most: int) -> dict[str, Any]:
        keys = data.draw(st.lists(st.sampled_from(sorted(record)), max_size=most, unique=True))
        return record | {key: data.draw(json_values) for key in keys}

    spec = records.read_json(folder.spec)
    full = spec | {
        "profile": {"name": "p", "device": "cuda", "env": {"pass": []}, "nodes": 1, "gpus_per_node": 2}, "drill": None,
        "environment": {"A": "b"}, "world_size": 2, "rehearsal": False, "same": {}, "hash": "x", "profile_sources": {},
    }  # fmt: skip
    folder.spec.write_text(json.dumps(odd(full, 4)))
    step = {"attempt": 0, "step": 1, "of": 9, "time": "2026-12-01T10:00:01", "losses": {"lm loss": 2.0},
            "step_time_ms": 9.0, "grad_norm": 1.0, "learning_rate": 1e-3, "global_batch_size": 4, "skipped": 0,
            "nan": 0}  # fmt: skip
    folder.metrics.write_text("".join(json.dumps(odd(step | {"step": n}, 2)) + "\n" for n in range(1, 6)))
    events: list[dict[str, Any]] = [
        {"event": "attempt_started", "attempt": 0, "why": "first", "resume_step": None},
        {"event": "evaluation", "iteration": 3, "which": "interval", "losses": {"lm loss": 2.0}, "step": 3},
        {"event": "evidence", "versions": {}, "deep_ep": {}, "attempt": 0},
        {"event": "preflight", "attempt": 0, "nodes": ["n1"], "failed": {}},
        {"event": "decision", "decision": "done", "reason": "x", "attempt": 0, "class": "complete", "exclude": []},
        {"event": "verdict", "verdict": "PASS"},
        {"event": "supervisor_started", "job_id": "1", "nodes": ["n1"], "restart_count": 0},
    ]
    stamped = [{"time": "2026-12-01T10:00:00+00:00", **event} for event in events]
    folder.events.write_text("".join(json.dumps(odd(event, 3)) + "\n" for event in stamped))
    attempt = {
        "started": "2026-12-01T10:00:00+00:00", "ended": "2026-12-01T10:01:00+00:00", "class": "complete",
        "nodes": ["n1"], "job": {"id": 1}, "decision": {"action": "done"}, "last_lines": [], "passed_over": [],
        "seconds": {}, "steps": {}, "first_step": 1, "last_step": 5, "failed_node": None, "first_failed_rank": None,
        "newest_checkpoint": 5, "reason": "x", "outcome": "completed",
    }  # fmt: skip
    folder.attempt(0).record.write_text(json.dumps(odd(attempt, 5)))
    verdict = {"verdict": "PASS", "rules": [{"rule": "x", "verdict": "PASS", "steps": []}], "speed": {"windows": []},
               "resume_check": {"steps": []}, "curve": {"steps": []}, "spikes": [], "subject": "x"}  # fmt: skip
    folder.verdict.write_text(json.dumps(odd(verdict, 3)))
    read(folder, data.draw(st.sampled_from([None, seconds_at(500)])))
