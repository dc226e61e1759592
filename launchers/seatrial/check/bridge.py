"""What is worth knowing before Megatron-Bridge's loop runs in the ranks: its names are its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from seatrial.check.blame import Finding
from seatrial.spec.runspec import RunSpec

# Names of this form stand for a benchmark as well in Megatron-Bridge 0.6: made-up tokens and forced balance.
_ALSO_A_BENCHMARK = re.compile(r".*_pretrain_\d+gpu_[a-z0-9]+_(bf16|fp8\w*|nvfp4)_config")


def check_bridge(spec: RunSpec) -> Iterator[Finding]:
    """A name that means two recipes."""
    if spec.bridge is None:
        return
    name = str(spec.bridge["recipe"])
    if _ALSO_A_BENCHMARK.fullmatch(name):
        yield Finding(
            "warning", "bridge.recipe", name,
            "Megatron-Bridge 0.6 exports a benchmark under this name, too, which its launcher takes; the ranks "
            "take what megatron.bridge.recipes exports, and refuse forced balance",
            spec.recipe_file, "name its alias, ending in _pretrain_config",
        )  # fmt: skip
