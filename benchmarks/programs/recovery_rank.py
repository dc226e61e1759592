#!/usr/bin/env python3
"""A rank that makes steps, saves whole checkpoints, resumes from them, and dies once at each step that it is told.

    recovery_rank.py FOLDER                     resumes from the newest checkpoint of FOLDER, as users' scripts do
    recovery_rank.py .../rank.py PLAN_JSON      resumes from the one that the supervisor has chosen (--ckpt-step)

``RECOVERY`` is JSON: folder, deaths [steps], says (printed before it dies). Rank 0 saves, rank 1 dies, the last rank
prints and writes ``steps``: time, step, and when Slurm started this process. As in a collective nobody gets past the
step that a rank dies in.
"""

import io
import json
import os
import pickle
import signal
import sys
import time
import zipfile
from pathlib import Path

SAVE_EVERY, PACE = 5, 0.2
LINE = (
    " [{now}] iteration {step:8d}/{of:8d} | consumed samples: {step:12d} | elapsed time per iteration (ms): 200.0 | "
    "learning rate: 2.0E-06 | global batch size:     4 | lm loss: 4.5E+00 | loss scale: 1.0 | grad norm: 1.090 | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |"
)


class Metadata:
    """What torch.distributed.checkpoint calls so: where each entry lies."""

    def __init__(self, storage_data):  # type: ignore[no-untyped-def]
        self.storage_data = storage_data


class Index:
    def __init__(self, fqn):  # type: ignore[no-untyped-def]
        self.fqn = fqn


class Place:
    def __init__(self, relative_path, offset, length):  # type: ignore[no-untyped-def]
        self.relative_path, self.offset, self.length = relative_path, offset, length


def save(checkpoints, step):  # type: ignore[no-untyped-def]
    """Write a checkpoint that run/checkpoint.py finds whole, and then the tracker file."""
    if (checkpoints / f"iter_{step:07d}").exists():
        return
    folder = checkpoints / f".writing-{step}"
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", str(step))
    state = buffer.getvalue()
    (folder / "__0_0.distcp").write_bytes(bytes(1000) + state)
    places = {
        "model": Place("__0_0.distcp", 0, 1000),
        "common_state/shard_0_1": Place("__0_0.distcp", 1000, len(state)),
    }
    (folder / ".metadata").write_bytes(pickle.dumps(Metadata({Index(name): place for name, place in places.items()})))
    (folder / "metadata.json").write_text("{}")
    folder.rename(checkpoints / f"iter_{step:07d}")
    tracker = checkpoints / "latest_checkpointed_iteration.txt"
    tracker.write_text(f"{step}\n")


def started():  # type: ignore[no-untyped-def]
    """Return when this process was started, in seconds since 1970: long before Python runs, on a busy machine."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - (uptime - ticks / os.sysconf("SC_CLK_TCK"))


def where():  # type: ignore[no-untyped-def]
    """Return the checkpoints' folder, the step to resume from, and how many steps there are."""
    if len(sys.argv) > 2:
        words = json.loads(Path(sys.argv[2]).read_text())["arguments"]
        value = {word: words[n + 1] for n, word in enumerate(words[:-1]) if word.startswith("--")}
        return Path(value["--save"]), int(value.get("--ckpt-step", 0)), int(value["--train-iters"])
    checkpoints = Path(sys.argv[1]) / "checkpoints"
    tracker = checkpoints / "latest_checkpointed_iteration.txt"
    return checkpoints, int(tracker.read_text()) if tracker.exists() else 0, 10_000


def main():  # type: ignore[no-untyped-def]
    wanted = json.loads(os.environ["RECOVERY"])
    folder, rank = Path(wanted["folder"]), int(os.environ["SLURM_PROCID"])
    last = rank == int(os.environ["SLURM_NTASKS"]) - 1
    began = started()
    checkpoints, step, of = where()
    deaths = [death for death in wanted["deaths"] if not (folder / f"death-{death}").exists()]
    while step < of:
        step += 1
        time.sleep(PACE)
        if step in deaths and rank == 1:
            if wanted.get("says"):
                print(wanted["says"], flush=True)
            (folder / f"death-{step}").write_text(repr(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        if step in deaths:
            signal.pause()  # in the collective that will not come
        if last:
            with (folder / "steps").open("a") as stream:
                stream.write(f"{time.time()!r} {step} {began!r}\n")
            print(LINE.format(now=time.strftime("%Y-%m-%d %H:%M:%S.000000"), step=step, of=of), flush=True)
        if step % SAVE_EVERY == 0 and rank == 0:
            save(checkpoints, step)


if __name__ == "__main__":
    main()
