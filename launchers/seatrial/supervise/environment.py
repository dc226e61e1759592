"""The environment of one rank: what it inherits, less what would mislead it, and its own place in the world. Pure."""

from __future__ import annotations

from collections.abc import Mapping

# Left over from whatever started the supervisor: a stale RANK or SLURM_PROCID makes Megatron join another world.
_STALE = frozenset({
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "ROLE_NAME", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
})  # fmt: skip
_STALE_PREFIXES = ("SLURM_", "SUBMITIT_", "TORCHELASTIC_", "PMI_", "PMIX_", "OMPI_", "MPI_", "HYDRA_")


def local_rank_environment(
    inherited: Mapping[str, str], settings: Mapping[str, str], *, rank: int, world_size: int, port: int
) -> dict[str, str]:
    """Return the environment of local rank ``rank`` of ``world_size``, all on this host.

    ``settings`` (the spec's environment) win over what is inherited, and the rank's place wins over both.
    """
    kept = {
        name: value for name, value in inherited.items() if name not in _STALE and not name.startswith(_STALE_PREFIXES)
    }
    return {
        **kept,
        # A step must be in the log when it is done, not when a buffer is full.
        "PYTHONUNBUFFERED": "1",
        **settings,
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
