"""What a run was set to, as one flat mapping: from its spec, or from the arguments that Megatron printed. Pure."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from seatrial.judge.evidence import RUN
from seatrial.run.fields import mapping

Configuration = Mapping[str, Any]

_ENUM = re.compile(r"[A-Z][a-z0-9]+[A-Z]\w*\.(\w+)")  # AttnBackend.unfused, and not torch.bfloat16
# What a run does beside what it trains: how long, how often, where to. All else comes before it.
_RUN_CONTROLS = frozenset({
    "train_iters", "train_samples", "skip_train", "rank", "local_rank", "master_addr", "master_port", "iteration",
    "consumed_train_samples", "consumed_valid_samples", "skipped_train_samples", "data_cache_path",
    "distributed_timeout_minutes", "num_workers", "logging_level", "run.kind", "run.commit",
})  # fmt: skip
_RUN_CONTROL_PREFIXES = (
    "save", "load", "exit_", "eval_", "log_", "tensorboard_", "wandb_", "ckpt_", "non_persistent_", "profile_",
    "timing_", "one_logger", "app_tag_", "fault_injector_",
)  # fmt: skip
# Of a profile, what decides the hardware and the software that runs; the rest is about this site and this run.
_OF_THE_PROFILE = ("device", "nodes", "gpus_per_node", "gpu_type", "nvlink_domain", "segment", "container.image")


def of_arguments(printed: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a dump by their names in a recipe: ``no_save_optim`` None is ``save_optim`` True."""
    found: dict[str, Any] = {}
    for name, text in printed.items():
        value = plain(text)
        positive = name[3:] if name.startswith("no_") else ""
        if positive and positive not in printed and (value is None or isinstance(value, bool)):
            found[positive] = not value
        else:
            found[name] = value
    return found


def of_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec.json's arguments by name, and ``environment.…``, ``profile.…``, ``run.…`` for all else.

    What is not set is None or absent; parts of another type than they should be are passed over.
    """
    found: dict[str, Any] = {}
    for key, field in mapping(spec.get("fields")).items():
        found[key.partition(".")[2] or key] = plain(mapping(field).get("value"))
    found["world_size"] = plain(spec.get("world_size"))
    same, provenance = mapping(spec.get("same")), mapping(spec.get("provenance"))
    found.update(_flat("environment", mapping(spec.get("environment"))))
    found.update(_flat("profile", mapping(spec.get("profile"))))
    bridge = mapping(spec.get("bridge"))
    words = bridge.get("overrides")
    told = [str(word).partition("=") for word in words] if isinstance(words, list) else []
    found.update({f"bridge.{key}": plain(value.strip('"')) for key, _, value in told})
    found.update(_flat("run", {
        "bridge_recipe": bridge.get("recipe"),
        "recipe": spec.get("recipe"), "kind": spec.get("kind"), "megatron_core": spec.get("megatron_core"),
        "training_code": same.get("train"), "image": same.get("image"), "commit": provenance.get("commit"),
    }))  # fmt: skip
    return found


def plain(value: Any) -> Any:
    """Return a value as JSON holds it, the same whether a recipe says it or Megatron prints it.

    "1e-05" is 1e-05, "['a']" a list, "90,5,5" a list too, "AttnBackend.unfused" is "unfused", 1.0 is 1.
    """
    if isinstance(value, str):
        value = _printed(value)
    if isinstance(value, float):
        return str(value) if not math.isfinite(value) else int(value) if value.is_integer() else value
    if isinstance(value, (list, tuple)):
        return [item if isinstance(item, str) else plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): item if isinstance(item, str) else plain(item) for key, item in value.items()}
    return value


def differences(configurations: Sequence[Optional[Configuration]], kinds: Sequence[str]) -> list[dict[str, Any]]:
    """Return the keys that differ as {"key", "values"}, run controls and paths of the run's own last.

    None: nobody knows that configuration, its values are None. Where runs and logs are mixed only keys that all of them
    name are held together: a spec says what is set, a log prints each default too.
    """
    known = [configuration for configuration in configurations if configuration is not None]
    keys = {key for configuration in known for key in configuration}
    if len({kind == RUN for kind in kinds}) > 1:
        keys = {key for key in keys if all(key in configuration for configuration in known)}
    found = []
    for key in sorted(keys, key=lambda key: (_comes_last(key), key)):
        if len({_canonical(configuration.get(key)) for configuration in known}) > 1:
            values = [None if configuration is None else configuration.get(key) for configuration in configurations]
            found.append({"key": key, "values": values})
    return found


def _comes_last(key: str) -> bool:
    if key.startswith("profile."):
        return key.partition(".")[2] not in _OF_THE_PROFILE
    return key in _RUN_CONTROLS or key.startswith(_RUN_CONTROL_PREFIXES)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)  # 1 and True are equal in Python, and no such thing here


def _printed(text: str) -> Any:
    try:
        value = ast.literal_eval(text.strip())
        json.dumps(value, allow_nan=False)  # a set, or 1e999, is no JSON: it stays text
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        enum = _ENUM.fullmatch(text)
        return enum.group(1) if enum else text
    return value


def _flat(prefix: str, data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}.{key}", value)
        else:
            yield f"{prefix}.{key}", value if isinstance(value, str) else plain(value)
