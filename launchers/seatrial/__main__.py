"""`python -m seatrial`."""

from seatrial.cli.main import main

main()
