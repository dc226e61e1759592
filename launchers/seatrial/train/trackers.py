"""What the last rank tells of the training: TensorBoard always, Weights & Biases where the run asks for it.

Megatron's loop does the telling, with its own code. Here is what keeps it from hurting the run, and what it leaves out:
whatever becomes of W&B, the steps go on; the final evaluation is logged also where it is made up alone; checkpoints,
which come and go by our own rules, are no artifacts of W&B.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from seatrial.run import records

from .plan import Place, Plan, Tracker
from .stopping import note

KEY = "WANDB_API_KEY"
# A run may set these otherwise (env.set). wandb writes nothing into the rank's log, which the supervisor reads, and
# sends no git state: what it would find where the ranks start is not what runs. Seconds: nobody waits for W&B longer,
# and what a kill takes from its file is no older.
DEFAULTS = {
    "WANDB_CONSOLE": "off", "WANDB_SILENT": "true", "WANDB_DISABLE_GIT": "true",
    "WANDB_INIT_TIMEOUT": "30", "WANDB_FINISH_TIMEOUT": "20", "WANDB_FINISH_TIMEOUT_RAISES": "true",
    "WANDB__TRANSACTION_LOG_FLUSH_INTERVAL": "5",
}  # fmt: skip
_LAST_SECONDS = 30.0  # for what waits and for the end of the W&B run, all together
_MOST_WAITING = 10_000


def install(plan: Plan, place: Place) -> None:
    """Prepare the rank that logs, Megatron's last one; no other needs wandb or the key. Before Megatron is set up."""
    if place.rank != place.world_size - 1:
        return
    from megatron.training import global_vars, training, wandb_utils

    wandb_utils.on_save_checkpoint_success = wandb_utils.on_load_checkpoint_success = lambda *_: None
    training.evaluate_and_print_results = always_written(training.evaluate_and_print_results)
    if plan.tracker is not None:
        set_environment(plan.tracker, os.environ)
        report = Report(plan.attempt_folder / "wandb.json", plan.tracker.key, os.environ)
        global_vars._set_wandb_writer = functools.partial(start, global_vars._set_wandb_writer, report)


def always_written(evaluate: Callable[..., None]) -> Callable[..., None]:
    """With --skip-train the loop would tell nobody but its log of the final evaluation."""

    def evaluated(*words: Any, **options: Any) -> None:
        evaluate(*words, **{**options, "write_to_tensorboard": True})

    return evaluated


def set_environment(tracker: Tracker, environment: Any) -> None:
    """Set wandb's variables of this process: who this run is, and the key under the name that wandb knows."""
    environment.pop("WANDB_SERVICE", None)  # of an outer W&B run: its service would be ours
    for name, value in DEFAULTS.items():
        environment.setdefault(name, value)
    # In a container a home may be missing; without a place for its log wandb's service writes into the rank's.
    environment.setdefault("WANDB_CACHE_DIR", str(Path(tempfile.gettempdir(), "wandb")))
    environment.update(tracker.environment)
    if tracker.key and environment.get(tracker.key):
        environment[KEY] = environment[tracker.key]


class Report:
    """What became of W&B: a line in the log, and a file for the supervisor. Holds no key."""

    def __init__(self, path: Path, key: str | None, environment: Mapping[str, str]) -> None:
        self._path = path
        self._hidden = {environment[name]: name for name in (key, KEY) if name and environment.get(name)}

    def logs(self, mode: str, where: str) -> None:
        """It logs, to a page or a folder."""
        note(f"W&B, {mode}: {where}")

    def trouble(self, what: str) -> None:
        """It does not, or not all of it."""
        for value, name in self._hidden.items():
            what = what.replace(value, f"<{name}>")
        note(f"W&B: {what}; the training goes on")
        with contextlib.suppress(OSError):
            records.write_json(self._path, {"schema": records.SCHEMA, "trouble": what, "time": records.now()})


def start(set_writer: Callable[[Any], None], report: Report, args: Any) -> None:
    """Set Megatron's W&B writer with its own ``set_writer``; where that fails offline, else not at all."""
    try:
        import wandb

        _begin(set_writer, report, args, wandb)
        run: Any = wandb.run
        report.logs("offline" if run.offline else "online", str(run.url or run.dir))
        Teller(wandb, report)
    except ImportError as error:
        report.trouble(f"nothing is logged: {error}. pip install 'seatrial[wandb]' into the ranks' Python")
    except Exception as error:
        report.trouble(f"nothing is logged: {_words(error)}")


def _begin(set_writer: Callable[[Any], None], report: Report, args: Any, wandb: Any) -> None:
    try:
        set_writer(args)
        return
    except Exception as error:
        if os.environ.get("WANDB_MODE") == "offline":
            raise
        report.trouble(f"this attempt is logged offline, for `wandb sync`: {_words(error)}")
    give_up(wandb)  # a service that still tries holds the run's id
    init = wandb.init
    wandb.init = functools.partial(init, mode="offline")
    try:
        set_writer(args)
    finally:
        wandb.init = init


class Teller:
    """Takes the place of ``wandb.log``, ``wandb.config`` and ``wandb.finish``: a thread calls them, one after another.

    The loop waits for none of it but, so many seconds at most, for the end. The first failure ends the telling.
    """

    def __init__(self, wandb: Any, report: Report, seconds: float = _LAST_SECONDS) -> None:
        self._wandb, self._log, self._config, self._finish = wandb, wandb.log, wandb.config, wandb.finish
        wandb.log, wandb.config, wandb.finish = self.log, self, self.finish
        self._report, self._seconds = report, seconds
        self._calls: queue.Queue[Callable[[], object] | None] = queue.Queue(_MOST_WAITING)
        self._failed, self._failing = False, threading.Lock()
        self._thread = threading.Thread(target=self._work, name="seatrial-wandb", daemon=True)
        self._thread.start()

    def log(self, data: Mapping[str, Any], step: int | None = None) -> None:
        """Log ``data``; tensors are read now, before the loop writes to them again."""
        try:
            self._put(functools.partial(self._log, {name: _plain(value) for name, value in data.items()}, step))
        except Exception as error:
            self._fail(_words(error))

    def update(self, values: Mapping[str, Any]) -> None:
        """Update the configuration; one that an earlier attempt has set otherwise, too."""
        self._put(functools.partial(self._config.update, dict(values), allow_val_change=True))

    def finish(self) -> None:
        """End the W&B run."""
        self._put(self._finish)
        self._put(None)
        self._thread.join(0 if self._failed else self._seconds)
        if self._thread.is_alive():
            self._fail(f"not all was taken within {self._seconds:.0f} s of the end; `wandb sync` sends the rest")
        if self._failed:
            give_up(self._wandb)  # the interpreter would wait for its service at the end

    def _put(self, call: Callable[[], object] | None) -> None:
        if self._failed:
            return
        try:
            self._calls.put_nowait(call)
        except queue.Full:
            self._fail("its service takes nothing any more; the rest is not logged")

    def _work(self) -> None:
        while (call := self._calls.get()) is not None and not self._failed:
            try:
                call()
            except BaseException as error:  # wandb's own may be none of Exception
                self._fail(f"the rest is not logged: {_words(error)}")

    def _fail(self, what: str) -> None:
        with self._failing:
            if not self._failed:
                self._report.trouble(what)
                self._failed = True  # from here on nobody waits for the thread, and the process may end


def give_up(wandb: Any) -> None:
    """Let go of the W&B run without waiting for anything: kill wandb's service, which leads a session of its own."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            if name.startswith("wandb-core") and int(rest.split()[1]) == os.getpid():
                os.kill(int(entry.name), signal.SIGKILL)
    with contextlib.suppress(BaseException):  # it finds the service gone
        wandb.teardown()


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:500]
