"""The forward step and the loss: what ``pretrain`` calls for every micro batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

# Upstream's factor: a loss this many times the largest seen is reported.
SPIKY_LOSS_FACTOR = 10.0


class ForwardStep:
    """The forward step.

    ``on_next_step`` is called once, at the first micro batch after the first step; ``before_step`` with the number of
    the step at each micro batch that trains.
    """

    def __init__(
        self,
        args: Any,
        on_next_step: Callable[[], None] = lambda: None,
        before_step: Callable[[int], None] | None = None,
    ) -> None:
        from megatron.core import parallel_state
        from megatron.core.rerun_state_machine import get_rerun_state_machine

        self.args, self.state = args, parallel_state
        self.rerun_state_machine = get_rerun_state_machine
        self.on_next_step, self.before_step = on_next_step, before_step
        self.first_iteration: int | None = None
        self.counting = True

    def __call__(self, data_iterator: Iterator[Any], model: Any) -> tuple[torch.Tensor, Callable[[torch.Tensor], Any]]:
        """Return the model's output (per-token losses on the last stage) and the function that sums them."""
        if self.counting:
            self._count()
        if self.before_step is not None and model.training:
            self.before_step(getattr(self.args, "curr_iteration", 0) + 1)
        batch = self.batch(data_iterator)
        output = model(
            batch["tokens"],
            batch["position_ids"],
            batch.get("attention_mask"),
            labels=batch["labels"],
            loss_mask=batch["loss_mask"],
        )
        return output, partial(self.loss, batch["loss_mask"])

    def _count(self) -> None:
        iteration = getattr(self.args, "curr_iteration", 0)
        if self.first_iteration is None:
            self.first_iteration = iteration
        elif iteration > self.first_iteration:
            self.counting = False
            self.on_next_step()

    def batch(self, data_iterator: Iterator[Any]) -> dict[str, torch.Tensor | None]:
        """Return the next micro batch on the device; all None on a pipeline stage that takes none.

        Every rank of a tensor-parallel group reads the same samples from its own loader.
        """
        if not (self.state.is_pipeline_first_stage() or self.state.is_pipeline_last_stage()):
            return dict.fromkeys(("tokens", "position_ids", "labels", "loss_mask"))
        batch = {
            name: value.cuda(non_blocking=True) if torch.is_tensor(value) else value
            for name, value in next(data_iterator).items()
        }
        if self.args.context_parallel_size > 1:
            from megatron.core.utils import get_batch_on_this_cp_rank

            batch = get_batch_on_this_cp_rank(
                batch, is_hybrid_cp=False, cp_group=self.state.get_context_parallel_group()
            )
        return batch

    def loss(self, loss_mask: torch.Tensor, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Return the summed loss, the number of tokens that count, and what is logged.

        With ``check_for_nan_in_loss_and_grad`` the sum is shown to Megatron's rerun state machine, which tells a
        fault of the hardware from one of the model; so it is with ``check_for_spiky_loss``.
        """
        mask = loss_mask.view(-1).float()
        total = torch.sum(output.view(-1).float() * mask)
        if self.args.check_for_nan_in_loss_and_grad:
            self._validate(total, torch.isnan, "found NaN in local forward loss calculation", fatal=True)
            self._validate(total, torch.isinf, "found Inf in local forward loss calculation", fatal=True)
        if self.args.check_for_spiky_loss:
            large = partial(
                self.rerun_state_machine().is_unexpectedly_large, threshold=SPIKY_LOSS_FACTOR, context="loss"
            )
            self._validate(total, large, "Spiky loss", fatal=False)
        tokens = mask.sum().detach().to(torch.int)
        return total, tokens, {"lm loss": torch.cat([total.detach().view(1), tokens.view(1)])}

    def _validate(self, total: torch.Tensor, reject: Callable[[Any], Any], message: str, *, fatal: bool) -> None:
        self.rerun_state_machine().validate_result(
            result=total, rejection_func=reject, message=message, tolerance=0.0, fatal=fatal
        )
