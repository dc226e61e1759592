"""What is missing is said at once, all of it, with what to install."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.train import requirements

DENSE = {
    "transformer_impl": "transformer_engine", "moe_token_dispatcher_type": "allgather",
    "moe_flex_dispatcher_backend": "deepep", "hybrid_layer_pattern": None, "experimental_attention_variant": None,
}  # fmt: skip
HYBRID_EP = {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep"}


@pytest.mark.parametrize(
    ("change", "modules"),
    [
        ({}, ["transformer_engine"]),
        ({"transformer_impl": "local"}, []),
        (
            {"hybrid_layer_pattern": "MEM*E", **HYBRID_EP},
            ["transformer_engine", "deep_ep", "mamba_ssm", "causal_conv1d"],
        ),
        ({"hybrid_layer_pattern": "*-*-"}, ["transformer_engine"]),
        ({"experimental_attention_variant": "gated_delta_net"}, ["transformer_engine", "fla"]),
        ({"moe_flex_dispatcher_backend": "hybridep"}, ["transformer_engine"]),  # another dispatcher is used
    ],
)
def test_a_model_needs_what_its_layers_need(change: dict[str, Any], modules: list[str]) -> None:
    needs = requirements.for_arguments(SimpleNamespace(**(DENSE | change)))
    assert [need.module for need in needs] == modules


def test_one_error_lists_everything_and_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(requirements, "found", lambda module: module == "causal_conv1d")
    args = SimpleNamespace(**(DENSE | HYBRID_EP | {"hybrid_layer_pattern": "ME"}))
    with pytest.raises(SeatrialError) as caught:
        requirements.check_gpu(args)
    text = str(caught.value)
    for expected in ("a GPU", "transformer_engine", "deep_ep", "mamba_ssm", "hybrid-ep", "pip install"):
        assert expected in text
    assert "causal_conv1d" not in text


def test_a_missing_megatron_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "found", lambda module: not module.startswith("megatron"))
    with pytest.raises(SeatrialError, match=r"megatron\.core.*megatron\.training") as caught:
        requirements.check_imports()
    assert caught.value.fix == "pip install 'seatrial[train]'"


def test_a_module_that_is_not_there_is_not_found() -> None:
    assert requirements.found("json.decoder")
    assert not requirements.found("no_such_package.no_such_module")
