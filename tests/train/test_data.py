"""A gate reads the first samples of the convergence run, whatever number of them Megatron asks for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.train.data import SampleCounts, counts_from_args, sample_counts
from tests.train.harness import changed, rendered


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, SampleCounts(48000 * 512, 61 * 32 * 512, 32 * 512)),
        ({"eval_global_batch_size": 64}, SampleCounts(48000 * 512, 61 * 32 * 64, 32 * 64)),
        ({"full_validation": True}, SampleCounts(48000 * 512, None, 32 * 512)),
        ({"eval_iters": 0}, SampleCounts(48000 * 512, 0, 0)),
        ({"schedule_iters": 100}, SampleCounts(51200, 32 * 512, 32 * 512)),
    ],
)
def test_sample_counts_are_the_schedules(change: dict[str, Any], expected: SampleCounts) -> None:
    base = {"schedule_iters": 48000, "global_batch_size": 512, "eval_iters": 32, "eval_interval": 800}
    assert sample_counts(**(base | change)) == expected


def test_a_run_beyond_its_schedule_is_refused() -> None:
    with pytest.raises(SeatrialError, match="train_iters 200 is beyond the schedule of 100 steps"):
        counts_from_args(SimpleNamespace(train_iters=200), 100)


@pytest.fixture
def args(text: str, tmp_path: Any) -> Any:
    pytest.importorskip("megatron.training")
    from megatron.training.arguments import parse_args

    from seatrial.train.arguments import command_line

    words = changed(rendered("nemotron_3_nano_gb200"), data_path=text, data_cache_path=tmp_path)
    with command_line(words):
        parsed = parse_args()
    parsed.data_parallel_size = 2
    return parsed


@pytest.fixture
def tokenizer() -> Any:
    return SimpleNamespace(vocab_size=257, eod=256, pad=-1, unique_identifiers={"class": "bytes"})


def first_samples(args: Any, tokenizer: Any, train_iters: int, eval_interval: int) -> list[list[int]]:
    from seatrial.train.data import build_datasets

    args.train_iters, args.eval_interval = train_iters, eval_interval
    train, _, _ = build_datasets(args, tokenizer, counts_from_args(args, 48000))
    return [train[index]["tokens"].tolist() for index in range(100 * args.global_batch_size)]


@pytest.mark.train
@pytest.mark.filterwarnings("ignore")
def test_gate_and_convergence_run_read_the_same_first_hundred_steps(args: Any, tokenizer: Any) -> None:
    gate = first_samples(args, tokenizer, 100, 800)
    assert gate == first_samples(args, tokenizer, 48000, 800)
    # The order does depend on the number asked for: without the schedule's the two runs would differ.
    from seatrial.train.data import build_datasets

    alone, _, _ = build_datasets(args, tokenizer, SampleCounts(1600, 16, 16))
    assert gate != [alone[index]["tokens"].tolist() for index in range(1600)]


@pytest.mark.train
def test_no_data_is_an_error_and_mock_data_needs_its_name(args: Any, tokenizer: Any) -> None:
    from seatrial.train.data import dataset_config

    args.data_path = None
    with pytest.raises(SeatrialError, match="no training data named"):
        dataset_config(args, tokenizer)
    args.mock_data = True
    assert dataset_config(args, tokenizer).mock


@pytest.mark.train
def test_blends_keep_their_weights_and_splits_their_files(args: Any, tokenizer: Any, text: str) -> None:
    from seatrial.train.data import dataset_config

    args.data_path = ["30", text, "70", text]
    assert dataset_config(args, tokenizer).blend == ([text, text], [30.0, 70.0])
    args.data_path, args.split = None, None
    args.train_data_path, args.valid_data_path, args.test_data_path = [text], [text], None
    assert dataset_config(args, tokenizer).blend_per_split == [([text], None), ([text], None), None]
