"""`seatrial converge A B` and the verbs on a group, as a user meets them: real supervisors, ranks that pretend."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.groups import Group, find_group
from seatrial.run.layout import RunFolder
from seatrial.slurm.admission_identity import identity
from seatrial.slurm.local_job import look, supervisor
from seatrial.spec.resolve import resolve
from tests.cli.test_converge import pretend
from tests.cli.verbs import COMMAND, until, verb
from tests.slurm_room import test_admission

NANO, QWEN = "nemotron_3_nano_gb200", "qwen35_9b_gb200"
ALIAS = "qwen35_9b_pretrain_config"
BATCH = ["--set", "schedule.global_batch_size=16"]
FREE = ["--no-gate", "a test"]


def decision(folder: RunFolder) -> dict[str, Any]:
    found = [event for event in records.read_lines(folder.events) if event["event"] == "decision"]
    return found[-1] if found else {}


def group_of(runs: Path, name: str = "pair") -> Group:
    found = find_group(name, [runs])
    assert found is not None
    return found


def folders(group: Group) -> list[RunFolder]:
    return [RunFolder(run.folder) for run in group.runs]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([NANO, QWEN, *FREE], ["schedule.global_batch_size", f"{NANO}: 16", f"{QWEN}: 8", f"{QWEN}.yaml:", "--set"]),
        ([NANO, QWEN, *BATCH], [f"{NANO}:", f"{QWEN}:", "no gate of this recipe is there", "nothing was submitted"]),
        (
            [NANO, QWEN, *FREE, *BATCH, "--set", f"{NANO}:model.padded_vocab_size=256",
             "--set", f"{QWEN}:data.data_path=null"],
            ["at least the 257 ids", "data is named", f"{NANO}:\n", f"{QWEN}:\n"],
        ),
        ([NANO, QWEN, *FREE, "--set", f"{QWEN}:schedule.train_iters=9"], ["48000", "9", "schedule.train_iters"]),
        ([NANO, "qwen_9b", *FREE, "--set", f"{NANO}:model.sed=1"], ["unknown recipe 'qwen_9b'", "did you mean 'seed'"]),
        ([NANO, QWEN, *FREE, "--set", "qwen35_9b_gb20:schedule.seed=1"], [f"did you mean '{QWEN}'"]),
        ([NANO, NANO, *FREE], [f"recipe {NANO} is named twice"]),
        ([QWEN, NANO, ALIAS, *FREE], [f"recipe {QWEN} is named twice"]),
        ([NANO, QWEN, *FREE, "--name", "a b"], ["not a name for a group"]),
        ([NANO, QWEN, *FREE, "--other-data", " "], ["--other-data needs a reason"]),
        ([NANO, QWEN, *BATCH, "--no-gate", " "], ["--no-gate needs a reason"]),
        ([NANO, QWEN, *BATCH, "--after-gate", "--detach"], ["runs the gate in the foreground"]),
        ([NANO, QWEN, *BATCH, "--gate", "none"], ["no run 'none'"]),
        ([NANO, QWEN, *BATCH, *FREE, "--set", f"{NANO}:profile.executor=slurm"], ["run in one place"]),
        ([NANO, *FREE, "--name", "pair"], ["--name is a group's"]),
        ([NANO, *FREE, "--other-data", "why"], ["--other-data is a group's"]),
        ([NANO, "--gate", "a", "--gate", "b"], ["one gate admits a run"]),
    ],
    ids=lambda v: " ".join(v).replace("_gb200", "")[:60] if isinstance(v, list) else "",
)  # fmt: skip
def test_all_mistakes_are_told_at_once_and_nothing_is_submitted(
    words: list[str], said: list[str], tmp_path: Path
) -> None:
    done = verb("converge", *words, "--set", f"profile.paths.runs={tmp_path / 'runs'}", cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert all(text in done.stderr for text in said), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_each_recipe_is_admitted_by_its_own_gate(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for number, recipe in enumerate((NANO, QWEN)):
        spec = resolve(recipe, "local-cpu", "gate")
        gate = test_admission.make_gate(runs, f"gate-{number}", "local-cpu")
        records.write_json(gate.spec, spec.to_json() | {"same": identity(spec)})
        records.append_event(gate.events, "verdict", verdict="PASS")  # now
    settings = [*pretend(tmp_path), *BATCH]
    for gates, said in (
        (["gate-0", "gate-0"], f"a second gate of {NANO}"),
        (["gate-1"], ""),
    ):
        words = [word for gate in gates for word in ("--gate", gate)]
        done = verb("converge", NANO, QWEN, "--detach", "--name", "pair", *settings, *words, cwd=tmp_path)
        assert done.returncode == (2 if said else 0), done.stdout + done.stderr
        assert said in done.stderr
    admissions = [records.read_json(folder.spec)["admission"]["gate"] for folder in folders(group_of(runs))]
    assert admissions == ["gate-0", "gate-1"]
    for folder in folders(group_of(runs)):
        until(lambda folder=folder: decision(folder).get("decision") == "stop", "its end")  # type: ignore[misc]
    done = verb("converge", NANO, "qwen35_35b_a3b_gb200", *settings, "--gate", "gate-1", cwd=tmp_path)
    assert done.returncode == 2
    assert f"a gate of {QWEN}, which is not in this group" in done.stderr


def test_a_gate_that_fails_keeps_both_from_being_submitted(tmp_path: Path) -> None:
    done = verb("converge", NANO, QWEN, "--after-gate", *BATCH, *pretend(tmp_path), cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"no run of the group was submitted: the verdict of the gate of {NANO} is FAIL" in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    assert records.read_json(folder / "spec.json")["kind"] == "gate"


@pytest.fixture
def failed(tmp_path: Path) -> Group:
    """A group whose runs have both failed, and were followed to their ends."""
    words = [*FREE, *BATCH, *pretend(tmp_path, code=1), "--other-data", "no other"]
    done = verb("converge", NANO, QWEN, "--name", "pair", *words, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    group = group_of(tmp_path / "runs")
    assert "they run side by side on this machine" in done.stdout
    for folder, recipe in zip(folders(group), (NANO, QWEN), strict=True):
        assert (decision(folder)["decision"], records.read_json(folder.spec)["group"]) == ("stop", group.id)
        assert f"{recipe}: decision: stop" in done.stdout
        assert f"{recipe}:\n{decision(folder)['reason']}\n" in done.stdout
    assert f"group {group.id}: 2 runs: 2 stopped; " in done.stdout
    return group


def test_a_groups_name_stands_for_its_runs(failed: Group, tmp_path: Path) -> None:
    """Looking at it, and bringing it back."""
    runs = [run.run for run in failed.runs]
    done = verb("status", "pair", cwd=tmp_path)
    assert all(run in done.stdout for run in runs) and "2 runs: 2 stopped" in done.stdout, done.stdout
    assert "2 need a person" in done.stdout and "other data: no other" in done.stdout
    answer = json.loads(verb("status", failed.id[:-2], "--json", cwd=tmp_path).stdout)
    assert [row["run"] for row in answer["runs"]] == sorted(runs)
    assert {row["group"] for row in answer["runs"]} == {failed.id}
    assert answer["groups"][0]["total"]["states"] == {"stopped": 2}
    assert f"group {failed.id}: 2 runs: 2 stopped" in verb("list", cwd=tmp_path).stdout
    done = verb("explain", "pair", cwd=tmp_path)
    assert all(f"{run} (convergence" in done.stdout for run in runs), done.stdout
    assert [one["run"] for one in json.loads(verb("explain", "pair", "--json", cwd=tmp_path).stdout)["runs"]] == runs
    for words, said in (
        (["logs", "pair"], "is a group of 2 runs"),
        (["explain", "pair", "--attempt", "0"], "--attempt is one run's"),
        (["requeue", "pair", "--from-step", "2"], "--from-step is one run's"),
        (["requeue", "pair", "--force-class", "hang"], "--force-class is one run's"),
    ):
        done = verb(*words, cwd=tmp_path)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    before = [len(folder.attempts()) for folder in folders(failed)]
    records.append_event(folders(failed)[0].events, "decision", decision="done", exit_code=0, reason="as if")
    done = verb("requeue", "pair", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{runs[0]}: it is complete: nothing to do" in done.stdout
    assert f"{runs[1]}: started again on this machine" in done.stdout
    done = verb("watch", "pair", cwd=tmp_path)
    assert done.returncode == 1
    assert "2 runs: 1 done, 1 stopped" in done.stdout, done.stdout
    after = [len(folder.attempts()) for folder in folders(failed)]
    assert after[0] == before[0] and after[1] > before[1]


def test_a_name_of_two_groups_is_the_newest_and_changes_nothing(failed: Group, tmp_path: Path) -> None:
    older = records.read_json(tmp_path / "runs" / ".seatrial" / f"group-{failed.id}.json")
    older |= {"id": "pair-20200101-000000-aaaaaa", "created": "2020-01-01T00:00:00+00:00", "runs": older["runs"][:1]}
    records.write_json(tmp_path / "runs" / ".seatrial" / f"group-{older['id']}.json", older)
    assert "2 runs" in verb("status", "pair", cwd=tmp_path).stdout
    assert "1 runs" in verb("status", older["id"], cwd=tmp_path).stdout
    for word in ("requeue", "stop", "cancel"):
        done = verb(word, "pair", cwd=tmp_path)
        assert done.returncode == 2
        assert "'pair' names 2 groups" in done.stderr and failed.id in done.stderr and older["id"] in done.stderr


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Group]:
    """A group whose runs go on until they are asked to stop; converge was left by Ctrl-C."""
    words = pretend(tmp_path)
    rank = tmp_path / "rank.py"
    rank.write_text(rank.read_text().replace("time.sleep(0)", "time.sleep(0.1)").replace("and False:", "and True:"))
    words[words.index("schedule.train_iters=4")] = "schedule.train_iters=3000"
    with (tmp_path / "said").open("w") as stream:
        command = [*COMMAND, "converge", NANO, QWEN, *FREE, *BATCH, "--name", "pair", *words]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=stream, stderr=stream, env=os.environ)

    def said() -> str:
        return (tmp_path / "said").read_text()

    until(lambda: all(f"{recipe}: step 1/3000" in said() for recipe in (NANO, QWEN)), "both make steps")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=600) == 130
    group = group_of(tmp_path / "runs")
    assert f"the runs go on: seatrial status {group.id}" in said()
    yield group
    verb("cancel", group.id, cwd=tmp_path)
    assert all(supervisor(folder.path, look()) is None for folder in folders(group))


def test_stop_lets_all_save_and_waits_for_all(live: Group, tmp_path: Path) -> None:
    done = verb("requeue", "pair", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.count("it runs: nothing to do") == 2, done.stdout + done.stderr
    done = verb("stop", "pair", "--json", cwd=tmp_path)
    answer = json.loads(done.stdout)
    assert answer["group"] == live.id
    assert [one["run"] for one in answer["runs"]] == [run.run for run in live.runs]
    assert [(one["ended"], one["saved"]) for one in answer["runs"]] == [(True, True)] * 2, answer
    assert done.returncode == 0
    done = verb("stop", "pair", cwd=tmp_path)
    assert done.stdout.count("it has ended already") == 2


def test_cancel_ends_all_and_one_that_cannot_be_keeps_no_other(live: Group, tmp_path: Path) -> None:
    path = tmp_path / "runs" / ".seatrial" / f"group-{live.id}.json"
    record = records.read_json(path)
    record["runs"].insert(0, {"run": "gone", "folder": str(tmp_path / "runs" / "gone"), "recipe": "x"})
    records.write_json(path, record)
    done = verb("cancel", "pair", cwd=tmp_path)
    assert done.returncode == 2
    assert "gone: error:" in done.stderr
    assert done.stdout.count(": cancelled") == 2, done.stdout
    assert verb("status", "pair", cwd=tmp_path).returncode == 0
