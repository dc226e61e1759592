"""Rehearsal without a GPU: everything that lets Megatron's own training loop run on CPU ranks over gloo.

Importing this package changes nothing. :func:`install` does, once, in a process that sees no GPU, and it is the
only place of Seatrial that rebinds names of torch or Megatron.
"""

from __future__ import annotations

from collections.abc import MutableMapping

_installed = False


def set_environment(environment: MutableMapping[str, str]) -> None:
    """Set what has to stand before torch is imported.

    Without ``TORCHDYNAMO_DISABLE`` the router and the dispatcher are compiled for some 20 s at the first step;
    more than one OpenMP thread per rank makes ranks on a small machine wait for each other.
    """
    environment.setdefault("TORCHDYNAMO_DISABLE", "1")
    environment.setdefault("OMP_NUM_THREADS", "1")


def install() -> None:
    """Install the device shim, the stand-in packages and the optimizer. Before ``megatron`` is imported.

    The order counts: Megatron binds many of these names when it is imported.
    """
    global _installed
    if _installed:
        return
    from . import device, packages

    device.refuse_gpu()
    packages.install()
    device.install()
    from . import adam, specs

    adam.install()
    specs.install()
    _installed = True
