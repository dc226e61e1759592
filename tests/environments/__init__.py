"""Environments beside `.venv`, for releases that cannot be installed together with it."""
