"""What following the logs of many ranks costs the one supervisor: processor time and memory, by the number of ranks.

    .venv/bin/python benchmarks/follow_logs.py [--seconds 30] [--ranks 8 64 512 4608]

For each number of ranks a process writes their logs: a start full of warnings, then from every rank a line each ten
seconds, and an iteration line a second from the last, which has 48,000 steps in its log already. Another process
follows them as an attempt does, ten looks a second: exit records and what srun says, logs, the watch for hangs.
Prints processor seconds per second and the peak of its memory; exits with 1 above one core or 500 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "launchers"))

MOST_CORES, MOST_MB = 1.0, 500.0
STEPS = 48_000
LOOK = 0.1
CATCH_UP = 8.0  # seconds for the first round through all that is there
WARNING = "/usr/lib/python3/site-packages/megatron/core/x.py:25: UserWarning: not installed, falling back to another\n"
STEP = (
    " [2026-12-01 02:27:42.570068] iteration {step:8d}/  100000 | consumed samples: {samples:12d} | elapsed time per "
    "iteration (ms): 1000.0 | throughput per GPU (TFLOP/s/GPU): 300.0 | learning rate: 2.083333E-06 | global batch "
    "size:  2304 | lm loss: 2.083333E+00 | loss scale: 1.0 | grad norm: 1.090 | number of skipped iterations:   0 | "
    "number of nan iterations:   0 |\n"
)


def logs_of(folder: Path, ranks: int) -> list[Path]:
    from seatrial.run.layout import RunFolder

    attempt = RunFolder(folder).attempt(0)
    return [attempt.rank_log(rank) for rank in range(ranks)]


def write(folder: Path, ranks: int, seconds: float) -> None:
    """Be all ranks: a line of each every ten seconds, spread over them, and the last one's steps."""
    logs = logs_of(folder, ranks)
    began, lines, steps = time.monotonic(), 0, 0
    while (gone := time.monotonic() - began) < seconds:
        while lines < gone * ranks / 10:
            append(logs[lines % ranks], WARNING)
            lines += 1
        while steps < gone:
            steps += 1
            append(logs[-1], step_line(STEPS + steps))
        time.sleep(0.05)


def append(log: Path, text: str) -> None:
    with log.open("a") as stream:
        stream.write(text)


def step_line(step: int) -> str:
    return STEP.format(step=step, samples=2304 * step)


def follow(folder: Path, ranks: int, seconds: float) -> dict[str, Any]:
    """Follow the logs for so long as an attempt does; return the figures of the time after the first round."""
    from seatrial.run.layout import RunFolder
    from seatrial.supervise import srun
    from seatrial.supervise.follow import LogFollower
    from seatrial.supervise.hang import Limits, Watchdog
    from seatrial.supervise.journal import Journal
    from seatrial.supervise.outcome import Target
    from seatrial.supervise.slot import Longest
    from seatrial.supervise.step import Allocation

    run = RunFolder(folder)
    srun.allocation = lambda *_: Allocation("1", 0, ["n1"], "n1", 1)
    srun.srun_words = lambda *_: ["sleep", str(int(seconds + 60))]  # stands for srun: it has nothing to say
    spec = {"world_size": ranks, "profile": {"paths": {"node_local": "/n"}}, "run_id": "r", "environment": {}}
    step = srun.SrunRanks(spec, run.attempt(0), [], os.environ)
    step.start(lambda _: None)
    follower = LogFollower(logs_of(folder, ranks), 0, Journal(run))
    watchdog = Watchdog(Limits(Target(100_000)), Longest(), time.monotonic())
    begin = time.monotonic()
    since = (begin, time.process_time())
    looks, longest = 0, 0.0
    try:
        while (now := time.monotonic()) - begin < CATCH_UP + seconds:
            if looks == 0 and now - begin > CATCH_UP:
                since = (now, time.process_time())
            looks += now - begin > CATCH_UP
            step.poll()
            follower.poll()
            if not step.running or watchdog.look(follower.seen, now) is not None:
                raise SystemExit("the run is taken for ended, or for hung")
            longest = max(longest, time.monotonic() - now) if looks else 0.0
            time.sleep(LOOK)
        took, used = time.monotonic() - since[0], time.process_time() - since[1]
    finally:
        step._process.kill()  # type: ignore[union-attr]
        step._process.wait()  # type: ignore[union-attr]
    closing = time.process_time()
    follower.close()
    return {
        "cores": used / took, "looks": looks / took, "longest_look_ms": 1000 * longest,
        "steps": len(follower.seen.steps), "close_s": time.process_time() - closing, "peak_mb": peak_mb(),
    }  # fmt: skip


def peak_mb() -> float:
    """Return the most memory that this process has had at a time, in MB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def measure(ranks: int, seconds: float) -> dict[str, Any]:
    from seatrial.run.layout import RunFolder

    with tempfile.TemporaryDirectory() as root:
        folder = RunFolder.create(Path(root) / "run")
        folder.new_attempt()
        for log in logs_of(folder.path, ranks):
            log.write_text(WARNING * 80)
        append(logs_of(folder.path, ranks)[-1], "".join(step_line(step) for step in range(1, STEPS + 1)))
        words = [str(folder.path), str(ranks), str(seconds)]
        writer = subprocess.Popen([sys.executable, __file__, "--write", *words])
        try:
            done = subprocess.run(
                [sys.executable, __file__, "--follow", *words], stdout=subprocess.PIPE, text=True, check=True
            )
        finally:
            writer.terminate()
            writer.wait()
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 512, 4608])
    parser.add_argument("--write", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--follow", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        folder, ranks, seconds = options.write
        write(Path(folder), int(ranks), CATCH_UP + float(seconds) + 60)
        return 0
    if options.follow:
        folder, ranks, seconds = options.follow
        print(json.dumps(follow(Path(folder), int(ranks), float(seconds))))
        return 0
    print(" ranks  cores  looks/s  longest look  peak memory  reading the rest")
    over = False
    for ranks in options.ranks:
        found = measure(ranks, options.seconds)
        print(
            f"{ranks:6d} {found['cores']:6.3f} {found['looks']:8.1f} {found['longest_look_ms']:10.0f} ms "
            f"{found['peak_mb']:9.0f} MB {found['close_s']:15.2f} s"
        )
        over = over or found["cores"] > MOST_CORES or found["peak_mb"] > MOST_MB or found["steps"] < STEPS
    print(f"at most {MOST_CORES:g} core and {MOST_MB:g} MB: {'no' if over else 'yes'}")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
