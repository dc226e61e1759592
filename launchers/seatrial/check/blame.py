"""A finding, and where to look for the value that it blames."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from seatrial.spec.runspec import RunSpec

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """What is wrong or worth knowing before a run is queued.

    ``field`` is ``section.key``, ``profile.key`` or ``env.NAME``; ``value`` is what it holds; ``rule`` says what
    should hold; ``file`` is where the value was written (``file:line`` where known); ``fix`` says what to do.
    An error keeps the run from being queued.
    """

    severity: Severity
    field: str
    value: Any
    rule: str
    file: str
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def argument(
    spec: RunSpec, dest: str, rule: str, fix: str = "", *, severity: Severity = "error", value: Any = None
) -> Finding:
    """Blame the Megatron argument ``dest``; ``value`` stands in for its own where that is not the point."""
    key = spec.key_of(dest)
    field = spec.fields.get(key)
    shown = value if value is not None else spec.get(dest)
    return Finding(severity, key, shown, rule, field.source if field else f"unset in {spec.recipe_file}", fix)


def profile(
    spec: RunSpec, key: str, rule: str, fix: str = "", *, severity: Severity = "error", value: Any = None
) -> Finding:
    """Blame the profile's value ``key`` (dotted)."""
    shown = spec.profile.get(key) if value is None else value
    return Finding(severity, f"profile.{key}", shown, rule, profile_source(spec, key), fix)


def profile_source(spec: RunSpec, key: str) -> str:
    """Return where the profile's value ``key`` was written, or at least which profile it is of."""
    return spec.profile_sources.get(key) or f"cluster_profiles/{spec.profile['name']}.yaml"


def environment(spec: RunSpec, name: str, rule: str, fix: str = "", *, severity: Severity = "error") -> Finding:
    """Blame the environment variable ``name`` of the ranks."""
    of_profile = name in ((spec.profile.get("env") or {}).get("set") or {})
    file = profile_source(spec, "env.set") if of_profile else spec.recipe_file
    return Finding(severity, f"env.{name}", spec.environment.get(name), rule, file, fix)


def set_flag(spec: RunSpec, dest: str, value: object) -> str:
    """Return the command line option that sets ``dest``."""
    return f"--set {spec.key_of(dest)}={value}"


def count_text(n: float) -> str:
    """Return a count as people write it: 512, 209.72M, 100.66B."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if n >= size:
            return f"{n / size:.2f}{unit}"
    return f"{n:,.0f}"
