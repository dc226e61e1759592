"""One rank of an attempt: ``python .../seatrial/train/rank.py PLAN_JSON``, run by path on a compute node.

The top of this file imports nothing heavy, and nothing runs outside ``main``: saving a checkpoint spawns a helper
process that imports this file again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

PACKAGE_ROOT = Path(__file__).resolve().parents[2]


def set_import_path() -> None:
    """Import ``seatrial`` from the tree that this file lies in, and nothing from this file's own folder."""
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [entry for entry in sys.path if str(Path(entry or ".").resolve()) != here]
    if str(PACKAGE_ROOT) not in sys.path:
        sys.path.insert(0, str(PACKAGE_ROOT))


def end_with_parent(poll_seconds: float = 1.0) -> None:
    """End this process once its parent is gone: a helper of a rank that was killed outright would hold on for ever."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(poll_seconds)
        os._exit(1)

    threading.Thread(target=watch, name="seatrial-parent", daemon=True).start()


def main(arguments: list[str]) -> int:
    """Run the rank to its end; returns the exit code."""
    set_import_path()
    import atexit

    from seatrial.errors import SeatrialError
    from seatrial.train import exits, plan, stopping

    if len(arguments) != 1:
        print("usage: rank.py PLAN_JSON", file=sys.stderr)
        return 2
    try:
        the_plan = plan.read_plan(Path(arguments[0]))
        for name, value in the_plan.environment.items():
            os.environ.setdefault(name, value)
        plan.set_place(os.environ)
        digits = os.environ.get("RANK", "")
        local = os.environ.get("LOCAL_RANK", "")
        rank = int(digits) if digits.isdecimal() else 0
        local_rank = int(local) if local.isdecimal() else 0
    except SeatrialError as error:
        print(f"seatrial: {error}", file=sys.stderr, flush=True)
        return error.exit_code

    exits.own_temporary_folder(the_plan.run_id, rank)
    record = exits.ExitRecord(the_plan.attempt_folder, rank, local_rank)
    atexit.register(record.leftover)
    try:
        place = plan.find_place(os.environ, the_plan)
        exit_signal = signal.Signals[the_plan.exit_signal]
        stopping.dump_stacks()
        held = stopping.HeldSignal(exit_signal, record.signals)
        stopping.map_sigterm(exit_signal, record.signals)
        stopping.shield_forked_helpers(exit_signal)
        if place.rank == 0:
            stopping.watch_stop_file(the_plan.stop_file, exit_signal)
        from seatrial.train import engine

        engine.run(the_plan, place, on_listening=held.release)
    except SeatrialError as error:
        code = record.ended(type(error), error, error.__traceback__)
        print(f"seatrial: {error}", file=sys.stderr, flush=True)
        return code
    except SystemExit as error:
        return record.ended(type(error), error, error.__traceback__)
    except BaseException as error:
        import traceback

        traceback.print_exc()
        return record.ended(type(error), error, error.__traceback__)
    record.completed()
    return 0


if __name__ == "__mp_main__":
    # A helper that multiprocessing spawned, for the results of a save: it must outlive the signals that ask for one.
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()

if __name__ == "__main__":
    code = main(sys.argv[1:])
    from seatrial.train.exits import leave

    leave(code)
