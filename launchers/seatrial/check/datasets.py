"""Read the indexes of a run's data: the only checks that touch the disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.check.blame import Finding, argument, set_flag
from seatrial.data.blend import SPLITS, Blend, parse_blend, read_data_args, read_per_split_data_args
from seatrial.data.indexed import IndexSummary, is_remote, read_index, token_ids, tokens_between
from seatrial.data.splits import DEFAULT_SPLIT, Bounds, parse_split, sequence_range
from seatrial.errors import SeatrialError
from seatrial.spec.runspec import RunSpec

PER_SPLIT = tuple(f"{split}_data_path" for split in SPLITS)
SOURCES = ("data_path", "data_args_path", *PER_SPLIT, "per_split_data_args_path")
WHOLE: Bounds = (0.0, 1.0)
# Tokens of data this small are looked at one by one.
SMALL_BYTES = 8 * 2**20


@dataclass(frozen=True)
class Part:
    """What one data set gives to one split: ``tokens``, and its share of the blend (None: all of it, once)."""

    prefix: str
    share: float | None
    tokens: int


@dataclass(frozen=True)
class Data:
    """The parts of each split, by its name; the argument that names them; what was wrong with the files."""

    parts: dict[str, list[Part]]
    source: dict[str, str]
    findings: list[Finding]


def named_sources(spec: RunSpec) -> list[str]:
    """Return the arguments that name data."""
    return [dest for dest in SOURCES if spec.get(dest)]


def read_data(spec: RunSpec) -> Data:
    """Read the index of every data set that the run names. A file that cannot be used is a finding."""
    findings: list[Finding] = []
    plan: list[tuple[str, str, Blend, Bounds]] = []
    try:
        plan = list(_plan(spec))
    except SeatrialError as error:
        findings.append(_as_finding(spec, error))
    indexes: dict[str, IndexSummary | None] = {}
    parts: dict[str, list[Part]] = {}
    for split, source, blend, bounds in plan:
        for prefix in blend.prefixes:
            if prefix not in indexes:
                found, summary = _index(spec, source, prefix)
                findings += found
                indexes[prefix] = summary
        known = [indexes[prefix] for prefix in blend.prefixes]
        if all(summary is not None for summary in known):  # else how much there is cannot be told
            parts[split] = list(_parts(blend, [s for s in known if s is not None], bounds))
    return Data(parts, {split: source for split, source, _, _ in plan}, findings)


def host_path(path: str, mounts: Sequence[str]) -> str:
    """Return where ``path``, as the ranks see it inside the container, lies on the host.

    ``mounts`` are ``HOST:CONTAINER[:flags]``; the longest fitting one counts. A path under none stays as it is.
    """
    best = ("", "")
    for mount in mounts:
        host, _, rest = mount.partition(":")
        inside = rest.partition(":")[0].rstrip("/") or host
        if (path == inside or path.startswith(inside + "/")) and len(inside) > len(best[0]):
            best = (inside, host.rstrip("/"))
    return best[1] + path[len(best[0]) :]


def _plan(spec: RunSpec) -> Iterator[tuple[str, str, Blend, Bounds]]:
    """Yield (split, argument that names it, blend, bounds)."""
    mounts = (spec.profile.get("container") or {}).get("mounts") or ()
    if spec.get("data_path") or spec.get("data_args_path"):
        source = "data_path" if spec.get("data_path") else "data_args_path"
        named = spec.get(source)
        blend = parse_blend(named) if source == "data_path" else read_data_args(host_path(named, mounts))
        for split, bounds in zip(SPLITS, parse_split(spec.get("split", DEFAULT_SPLIT)), strict=True):
            yield split, source, blend, bounds
        return
    if spec.get("per_split_data_args_path"):
        source = "per_split_data_args_path"
        blends = read_per_split_data_args(host_path(spec.get(source), mounts))
        for split, blend in blends.items():
            yield split, source, blend, WHOLE
        return
    for split, source in zip(SPLITS, PER_SPLIT, strict=True):
        if spec.get(source):
            yield split, source, parse_blend(spec.get(source), key=source), WHOLE


def _index(spec: RunSpec, source: str, prefix: str) -> tuple[list[Finding], IndexSummary | None]:
    if is_remote(prefix):
        rule = "on a file system: an object store cannot be checked from here"
        return [argument(spec, source, rule, severity="warning", value=prefix)], None
    if not Path(prefix).is_absolute():
        rule = "an absolute path: the ranks start in another folder"
        fix = set_flag(spec, source, Path(prefix).absolute())
        return [argument(spec, source, rule, fix, value=prefix)], None
    mounts = (spec.profile.get("container") or {}).get("mounts") or ()
    try:
        summary = read_index(host_path(prefix, mounts))
    except SeatrialError as error:
        return [_as_finding(spec, error, source)], None
    return list(_odd(spec, source, summary)), summary


def _odd(spec: RunSpec, source: str, summary: IndexSummary) -> Iterator[Finding]:
    """Yield what is wrong with readable data."""
    if summary.bin_bytes > summary.expected_bin_bytes:
        rule = f"the .bin has the {summary.expected_bin_bytes:,} bytes of its index; it has {summary.bin_bytes:,}"
        yield argument(spec, source, rule, "see whether the two files belong together", severity="warning",
                       value=summary.prefix)  # fmt: skip
    if summary.dtype.startswith("float"):
        rule = f"token ids are whole numbers; the index says {summary.dtype}"
        yield argument(spec, source, rule, value=summary.prefix)
        return
    limits = [spec.get("padded_vocab_size")]
    if spec.get("tokenizer_type") == "NullTokenizer":
        limits.append(spec.get("vocab_size"))
    limit = min((n for n in limits if n is not None), default=None)
    if limit is not None and 0 < summary.bin_bytes <= SMALL_BYTES:
        highest = max(token_ids(summary), default=0)
        if highest >= limit:
            dest = "vocab_size" if spec.get("vocab_size") == limit else "padded_vocab_size"
            rule = f"more than the highest token id in {summary.prefix}.bin, {highest}"
            yield argument(spec, dest, rule, set_flag(spec, dest, highest + 1))


def _parts(blend: Blend, indexes: Sequence[IndexSummary], bounds: Bounds) -> Iterator[Part]:
    for i, summary in enumerate(indexes):
        begin, end = sequence_range(bounds, summary.sequences)
        share = None if blend.shares is None else blend.shares[i]
        yield Part(blend.prefixes[i], share, tokens_between(summary, begin, end))


def _as_finding(spec: RunSpec, error: SeatrialError, source: str | None = None) -> Finding:
    """Turn an error of the data room into a finding about the argument that named the file."""
    dest = source or error.key or "data_path"
    rule = error.message + (f": {error.rule}" if error.rule else "")
    return argument(spec, dest, rule, error.fix or "", value=str(error.file) if error.file else error.value)
