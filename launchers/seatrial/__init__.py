"""Seatrial: hardware gates and self-healing convergence runs for LLM pretraining."""

__version__ = "0.1.0"
