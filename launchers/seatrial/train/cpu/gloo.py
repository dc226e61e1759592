"""Process groups of a rehearsal: every group is gloo's, with the few things that Megatron asks of NCCL alone."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist


def install() -> None:
    """Rebind what of ``torch.distributed`` gloo has not, or has under another form. Before Megatron is imported."""
    init, new_group, barrier = dist.init_process_group, dist.new_group, dist.barrier
    all_to_all = dist.all_to_all_single

    @functools.wraps(init)
    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        return init("gloo", *args, **kwargs)

    @functools.wraps(new_group)
    def gloo_group(
        ranks: Any = None, timeout: Any = None, backend: Any = None, pg_options: Any = None, **kwargs: Any
    ) -> Any:
        kwargs.pop("device_id", None)
        return new_group(ranks, timeout=timeout, backend="gloo", **kwargs)

    @functools.wraps(barrier)
    def plain_barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        return barrier(group=group, async_op=async_op)

    @functools.wraps(all_to_all)
    def all_to_all_single(
        output: Any, input: Any, output_split_sizes: Any = None, input_split_sizes: Any = None, **kwargs: Any
    ) -> Any:
        # Megatron moves split sizes to the host only if they are CUDA tensors; gloo wants integers.
        sizes = [s.tolist() if hasattr(s, "tolist") else s for s in (output_split_sizes, input_split_sizes)]
        return all_to_all(output, input, *sizes, **kwargs)

    rebound: Any = dist
    rebound.init_process_group, rebound.new_group, rebound.barrier = (
        init_process_group,
        gloo_group,
        plain_barrier,
    )
    rebound.all_to_all_single = all_to_all_single
    _install_average()


def _install_average() -> None:
    """gloo has no AVG: divide by the group's size, then sum."""
    reduce_scatter, all_reduce = dist.reduce_scatter_tensor, dist.all_reduce

    @functools.wraps(reduce_scatter)
    def reduce_scatter_tensor(
        output: Any, input: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False
    ) -> Any:
        if op == dist.ReduceOp.AVG:
            input, op = input.div_(dist.get_world_size(group)), dist.ReduceOp.SUM
        return reduce_scatter(output, input, op=op, group=group, async_op=async_op)

    @functools.wraps(all_reduce)
    def average_all_reduce(tensor: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
        if op == dist.ReduceOp.AVG:
            tensor, op = tensor.div_(dist.get_world_size(group)), dist.ReduceOp.SUM
        return all_reduce(tensor, op=op, group=group, async_op=async_op)

    rebound: Any = dist
    rebound.reduce_scatter_tensor, rebound.all_reduce = reduce_scatter_tensor, average_all_reduce
