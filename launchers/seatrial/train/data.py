"""Datasets of a run: the same samples in the same order for a gate and for the run that it opens the way to."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

from seatrial.errors import SeatrialError


class SampleCounts(NamedTuple):
    """How many samples each split is asked for; None for validation means all there are."""

    train: int
    valid: int | None
    test: int


def sample_counts(
    *,
    schedule_iters: int,
    global_batch_size: int,
    eval_iters: int,
    eval_interval: int,
    eval_global_batch_size: int | None = None,
    full_validation: bool = False,
) -> SampleCounts:
    """Return the numbers that Megatron's loop asks for in a run of ``schedule_iters`` steps.

    Megatron shuffles a dataset after repeating its documents until they are enough, so the order depends on how many
    samples are asked for. Asking for the whole schedule makes the first steps of a long and a short run the same.
    Formula: ``get_train_valid_test_num_samples`` of megatron.training 0.19.2 with ``train_iters = schedule_iters``.
    """
    batch = eval_global_batch_size or global_batch_size
    valid = None if full_validation else (schedule_iters // eval_interval + 1) * eval_iters * batch
    return SampleCounts(schedule_iters * global_batch_size, valid, eval_iters * batch)


def counts_from_args(args: Any, schedule_iters: int) -> SampleCounts:
    """:func:`sample_counts` for parsed Megatron arguments.

    Raises:
        SeatrialError: the run is longer than its schedule, so it would run out of samples.
    """
    if args.train_iters is not None and args.train_iters > schedule_iters:
        raise SeatrialError(
            f"train_iters {args.train_iters} is beyond the schedule of {schedule_iters} steps",
            key="schedule.train_iters",
            value=args.train_iters,
            rule="train_iters <= lr_decay_iters",
        )
    return sample_counts(
        schedule_iters=schedule_iters,
        global_batch_size=args.global_batch_size,
        eval_iters=args.eval_iters or 0,
        eval_interval=args.eval_interval or schedule_iters,
        eval_global_batch_size=getattr(args, "eval_global_batch_size", None),
        full_validation=bool(getattr(args, "full_validation", False)),
    )


def dataset_config(args: Any, tokenizer: Any) -> Any:
    """Return Megatron's dataset configuration: blends with weights or files per split, and the cache.

    Raises:
        SeatrialError: no data is named and mock data was not asked for by name.
    """
    from megatron.core.datasets.gpt_dataset import GPTDatasetConfig
    from megatron.training.utils import get_blend_and_blend_per_split

    blend, blend_per_split = (None, None) if args.mock_data else get_blend_and_blend_per_split(args)
    if not args.mock_data and blend is None and blend_per_split is None:
        raise SeatrialError(
            "no training data named",
            key="data.data_path",
            rule="Megatron would train on mock data without a word; Seatrial does so only with data.mock_data",
            fix="set data.data_path to the prefix of a .bin/.idx pair",
        )
    # Since 0.19; before, no argument asks for it.
    newer = (
        {"inter_document_masking": args.dataloader_inter_document_masking}
        if hasattr(args, "dataloader_inter_document_masking")
        else {}
    )
    return GPTDatasetConfig(
        random_seed=args.seed,
        sequence_length=args.seq_length,
        blend=blend,
        blend_per_split=blend_per_split,
        split=args.split,
        multiple_validation_sets=args.multiple_validation_sets,
        full_validation=args.full_validation,
        num_dataset_builder_threads=args.num_dataset_builder_threads,
        path_to_cache=args.data_cache_path,
        mmap_bin_files=args.mmap_bin_files,
        tokenizer=tokenizer,
        reset_position_ids=args.reset_position_ids,
        reset_attention_mask=args.reset_attention_mask,
        eod_mask_loss=args.eod_mask_loss,
        create_attention_mask=args.create_attention_mask_in_dataloader,
        object_storage_cache_path=args.object_storage_cache_path,
        mid_level_dataset_surplus=args.mid_level_dataset_surplus,
        allow_ambiguous_pad_tokens=args.allow_ambiguous_pad_tokens,
        fast_cache_load=args.dataloader_fast_cache_load,
        defer_npy_index_mmap=args.dataloader_defer_npy_index_mmap,
        context_parallel_size=args.context_parallel_size,
        data_parallel_size=args.data_parallel_size,
        sequence_parallel_size=args.tensor_model_parallel_size * int(args.sequence_parallel),
        **newer,
    )


class DatasetProvider:
    """What ``pretrain`` calls for its datasets. Every rank builds them (rank 0 first, the rest from its cache)."""

    is_distributed = True

    def __init__(self, schedule_iters: int) -> None:
        self.schedule_iters = schedule_iters

    def __call__(self, requested: Any, vp_stage: int | None = None) -> Any:
        """Return train, validation and test dataset for the whole schedule, whatever was ``requested``."""
        from megatron.core.tokenizers.utils.build_tokenizer import build_tokenizer
        from megatron.training import get_args

        args = get_args()
        return build_datasets(args, build_tokenizer(args), counts_from_args(args, self.schedule_iters))


def build_datasets(args: Any, tokenizer: Any, counts: SampleCounts) -> Any:
    """Build the three datasets with Megatron's blended builder."""
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, MockGPTDataset

    kind = MockGPTDataset if args.mock_data else GPTDataset
    config = dataset_config(args, tokenizer)
    return BlendedMegatronDatasetBuilder(kind, tuple(counts), lambda: True, config).build()


def use_shipped_helpers() -> None:
    """Skip the compilation of the dataset index builder where the wheel already holds it.

    Megatron runs ``make`` in its package folder at start-up and exits if that fails; a wheel has the compiled module
    and no Makefile.
    """
    from megatron.core.datasets import utils

    shipped = importlib.util.find_spec("megatron.core.datasets.helpers_cpp") is not None
    if shipped and not (Path(utils.__file__).parent / "Makefile").exists():
        utils.compile_helpers = lambda: None
