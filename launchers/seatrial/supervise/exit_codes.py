"""Exit codes of the supervisor, which are the job's. Otherwise it is the code of the first rank that failed."""

from __future__ import annotations

DONE = 0
NOT_DONE = 80  # all ranks ended with 0, but the run is not proven complete
VERDICT_FAIL = 81  # complete, but the gate's verdict is FAIL
VERDICT_INCONCLUSIVE = 82  # complete, but evidence is missing
STOPPED = 83  # asked to stop, and stopped before the target
SUPERVISOR_ERROR = 84  # the supervisor itself broke; its record says how
