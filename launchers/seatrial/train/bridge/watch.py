"""What runs beside Megatron-Bridge's loop, as one of its callbacks: its signal handler, evidence, a drill's fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from megatron.bridge.training.callbacks import Callback

from . import policy

if TYPE_CHECKING:
    from ..evidence import Evidence


class Watch(Callback):  # type: ignore[misc]
    """``on_listening``: called when the loop's handler of the exit signal stands. ``before_step``: with its number.
    ``keep``: with the configuration, once it is final."""

    def __init__(
        self,
        evidence: Evidence,
        on_listening: Callable[[], None],
        before_step: Callable[[int], None] | None = None,
        keep: Callable[[Any], None] | None = None,
    ) -> None:
        self.evidence, self.on_listening, self.before_step, self.keep = evidence, on_listening, before_step, keep
        self.train_state: Any = None
        self.begun = self.told = False

    def on_data_init_start(self, context: Any) -> None:
        """The model is built, and a checkpoint loaded; the datasets come next."""
        policy.require_policy(context.state.cfg)  # what Bridge itself changed at run time is in it
        listen(context.state.signal_handler)
        self.on_listening()
        self.train_state = context.state.train_state
        self.evidence.see_model(context.model)
        if self.keep is not None:
            self.keep(context.state.cfg)

    def on_train_start(self, context: Any) -> None:
        """Say what Megatron's own loop says here: the log of a run tells by it where the process began to train."""
        from megatron.bridge.training.utils.log_utils import barrier_and_log

        barrier_and_log("before the start of training step")

    def on_train_step_start(self, context: Any) -> None:
        """The step's number counts from 1."""
        self.begun = True
        if self.before_step is not None:
            self.before_step(context.state.train_state.step + 1)

    def on_train_step_end(self, context: Any) -> None:
        """The loop counts the step after this."""
        if not self.told:
            self.told = True
            self.evidence.print("first step", context.state.train_state.step + 1)

    def on_eval_start(self, context: Any) -> None:
        """Where only the final evaluation is made up, no step begins."""
        self.begun = True

    on_test_start = on_eval_start

    def end(self) -> None:
        """The loop has ended, somehow."""
        if self.begun:
            self.evidence.print("end", self.train_state.step)


def listen(handler: Any) -> None:
    """Install the loop's handler of the exit signal where Bridge has not.

    0.5 makes it and asks it at each step, but never installs it: a signal would pass it by. 0.6 installs it.
    """
    if handler.original_handler is None:
        handler.__enter__()
