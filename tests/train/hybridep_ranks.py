"""One of several gloo ranks that hold the rehearsal's HybridEP against a plain computation. Run by test_hybridep.py."""

from __future__ import annotations

import itertools
import os
import sys

import torch
import torch.distributed as dist

from seatrial.train.cpu.deep_ep import DOMAIN, HybridEPBuffer

HIDDEN, LOCAL, TOKENS, TOP_K = 32, 4, 24, 3


def inputs(rank: int, experts: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens, routing map and probabilities of a rank; every rank can make every other's."""
    generator = torch.Generator().manual_seed(rank)
    hidden = torch.randn(TOKENS, HIDDEN, generator=generator)
    chosen = torch.rand(TOKENS, experts, generator=generator).topk(TOP_K).indices
    routing = torch.zeros(TOKENS, experts, dtype=torch.bool).scatter_(1, chosen, True)
    return hidden, routing, torch.rand(TOKENS, experts, generator=generator) * routing


def expected_rows(rank: int, world: int, multiple: int) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """What the experts of ``rank`` get: by local expert, source rank and token, padded with zeros."""
    rows, probabilities, counts = [], [], []
    for expert in range(rank * LOCAL, (rank + 1) * LOCAL):
        count = 0
        for source, token in itertools.product(range(world), range(TOKENS)):
            hidden, routing, probs = inputs(source, world * LOCAL)
            if routing[token, expert]:
                rows.append(hidden[token])
                probabilities.append(probs[token, expert])
                count += 1
        padding = -count % multiple
        rows += [torch.zeros(HIDDEN)] * padding
        probabilities += [torch.zeros(())] * padding
        counts.append(count + padding)
    return torch.stack(rows), torch.stack(probabilities), counts


def check(buffer: HybridEPBuffer, rank: int, world: int, multiple: int | None) -> None:
    hidden, routing, probs = inputs(rank, world * LOCAL)
    out, out_probs, _, counts, handle = buffer.dispatch_with_permute(
        hidden=hidden, routing_map=routing, probs=probs, num_of_experts_per_rank=LOCAL, pad_multiple=multiple
    )
    rows, probabilities, sizes = expected_rows(rank, world, multiple or 1)
    assert torch.equal(out, rows) and torch.equal(out_probs, probabilities) and counts.tolist() == sizes
    assert int(handle[-1]) == 0
    # Every expert doubles its rows: a token comes back as 2 x its number of experts, its probabilities unchanged.
    back, back_probs = buffer.combine_with_unpermute(
        hidden=out * 2, probs=out_probs, handle=handle, pad_multiple=multiple
    )
    torch.testing.assert_close(back, hidden * 2 * TOP_K)
    assert torch.equal(back_probs, probs)
    # The backward of a combine dispatches again, by the handle alone.
    again, none, _, _, _ = buffer.dispatch_with_permute(hidden=hidden, handle=handle, pad_multiple=multiple)
    assert torch.equal(again, rows) and none is None
    # Capacity: what is over is dropped and said so; what fits stays where it was.
    cut, _, _, cut_counts, cut_handle = buffer.dispatch_with_permute(
        hidden=hidden,
        routing_map=routing,
        probs=probs,
        pad_multiple=multiple,
        num_permuted_tokens=20,
        non_blocking=True,
    )
    assert torch.equal(cut, rows[:20]) and int(cut_handle[-1]) == 1 and int(cut_counts.sum()) == 20


def refuses(text: str, call: object) -> None:
    try:
        call()  # type: ignore[operator]
    except ValueError as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"not refused: {text}")


def main(rank: int, world: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, init_method=f"file://{store}")
    group = dist.group.WORLD
    buffer = HybridEPBuffer(group, HIDDEN, TOKENS, LOCAL, num_sms_dispatch_api=16)
    for multiple in (None, 8):
        check(buffer, rank, world, multiple)

    _, routing, probs = inputs(rank, world * LOCAL)
    refuses("hidden size", lambda: HybridEPBuffer(group, 24, TOKENS, LOCAL))
    if world % 4:
        refuses("% 4 == 0", lambda: HybridEPBuffer(group, HIDDEN, TOKENS, 1))
    os.environ[DOMAIN] = "3"
    refuses("whole NVLink domains", lambda: HybridEPBuffer(group, HIDDEN, TOKENS, LOCAL))
    uneven = TOKENS - rank
    refuses(
        "same number of tokens",
        lambda: buffer.dispatch_with_permute(
            hidden=torch.randn(uneven, HIDDEN), routing_map=routing[:uneven], probs=probs
        ),
    )
    dist.barrier()
    # Left to the interpreter, gloo's threads may still run when their pool is taken down.
    dist.destroy_process_group()
    print("agrees")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
