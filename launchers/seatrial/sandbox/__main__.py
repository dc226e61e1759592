"""``python -m seatrial.sandbox up|down|status``: a real Slurm on this machine, for trying Seatrial."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from seatrial.errors import SeatrialError
from seatrial.sandbox import cluster as clusters
from seatrial.sandbox import config as settings
from seatrial.sandbox.config import SandboxConfig, default_folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code (0 done, 1 not running, 2 a mistake of the user's)."""
    options = parser().parse_args(arguments)
    try:
        return int(options.act(options))
    except SeatrialError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the three commands."""
    top = argparse.ArgumentParser(
        prog="seatrial sandbox", description="A real Slurm on this machine, to try things on."
    )
    commands = top.add_subparsers(required=True, metavar="up|down|status")
    start = commands.add_parser("up", help="start the cluster, or what is missing of it")
    default = SandboxConfig(folder=Path("/"))
    start.add_argument("--version", choices=get_args(settings.Version), default=default.version)
    start.add_argument("--nodes", type=int, default=default.nodes)
    start.add_argument("--gpus-per-node", type=int, default=default.gpus_per_node)
    start.add_argument("--topology", choices=get_args(settings.Topology), help="default: block, where Slurm has it")
    start.add_argument("--no-accounting", dest="accounting", action="store_false", help="no slurmdbd, so no sacct")
    start.add_argument("--preempt-mode", choices=get_args(settings.PreemptMode), default=default.preempt_mode)
    start.add_argument("--send-user-signal", action="store_true", help="preemption sends a job's --signal first")
    start.add_argument(
        "--grace-seconds", type=int, default=default.grace_seconds, help="between preemption and its end"
    )
    start.add_argument("--requeue-delay-seconds", type=int, default=default.requeue_delay_seconds, help="Slurm's: 120")
    start.add_argument("--kill-wait-seconds", type=int, default=default.kill_wait_seconds, help="Slurm's: 30")
    start.add_argument(
        "--slurmd-timeout-seconds", type=int, default=default.slurmd_timeout_seconds, help="Slurm's: 300"
    )
    start.add_argument("--no-pyxis", dest="pyxis", action="store_false", help="no --container options")
    start.add_argument("--base-port", type=int, default=default.base_port)
    start.set_defaults(act=_up)
    end = commands.add_parser("down", help="end its jobs and daemons")
    end.add_argument("--wipe", action="store_true", help="remove its folder too: records, logs, accounting")
    end.set_defaults(act=_down)
    status = commands.add_parser("status", help="say what runs")
    status.set_defaults(act=_status)
    for command in (start, end, status):
        command.add_argument("--folder", type=Path, default=default_folder(), help="default: %(default)s")
    return top


def _up(options: argparse.Namespace) -> int:
    chosen = {key: value for key, value in vars(options).items() if key != "act"}
    if chosen["topology"] is None:
        blocks = options.version != "22.05" and options.nodes % settings.BLOCK == 0
        chosen["topology"] = "block" if blocks else "none"
    cluster = clusters.up(SandboxConfig(**chosen), say=lambda text: print(text, file=sys.stderr))
    print(how_to_use(cluster))
    return 0


def _down(options: argparse.Namespace) -> int:
    clusters.attach(options.folder).down(wipe=options.wipe)
    return 0


def _status(options: argparse.Namespace) -> int:
    cluster = clusters.attach(options.folder)
    status = cluster.status()
    if not status.running:
        print("the sandbox does not run")
        return 1
    config = cluster.config
    states = ", ".join(f"{count} {state}" for state, count in sorted(Counter(status.nodes.values()).items()))
    print(f"Slurm {config.version}, {config.nodes} nodes with {config.gpus_per_node} GPUs each: {states or 'unknown'}")
    if status.missing:
        print(f"not running: {', '.join(status.missing)}")
    print(how_to_use(cluster))
    return 1 if status.missing else 0


def how_to_use(cluster: clusters.Cluster) -> str:
    """Return the lines that a shell needs for Slurm's commands to reach the cluster."""
    commands = shlex.quote(str(cluster.software.clients))
    return f"export PATH={commands}:$PATH\nexport SLURM_CONF={shlex.quote(str(cluster.at.slurm_conf))}"


if __name__ == "__main__":
    sys.exit(main())
