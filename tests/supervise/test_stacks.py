"""What stacks say: real dumps of faulthandler, tables of situations, and any text at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.supervise.stacks import MOST_FRAMES, main_thread, named, suspects, suspects_of, told

WAITING = ["torch/distributed/distributed_c10d.py:2696 wait", "megatron/training/training.py:3856 train"]
ELSEWHERE = ["torch/distributed/distributed_c10d.py:2967 all_reduce", "megatron/core/optimizer/clip_grads.py:9 norm"]
READING = ["megatron/core/datasets/indexed_dataset.py:40 get", "megatron/training/training.py:3856 train"]
ON_GPU = ["megatron/core/optimizer/clip_grads.py:116 get_grad_norm_fp32"]

PROGRAM = """
import faulthandler, signal, sys, threading, time
faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True, chain=False)
event = threading.Event()
for _ in range(int(sys.argv[1])):
    threading.Thread(target=event.wait, daemon=True).start()
def deep(n):
    if n:
        deep(n - 1)
    print("ready", flush=True)
    while True:
        pass
deep(40)
"""


@pytest.mark.parametrize("threads", [0, 3, 120])
@pytest.mark.parametrize("stopped", [False, True])
def test_a_real_dump(threads: int, stopped: bool) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(threads)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    if stopped:
        os.kill(process.pid, signal.SIGSTOP)
    os.kill(process.pid, signal.SIGUSR1)
    if stopped:
        os.kill(process.pid, signal.SIGCONT)
    said = ""
    while "..." not in said and "<module>" not in said:
        said += process.stderr.readline()
    process.kill()
    said += process.communicate()[1]
    frames = main_thread(f"a warning\n{said}\nTraceback:\n  File 'x', line 3, in f\n")
    assert len(frames) == MOST_FRAMES if threads < 100 else frames, said
    assert all(frame.startswith("<string>:") and frame.endswith(" deep") for frame in frames) is (threads < 100)


OLD = 'Thread 0x1 (most recent call first):\n  File "/a.py", line 1 in old\n'
NEW = (
    'glued Thread 0x2 [name] (most recent call first):\n  File "/v/lib/site-packages/torch/x.py", line 12 in <lambda>\n'
    '  File "/odd "name".py", line ??? in f\n'
)


@pytest.mark.parametrize(
    ("text", "frames"),
    [
        ("", []),
        ("no dump\n", []),
        (OLD, ["/a.py:1 old"]),
        (OLD + NEW, ["torch/x.py:12 <lambda>", '/odd "name".py:??? f']),
        (OLD + "noise\n" + '  File "/b.py", line 2 in outer\n', ["/a.py:1 old", "/b.py:2 outer"]),
        (OLD + "\nThread 0x3 (most recent call first):\n  <no Python frame>\n", ["/a.py:1 old"]),
        (OLD + NEW + "...\n" + OLD.replace("Thread", "Current thread"), ["/a.py:1 old"]),
        ('Traceback (most recent call last):\n  File "/a.py", line 1, in f\n', []),
    ],
)
def test_a_dump(text: str, frames: list[str]) -> None:
    assert main_thread(text) == frames


PIECES = st.sampled_from(
    ["Thread 0x1 (most recent call first):", '  File "/a.py", line 3 in f', "...", "\n", '"', "  "]
)


@given(st.lists(PIECES | st.text(max_size=20)).map("".join))
def test_no_text_breaks_it(text: str) -> None:
    frames = main_thread(text)
    assert len(frames) <= MOST_FRAMES
    suspects({0: frames, 1: WAITING}, [])
    told({"phase": "step", "silent_seconds": 1, "limit_seconds": 1, "stacks": {"0": frames}, "without_stack": [1]}, "x")


@pytest.mark.parametrize(
    ("stacks", "silent", "expected"),
    [
        # One leaves no stack, whatever the others say.
        ([WAITING, None], [1], [1]),
        ([WAITING, READING], [1], [1]),
        ([READING, WAITING, WAITING, None], [3], [3]),
        ([WAITING] * 5 + [None] * 3, [5, 6, 7], [5, 6, 7]),
        # So many leave none that it says nothing of them.
        ([None, None], [0, 1], []),
        ([WAITING, None, None, None], [1, 2, 3], []),
        # One differs from the majority.
        ([WAITING, WAITING, READING, WAITING], [], [2]),
        ([WAITING, WAITING, ELSEWHERE, WAITING], [], [2]),
        ([WAITING, WAITING, ELSEWHERE, WAITING, READING], [], [4]),
        ([ON_GPU, ON_GPU, READING], [], [2]),
        # Those that wait are not those that are waited for.
        ([READING, READING, WAITING], [], []),
        ([READING, WAITING], [], [0]),
        ([WAITING, READING], [], [1]),
        # Most wait, but not at the same place.
        ([WAITING, ELSEWHERE, READING, ["gloo.py:1 wait"]], [], [2]),
        # All alike, or no telling.
        ([WAITING] * 4, [], []),
        ([WAITING, ELSEWHERE], [], []),
        ([READING, ON_GPU], [], []),
        ([READING, ON_GPU, WAITING, ELSEWHERE], [], []),
        ([], [], []),
        ([WAITING], [], []),
    ],
)
def test_suspects(stacks: list[list[str] | None], silent: list[int], expected: list[int]) -> None:
    known = {rank: frames for rank, frames in enumerate(stacks) if frames}
    assert suspects(known, silent) == expected
    texts = {str(rank): frames for rank, frames in known.items()}
    assert suspects_of({"stacks": texts, "without_stack": silent}) == expected


@given(
    st.dictionaries(st.integers(0, 9), st.sampled_from([WAITING, ELSEWHERE, READING, ON_GPU, []])),
    st.sets(st.integers(0, 9)),
)
def test_never_is_all_suspected(stacks: dict[int, list[str]], silent: set[int]) -> None:
    asked, found = {*stacks, *silent}, suspects(stacks, silent)
    assert set(found) <= asked
    assert len(found) <= len(asked) / 2


def hang(stacks: dict[str, list[str]], silent: list[int]) -> dict[str, Any]:
    return {"phase": "step", "silent_seconds": 184.2, "limit_seconds": 180.0, "stacks": stacks, "without_stack": silent}


def test_it_is_told_in_a_sentence() -> None:
    many = {str(rank): WAITING for rank in range(4608) if rank != 7}
    assert told(hang({**many, "7": READING}, [9]), "no step") == (
        "no step for 184 s (limit 180 s), phase step; "
        "ranks 0-6,8,10-4607 wait in wait (torch/distributed/distributed_c10d.py:2696), "
        "rank 7 is in get (megatron/core/datasets/indexed_dataset.py:40), "
        "rank 9 answered only when continued, in wait (torch/distributed/distributed_c10d.py:2696)"
    )
    assert told(hang({}, []), "no step") == "no step for 184 s (limit 180 s), phase step"
    assert told(hang({}, [0, 1]), "no step").endswith("; ranks 0-1 left no stack")
    scattered = {str(rank): [f"/a.py:{rank} f"] for rank in range(9)}
    assert told(hang(scattered, []), "no step").endswith(", 5 ranks elsewhere")


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([3], "rank 3"),
        ([0, 1, 2, 5], "ranks 0-2,5"),
        (list(range(0, 40, 2)), "ranks 0,2,4,6,8,10,12,14 and others (20 in all)"),
    ],
)
def test_ranks_have_names(ranks: list[int], words: str) -> None:
    assert named(ranks) == words
