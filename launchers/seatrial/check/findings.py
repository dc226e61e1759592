"""All checks that need no Megatron, no Slurm and no GPU, in the order in which their findings are shown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from seatrial.check.blame import Finding, Severity
from seatrial.check.bridge import check_bridge
from seatrial.check.data import check_data, check_source
from seatrial.check.hybridep import (
    check_dispatcher,
    check_hybridep_environment,
    check_hybridep_numbers,
    check_hybridep_sizes,
)
from seatrial.check.layout import check_sizes
from seatrial.check.memory import check_memory
from seatrial.check.model import (
    check_eager,
    check_heads,
    check_interleaving,
    check_layers,
    check_learned_routing,
    check_router,
    check_sequence,
)
from seatrial.check.schedule import (
    check_batch,
    check_by_iterations,
    check_evaluations,
    check_learning_rate,
    check_saves,
    note_tokens,
)
from seatrial.check.site import check_notify, check_site_values, check_wandb, note_rehearsal
from seatrial.check.storage import check_storage
from seatrial.check.topology import check_expert_groups, check_nvlink_domain, check_segment, check_world
from seatrial.check.vocabulary import check_vocabulary
from seatrial.spec.runspec import RunSpec

Check = Callable[[RunSpec], Iterable[Finding]]

CHECKS: tuple[Check, ...] = (
    check_site_values, check_notify, check_wandb, check_world, check_batch, check_expert_groups,
    check_nvlink_domain, check_segment,
    check_dispatcher, check_hybridep_sizes, check_hybridep_environment, check_hybridep_numbers,
    check_eager, check_learned_routing, check_router, check_sequence, check_heads, check_layers, check_interleaving,
    check_bridge, check_by_iterations, check_learning_rate, check_saves, check_evaluations,
    check_source, check_data, check_vocabulary, check_memory, check_storage, note_tokens, note_rehearsal,
)  # fmt: skip


def run_checks(spec: RunSpec, without: Collection[Check] = ()) -> list[Finding]:
    """Return all findings on ``spec``, none of them fatal by itself: an error in the list keeps the run back.

    Reads the index files of the data and how much disk is free, and nothing else. Where a size is no size, only that
    is reported. ``without``: checks that are left out, where what they look at is not here.
    """
    broken = list(check_sizes(spec))
    return broken or [finding for check in CHECKS if check not in without for finding in check(spec)]


__all__ = ["CHECKS", "Check", "Finding", "Severity", "run_checks"]
