"""Drive ``megatron.training.pretrain``: the loop is Megatron's, unmodified; here it is given its parts."""

from __future__ import annotations

import os
from collections.abc import Callable

from .plan import Place, Plan


def run(plan: Plan, place: Place, on_listening: Callable[[], None] = lambda: None) -> None:
    """Train to the end of the plan's arguments, or until the loop exits by itself.

    ``on_listening`` is called when Megatron's handler of the exit signal stands.

    Raises:
        SeatrialError: something that the model needs is missing, or the data or the device do not fit.
        SystemExit: the loop ended at a signal, an interval or a time limit, after it saved.
    """
    if plan.device == "cpu":
        from . import cpu

        cpu.set_environment(os.environ)
    from . import requirements

    requirements.check_imports()
    if plan.bridge is not None:
        from .bridge import engine as bridge

        bridge.run(plan, place, on_listening)
        return
    requirements.check_release(plan.megatron_core)
    if plan.device == "cpu":
        cpu.install()
    _pretrain(plan, place, on_listening)


def _pretrain(plan: Plan, place: Place, on_listening: Callable[[], None]) -> None:
    from megatron.training.argument_utils import pretrain_cfg_container_from_args

    from . import arguments, data, drill, exits, models, release, requirements, trackers
    from .evidence import Evidence
    from .forward import ForwardStep

    parsed = arguments.parse(plan.arguments)
    transform = models.unchanged
    if plan.device == "cpu":
        from .cpu.specs import te_to_local

        transform = te_to_local
    else:
        requirements.check_gpu(parsed)
    trackers.install(plan, place)
    args = arguments.set_up(plan.arguments)
    on_listening()
    data.use_shipped_helpers()

    evidence = Evidence(rank=place.rank, world_size=place.world_size, device=plan.device, rehearsal=plan.rehearsal)
    evidence.install()
    config = models.model_config(args, transform)
    config.post_wrap_hooks.append(evidence.see_model)
    step = ForwardStep(
        args,
        on_next_step=lambda: evidence.print("first step", args.curr_iteration),
        before_step=drill.of(plan, place),
    )
    try:
        release.pretrain(
            pretrain_cfg_container_from_args(args, config), data.DatasetProvider(plan.schedule_iters), step
        )
    except SystemExit as end:
        if not end.code:
            exits.take_down()
        raise
    finally:
        if step.first_iteration is not None:
            # Where only the final evaluation is made up, the loop never counted.
            evidence.print("end", getattr(args, "curr_iteration", args.iteration - 1) + 1)
    exits.take_down()
