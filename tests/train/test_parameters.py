"""The parameters that ``check`` counts are those that Megatron builds: each rehearsal's own print is held to it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from seatrial.check.layout import Layout
from seatrial.check.parameters import count_parameters
from seatrial.check.shape import shape_of
from seatrial.spec.resolve import resolve
from tests.train.harness import MEGATRON_CORE, changed, rendered, run_owned, start

pytestmark = pytest.mark.train
pytest.importorskip("megatron.training")

# 0.18 prints no rank of the weight shards between the two.
PRINTED = re.compile(
    r"number of parameters on \(tensor, (?:.*, )?pipeline\) model parallel rank \(0, (?:\d+, )?0\): (\d+)"
)
PREDICTING = "MEM*EME/*E/*E"
CASES: list[tuple[str, dict[str, Any]]] = [
    ("nemotron_3_nano_gb200", {}),
    ("qwen35_9b_gb200", {}),
    ("qwen35_35b_a3b_gb200", {}),
    ("nemotron_3_nano_gb200", {"hybrid_layer_pattern": PREDICTING, "mtp_use_repeated_layer": True}),
]


@pytest.mark.parametrize(("recipe", "change"), CASES, ids=[f"{r}-{len(c)}" for r, c in CASES])
def test_a_rank_holds_what_is_counted(recipe: str, change: dict[str, Any], tmp_path: Path, text: str) -> None:
    options = {
        "train_iters": 1,
        "eval_iters": 0,
        "data_path": text,
        "data_cache_path": tmp_path / "cache",
    } | change
    attempt = start(tmp_path / "run", changed(rendered(recipe), **options) + run_owned())
    codes = attempt.wait()
    printed = PRINTED.search(attempt.log())
    assert printed, (codes, attempt.log()[-3000:])
    settings = [(f"model.{key}", str(value)) for key, value in change.items()]
    spec = resolve(recipe, "local-cpu", "gate", [("profile.megatron_core", MEGATRON_CORE), *settings])
    at, count = Layout.of(spec), count_parameters(shape_of(spec)).whole_model
    assert count.dense_on_rank(at) + count.experts_on_rank(at) == int(printed[1])
