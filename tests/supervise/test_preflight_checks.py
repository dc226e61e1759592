"""A node's own checks, on this machine: real folders, files and commands; nvidia-smi is a script that prints a text."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from seatrial.spec.profile import PREFLIGHT_CHECKS, Preflight
from seatrial.supervise import preflight_checks as checks
from seatrial.supervise.preflight_checks import FAILED, OK, SKIPPED
from seatrial.supervise.preflight_judge import parse
from seatrial.supervise.preflight_settings import for_nodes
from seatrial.supervise.preflight_step import PROGRAM, program_words
from tests.supervise.test_preflight_nvidia import GB200, NVLINK
from tests.test_rooms import old_python


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "device": "cpu", "nodes": 2, "gpus_per_node": 4, "gpu_type": "gb200", "nvlink_domain": 72,
        "folder": str(folder), "readable": [], "image": None, "node_local": str(folder), "node_local_gb": 0.001,
        "commands": {}, "seconds": 20.0, **changes,
    }  # fmt: skip


def run(chosen: dict[str, Any], python: str = sys.executable) -> dict[str, tuple[str, str]]:
    """Run the program as a node does; return check -> (state, why). Its last line must be there."""
    done = subprocess.run(program_words(python, chosen), capture_output=True, text=True, timeout=600)
    told = [parse(line) for line in done.stdout.splitlines()]
    assert abs(told[-1]["time"] - time.time()) < 30, done.stderr
    assert {one["node"] for one in told} == {os.environ.get("SLURMD_NODENAME") or os.uname().nodename}
    return {one["check"]: (one["state"], one["why"]) for one in told[:-1]}


@pytest.mark.parametrize("python", [sys.executable, old_python()])
def test_a_node_that_is_fit(python: str | None, tmp_path: Path) -> None:
    if python is None:
        pytest.skip("no Python older than 3.12 on this machine")
    found = run(settings(tmp_path, commands={"fan": ["true"]}), python)
    rehearsal = (SKIPPED, "a CPU rehearsal")
    assert {name: found.pop(name) for name in checks.GPU_CHECKS} == dict.fromkeys(checks.GPU_CHECKS, rehearsal)
    assert found.pop("image") == (SKIPPED, "the profile names no image")
    assert found == dict.fromkeys(["folders", "disk", "fan"], (OK, ""))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["sh", "-c", "echo one; echo two is broken >&2; echo; exit 3"], "two is broken"),
        (["sh", "-c", "exit 3"], "exit code 3"),
        (["sh", "-c", "kill -9 $$"], "signal 9"),
        (["/no/such/tool"], "cannot start /no/such/tool: No such file or directory"),
        (["sleep", "30"], "sleep did not end within 1 s"),
        (["sh", "-c", 'test "$SEATRIAL_RUN_FOLDER" = / || echo it is "$SEATRIAL_RUN_FOLDER"; exit 1'], None),
    ],
)
def test_commands_of_the_site(words: list[str], why: str | None, tmp_path: Path) -> None:
    found = checks.site(words, str(tmp_path), 1.0)
    assert found == (FAILED, why or f"it is {tmp_path}")


def test_commands_share_the_time_one_after_another(tmp_path: Path) -> None:
    mark = ["sh", "-c", f"echo $(date +%s%N) >> {tmp_path}/times; sleep 0.3"]
    chosen = {"first": mark, "hangs": ["sleep", "60"], "second": mark}
    found = run(settings(tmp_path, commands=chosen, seconds=5.0))
    assert (found["first"][0], found["hangs"][0], found["second"][0]) == (OK, FAILED, OK)
    assert re.fullmatch(r"sleep did not end within \d s", found["hangs"][1])
    first, second = map(int, (tmp_path / "times").read_text().split())
    assert second - first > 0.3e9


def test_a_check_that_hangs_is_named_and_left_behind(tmp_path: Path) -> None:
    """As one that waits for a file system does."""
    chosen = settings(tmp_path, seconds=1.0)
    hung = f"import {checks.__name__} as c, time; c.HOST_CHECKS['image'] = lambda s, t: time.sleep(60)"
    code = (
        f"import sys; sys.path.insert(0, {str(PROGRAM.parents[2])!r}); {hung}\n"
        f"from seatrial.supervise import preflight_node; preflight_node.main([{json.dumps(chosen)!r}])"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert time.monotonic() - began < 10
    told = [parse(line) for line in done.stdout.splitlines()]
    assert [one["why"] for one in told if one.get("check") == "image"] == ["it did not end within 1 s"]
    assert "time" in told[-1], done.stderr


def test_a_mistake_of_ours_is_no_fault_of_the_node(tmp_path: Path) -> None:
    state, why = run(settings(tmp_path, node_local_gb="much"))["disk"]
    assert (state, why.partition(":")[0]) == (SKIPPED, "the check broke")


@pytest.mark.parametrize("what", ["file", "folder", "missing", "pipe"])
def test_readable(what: str, tmp_path: Path) -> None:
    place = tmp_path / what
    {"file": place.touch, "folder": place.mkdir, "missing": lambda: None, "pipe": lambda: os.mkfifo(place)}[what]()
    found = checks.folders(settings(tmp_path, readable=[str(place)]), 5)
    missing = (FAILED, f"cannot read {place}: No such file or directory")
    assert found == (missing if what == "missing" else (OK, ""))


def test_a_run_folder_that_is_gone_or_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    assert checks.folders(settings(gone), 5) == (FAILED, f"cannot write to {gone}: No such file or directory")

    def full(**_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checks.tempfile, "mkstemp", full)
    assert checks.folders(settings(tmp_path), 5) == (OK, ""), "the disk is every node's"


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("registry.example/nvidia/nemo:25.11", (SKIPPED, "a reference to a registry")),
        ("/no/image.sqsh", (FAILED, "cannot read /no/image.sqsh: No such file or directory")),
        ("{}/whole.sqsh", (OK, "")),
        ("{}/empty.sqsh", (FAILED, "cannot read {}/empty.sqsh: it is empty")),
    ],
)
def test_image(image: str, expected: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "whole.sqsh").write_text("hsqs")
    (tmp_path / "empty.sqsh").touch()
    found = checks.image(settings(tmp_path, image=image.format(tmp_path)), 5)
    assert found == (expected[0], expected[1].format(tmp_path))


def test_disk(tmp_path: Path) -> None:
    state, why = checks.disk(settings(tmp_path, node_local_gb=1e9), 5)
    assert state == FAILED
    assert re.fullmatch(rf"[\d.]+ GB are free in {tmp_path}, less than 1e\+09 GB", why)
    assert checks.disk(settings(tmp_path, node_local=str(tmp_path / "not" / "yet")), 5) == (OK, "")
    (tmp_path / "file").touch()
    assert checks.disk(settings(tmp_path, node_local=str(tmp_path / "file")), 5)[0] == FAILED


SMI = r"""#!/bin/sh
case "$1" in
  *uncorrected*) cat {0}/ecc ;;
  *remapped*) cat {0}/rows ;;
  *index,name*) cat {0}/gpus ;;
  nvlink) cat {0}/nvlink ;;
esac
exit $(cat {0}/code)
"""
HEALTHY = {"gpus": GB200, "ecc": "0, 0\n", "rows": "0009:01:00.0, No, No\n", "nvlink": NVLINK, "code": "0"}


@pytest.fixture
def channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where IMEX channels would be; there is one."""
    folder = tmp_path / "imex"
    folder.mkdir()
    (folder / "channel7").touch()
    monkeypatch.setattr(checks, "_IMEX_CHANNELS", folder)
    return folder


def with_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **texts: str) -> dict[str, checks.Check]:
    """Make the checks that ask nvidia-smi, which answers with ``texts``."""
    folder = tmp_path / "smi"
    folder.mkdir()
    for name, text in {**HEALTHY, **texts}.items():
        (folder / name).write_text(text)
    (folder / "nvidia-smi").write_text(SMI.replace("{0}", str(folder)))
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return {name: checks.GPU_CHECKS[name](settings(tmp_path), 5) for name in ("gpus", "ecc", "nvlink")}


@pytest.mark.parametrize(
    ("texts", "failed", "skipped"),
    [
        ({}, [], []),
        ({"gpus": "0, NVIDIA GB200\n"}, ["gpus"], []),
        ({"ecc": "0, 2\n"}, ["ecc"], []),
        ({"ecc": "0, [N/A]\n", "rows": "0, Yes, No\n"}, ["ecc"], []),
        ({"ecc": "0, [N/A]\n", "rows": "0, [N/A], [N/A]\n"}, [], ["ecc"]),
        ({"nvlink": NVLINK.replace("50 GB/s", "<inactive>")}, ["nvlink"], []),
        ({"nvlink": ""}, [], ["nvlink"]),
        # The GPU is lost: one check says so, the others do not say it again.
        ({"gpus": "GPU is lost.  Reboot the system\n", "code": "15"}, ["gpus"], ["ecc", "nvlink"]),
    ],
)  # fmt: skip
def test_gpus(
    texts: dict[str, str], failed: list[str], skipped: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = with_gpus(tmp_path, monkeypatch, **texts)
    assert [name for name, check in found.items() if check.state == FAILED] == failed
    assert [name for name, check in found.items() if check.state == SKIPPED] == skipped
    if texts.get("code"):
        assert found["gpus"].why == "GPU is lost.  Reboot the system"


def test_without_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = "cannot start nvidia-smi: No such file or directory"
    assert checks.gpus(settings(tmp_path), 5) == (FAILED, missing)
    assert checks.ecc(settings(tmp_path), 5) == (SKIPPED, missing)
    assert checks.nvlink(settings(tmp_path), 5) == (SKIPPED, missing)


def test_imex(channels: Path, tmp_path: Path) -> None:
    assert checks.imex(settings(tmp_path), 5) == (OK, "")
    (channels / "channel7").unlink()
    assert checks.imex(settings(tmp_path), 5) == (FAILED, f"no IMEX channel is in {channels}")
    for alone in ({"nodes": 1}, {"gpu_type": "h100"}, {"gpu_type": None}):
        assert checks.imex(settings(tmp_path, **alone), 5).state == SKIPPED


def test_nvlink_is_asked_for_where_the_profile_says_so(tmp_path: Path) -> None:
    assert checks.nvlink(settings(tmp_path, nvlink_domain=None), 5) == (SKIPPED, "the profile names no nvlink_domain")


def test_the_kernel_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the kernel's form; and the real one, where it may be read."""
    log = tmp_path / "kmsg"
    now = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    log.write_text(
        f"6,1,{now - 90_000_000},-;NVRM: Xid (PCI:0008:01:00): 79, GPU has fallen off the bus.\n SUBSYSTEM=pci\n"
        "torn\n4,2,x,-;NVRM: Xid (PCI:0009:01:00): 79, no time\n"
    )
    monkeypatch.setattr(checks, "_KERNEL_LOG", log)
    assert checks.xid(settings(tmp_path), 5) == (FAILED, "PCI:0008:01:00: Xid 79 2 min ago")
    monkeypatch.setattr(checks, "_KERNEL_LOG", tmp_path / "none")
    assert checks.xid(settings(tmp_path), 5) == (SKIPPED, f"{tmp_path}/none: No such file or directory")
    monkeypatch.undo()
    assert checks.xid(settings(tmp_path), 5).state in (OK, SKIPPED)


def field(value: Any) -> dict[str, Any]:
    return {"value": value, "owner": "recipe", "source": "test"}


@pytest.mark.parametrize(
    ("container", "readable"),
    [
        ({}, ["/data/args.json", "/data/a.idx", "/data/a.bin", "/inside/b.idx", "/inside/b.bin"]),
        ({"image": "/i.sqsh", "mounts": ["/lustre/data:/data:ro", "/lustre:/lustre"]},
         ["/lustre/data", "/lustre", "/lustre/data/args.json", "/lustre/data/a.idx", "/lustre/data/a.bin"]),
    ],
)  # fmt: skip
def test_what_is_read_on_the_host(container: dict[str, Any], readable: list[str], tmp_path: Path) -> None:
    spec = {
        "profile": {"device": "cuda", "container": container},
        "fields": {
            "data.data_path": field([0.3, "/data/a", 0.7, "/inside/b"]),
            "data.train_data_path": field(["relative", "s3://bucket/c"]),
            "data.data_args_path": field("/data/args.json"),
            "data.tokenizer_model": field("nvidia/tokenizer"),
        },
    }
    assert for_nodes(spec, tmp_path, Path("/code/rank.py"))["readable"] == ["/code/rank.py", *readable]


def test_a_site_cannot_take_the_name_of_a_check_of_ours() -> None:
    assert {*PREFLIGHT_CHECKS} == {*checks.GPU_CHECKS, *checks.HOST_CHECKS, "clock"}
    for name in PREFLIGHT_CHECKS:
        with pytest.raises(ValueError, match=f"'{name}' is the name of a check of ours"):
            Preflight(commands={name: ["true"]})
    assert Preflight(commands={"fabric": ["true"]}).commands == {"fabric": ["true"]}
