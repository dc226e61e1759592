"""``python -m seatrial.supervise RUN_FOLDER``."""

import argparse
import sys

from seatrial.supervise.main import supervise

parser = argparse.ArgumentParser(prog="seatrial.supervise", description="Carry a run to its end. This is the job.")
parser.add_argument("run_folder", help="the folder that holds spec.json")
sys.exit(supervise(parser.parse_args().run_folder))
