"""The ways to tell people: a webhook, and a command of the site. Each says what went wrong, and no secret with it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import responses
from typing import Any, Optional

from seatrial.run.layout import RunFolder
from seatrial.supervise import notify_message
from seatrial.supervise.ranks import kill_group

SECONDS = 10.0  # for each try
_TRIES, _WAIT_SECONDS = 2, 2.0  # of a webhook that did not answer, or cannot now


class Webhook:
    """Posts to the address in the variable ``name``. What it returns as a problem names neither address nor host."""

    def __init__(self, name: str, address: str, seconds: float = SECONDS, wait: float = _WAIT_SECONDS) -> None:
        self._name, self._address, self._seconds, self._wait = name, address.strip(), seconds, wait
        self._told = False

    def send(self, message: Mapping[str, Any]) -> Optional[str]:
        """Post; return what went wrong. A variable that is of no use is a problem once."""
        problem = self._unusable()
        if problem is not None:
            told, self._told = self._told, True
            return None if told else problem
        body = json.dumps(notify_message.slack(message)).encode()
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(self._wait)
            problem, passing = _post(self._address, body, self._seconds)
            if problem is None or not passing:
                break
        return problem

    def _unusable(self) -> Optional[str]:
        if not self._address:
            return f"the environment variable {self._name} is not set in the job"
        try:
            parts = urllib.parse.urlsplit(self._address)
            good = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            good = False
        return None if good else f"the environment variable {self._name} holds no http or https address"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What a redirect leads to is not whom the site wrote to."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _post(address: str, body: bytes, seconds: float) -> tuple[Optional[str], bool]:
    """Return (what went wrong, whether it may pass). Only words of ours: an error's own may hold the address."""
    try:
        request = urllib.request.Request(
            address, body, {"Content-Type": "application/json", "User-Agent": "seatrial"}, method="POST"
        )
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=seconds):
            return None, False
    except urllib.error.HTTPError as error:
        error.close()
        redirect = "; a redirect is not followed" if 300 <= error.code < 400 else ""
        return f"HTTP {error.code} {responses.get(error.code, '')}".rstrip() + redirect, _may_pass(error.code)
    except Exception as error:
        reason = getattr(error, "reason", error)
        return _words(reason if isinstance(reason, BaseException) else error, seconds), True


def _may_pass(code: int) -> bool:
    return code == 429 or code >= 500


def _words(error: BaseException, seconds: float) -> str:
    if isinstance(error, socket.timeout):
        return f"no answer within {seconds:g} s"
    if isinstance(error, socket.gaierror):
        return "its host's name is not known here"
    if str(error).startswith("Tunnel connection failed"):
        return "the proxy does not lead there"
    of_tls = type(error).__name__.startswith("SSL")  # their numbers are OpenSSL's
    if isinstance(error, OSError) and error.errno and not of_tls:
        return os.strerror(error.errno)
    return type(error).__name__


class Command:
    """Runs the site's command: the message as JSON on its standard input, its output dropped."""

    def __init__(
        self, words: Sequence[str], folder: RunFolder, environment: Mapping[str, str], seconds: float = SECONDS
    ) -> None:
        self._words, self._folder, self._seconds = list(words), folder.path, seconds
        # Our own snapshot on its path would give a Python program other modules than its own.
        kept = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
        self._environment = {**kept, "SEATRIAL_RUN_FOLDER": str(folder.path)}
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._closed = False

    def send(self, message: Mapping[str, Any]) -> Optional[str]:
        """Run it; return what went wrong."""
        try:
            self._process = process = subprocess.Popen(
                self._words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env=self._environment, cwd=self._folder, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            return f"cannot start {self._words[0]}: {getattr(error, 'strerror', None) or type(error).__name__}"
        if self._closed:
            self._kill()
        try:
            process.communicate(json.dumps(message).encode() + b"\n", timeout=self._seconds)
        except subprocess.TimeoutExpired:
            self._kill()
            return f"{self._words[0]} had not ended after {self._seconds:g} s"
        code = process.returncode
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        return f"{self._words[0]} ended with {how}" if code else None

    def close(self) -> None:
        """End what runs, with its children, and what may be starting now."""
        self._closed = True
        self._kill()

    def _kill(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            kill_group(process.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
