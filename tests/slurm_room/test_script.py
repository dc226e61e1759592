"""The batch script: golden files of every recipe x profile x kind, odd names, and flags that a Slurm lacks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from seatrial.errors import SeatrialError
from seatrial.slurm.script import batch_script
from seatrial.slurm.submit import placed
from seatrial.spec import library
from seatrial.spec.profile import load_profile
from seatrial.spec.recipe import recipe_names
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec

GOLDEN = Path(__file__).parent / "golden"
SITE = [
    ("profile.account", "lab"), ("profile.partition", "batch"), ("profile.container.image", "/images/nemo.sqsh"),
    ("profile.paths.runs", "/lustre/runs"), ("profile.env.pass", "[HF_TOKEN, WANDB_API_KEY]"),
]  # fmt: skip
PROFILES = [name for name in library.names("cluster_profiles") if load_profile(name).data["executor"] == "slurm"]
CASES = [(r, p, k) for r in recipe_names() for p in PROFILES for k in ("gate", "convergence")]


def script(profile: str = "gb200-8gpu", kind: str = "gate", run_id: str = "run-1", *more: tuple[str, str]) -> str:
    return batch_script(placed(resolve("nemotron_3_nano_gb200", profile, kind, [*SITE, *more])), run_id)


@pytest.mark.parametrize(("recipe", "profile", "kind"), CASES, ids=lambda v: v)
def test_golden(recipe: str, profile: str, kind: str) -> None:
    path = GOLDEN / f"{recipe}.{profile}.{kind}.sh"
    text = batch_script(placed(resolve(recipe, profile, kind, SITE)), f"{recipe}-{kind}-20260101-000000-abcdef")
    if os.environ.get("SEATRIAL_WRITE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0


def test_no_golden_script_is_left_over() -> None:
    assert {p.stem for p in GOLDEN.glob("*.sh")} == {".".join(case) for case in CASES}


def test_shellcheck_finds_nothing() -> None:
    assert shutil.which("shellcheck"), "apt-get install shellcheck"
    done = subprocess.run(["shellcheck", *map(str, GOLDEN.glob("*.sh"))], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def lines(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]


@pytest.mark.parametrize(
    ("profile", "kind", "settings", "there", "absent"),
    [
        ("gb200-8gpu", "gate", [], ["--nodes=2", "--segment=2", "--no-requeue", "--exclusive"], ["--no-kill"]),
        ("gb200-64gpu", "convergence", [], ["--nodes=16", "--segment=16", "--requeue", "--time=240"], ["--no-requeue"]),
        ("gb200-8gpu", "gate", [("spare_nodes", "1"), ("segment", "3")], ["--nodes=3", "--segment=3"], []),
        ("gb200-8gpu", "gate", [("gpu_request", "gres")], ["--gres=gpu:4"], ["--gpus-per-node=4"]),
        ("gb200-8gpu", "gate", [("gpu_request", "none")], [], ["--gres=gpu:4", "--gpus-per-node=4"]),
        ("gb200-8gpu", "gate", [("memory", "null")], [], ["--mem=0"]),
        ("gb200-8gpu", "gate", [("exclusive", "false")], [], ["--exclusive", "--exclusive=False"]),
        ("gb200-8gpu", "gate", [("qos", "high"), ("reservation", "r")], ["--qos=high", "--reservation=r"], []),
        ("gb200-8gpu", "gate", [("slurm.signal_lead_seconds", "90")], ["--signal=B:USR2@90"], []),
        ("gb200-8gpu", "gate", [("notify.webhook", "HOOK")],
         ["--export=HOME,LANG,LOGNAME,PATH,SHELL,TERM,USER,HF_TOKEN,WANDB_API_KEY,HOOK"], []),
        ("gb200-8gpu", "gate", [("wandb", "{enabled: true, key: TEAM_KEY}")],
         ["--export=HOME,LANG,LOGNAME,PATH,SHELL,TERM,USER,HF_TOKEN,WANDB_API_KEY,TEAM_KEY"], []),
        ("gb200-8gpu", "gate", [("wandb", "{enabled: true, mode: offline, key: TEAM_KEY}")],
         ["--export=HOME,LANG,LOGNAME,PATH,SHELL,TERM,USER,HF_TOKEN,WANDB_API_KEY"], []),
    ],
)  # fmt: skip
def test_directives(
    profile: str, kind: str, settings: list[tuple[str, str]], there: list[str], absent: list[str]
) -> None:
    more = [(f"profile.{key}", value) for key, value in settings]
    if "gres" in str(settings):
        more.append(
            ("profile.slurm.capabilities", "[segment, gres, mem, exclusive, requeue, signal, no-kill, comment]")
        )
    found = lines(script(profile, kind, "run-1", *more))
    assert set(there) <= set(found)
    assert not set(absent) & set(found)
    assert "--job-name=run-1" in found
    assert "--dependency=singleton" in found


@pytest.mark.parametrize("missing", ["segment", "gpus-per-node", "mem", "exclusive", "requeue", "signal", "no-kill"])
def test_a_flag_that_this_slurm_lacks_is_an_error(missing: str) -> None:
    known = ["segment", "gpus-per-node", "mem", "exclusive", "requeue", "signal", "no-kill", "comment"]
    known.remove(missing)
    with pytest.raises(SeatrialError) as caught:
        script(
            "gb200-8gpu", "gate", "run-1", ("profile.slurm.capabilities", f"[{', '.join(known)}]"),
            ("profile.spare_nodes", "1"), ("profile.segment", "3"),
        )  # fmt: skip
    assert missing in str(caught.value)


@pytest.mark.parametrize(
    "runs",
    ["/a b/c", "/it's", '/say "hi"', "/100%", "/ünïcode/日本", "/$HOME/`id`", "/" + "x" * 200],
)
def test_odd_folders_survive(runs: str) -> None:
    text = script("gb200-8gpu", "gate", "run-1", ("profile.paths.runs", f"'{runs}'".replace("'/it's'", '"/it\'s"')))
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    words = re.search(r"^exec (.*)$", text, flags=re.MULTILINE)
    assert words
    shown = subprocess.run(["bash", "-c", f"printf '%s\\n' {words[1]}"], capture_output=True, text=True)
    assert shown.stdout.splitlines()[-1] == f"{runs}/run-1/submitit"


def test_a_backslash_in_the_folder_is_refused() -> None:
    with pytest.raises(SeatrialError, match="without backslash"):
        script("gb200-8gpu", "gate", "run-1", ("profile.paths.runs", "'/back\\slash'"))


@pytest.mark.parametrize("run_id", ["a\nb", "a\r#SBATCH --uid=0", "a\x1b[31m"])
def test_a_line_break_is_refused(run_id: str) -> None:
    with pytest.raises(SeatrialError, match="cannot take"):
        script("gb200-8gpu", "gate", run_id)


def test_a_further_dependency_joins_singleton() -> None:
    spec = placed(resolve("nemotron_3_nano_gb200", "gb200-8gpu", "convergence", SITE))
    assert "--dependency=singleton,afterok:7" in lines(batch_script(spec, "r", dependency="afterok:7"))


def test_secrets_go_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    monkeypatch.setenv("WANDB_API_KEY", "0123456789")
    text = script()
    assert "HF_TOKEN,WANDB_API_KEY" in text
    assert "hf_verysecret" not in text
    assert "0123456789" not in text


def test_the_same_spec_gives_the_same_bytes() -> None:
    spec: RunSpec = placed(resolve("qwen35_9b_gb200", "gb200-8gpu", "gate", SITE))
    assert batch_script(spec, "r") == batch_script(RunSpec.from_json(spec.to_json()), "r")
