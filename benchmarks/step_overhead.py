"""How much Seatrial adds to a training step: its forward step and counters against the bare calls, in one process.

    .venv/bin/python benchmarks/step_overhead.py [--steps 300]

Two CPU ranks train the Nano rehearsal in Megatron's own loop. Odd steps run Seatrial's forward step with its counted
dispatcher, even steps the same model calls written out bare, without checks and counters; so both see the same
machine. Then both are called with a model that does nothing, which leaves only what they cost themselves.
Prints milliseconds a step; exits with 1 if Seatrial adds more than 1 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIMIT_MS = 1.0
WARM_UP = 20
MICRO_BATCHES = 2  # a rank's, of global batch 8 at micro batch 2


def bare_step(data_iterator: Any, model: Any) -> Any:
    """The least that Megatron's loop needs."""
    import torch

    batch = {key: value.cuda() if torch.is_tensor(value) else value for key, value in next(data_iterator).items()}
    output = model(
        batch["tokens"], batch["position_ids"], batch.get("attention_mask"),
        labels=batch["labels"], loss_mask=batch["loss_mask"],
    )  # fmt: skip
    return output, partial(bare_loss, batch["loss_mask"])


def bare_loss(loss_mask: Any, output: Any) -> Any:
    import torch

    mask = loss_mask.view(-1).float()
    total = torch.sum(output.view(-1).float() * mask)
    tokens = mask.sum().detach().to(torch.int)
    return total, tokens, {"lm loss": torch.cat([total.detach().view(1), tokens.view(1)])}


def rank(plan: Path) -> None:
    """Train, switching between the two at every step; rank 0 prints the figures."""
    from seatrial.train import cpu, engine, evidence, exits, forward
    from seatrial.train.plan import find_place, read_plan

    cpu.set_environment(os.environ)
    ours, starts = forward.ForwardStep.__call__, []
    plain: dict[str, Any] = {}
    count = evidence.Evidence._count

    def remembering(self: Any, owner: Any, method: str, counter: str) -> None:
        plain[method] = (owner, getattr(owner, method))
        count(self, owner, method, counter)
        plain[method] += (getattr(owner, method),)

    def switching(self: Any, data_iterator: Any, model: Any) -> Any:
        step = self.args.curr_iteration
        bare = model.training and step % 2 == 0
        if model.training and (not starts or starts[-1][0] != step):
            starts.append((step, time.perf_counter()))
            owner, without, counted = plain["dispatch_with_permute"]
            owner.dispatch_with_permute = without if bare else counted
        return bare_step(data_iterator, model) if bare else ours(self, data_iterator, model)

    evidence.Evidence._count = remembering  # type: ignore[method-assign]
    forward.ForwardStep.__call__ = switching  # type: ignore[method-assign]
    exits.take_down = lambda: None  # the ranks go on after the loop, to time the calls alone
    place = find_place(os.environ, read_plan(plan))
    engine.run(read_plan(plan), place)
    if place.rank == 0:
        print("FIGURES " + json.dumps({"loop": in_loop(starts), "alone": alone(ours)}))


def in_loop(starts: list[tuple[int, float]]) -> dict[str, float]:
    """Compare each of our steps with the mean of the bare steps on either side."""
    times = [(step, (after - before) * 1e3) for (step, before), (_, after) in zip(starts, starts[1:], strict=False)]
    times = times[WARM_UP:]
    added = [
        middle - (left + right) / 2
        for (_, left), (step, middle), (_, right) in zip(times, times[1:], times[2:], strict=False)
        if step % 2
    ]
    error = 1.2533 * statistics.stdev(added) / len(added) ** 0.5  # of a median, for a normal distribution
    bare = statistics.median(value for step, value in times if step % 2 == 0)
    return {"bare_ms": bare, "added_ms": statistics.median(added), "error_ms": error, "steps": len(added)}


def alone(ours: Any, calls: int = 2000) -> dict[str, float]:
    """Time both with a model and a loader that cost nothing, turn about."""
    import torch
    from megatron.training import get_args

    from seatrial.train.forward import ForwardStep

    args = get_args()
    shape = (args.micro_batch_size, args.seq_length)
    sample = {name: torch.ones(shape) for name in ("tokens", "position_ids", "labels", "loss_mask")}
    losses = torch.rand(shape)
    step = ForwardStep(args)
    step.counting = False
    model, loader = (lambda *_, **__: losses), iter(lambda: sample, None)
    # Outside of a step the rerun state machine takes no results; its two checks are added as what they compute.
    step._validate = lambda total, reject, message, fatal: bool(reject(total))  # type: ignore[method-assign]
    spent: dict[str, list[float]] = {"ours": [], "bare": []}
    for _ in range(calls):
        for name, call in (("ours", partial(ours, step)), ("bare", bare_step)):
            begin = time.perf_counter()
            output, loss = call(loader, model)
            loss(output)
            spent[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(values) * 1e3 * MICRO_BATCHES for name, values in spent.items()}
    return {"bare_ms": medians["bare"], "added_ms": medians["ours"] - medians["bare"]}


def arguments(text: str, steps: int) -> list[str]:
    """The Nano rehearsal's arguments for ``steps`` steps at global batch 8, no checkpoints."""
    command = [sys.executable, "-m", "seatrial.cli.main", "render", "nemotron_3_nano_gb200", "--kind", "gate"]
    command += ["--profile", "local-cpu", "--format", "args"]
    for setting in (f"train_iters={steps}", "global_batch_size=8"):
        command += ["--set", f"schedule.{setting}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    words = shlex.split(done.stdout)
    place = words.index("--data-path")
    return [*words[:place], "--data-path", text, *words[place + 2 :]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank(options.rank)
        return 0
    os.environ["PYTHONPATH"] = str(ROOT / "launchers")
    from seatrial.data.text import ensure_text

    with tempfile.TemporaryDirectory() as name, socket.socket() as listener:
        folder = Path(name)
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
        listener.close()
        plan = {
            "schema": 1, "run_id": "benchmark", "attempt": 0, "world_size": 2, "device": "cpu", "rehearsal": True,
            "arguments": arguments(ensure_text(folder), options.steps), "attempt_folder": name,
            "stop_file": f"{name}/stop", "exit_signal": "SIGUSR2", "schedule_iters": 48000, "environment": {},
        }  # fmt: skip
        (folder / "plan.json").write_text(json.dumps(plan))
        ranks = []
        for number in ("0", "1"):
            place = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": "2"}
            place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "CUDA_VISIBLE_DEVICES": ""}
            command = [sys.executable, __file__, "--rank", str(folder / "plan.json")]
            with (folder / f"rank-{number}.log").open("w") as log:
                ranks.append(subprocess.Popen(command, env=os.environ | place, stdout=log, stderr=subprocess.STDOUT))
        for process in ranks:
            process.wait(timeout=600)
        output = (folder / "rank-0.log").read_text()
    found = [line for line in output.splitlines() if line.startswith("FIGURES ")]
    if not found:
        print(output[-3000:])
        return 1
    figures = json.loads(found[0].removeprefix("FIGURES "))
    loop, own = figures["loop"], figures["alone"]
    print(
        f"in the loop: a bare step takes {loop['bare_ms']:.1f} ms; Seatrial adds {loop['added_ms']:+.3f} ms "
        f"+- {loop['error_ms']:.3f} (median of {loop['steps']} steps)"
    )
    print(
        f"by itself:   {MICRO_BATCHES} bare forward steps take {own['bare_ms']:.3f} ms; "
        f"Seatrial adds {own['added_ms']:+.3f} ms, NaN and Inf checks included"
    )
    too_much = own["added_ms"] > LIMIT_MS or loop["added_ms"] - 2 * loop["error_ms"] > LIMIT_MS
    print(f"limit {LIMIT_MS} ms a step: {'FAIL' if too_much else 'PASS'}")
    return int(too_much)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "launchers"))
    sys.exit(main())
