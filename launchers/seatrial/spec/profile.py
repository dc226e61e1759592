"""Profiles: where a run happens. Shipped YAML, then the site's own values, then ``--set profile.…``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from seatrial.errors import SeatrialError, did_you_mean
from seatrial.spec import library
from seatrial.spec.yamlfile import YamlFile, read_yaml

Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
MegatronCore = Literal["0.19.2", "0.18.2"]  # those of schema.VERSIONS
Capability = Literal["segment", "gpus-per-node", "gres", "mem", "exclusive", "requeue", "signal", "no-kill", "comment"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Container(_Model):
    """The image (absolute path of a sqsh file, or a registry reference) and its ``HOST:CONTAINER[:ro]`` mounts.

    ``python`` is the interpreter inside it that runs the ranks.
    """

    image: str | None = None
    mounts: list[str] = []
    python: str = "python3"


class Environment(_Model):
    """Variables for the ranks: names whose values come from the submitting shell, and values to set."""

    pass_: list[VariableName] = Field(default=[], alias="pass")
    set: dict[VariableName, str] = {}


class Paths(_Model):
    """Folders: ``runs`` holds run folders, ``data`` what a rehearsal builds once, ``node_local`` a node's caches."""

    runs: str = "runs"
    data: str = "~/.cache/seatrial/data"
    node_local: str = "/tmp"


class SlurmSite(_Model):
    """What this Slurm can do, and how it preempts."""

    capabilities: list[Capability] = []
    preempt_mode: Literal["OFF", "REQUEUE", "CANCEL"] = "OFF"
    signal_lead_seconds: Positive = 300


class Recovery(_Model):
    """When a run that fails is tried again, where, and which of its checkpoints stay.

    The first three count ends without a newer whole checkpoint: of failures, of slots (time limits), of preemptions.
    Waits: seconds; ``exclusion_days`` is how long a node stays excluded, ``excluded_share`` a part of the run's nodes.
    ``checkpoints_kept``: how many of the newest whole ones; ``checkpoints_kept_every``: besides, those of every so many
    steps. ``gate_checkpoints``: a gate's stay after its verdict.
    """

    failures_without_progress: Positive = 3
    slots_without_progress: Positive = 2
    preemptions_without_progress: Positive = 20
    backoff_seconds: Positive = 10
    longest_backoff_seconds: Positive = 600
    excluded_nodes: NotNegative = 4
    excluded_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    exclusion_days: Positive = 7
    checkpoints_kept: Positive = 3
    checkpoints_kept_every: Positive | None = None
    gate_checkpoints: bool = False

    @model_validator(mode="after")
    def _in_order(self) -> Recovery:
        if self.longest_backoff_seconds < self.backoff_seconds:
            raise ValueError("longest_backoff_seconds must not be less than backoff_seconds")
        return self


PREFLIGHT_CHECKS = ("gpus", "ecc", "xid", "nvlink", "imex", "folders", "image", "clock", "disk")


class Preflight(_Model):
    """What each node must show before an attempt begins on it, one task a node.

    ``tries``: how often a node may fail before it is left out. ``seconds``: for all nodes to answer.
    ``clock_seconds``: the most that a node's clock may differ from the batch host's. ``node_local_gb``: free space in
    ``paths.node_local``. ``commands``: a site's own checks, name -> words of a command; exit code 0 is good.
    """

    enabled: bool = True
    tries: Annotated[int, Field(ge=1, le=20)] = 3
    seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    clock_seconds: Annotated[float, Field(gt=0)] = 5.0
    node_local_gb: Annotated[float, Field(ge=0)] = 1.0
    commands: dict[str, Annotated[list[str], Field(min_length=1)]] = {}

    @model_validator(mode="after")
    def _own_names(self) -> Preflight:
        taken = sorted(set(self.commands) & set(PREFLIGHT_CHECKS))
        if taken:
            raise ValueError(f"{taken[0]!r} is the name of a check of ours; give the site's own another name")
        return self


class Hang(_Model):
    """How long a run may make no step before it counts as hung.

    A step: ``step_factor`` times the median of this run's own, and no less than ``step_minimum_seconds``. A save and an
    evaluation: five times the longest seen, and no less than their minutes. ``startup_minutes``: until the first step
    of an attempt, in which kernels may be compiled for ten minutes. ``py_spy``: besides the ranks' own stacks, those
    that py-spy sees (it must be installed on the nodes).
    """

    enabled: bool = True
    startup_minutes: Positive = 30
    step_factor: Annotated[float, Field(ge=2)] = 10.0
    step_minimum_seconds: Positive = 180
    save_minutes: Positive = 15
    evaluation_minutes: Positive = 30
    py_spy: bool = False


Told = Literal["start", "decision", "done", "stop"]


class Notify(_Model):
    """Whom a run tells of its start, its decisions and its end.

    ``command``: the words of a program that gets the news as JSON on its standard input. ``webhook``: the NAME of the
    environment variable that holds the address (it is a secret), which gets Slack-compatible JSON. ``events``: of what.
    """

    command: Annotated[list[str], Field(min_length=1)] | None = None
    webhook: VariableName | None = None
    events: list[Told] = ["start", "decision", "done", "stop"]


class Wandb(_Model):
    """Weights & Biases, for runs that ask for it: TensorBoard's scalars go there too.

    ``key``: the NAME of the variable that holds the API key (it is a secret); offline, no key is needed.
    """

    enabled: bool = False
    project: Annotated[str, Field(pattern=r"^[^/\\#?%:]{1,128}$")] = "seatrial"
    entity: str | None = None
    mode: Literal["online", "offline"] = "online"
    key: VariableName = "WANDB_API_KEY"


class Profile(_Model):
    """A cluster profile. Counts of GPUs are per node unless said otherwise.

    ``megatron_core``: the release in the image (or of ``rank_python``), whose arguments the ranks are given.
    """

    description: str = ""
    device: Literal["cuda", "cpu"] = "cuda"
    executor: Literal["slurm", "local"] = "slurm"
    use_site_file: bool = True
    disk_gb_per_second: Annotated[float, Field(gt=0)] | None = None
    nodes: Positive
    gpus_per_node: Positive
    gpu_type: str | None = None
    nvlink_domain: Positive | None = None
    segment: Positive | None = None
    spare_nodes: NotNegative = 0
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    time_limit_minutes: Positive = 240
    exclusive: bool = True
    memory: str | None = None
    cpus_per_task: Positive | None = None
    host_python: str = "/usr/bin/python3"
    rank_python: str | None = None
    gpu_request: Literal["gpus-per-node", "gres", "none"] = "gpus-per-node"
    mpi: str | None = None
    container: Container = Container()
    megatron_core: MegatronCore = "0.19.2"
    env: Environment = Environment()
    numa_bind: bool = False
    paths: Paths = Paths()
    slurm: SlurmSite = SlurmSite()
    recovery: Recovery = Recovery()
    preflight: Preflight = Preflight()
    hang: Hang = Hang()
    notify: Notify = Notify()
    wandb: Wandb = Wandb()


@dataclass(frozen=True)
class LoadedProfile:
    """A profile as plain data (with ``name``), and where each value was written (dotted key -> ``file:line``)."""

    name: str
    data: Mapping[str, Any]
    sources: Mapping[str, str]
    site_values: Mapping[str, tuple[Any, str]] = field(default_factory=dict)


def load_profile(name: str, overrides: Sequence[tuple[str, Any]] = ()) -> LoadedProfile:
    """Load profile ``name``; ``overrides`` are (dotted key without ``profile.``, value) pairs of the command line.

    The site file may set any profile field at its top level, more under ``profiles: NAME:``, and recipe fields (its
    data, its tokenizer) under ``set:``; the last come back as ``site_values`` (``section.key`` -> value, source).
    Raises SeatrialError for an unknown profile or key, or a wrong type.
    """
    file = read_yaml(library.find("cluster_profiles", name, what="profile"))
    data: dict[str, Any] = {}
    sources: dict[str, str] = {}
    _merge(data, sources, file.data, file, ())
    site_values: dict[str, tuple[Any, str]] = {}
    site_path = library.site_file()
    if site_path.is_file() and data.get("use_site_file", True):
        site = read_yaml(site_path)
        per_profile, extra = site.data.pop("profiles", None) or {}, site.data.pop("set", None) or {}
        site.data.pop("failures", None)  # failures.py reads those
        _merge(data, sources, site.data, site, ())
        _merge(data, sources, per_profile.get(file.path.stem) or {}, site, ("profiles", file.path.stem))
        site_values = {key: (value, site.where("set", key)) for key, value in extra.items()}
    for key, value in overrides:
        _assign(data, key.split("."), value, key)
        sources[key] = "command line"
    profile = _validate(data, sources, file)
    return LoadedProfile(
        file.path.stem, {"name": file.path.stem} | profile.model_dump(by_alias=True), sources, site_values
    )


def _merge(
    into: dict[str, Any], sources: dict[str, str], data: Mapping[str, Any], file: YamlFile, at: tuple[str, ...],
    prefix: str = "",
) -> None:  # fmt: skip
    for key, value in data.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, dict) and dotted not in ("env.set", "preflight.commands"):
            _merge(into.setdefault(key, {}), sources, value, file, (*at, key), f"{dotted}.")
        elif isinstance(value, dict):
            into.setdefault(key, {}).update(value)
            sources[dotted] = file.where(*at, key)
        else:
            into[key] = value
            sources[dotted] = file.where(*at, key)


def _assign(data: dict[str, Any], keys: list[str], value: Any, dotted: str) -> None:
    for key in keys[:-1]:
        data = data.setdefault(key, {})
        if not isinstance(data, dict):
            raise SeatrialError(f"{key!r} has no parts", key=f"profile.{dotted}", rule="it holds one value")
    data[keys[-1]] = value


def _validate(data: dict[str, Any], sources: Mapping[str, str], file: YamlFile) -> Profile:
    try:
        return Profile.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        location = [str(part) for part in first["loc"]]
        dotted = ".".join(location)
        unknown = first["type"] == "extra_forbidden"
        # An item of a list has no source of its own: its field's stands for it.
        places = (".".join(location[:n]) for n in range(len(location), 0, -1))
        source = next((sources[place] for place in places if place in sources), "")
        raise SeatrialError(
            f"unknown profile key {dotted!r}" if unknown else f"wrong value in the profile: {first['msg']}",
            file=source or Path(file.path.name),
            key=f"profile.{dotted}",
            value=None if unknown else first["input"],
            rule=None if unknown else first["msg"],
            fix=did_you_mean(location[-1], _keys(location[:-1])) if unknown else None,
        ) from None


def _keys(parents: Sequence[str]) -> list[str]:
    model: Any = Profile
    parts = {
        "container": Container, "env": Environment, "paths": Paths, "slurm": SlurmSite, "recovery": Recovery,
        "preflight": Preflight, "hang": Hang, "notify": Notify, "wandb": Wandb,
    }  # fmt: skip
    for parent in parents:
        model = parts.get(parent, model)
    return [info.alias or name for name, info in model.model_fields.items()]
