"""Megatron-Core's own code reads, splits and counts as ours does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.data.blend import parse_blend
from seatrial.data.indexed import read_index, token_ids, tokens_between
from seatrial.data.splits import parse_split, requested_samples, samples_in, sequence_range
from seatrial.data.text import ensure_text

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("megatron.core")
    return ensure_text(tmp_path_factory.mktemp("text"))


def test_indexed_dataset_reads_our_files(text: str) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    theirs, ours = IndexedDataset(text), read_index(text)
    assert len(theirs) == ours.sequences
    assert theirs.document_indices.tolist() == list(range(ours.documents + 1))
    assert int(theirs.sequence_lengths.sum()) == ours.tokens
    assert [token for i in range(len(theirs)) for token in theirs[i].tolist()] == list(token_ids(ours))


def test_we_read_the_files_of_their_builder(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import numpy
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    prefix = str(tmp_path / "theirs")
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=numpy.int32)
    for document in ([[1, 2, 3], [4]], [[5, 6]]):  # the first document has two sequences
        builder.add_document(torch.tensor([t for s in document for t in s]), [len(s) for s in document])
    builder.finalize(prefix + ".idx")
    summary = read_index(prefix)
    assert (summary.dtype, summary.sequences, summary.documents, summary.tokens) == ("int32", 3, 2, 6)
    assert list(token_ids(summary)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("split", ["90,5,5", "969, 30, 1", "99,1,0", "1,1,1", "0.7,0.2,0.1", "3", "1,0,2", "7,11,13"])
def test_split_bounds_are_equal_to_the_last_bit(split: str) -> None:
    from megatron.core.datasets import blended_megatron_dataset_config as theirs

    expected = theirs.convert_split_vector_to_split_matrix(theirs.parse_and_normalize_split(split))
    assert list(parse_split(split)) == expected


def test_samples_of_each_split(text: str, tmp_path: Path) -> None:
    """One pass over each split (size None) gives as many samples as we count."""
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.tokenizers.text.libraries.null_tokenizer import NullTokenizer

    config = GPTDatasetConfig(
        random_seed=1, sequence_length=128, blend=([text], None), split="90,5,5",
        path_to_cache=str(tmp_path), tokenizer=NullTokenizer(257),
        reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
    )  # fmt: skip
    built = BlendedMegatronDatasetBuilder(GPTDataset, [None] * 3, lambda: True, config).build()
    summary = read_index(text)
    ranges = [sequence_range(bounds, summary.sequences) for bounds in parse_split("90,5,5")]
    assert [len(d) for d in built] == [samples_in(tokens_between(summary, *r), 128) for r in ranges]


@pytest.mark.parametrize(
    "change",
    [{}, {"eval_interval": 50}, {"eval_interval": 30, "start_eval_at_iter": 61}, {"full_validation": True}],
)
def test_requested_samples(monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]) -> None:
    training = pytest.importorskip("megatron.training.training")
    ours = {"train_iters": 100, "global_batch_size": 16, "eval_iters": 3, "eval_interval": 800} | change
    rest = {"train_samples": None, "skip_train": False, "phase_transition_iterations": None,
            "eval_global_batch_size": 16, "full_validation": False, "start_eval_at_iter": None}  # fmt: skip
    monkeypatch.setattr(training, "get_args", lambda: SimpleNamespace(**(rest | ours)))
    assert training.get_train_valid_test_num_samples() == tuple(requested_samples(**ours))


@pytest.mark.parametrize("words", [["a"], ["a", "b"], ["3", "a", "7", "b"], ["a", "b", "c"], [" a", "b "]])
def test_blends(words: list[str]) -> None:
    from megatron.core.datasets.utils import get_blend_from_list

    prefixes, weights = get_blend_from_list(words)
    ours = parse_blend(words)
    assert (list(ours.prefixes), ours.weights and list(ours.weights)) == (prefixes, weights)
