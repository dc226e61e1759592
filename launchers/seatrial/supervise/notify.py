"""Tells people of a run: by a webhook and by a command of the site, in threads of their own. A failure hurts no run."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Optional

from seatrial.judge.history import read_events, read_history
from seatrial.judge.run_goodput import run_goodput
from seatrial.run.layout import RunFolder
from seatrial.supervise import notify_message
from seatrial.supervise.journal import Journal
from seatrial.supervise.notify_ways import Command, Webhook

FAILED = "notify_failed"
_MOST_WAITING = 32
_POLL_SECONDS = 0.05


def take_secret(profile: Mapping[str, Any], environment: MutableMapping[str, str]) -> dict[str, str]:
    """Take the webhook's variable out of ``environment``: nothing that is started from here on gets to know it."""
    name = (profile.get("notify") or {}).get("webhook")
    return {name: environment.pop(name)} if name and name in environment else {}


def notifier_of(
    spec: Mapping[str, Any], folder: RunFolder, target: int, journal: Journal, withheld: Mapping[str, str],
    environment: Mapping[str, str],
) -> Optional[Notifier]:  # fmt: skip
    """Return who tells of the run in ``folder``, or None where the profile names nobody. Nothing is sent yet.

    ``withheld``: what ``take_secret`` took. ``environment``: the job's, without it.
    """
    wanted = spec["profile"].get("notify") or {}
    name, words = wanted.get("webhook"), wanted.get("command")
    channels = []
    if name:
        channels.append(Channel("webhook", Webhook(name, withheld.get(name, "")).send))
    if words:
        command = Command(words, folder, environment)
        channels.append(Channel("command", command.send, command.close))
    if not channels:
        return None
    run = notify_message.run_of(spec, str(folder.path), target, environment, socket.gethostname())
    return Notifier(run, folder, journal, wanted.get("events", notify_message.EVENTS), channels)


class Notifier:
    """Hears the supervisor's events and hands messages to ``channels``. Neither raises nor waits, but in ``finish``."""

    def __init__(
        self, run: notify_message.Run, folder: RunFolder, journal: Journal, events: Sequence[str],
        channels: Sequence[Channel],
    ) -> None:  # fmt: skip
        self._run, self._folder, self._journal = run, folder, journal
        self._events, self._channels = set(events), list(channels)
        self._standing, self._lock = notify_message.Standing(), threading.Lock()  # events come from several threads
        for channel in self._channels:
            channel.prepare, channel.failed = self._with_goodput, self._failed

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take note of an event, and pass on what somebody is to be told."""
        if event.get("event") == FAILED:
            return
        try:
            with self._lock:
                before, self._standing = self._standing, notify_message.after(self._standing, event)
            about = notify_message.topic(event, before)
            if about in self._events and about is not None:
                message = notify_message.message(about, event, self._run, self._standing)
                for channel in self._channels:
                    channel.put(message)
        except Exception as error:
            self._failed("message", type(error).__name__)

    def finish(self, until: Callable[[], float]) -> None:
        """Wait until all is sent, or ``until()`` (time.monotonic) has come; then give up what is left, on record."""
        for channel in self._channels:
            channel.take_no_more()
        for channel in self._channels:
            channel.close(until)

    def _with_goodput(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add the goodput to a run's last message: it takes reading the run's records, so it is done in a channel."""
        if message["event"] not in (notify_message.DONE, notify_message.STOP):
            return message
        try:
            events = read_events(self._folder)
            goodput = run_goodput(read_history(self._folder, events), events).without_queue
        except Exception:  # it is an extra: whatever is wrong with the records shows elsewhere
            return message
        return notify_message.with_goodput(message, goodput)

    def _failed(self, how: str, reason: str) -> None:
        self._journal.event(FAILED, how=how, reason=reason)
        self._journal.say(f"nobody was told by the {how}: {reason}")


class Channel:
    """One way to tell, with a queue and a thread of its own: a slow one holds up neither the run nor the other way."""

    def __init__(
        self, how: str, send: Callable[[Mapping[str, Any]], Optional[str]], stop: Callable[[], None] = lambda: None
    ) -> None:
        """``send`` returns what went wrong. ``stop`` ends what it is at."""
        self.how, self._send, self._stop = how, send, stop
        self.prepare: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda message: message
        self.failed: Callable[[str, str], None] = lambda how, reason: None
        self._queue: queue.Queue[Optional[Mapping[str, Any]]] = queue.Queue(_MOST_WAITING)
        self._thread: Optional[threading.Thread] = None
        self._ending = self._over = False
        self._lock = threading.Lock()

    def put(self, message: Mapping[str, Any]) -> None:
        """Send ``message`` when its turn comes; one too many is given up."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"notify-{self.how}", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(message)
        except queue.Full:
            self.failed(self.how, f"{_MOST_WAITING} messages wait already")

    def take_no_more(self) -> None:
        """Have the thread end once it has sent what waits."""
        self._ending = True
        with contextlib.suppress(queue.Full):  # then it does not wait for anything
            self._queue.put_nowait(None)

    def close(self, until: Callable[[], float]) -> None:
        """See Notifier.finish."""
        if self._thread is None:
            return
        while self._thread.is_alive() and time.monotonic() < until():
            self._thread.join(_POLL_SECONDS)
        with self._lock:  # from here on the thread puts nothing on record: the run's records are closed next
            self._over = True
        if self._thread.is_alive():
            self._stop()
            self.failed(self.how, "it was not done when the supervisor had to end")

    def _work(self) -> None:
        while (message := self._queue.get()) is not None and not self._over:
            try:
                problem = self._send(self.prepare(message))
            except Exception as error:
                problem = type(error).__name__  # its words may hold the address
            with self._lock:
                if problem and not self._over:
                    self.failed(self.how, problem)
            if self._ending and self._queue.empty():
                return
