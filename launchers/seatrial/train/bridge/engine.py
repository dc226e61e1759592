"""Drive ``megatron.bridge.training.pretrain``: the loop is Bridge's, unmodified; here it is given its parts."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seatrial.errors import SeatrialError
from seatrial.run import records, releases

from ..plan import Place, Plan
from ..requirements import Requirement, check_gpu, check_imports
from ..stopping import note
from . import flat, overrides, policy, recipes
from .overrides import EXIT_SIGNAL

RESOLVED = "bridge.json"  # in an attempt's folder: the configuration that the loop was begun with
BRIDGE = Requirement("megatron.bridge", "engine: megatron-bridge", "an image with Megatron-Bridge 0.5, such as NeMo's")


def run(plan: Plan, place: Place, on_listening: Callable[[], None] = lambda: None) -> None:
    """Train to the end of the plan's recipe and overrides, or until the loop exits by itself.

    ``on_listening`` is called when the loop's handler of the exit signal stands.

    Raises:
        SeatrialError: something is missing, or the configuration is not what a run of ours may train.
        SystemExit: the loop ended at a signal, an interval or a time limit, after it saved.
    """
    check_imports([BRIDGE])
    if plan.device == "cpu":
        from . import rehearsal

        stood_in = rehearsal.install()
        if place.rank == 0:
            note(f"stand-ins for Megatron-Bridge: {'; '.join(stood_in)}")
    from .. import data

    data.use_shipped_helpers()  # before Bridge binds the name
    loaded = prepare(plan)
    if plan.device == "cpu":
        rehearsal.prepare(loaded.config)
    else:
        check_gpu(needs(loaded.config.model))
    _pretrain(plan, place, on_listening, loaded)


def prepare(plan: Plan) -> recipes.Loaded:
    """Return the plan's configuration, as Bridge's own argument code makes it, with what the run alone sets.

    Raises:
        SeatrialError: unknown recipe or key, what policy forbids, or a checkpoint that is asked for and not there.
    """
    assert plan.bridge is not None
    _warn_of_release()
    loaded = recipes.load(plan.bridge.recipe)
    # The signal comes last: nobody else may say which.
    config = overrides.apply(loaded.config, [*plan.bridge.overrides, f"{EXIT_SIGNAL}={plan.exit_signal}"])
    policy.require_policy(config)
    require_checkpoint(config.checkpoint)
    return recipes.Loaded(config, loaded.origin)


def _warn_of_release() -> None:
    installed = recipes.release()
    if not releases.same_line(installed, recipes.LINE):
        note(f"{recipes.PACKAGE} {installed}: Seatrial knows {recipes.LINE}; recipes and field names may differ")


def require_checkpoint(asked: Any) -> None:
    """Raise :class:`SeatrialError` where the step to load is not there.

    Bridge looks for a tracker file first, and where there is none trains from scratch without a word, whatever step
    was asked for.
    """
    if asked.load is None or not asked.exit_on_missing_checkpoint:
        return
    from megatron.bridge.training.utils.checkpoint_utils import checkpoint_exists

    where = Path(asked.load)
    step = where if asked.ckpt_step is None else where / f"iter_{asked.ckpt_step:07d}"
    if not step.is_dir() or not checkpoint_exists(asked.load):
        raise SeatrialError(
            "the checkpoint to load is not there", file=where, key="checkpoint.ckpt_step", value=asked.ckpt_step,
            rule="the folder of the step, and a tracker file beside it, or Megatron-Bridge would begin at step 1",
            fix="restore it, or seatrial requeue RUN --from-step",
        )  # fmt: skip


def needs(model: Any) -> types.SimpleNamespace:
    """Return what decides which packages the model needs, under the names of Megatron's arguments."""
    names = (
        "transformer_impl", "moe_token_dispatcher_type", "moe_flex_dispatcher_backend", "hybrid_layer_pattern",
        "experimental_attention_variant",
    )  # fmt: skip
    return types.SimpleNamespace(**{name: getattr(model, name, None) for name in names})


def _pretrain(plan: Plan, place: Place, on_listening: Callable[[], None], loaded: recipes.Loaded) -> None:
    from megatron.bridge.training.gpt_step import forward_step
    from megatron.bridge.training.pretrain import pretrain

    from .. import drill, exits
    from ..evidence import Evidence
    from . import data, trackers
    from .watch import Watch

    assert plan.bridge is not None
    if place.rank in (0, place.world_size - 1):  # where a log begins that is read for steps
        note(f"engine: {recipes.PACKAGE} {recipes.release()}, recipe {plan.bridge.recipe}, {loaded.origin}")
    data.size_for_schedule(plan.schedule_iters)
    trackers.install(plan, place)
    evidence = Evidence(rank=place.rank, world_size=place.world_size, device=plan.device, rehearsal=plan.rehearsal)
    evidence.install()
    record = functools.partial(keep, plan, loaded.origin) if place.rank == 0 else None
    watch = Watch(evidence, on_listening, before_step=drill.of(plan, place), keep=record)
    try:
        pretrain(loaded.config, forward_step, callbacks=[watch])
    except SystemExit as end:
        if not end.code:
            exits.take_down()  # at a full end Bridge does it
        raise
    finally:
        watch.end()


def keep(plan: Plan, origin: str, config: Any) -> None:
    """Write what Bridge made of recipe and overrides into the attempt's folder; a full disk hinders nothing."""
    assert plan.bridge is not None
    said = {"schema": records.SCHEMA, "recipe": plan.bridge.recipe, "origin": origin, "release": recipes.release()}
    resolved = {name: "inf" if value == float("inf") else value for name, value in flat.flat(config).items()}
    with contextlib.suppress(OSError, ValueError):
        records.write_json(plan.attempt_folder / RESOLVED, said | {"resolved": resolved})
