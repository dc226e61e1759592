"""The allocation, as the batch host knows it: its nodes in rank order, and where rank 0 listens."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from seatrial.errors import SeatrialError
from seatrial.supervise.ask import ask, run
from seatrial.supervise.job_watch import look
from seatrial.supervise.ranks import free_port
from seatrial.supervise.step import Allocation, beside_words, srun_environment

_PATIENCE_SECONDS = 1800.0  # for a controller that is away: the nodes are ours meanwhile
_AGAIN_SECONDS = 3.0
_NODE_STATE = re.compile(r"^NodeName=(\S+)\s(?:.*?\s)?State=([A-Z_+]+)", re.MULTILINE)
_DOWN = ("DOWN", "ERROR", "UNKNOWN", "FUTURE")  # what it is
_FAILS = {"FAIL", "FAILING"}  # may stand behind that: IDLE+FAIL, as seen on 24.11
_FREE_PORT = "import socket; s = socket.socket(); s.bind(('', 0)); print(s.getsockname()[1])"


def allocation(
    spec: Mapping[str, Any], environment: Mapping[str, str], chosen: Optional[Sequence[str]] = None
) -> Allocation:
    """Return the nodes for the ranks: ``chosen``, else the first of the job's that the profile asks for.

    Raises SeatrialError outside a job, or where there are too few nodes.
    """
    job = environment.get("SLURM_JOB_ID")
    if not job:
        raise SeatrialError("this is no Slurm job: SLURM_JOB_ID is unset", fix="submit it with seatrial")
    wanted = int(spec["profile"]["nodes"])
    nodes = job_nodes(environment) if chosen is None else list(chosen)
    if len(nodes) < wanted:
        raise SeatrialError(f"the job has {len(nodes)} nodes, the run needs {wanted}", value=" ".join(nodes))
    nodes = nodes[:wanted]
    return Allocation(
        job,
        int(environment.get("SLURM_RESTART_COUNT") or 0),
        nodes,
        _address(nodes[0], environment),
        _port(nodes[0], environment, str(spec["profile"].get("host_python") or "python3")),
    )


def job_nodes(environment: Mapping[str, str]) -> list[str]:
    """Return all nodes of this job. Asks no daemon. Raises SeatrialError where the list cannot be read."""
    return _names(environment.get("SLURM_JOB_NODELIST", ""), environment)


def nodes_now(environment: Mapping[str, str]) -> list[str]:
    """Return the nodes that this job still has: with --no-kill it loses those that die. Without Slurm's answer those
    that it began with. Raises SeatrialError as ``job_nodes`` does."""
    facts = look(environment.get("SLURM_JOB_ID", ""), environment)
    if facts is None or not facts.nodes:
        return job_nodes(environment)
    return _names(facts.nodes, environment)


def down(nodes: Sequence[str], environment: Mapping[str, str], *, failing: bool = False) -> frozenset[str]:
    """Return which of ``nodes`` Slurm calls down. Without its answer none: that says nothing of a node.

    ``failing``: also those that somebody marked as about to fail; what runs there goes on until then.
    """
    if not nodes:
        return frozenset()  # asked for no node, scontrol tells of all that the cluster has
    said = ask(["scontrol", "--oneliner", "show", "node", ",".join(nodes)], environment) or ""
    return parse_down(said, failing=failing)


def parse_down(said: str, *, failing: bool = False) -> frozenset[str]:
    """Return the nodes that ``scontrol show node`` calls down, or (``failing``) about to fail. Pure."""
    states = {name: state.split("+") for name, state in _NODE_STATE.findall(said)}
    return frozenset(name for name, words in states.items() if words[0] in _DOWN or (failing and _FAILS & {*words}))


def _names(listed: str, environment: Mapping[str, str]) -> list[str]:
    return _run(["scontrol", "show", "hostnames", listed], environment).split()


def _address(node: str, environment: Mapping[str, str]) -> str:
    """Return the address under which Slurm reaches the node; names need not resolve to the same one everywhere."""
    match = re.search(r"NodeAddr=(\S+)", _run(["scontrol", "show", "node", node], environment))
    return match[1] if match else node


def _port(node: str, environment: Mapping[str, str], python: str) -> int:
    """Return a TCP port that is free on the node: asked here where this is the node, else by a step of one task."""
    if node in (environment.get("SLURMD_NODENAME"), socket.gethostname().partition(".")[0]):
        return free_port()
    words = [*beside_words("free-port", [node]), python, "-c", _FREE_PORT]
    return int(_run(words, srun_environment(environment)).split()[-1])


def _run(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return a command's output; one that fails is tried again for a while. Raises SeatrialError after that."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        answer = run(words, environment)
        if answer.output is not None:
            return answer.output
        if time.monotonic() > deadline:
            how = "said" if answer.answered else "did not answer"
            raise SeatrialError(f"{words[0]} {how}: {answer.problem}", value=" ".join(words))
        time.sleep(_AGAIN_SECONDS)
