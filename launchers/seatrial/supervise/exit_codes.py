"""The supervisor's exit codes, which are the job's: 0 only when done, and for a gate only with verdict PASS.

Otherwise it is the code of the rank that failed first: as it is for an exit, 128 + n for signal n (as a shell says it).
The codes below are ours. They keep clear of Python's 1 and 2, Megatron's 16 and 17, and the shell's 126 and up.
"""

from __future__ import annotations

DONE = 0
MISTAKE = 2
NOT_DONE = 80
VERDICT_FAIL = 81
VERDICT_INCONCLUSIVE = 82
STOPPED = 83
SUPERVISOR_ERROR = 84
HUNG_AT_END = 85
BUSY = 86
RESUME_MISMATCH = 87
ENDED_AT_ONCE = 88
DEPENDENCY_FAILED = 89
NOT_RETURNED = 90
HUNG = 91
UNFIT_NODES = 92

MEANINGS = {
    DONE: "done: the target step is proven, and a gate's verdict is PASS",
    MISTAKE: "the run folder cannot be used; the message says what to mend",
    NOT_DONE: "all ranks ended with 0, but the run is not proven complete",
    VERDICT_FAIL: "complete, but the gate's verdict is FAIL",
    VERDICT_INCONCLUSIVE: "complete, but evidence is missing: the gate's verdict is INCONCLUSIVE",
    STOPPED: "asked to stop, and stopped before the target",
    SUPERVISOR_ERROR: "the supervisor itself broke; its record and the event say how",
    HUNG_AT_END: "some ranks ended with 0 and the others did not end",
    BUSY: "another supervisor is at work in this run folder",
    RESUME_MISMATCH: "the first step was not the one after the checkpoint",
    ENDED_AT_ONCE: "told a second time to end: the ranks were killed",
    DEPENDENCY_FAILED: "the gate that it waited for did not pass",
    NOT_RETURNED: "the run goes on, but Slurm did not take the job back into the queue",
    UNFIT_NODES: "too few nodes passed their preflight: no attempt was started",
    HUNG: "no step, save or evaluation came within its time: the run hung, and its ranks were ended",
}


def of_wait_status(status: int) -> int:
    """Return the exit code for a return code as ``subprocess`` gives it (negative: ended by that signal)."""
    return 128 - status if status < 0 else status
