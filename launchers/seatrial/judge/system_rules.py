"""The gate's rules on what surrounds training: checkpoints, exits, world size, device, dispatcher, CUDA graphs."""

from __future__ import annotations

from typing import Optional

from seatrial.judge.evidence import RUN, Expectations, GateEvidence, asks_for_hybridep, graphs_asked_off
from seatrial.judge.records import Evidence
from seatrial.judge.verdict import FAIL, INCONCLUSIVE, NOT_JUDGED, PASS, RuleResult

CHECKPOINTS = "checkpoints"
EXITS = "exit records"
WORLD_SIZE = "world size"
DEVICE = "device"
HYBRIDEP = "HybridEP dispatch"
CUDA_GRAPHS = "CUDA graphs"


def checkpoints(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """A whole checkpoint lies on disk for each save step; of a log, the loop says that it saved."""
    wanted = f"whole at {' and '.join(str(step) for step in expected.save_steps)}"
    if evidence.scope != RUN:
        return _checkpoints_by_log(evidence, expected, wanted)
    parts, broken = [], []
    for step in expected.save_steps:
        found = evidence.checkpoints.get(step)
        good = found is not None and found.whole and found.step == step
        why = "not on disk" if found is None else found.reason if not found.whole else f"holds step {found.step}"
        parts.append(f"{step}: whole" if good else f"{step}: {why}")
        broken += [] if good else [step]
    verdict = FAIL if broken else PASS
    return evidence.result(CHECKPOINTS, verdict, wanted, "; ".join(parts), "checkpoints", broken)


def _checkpoints_by_log(evidence: GateEvidence, expected: Expectations, wanted: str) -> RuleResult:
    finished = {save.iteration for save in evidence.saves if save.phase == "finished"}
    lacking = [step for step in expected.save_steps if step not in finished]
    if not evidence.saves:
        return evidence.result(CHECKPOINTS, INCONCLUSIVE, wanted, "the log tells of no save", "log", lacking)
    seen = f"finished at {', '.join(map(str, sorted(finished))) or 'none'}, as the log says; not verified on disk"
    return evidence.result(CHECKPOINTS, FAIL if lacking else PASS, wanted, seen, "log", lacking)


def exits(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """Every rank of the last attempt left an exit record, and each says 0."""
    ranks = expected.world_size
    wanted = f"a record of each of {'the' if ranks is None else ranks} ranks, all code 0"
    if evidence.scope != RUN:
        return evidence.result(EXITS, NOT_JUDGED, wanted, "a log holds no exit records", "log")
    left = evidence.exits or ()
    failed = [rank for rank in left if rank.code is not None and rank.code != 0]
    unread = [rank.rank for rank in left if rank.code is None]
    missing = sorted(set(range(ranks or 0)) - {rank.rank for rank in left})
    parts = [f"{sum(rank.code == 0 for rank in left)} with code 0"]
    parts += [f"rank {r.rank}: code {r.code}" + (f", {r.message[:120]}" if r.message else "") for r in failed[:4]]
    parts += [f"{len(failed) - 4} more not 0"] if len(failed) > 4 else []
    parts += [f"no record of rank {', '.join(map(str, missing[:8]))} ({len(missing)} missing)"] if missing else []
    parts += [f"unreadable: rank {', '.join(map(str, unread[:8]))}"] if unread else []
    verdict = FAIL if failed else INCONCLUSIVE if missing or unread or not left or ranks is None else PASS
    return evidence.result(EXITS, verdict, wanted, "; ".join(parts), "exits")


def world_size(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """All that tells of the world size, from inside the processes, tells the expected one."""
    seen = {f"evidence line ({line.when})": line.world_size for line in evidence.evidence_lines}
    if evidence.arguments is not None:
        seen["arguments"] = _whole(evidence.arguments.values.get("world_size"))
    told = {where: size for where, size in seen.items() if size is not None}
    wanted = "one and the same everywhere" if expected.world_size is None else str(expected.world_size)
    text = "; ".join(f"{size} ({where})" for where, size in told.items()) or "nothing tells it"
    sizes = set(told.values())
    if sizes - {expected.world_size or max(sizes, default=0)}:
        verdict = FAIL
    elif expected.world_size is None:
        verdict, text = NOT_JUDGED, f"{text}; nobody said what to expect"
    else:
        verdict = PASS if sizes else INCONCLUSIVE
    return evidence.result(WORLD_SIZE, verdict, wanted, text, "log")


def device(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """The ranks ran on the kind of device that the profile names: a CPU rehearsal is no hardware gate."""
    told = sorted({line.device for line in evidence.evidence_lines if line.device is not None})
    seen = ", ".join(told) or "no evidence line tells it"
    if expected.device is None:
        return evidence.result(DEVICE, NOT_JUDGED, "not stated", seen, "log")
    verdict = INCONCLUSIVE if not told else PASS if told == [expected.device] else FAIL
    return evidence.result(DEVICE, verdict, expected.device, seen, "log")


def hybridep(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """HybridEP really dispatched, by the evidence line; asking for it in the arguments proves nothing."""
    wanted = "HybridEP dispatches tokens"
    asked = expected.hybridep
    if asked is None:
        if evidence.arguments is None:
            return evidence.result(HYBRIDEP, NOT_JUDGED, wanted, "no arguments tell whether it was asked for", "log")
        asked = asks_for_hybridep(evidence.arguments.values) if evidence.arguments.complete else None
        if asked is None:
            return evidence.result(HYBRIDEP, INCONCLUSIVE, wanted, "the argument dump is torn", "log")
    if not asked:
        return evidence.result(
            HYBRIDEP,
            NOT_JUDGED,
            wanted,
            "not asked for (dense model, or another dispatcher)",
            "log",
        )
    if not evidence.evidence_lines:
        return evidence.result(HYBRIDEP, INCONCLUSIVE, wanted, "configured only: no evidence line", "log")
    judged = [_dispatch(line) for line in evidence.evidence_lines]
    verdict = FAIL if FAIL in (v for v, _ in judged) else judged[-1][0]
    verdict = INCONCLUSIVE if verdict == PASS and any(v != PASS for v, _ in judged) else verdict
    text = next((why for v, why in judged if v == verdict), judged[-1][1])
    return evidence.result(HYBRIDEP, verdict, wanted, text if verdict != PASS else judged[-1][1], "log")


def _dispatch(line: Evidence) -> tuple[str, str]:
    """Judge one evidence line: the verdict and the words for it."""
    if line.dispatcher_backend != "hybridep":
        return FAIL, f"dispatcher {line.dispatcher}, backend {line.dispatcher_backend}"
    if line.dispatch_calls is None:
        return INCONCLUSIVE, "the evidence line counts no dispatch calls"
    if line.dispatch_calls <= 0:
        return FAIL, f"{line.dispatch_calls} dispatch calls at step {line.iteration}"
    stand_in = None if line.deep_ep is None else line.deep_ep.get("stand_in")
    if stand_in is None:
        return INCONCLUSIVE, "the evidence line does not say which deep_ep ran"
    if stand_in and line.device != "cpu":
        return FAIL, f"the CPU stand-in for deep_ep ran on {line.device}"
    version = f"deep_ep {(line.deep_ep or {}).get('version')}{', stand-in' if stand_in else ''}"
    return PASS, f"{line.dispatcher}: {line.dispatch_calls} calls by step {line.iteration}, {version}"


def cuda_graphs(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """No CUDA graph was captured, by the evidence line at the end (graphs are captured some steps in)."""
    wanted = "none captured"
    counts = [line.cuda_graphs_captured for line in evidence.evidence_lines]
    captured = max((count for count in counts if count is not None), default=0)
    if captured > 0:
        return evidence.result(CUDA_GRAPHS, FAIL, wanted, f"{captured} captured", "log")
    ends = [line for line in evidence.evidence_lines if line.when == "end" and line.cuda_graphs_captured is not None]
    if ends:
        verdict = PASS if None not in counts else INCONCLUSIVE
        return evidence.result(CUDA_GRAPHS, verdict, wanted, f"0 captured by step {ends[-1].iteration}", "log")
    if evidence.evidence_lines:
        return evidence.result(CUDA_GRAPHS, INCONCLUSIVE, wanted, "no evidence line from the end", "log")
    off = expected.graphs_off
    if off is None and evidence.arguments is not None and evidence.arguments.complete:
        off = graphs_asked_off(evidence.arguments.values)
    dumped = evidence.arguments is not None
    verdict = INCONCLUSIVE if evidence.scope == RUN or (dumped and off is not True) else NOT_JUDGED
    seen = "no evidence line" + ("; the arguments leave them off" if off else "")
    return evidence.result(CUDA_GRAPHS, verdict, wanted, seen, "log")


def _whole(text: Optional[str]) -> Optional[int]:
    return int(text) if text is not None and text.isdecimal() and len(text) < 12 else None
