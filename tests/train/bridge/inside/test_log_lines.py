"""The log that the parser's test reads is what Megatron-Bridge's own logging code prints."""

from __future__ import annotations

from pathlib import Path

from tests.train.bridge.inside.printing import printed

LOG = Path(__file__).parents[1] / "logs" / "bridge_0_5_1.log"


def test_the_log_is_printed_by_bridge() -> None:
    assert printed() == LOG.read_text()
