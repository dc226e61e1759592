"""The parts about configuration, environment and provenance of one run. No value of a secret is in them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from seatrial.report.page.markup import Markup, code, details, facts, html, table, tag
from seatrial.report.page.records import Run, listed
from seatrial.run.fields import at, mapping
from seatrial.run.images import digest_in
from seatrial.run.secret_names import is_secret

_SECRET = "not shown: a secret"
_LONGEST = 2000  # characters of a value


def configuration_part(run: Run) -> Markup:
    """Return the fields that differ from the recipe, then all of them, then the profile."""
    fields = {key: item for key, item in mapping(run.spec.get("fields")).items() if isinstance(item, Mapping)}
    if not fields:
        return Markup()
    changed = {key: item for key, item in fields.items() if "recipe_value" in item}
    difference = table(
        ["field", "recipe", "this run", "owner", "source"],
        [
            [tag("th", code(key), scope="row"), tag("td", tag("del", code(_value(item["recipe_value"])))),
             tag("td", tag("ins", code(_value(item.get("value"))))), item.get("owner"), code(item.get("source"))]
            for key, item in changed.items()
        ], "Fields that differ from the recipe",
    )  # fmt: skip
    rows = [
        tag(
            "tr", tag("th", code(key), scope="row"), tag("td", code(_value(item.get("value"))), class_="wide"),
            tag("td", item.get("owner")), tag("td", code(item.get("source"))),
            class_="changed" if key in changed else None,
        )
        for key, item in fields.items()
    ]  # fmt: skip
    every = tag("div", table(["field", "value", "owner", "source"], rows, "All fields"), id=f"{run.prefix}fields")
    return html(
        tag("h3", f"Against the recipe {run.spec.get('recipe')}: {len(changed)} of {len(fields)} fields differ"),
        difference if changed else tag("p", "No field differs from the recipe."),
        details(f"all {len(fields)} fields", _filter(f"{run.prefix}fields", "Only what differs"), every),
        _profile(run),
    )


def environment_part(run: Run) -> Markup:
    """Return the variables that ranks get; of those that the submitting shell passes, and of secrets, only names."""
    passed = [str(name) for name in listed(at(run.spec, "profile", "env", "pass"))]
    rows = [
        [tag("th", code(name), scope="row"), _SECRET if is_secret(name, str(value)) else code(_value(value))]
        for name, value in sorted(mapping(run.spec.get("environment")).items()) if name not in passed
    ]  # fmt: skip
    rows += [
        [tag("th", code(name), scope="row"), "from the submitting shell; its value is not on record"] for name in passed
    ]
    return table(["variable", "value"], rows, "Environment of the ranks", "snug") if rows else Markup()


def provenance_part(run: Run) -> Markup:
    """Return where the code, the container and the versions come from."""
    spec, made = run.spec, mapping(run.spec.get("provenance"))
    dirty = made.get("dirty")
    state = (
        "dirty: it had uncommitted changes" if dirty is True else "clean" if dirty is False else "not known if clean"
    )
    commit, bridge, digest = made.get("commit"), at(spec, "bridge", "recipe"), digest_in(run.events)
    admission = mapping(spec.get("admission"))
    admitted = admission.get("gate") or (f"none: {admission.get('reason')}" if admission else None)
    jobs = dict.fromkeys(
        str(event["job_id"]) for event in run.events if event.get("event") in ("submitted", "supervisor_started")
        and event.get("job_id") is not None
    )  # fmt: skip
    return html(
        facts([
            ("run folder", code(run.folder.path)), ("jobs", ", ".join(jobs) or None), ("created", spec.get("created")),
            ("commit", html(code(commit), f" ({state})") if commit else "an installed package: no commit"),
            ("changed files", ", ".join(map(str, listed(made.get("changed")) + listed(made.get("untracked"))))),
            ("hash of the spec", code(spec["hash"]) if spec.get("hash") else None),
            ("submitted from", made.get("host")), ("processor", made.get("machine")),
            ("seatrial", made.get("seatrial")), ("Python", made.get("python")), ("submitit", made.get("submitit")),
            ("engine", html("megatron-bridge, recipe ", code(bridge)) if bridge else None),
            ("megatron-core asked for", spec.get("megatron_core")),
            ("container image", code(at(spec, "profile", "container", "image") or "none")),
            ("image digest", code(digest) if digest else None),
            ("image as submitted", _value(at(spec, "same", "image")) if at(spec, "same", "image") else None),
            ("profile", at(spec, "profile", "name")), ("nodes x GPUs", _size(run)),
            ("GPU type", at(spec, "profile", "gpu_type")), ("admitted by gate", admitted),
        ]),
        *_evidence(run),
    )  # fmt: skip


def _evidence(run: Run) -> Iterator[Markup]:
    """Return what rank 0 saw from inside the process; equal lines of several attempts once."""
    seen: dict[str, tuple[list[int], Mapping[str, Any]]] = {}
    for event in run.events:
        if event.get("event") == "evidence":
            kept = {key: value for key, value in event.items() if key not in _OF_THE_LINE}
            attempts, _ = seen.setdefault(json.dumps(kept, sort_keys=True, default=str), ([], event))
            if event.get("attempt") not in attempts:
                attempts.append(event.get("attempt"))  # type: ignore[arg-type]
    if not seen:
        return
    yield tag("h3", "Seen from inside the ranks")
    for attempts, line in list(seen.values())[:20]:
        who = f"attempts {', '.join(map(str, attempts))}" if len(attempts) > 1 else f"attempt {attempts[0]}"
        deep_ep = mapping(line.get("deep_ep"))
        stand_in = " (a CPU stand-in)" if deep_ep.get("stand_in") else ""
        backend = f", backend {line.get('dispatcher_backend')}" if line.get("dispatcher_backend") else ""
        yield facts([
            ("evidence of", who), ("device", line.get("device")), ("GPU", line.get("gpu")),
            ("ranks", line.get("world_size")),
            ("dispatcher", f"{line.get('dispatcher')}{backend}" if line.get("dispatcher") else None),
            ("deep_ep", f"{deep_ep.get('version')}{stand_in}, {deep_ep.get('file')}" if deep_ep else None),
            ("CUDA graphs captured", line.get("cuda_graphs_captured")),
            ("transformer", line.get("transformer_impl")),
            ("versions", ", ".join(f"{name} {version}" for name, version in mapping(line.get("versions")).items())),
            ("the image says", ", ".join(f"{name}={said}" for name, said in mapping(line.get("container")).items())),
        ])  # fmt: skip


_OF_THE_LINE = frozenset({"schema", "time", "when", "iteration", "step", "attempt", "dispatch_calls"})


def _profile(run: Run) -> Markup:
    sources = mapping(run.spec.get("profile_sources"))
    rows = [
        [tag("th", code(key), scope="row"), code(_value(value)), code(sources.get(key, "default"))]
        for key, value in _flat(mapping(run.spec.get("profile")))
    ]
    return details("the profile", table(["key", "value", "source"], rows, "Profile")) if rows else Markup()


def _flat(data: Mapping[str, Any], head: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        name = f"{head}{key}"
        if isinstance(value, Mapping) and value and name.count(".") < 8:
            yield from _flat(value, f"{name}.")
        else:
            yield name, _SECRET if is_secret(str(key), str(value)) else value


def _size(run: Run) -> str | None:
    nodes, gpus = at(run.spec, "profile", "nodes"), at(run.spec, "profile", "gpus_per_node")
    return f"{nodes} x {gpus}" if nodes and gpus else None


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\N{HORIZONTAL ELLIPSIS}"


def _filter(rows: str, only: str) -> Markup:
    box, search = f"{rows}-only", f"{rows}-search"
    return tag(
        "div", tag("label", "Filter", for_=search), tag("input", type="search", id=search), " ",
        tag("input", type="checkbox", id=box), tag("label", only, for_=box), " ", tag("output", for_=f"{search} {box}"),
        class_="filter js-only toolbar", data_filters=rows,
    )  # fmt: skip
