"""What a check says of a run whose ranks run Megatron-Bridge."""

from __future__ import annotations

import pytest

from seatrial.check.bridge import check_bridge
from seatrial.spec.resolve import resolve


@pytest.mark.parametrize(
    ("kind", "name", "severities"),
    [
        ("gate", "nemotron_3_nano_gb200_pretrain_config", []),
        ("convergence", "nemotron_3_nano_gb200_pretrain_config", []),
        ("convergence", "nemotron_3_nano_pretrain_8gpu_gb200_bf16_config", ["warning"]),
        ("gate", "qwen35_text_9b_pretrain_8gpu_gb200_fp8_mx_config", ["warning"]),
    ],
)
def test_names(kind: str, name: str, severities: list[str]) -> None:
    settings = [("engine", "megatron-bridge"), ("bridge.recipe", name)]
    spec = resolve("nemotron_3_nano_gb200", "gb200-8gpu", kind, settings)
    assert [finding.severity for finding in check_bridge(spec)] == severities


def test_nothing_where_another_engine_runs() -> None:
    assert list(check_bridge(resolve("nemotron_3_nano_gb200", "gb200-8gpu", "gate"))) == []
