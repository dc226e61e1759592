"""``python -m seatrial.supervise RUN_FOLDER``, or by path: ``python .../seatrial/supervise RUN_FOLDER``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    """Carry the run to its end; return the job's exit code."""
    here = Path(__file__).resolve().parent
    if not __package__:
        # Started by path: Python put this folder on the path, where our module names would hide others.
        sys.path[:] = [str(here.parents[1]), *(p for p in sys.path if Path(p or ".").resolve() != here)]
    from seatrial.supervise import exit_codes
    from seatrial.supervise.main import supervise

    table = "\n".join(f"  {code:3}  {meaning}" for code, meaning in exit_codes.MEANINGS.items())
    parser = argparse.ArgumentParser(
        prog="seatrial.supervise",
        description="Carry a run to its end. This process is the job.",
        epilog=f"exit codes (any other is that of the first rank that failed):\n{table}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_folder", help="the folder that holds spec.json")
    return supervise(parser.parse_args().run_folder)


if __name__ == "__main__":
    sys.exit(main())
