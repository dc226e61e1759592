"""AdamW with the state layout of Transformer Engine's FusedAdam, in plain torch.

The step count lives in the parameter group and the state holds ``exp_avg`` and ``exp_avg_sq`` only. Megatron's
distributed optimizer saves and loads that layout on GPUs; with torch's own AdamW its checkpoints fail to load, or
load wrongly (all parameters then share one step tensor).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch


class FusedAdam(torch.optim.Optimizer):
    """Adam (Kingma & Ba 2015), with decoupled weight decay (Loshchilov & Hutter 2019) if ``adam_w_mode``."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        adam_w_mode: bool = True,
        bias_correction: bool = True,
        capturable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
        }
        super().__init__(params, defaults)
        self.adam_w_mode = adam_w_mode

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if group["params"]:
                group["step"] = group.get("step", 0) + 1
            if parameters:
                self._update(group, parameters)

    def _update(self, group: dict[str, Any], parameters: list[torch.Tensor]) -> None:
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter] = {
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        gradients = [parameter.grad for parameter in parameters]
        first = [self.state[parameter]["exp_avg"] for parameter in parameters]
        second = [self.state[parameter]["exp_avg_sq"] for parameter in parameters]
        decay, (beta1, beta2), step = group["weight_decay"], group["betas"], group["step"]
        correct1, correct2 = (1 - beta1**step, 1 - beta2**step) if group["bias_correction"] else (1.0, 1.0)
        if decay and not self.adam_w_mode:
            gradients = torch._foreach_add(gradients, parameters, alpha=decay)
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, value=1 - beta2)
        denominator = torch._foreach_div(second, correct2)
        torch._foreach_sqrt_(denominator)
        torch._foreach_add_(denominator, group["eps"])
        update = torch._foreach_div(first, correct1)
        torch._foreach_div_(update, denominator)
        if decay and self.adam_w_mode:
            torch._foreach_add_(update, parameters, alpha=decay)
        torch._foreach_add_(parameters, update, alpha=-group["lr"])


def install() -> None:
    """Give Megatron this optimizer where it looks for Transformer Engine's, and let it take those branches."""
    from megatron.core import optimizer
    from megatron.core.optimizer import distrib_optimizer

    optimizer.Adam, optimizer.USING_PYTORCH_OPTIMIZER = FusedAdam, False
    distrib_optimizer.Adam = FusedAdam
    distrib_optimizer.HAVE_APEX_OR_TE, distrib_optimizer.USING_TE_OPTIMIZER = True, True
