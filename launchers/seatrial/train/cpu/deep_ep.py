"""HybridEP's Python interface over gloo, as ``megatron.core.transformer.moe.fused_a2a`` calls it.

Kept from the library: every rank of the group passes the same number of tokens; a token crosses to a rank once,
however many of its experts live there; the rows that arrive are grouped by local expert, and within one by source
rank and token; each expert's rows are padded to ``pad_multiple``; with ``num_permuted_tokens`` the output has that
many rows, what is over is dropped and ``handle[-1]`` says so; combining sums a token's rows, unweighted, in FP32.
Its size rules are checked, so that a recipe that the library would refuse is refused here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist

__all__ = ["HybridEPBuffer"]

DOMAIN = "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"  # read by the library, too


class Handle(NamedTuple):
    """What a dispatch leaves for its combine. ``overflow`` is last because Megatron reads ``handle[-1]``."""

    route: Route
    overflow: torch.Tensor


@dataclass(frozen=True)
class Route:
    """Where tokens go and what arrives. T tokens here, R rows received, N rows given to the experts."""

    tokens: int
    sent: torch.Tensor  # [S] token of each row sent, by destination rank
    destination: torch.Tensor  # [S] its destination rank
    sent_counts: list[int]  # rows sent to each rank
    received_counts: list[int]  # rows received from each rank
    rows: torch.Tensor  # [V] received row of each valid expert row
    experts: torch.Tensor  # [V] its local expert
    places: torch.Tensor | None  # [V] its row in the output, None if they are 0..V-1
    size: int  # N
    tokens_per_expert: torch.Tensor  # [local experts], padding included


class HybridEPBuffer:
    """The buffer, for tests and rehearsals on CPU ranks. ``stand_in`` tells it from the library's."""

    stand_in = True

    def __init__(
        self,
        group: dist.ProcessGroup,
        hidden_dim: int,
        max_num_of_tokens_per_rank: int,
        num_local_experts: int,
        use_fp8: bool = False,
        num_sms_dispatch_api: int | None = None,
        num_sms_combine_api: int | None = None,
        num_sms_preprocessing_api: int | None = None,
        num_blocks_permute: int | None = None,
        num_blocks_unpermute: int | None = None,
    ) -> None:
        ranks = group.size()
        if ranks < 2:
            raise ValueError("HybridEP needs at least 2 ranks")
        if use_fp8:
            raise ValueError("the rehearsal of HybridEP takes no FP8 tokens")
        if hidden_dim % 16:
            raise ValueError(f"HybridEP needs a hidden size that 16 divides, got {hidden_dim}")
        if (num_local_experts * ranks) % 4:
            raise ValueError(f"HybridEP needs (experts per rank x ranks) % 4 == 0, got {num_local_experts} x {ranks}")
        domain = int(os.environ.get(DOMAIN) or ranks)
        if ranks % domain:
            raise ValueError(f"HybridEP needs whole NVLink domains: {ranks} ranks, {DOMAIN}={domain}")
        self.group, self.ranks, self.rank = group, ranks, group.rank()
        self.hidden_dim, self.local_experts = hidden_dim, num_local_experts
        self.num_sms = (num_sms_dispatch_api, num_sms_combine_api, num_sms_preprocessing_api)

    @torch.no_grad()
    def dispatch_with_permute(
        self,
        *,
        hidden: torch.Tensor,
        routing_map: torch.Tensor | None = None,
        probs: torch.Tensor | None = None,
        scaling_factor: torch.Tensor | None = None,
        num_of_experts_per_rank: int | None = None,
        pad_multiple: int | None = None,
        num_permuted_tokens: int | None = None,
        non_blocking: bool = False,
        handle: Handle | None = None,
        fuse_permute_dispatch: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None, None, torch.Tensor, Handle]:
        """Send hidden [T, hidden] and probs [T, experts] to the experts' ranks.

        Returns the rows by local expert [N, hidden], their probabilities [N], no scaling factor, the rows of each
        local expert, and the handle. ``routing_map`` [T, experts] is a bool tensor; with ``handle`` it is not needed.
        """
        if scaling_factor is not None or num_of_experts_per_rank not in (None, self.local_experts):
            raise ValueError("HybridEP: scaling factors and another number of experts are not rehearsed")
        if handle is None:
            if routing_map is None:
                raise ValueError("HybridEP: a dispatch needs a routing map or a handle")
            handle = self._route(routing_map, pad_multiple or 1, num_permuted_tokens if non_blocking else None)
        route = handle.route
        if tuple(hidden.shape) != (route.tokens, self.hidden_dim):
            raise ValueError(
                f"HybridEP: tokens of shape {tuple(hidden.shape)}, expected {(route.tokens, self.hidden_dim)}"
            )
        received = self._exchange(hidden[route.sent], route.sent_counts, route.received_counts)
        out = self._place(received[route.rows], route)
        out_probs = None
        if probs is not None:
            if probs.dtype != torch.float32:
                raise ValueError("HybridEP takes FP32 probabilities only")
            by_rank = probs.view(route.tokens, self.ranks, self.local_experts)[route.sent, route.destination]
            received_probs = self._exchange(by_rank, route.sent_counts, route.received_counts)
            out_probs = self._place(received_probs[route.rows, route.experts], route)
        return out, out_probs, None, route.tokens_per_expert, handle

    @torch.no_grad()
    def combine_with_unpermute(
        self,
        *,
        hidden: torch.Tensor,
        probs: torch.Tensor | None = None,
        handle: Handle,
        pad_multiple: int | None = None,
        fuse_unpermute_combine: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Send rows [N, hidden] back and sum them by token -> [T, hidden]; probs [N] -> [T, experts]."""
        route = handle.route
        rows = sum(route.received_counts)
        partial = torch.zeros(rows, self.hidden_dim)
        partial.index_add_(0, route.rows, self._take(hidden, route).float())
        back = self._exchange(partial.to(hidden.dtype), route.received_counts, route.sent_counts)
        out = torch.zeros(route.tokens, self.hidden_dim)
        out.index_add_(0, route.sent, back.float())
        out_probs = None
        if probs is not None:
            by_expert = torch.zeros(rows, self.local_experts)
            by_expert[route.rows, route.experts] = self._take(probs, route).float()
            returned = self._exchange(by_expert, route.received_counts, route.sent_counts)
            out_probs = torch.zeros(route.tokens, self.ranks, self.local_experts)
            out_probs[route.sent, route.destination] = returned
            out_probs = out_probs.flatten(1)
        return out.to(hidden.dtype), out_probs

    def _route(self, routing_map: torch.Tensor, multiple: int, capacity: int | None) -> Handle:
        tokens, experts = routing_map.shape
        if experts != self.ranks * self.local_experts or routing_map.dtype != torch.bool:
            raise ValueError(f"HybridEP: routing map {routing_map.dtype} of {experts} experts")
        self._check_equal(tokens)
        maps = torch.empty(self.ranks * tokens, experts, dtype=torch.uint8)
        dist.all_gather_into_tensor(maps, routing_map.to(torch.uint8).contiguous(), group=self.group)

        goes = routing_map.view(tokens, self.ranks, self.local_experts).any(-1)
        destination, sent = goes.t().nonzero(as_tuple=True)
        first = self.rank * self.local_experts
        mine = maps.view(self.ranks, tokens, experts)[:, :, first : first + self.local_experts].bool()
        comes = mine.any(-1)
        local_map = mine[comes]  # [R, local experts], by source rank and token
        expert, rows = local_map.t().nonzero(as_tuple=True)
        counts = local_map.sum(0)
        padded = (counts + multiple - 1) // multiple * multiple
        places = None
        if multiple > 1:
            shift = (padded - counts).cumsum(0) - (padded - counts)
            places = torch.arange(rows.numel()) + shift[expert]
        size, overflow = int(padded.sum()), 0
        if capacity is not None:
            keep = (torch.arange(rows.numel()) if places is None else places) < capacity
            overflow = int(not bool(keep.all()))
            if overflow:
                rows, expert = rows[keep], expert[keep]
                places = None if places is None else places[keep]
                ends = padded.cumsum(0).clamp(max=capacity)
                padded = torch.diff(ends, prepend=ends.new_zeros(1))
            size = capacity
        route = Route(
            tokens,
            sent,
            destination,
            goes.sum(0).tolist(),
            comes.sum(1).tolist(),
            rows,
            expert,
            places,
            size,
            padded,
        )
        return Handle(route, torch.tensor(overflow, dtype=torch.int32))

    def _check_equal(self, tokens: int) -> None:
        counts = torch.empty(self.ranks, dtype=torch.int64)
        dist.all_gather_into_tensor(counts, torch.tensor([tokens]), group=self.group)
        if bool((counts != tokens).any()):
            raise ValueError(f"HybridEP needs the same number of tokens on every rank, got {counts.tolist()}")

    def _exchange(self, rows: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
        out = rows.new_empty((sum(received), *rows.shape[1:]))
        dist.all_to_all_single(out, rows.contiguous(), received, sent, group=self.group)
        return out

    @staticmethod
    def _place(valid: torch.Tensor, route: Route) -> torch.Tensor:
        if route.places is None and route.size == valid.shape[0]:
            return valid
        out = valid.new_zeros((route.size, *valid.shape[1:]))
        out[slice(valid.shape[0]) if route.places is None else route.places] = valid
        return out

    @staticmethod
    def _take(rows: torch.Tensor, route: Route) -> torch.Tensor:
        return rows[: route.rows.numel()] if route.places is None else rows[route.places]
