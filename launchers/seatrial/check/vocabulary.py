"""The vocabulary: the model has a row for each id that its tokenizer gives. Reads a tokenizer on disk, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.check.blame import Finding, argument, set_flag
from seatrial.check.datasets import host_path
from seatrial.run import records
from seatrial.spec.runspec import RunSpec


@dataclass(frozen=True)
class Vocabulary:
    """``size``: ids from 0 on. ``exact`` False: of the model that the tokenizer came with, which may pad it."""

    size: int
    source: str
    exact: bool = True


def check_vocabulary(spec: RunSpec) -> Iterator[Finding]:
    """The embedding is at least as large as the tokenizer's vocabulary; a note where that cannot be told from here."""
    rows = spec.get("padded_vocab_size")
    if rows is None:
        return  # Megatron takes the tokenizer's own size, and pads it
    vocabulary = tokenizer_vocabulary(spec)
    name = spec.get("tokenizer_model")
    if vocabulary is None and name is not None:
        rule = "its vocabulary cannot be read from here, so nothing holds it against padded_vocab_size"
        yield argument(spec, "tokenizer_model", rule, f"it must have at most {rows:,} ids", severity="note")
    elif vocabulary is not None and rows < vocabulary.size:
        rule = f"at least the {vocabulary.size:,} ids of {vocabulary.source}: a higher one has no row in the embedding"
        fix = set_flag(spec, "padded_vocab_size", vocabulary.size)
        yield argument(spec, "padded_vocab_size", rule, fix, severity="error" if vocabulary.exact else "warning")


def tokenizer_vocabulary(spec: RunSpec) -> Vocabulary | None:
    """Return the tokenizer's vocabulary: NullTokenizer's own number, or what lies in a local folder; None: unknown."""
    if spec.get("tokenizer_type") == "NullTokenizer":
        size = spec.get("vocab_size")
        return None if size is None else Vocabulary(int(size), "NullTokenizer (vocab_size)")
    name = spec.get("tokenizer_model")
    if not isinstance(name, str) or not Path(name).is_absolute():
        return None  # a name on a hub, or a path that means nothing here
    folder = Path(host_path(name, (spec.profile.get("container") or {}).get("mounts") or ()))
    size = _highest_id(records.read_object(folder / "tokenizer.json") or {})
    if size is not None:
        return Vocabulary(size, f"{name}/tokenizer.json")
    config = records.read_object(folder / "config.json") or {}
    inner = config.get("text_config")  # of a model that also sees
    size = config.get("vocab_size") or (inner.get("vocab_size") if isinstance(inner, dict) else None)
    return Vocabulary(size, f"{name}/config.json", exact=False) if isinstance(size, int) else None


def _highest_id(data: dict[str, Any]) -> int | None:
    """Return one more than the highest id in a tokenizer.json of Hugging Face's; None where it says none."""
    model = data.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids: list[Any] = []
    if isinstance(vocabulary, dict):
        ids += vocabulary.values()
    elif isinstance(vocabulary, list):  # Unigram: the id is the place in the list
        ids.append(len(vocabulary) - 1)
    added = data.get("added_tokens")
    ids += [token.get("id") for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    numbers = [number for number in ids if isinstance(number, int)]
    return max(numbers) + 1 if numbers else None
