"""RunSpec: the frozen answer to "what would be submitted", with the source and owner of every field."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = 1

Owner = Literal["recipe", "kind", "run", "rehearsal"]
Kind = Literal["gate", "convergence"]


@dataclass(frozen=True)
class Field:
    """One Megatron argument: its value, who owns it and where the value was written.

    ``source`` is ``file:line``, ``command line`` or ``rehearsal``-style text made for people.
    ``recipe_value`` is the recipe's own value; ``changed`` tells whether something later replaced it.
    """

    value: Any
    owner: Owner
    source: str
    recipe_value: Any = None
    changed: bool = False


@dataclass(frozen=True)
class RunSpec:
    """A resolved run. ``fields`` maps ``section.key`` to a Field, where key is a Megatron argument's dest.

    ``profile`` is the resolved profile as plain data, ``gate`` the expectations that the judge applies,
    ``environment`` the variables that every rank gets (name -> value, never a secret). ``profile_sources`` maps a
    dotted profile key to where its value was written. ``drill``: the fault that is put into a gate, its step and the
    folder of the undisturbed run (``fault``, ``step``, ``reference``; see spec.drill). ``reference``: the file that the
    run is held against, the tolerances, and whether somebody ``asked`` for it. ``bridge``: Megatron-Bridge's ``recipe``
    and its ``overrides`` (KEY=VALUE) where that is the ranks' engine, None where Megatron-Core's own loop is.
    """

    recipe: str
    recipe_file: str
    kind: Kind
    profile: Mapping[str, Any]
    fields: Mapping[str, Field]
    environment: Mapping[str, str]
    gate: Mapping[str, Any]
    megatron_core: str
    profile_sources: Mapping[str, str] = field(default_factory=dict)
    drill: Mapping[str, Any] | None = None
    reference: Mapping[str, Any] | None = None
    bridge: Mapping[str, Any] | None = None

    @property
    def segment(self) -> int | None:
        """Nodes that --segment keeps together: all that are asked for where some are spares, as any may replace any."""
        segment, spares = self.profile.get("segment"), self.profile.get("spare_nodes")
        return int(self.profile["nodes"]) + int(spares) if segment and spares else segment

    @property
    def world_size(self) -> int:
        """Ranks: nodes x GPUs per node (spare nodes run no rank)."""
        return int(self.profile["nodes"]) * int(self.profile["gpus_per_node"])

    @property
    def rehearsal(self) -> bool:
        """True where the ranks run on a CPU: nothing such a run shows admits a run on hardware."""
        return bool(self.profile["device"] == "cpu")

    def get(self, dest: str, default: Any = None) -> Any:
        """Return the value of Megatron argument ``dest`` (in its positive sense), or ``default`` where unset."""
        for key, item in self.fields.items():
            if key.partition(".")[2] == dest and item.value is not None:
                return item.value
        return default

    def key_of(self, dest: str) -> str:
        """Return ``section.dest``, for messages."""
        return next((key for key in self.fields if key.partition(".")[2] == dest), dest)

    def to_json(self) -> dict[str, Any]:
        """Return plain data; ``from_json`` is its inverse."""
        return {
            "schema": SCHEMA_VERSION,
            "recipe": self.recipe,
            "recipe_file": self.recipe_file,
            "kind": self.kind,
            "rehearsal": self.rehearsal,
            "world_size": self.world_size,
            "megatron_core": self.megatron_core,
            "hash": self.content_hash,
            "profile": dict(self.profile),
            "profile_sources": dict(self.profile_sources),
            "environment": dict(self.environment),
            "gate": dict(self.gate),
            "drill": dict(self.drill) if self.drill else None,
            "reference": dict(self.reference) if self.reference else None,
            "bridge": dict(self.bridge) if self.bridge else None,
            "fields": {
                key: {"value": f.value, "owner": f.owner, "source": f.source}
                | ({"recipe_value": f.recipe_value} if f.changed else {})
                for key, f in self.fields.items()
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunSpec:
        """Rebuild a RunSpec from ``to_json``'s data."""
        fields = {
            key: Field(f["value"], f["owner"], f["source"], f.get("recipe_value"), "recipe_value" in f)
            for key, f in data["fields"].items()
        }
        return cls(
            data["recipe"], data["recipe_file"], data["kind"], data["profile"], fields,
            data["environment"], data["gate"], data["megatron_core"], data["profile_sources"],
            data.get("drill"), data.get("reference"), data.get("bridge"),
        )  # fmt: skip

    @property
    def content_hash(self) -> str:
        """SHA-256 over every value that decides what runs; sources and file paths do not count."""
        content = {
            "recipe": self.recipe,
            "kind": self.kind,
            "megatron_core": self.megatron_core,
            "profile": dict(self.profile),
            "environment": dict(self.environment),
            "values": {key: f.value for key, f in self.fields.items()},
        } | ({"drill": [self.drill["fault"], self.drill["step"]]} if self.drill else {})
        content |= {"bridge": dict(self.bridge)} if self.bridge else {}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
