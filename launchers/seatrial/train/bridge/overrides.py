"""KEY=VALUE overrides over a ConfigContainer, by Megatron-Bridge's own argument code."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Iterator, Sequence
from typing import Any

from seatrial.errors import SeatrialError, did_you_mean

from .flat import flat

EXIT_SIGNAL = "train.exit_signal"


def apply(config: Any, words: Sequence[str]) -> Any:
    """Return ``config`` with ``words`` applied, in order.

    Each must name a field that is there: Bridge would take ``+KEY`` for a new one, and not pass it on.

    Raises:
        SeatrialError: a word is no KEY=VALUE, names no field, or has a value that cannot be read.
    """
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    known = _known(config)
    for word in words:
        _check(word, known)
    try:
        with _complaints() as complaints:
            config = process_config_with_overrides(config, cli_overrides=list(words))
    except Exception as error:  # of Hydra's grammar, of OmegaConf's, or Bridge's own around them
        raise SeatrialError(
            f"Megatron-Bridge refuses the overrides: {str(error).splitlines()[0]}",
            key="bridge.overrides",
            value=_first_refused(config, words),
            rule="Hydra's grammar: KEY=VALUE, text in double quotes, null, true, lists in brackets",
        ) from error
    if complaints:
        raise SeatrialError(
            f"Megatron-Bridge did not take all overrides: {complaints[0]}",
            key="bridge.overrides", value=list(words), fix="give the field a value of its own type",
        )  # fmt: skip
    _name_signal(config)
    return config


def _known(config: Any) -> set[str]:
    """Return the keys that a word may name: the fields of each section that the recipe has."""
    return {name for name in flat(config) if "." in name}


def _check(word: str, known: set[str]) -> None:
    key, equals, _ = word.partition("=")
    if not equals or not key or key[0] in "+~":
        raise SeatrialError(
            "an override is no KEY=VALUE", key="bridge.overrides", value=word,
            rule="section.field=value, of fields that the recipe's configuration has",
        )  # fmt: skip
    if key in known:
        return
    section, _, rest = key.partition(".")
    base = ".".join(key.split(".")[:2])
    if rest.count(".") and base in known:
        return  # inside a field that holds a mapping: Bridge itself says whether it is there
    raise SeatrialError(
        f"Megatron-Bridge's configuration has no field {key!r}", key=key, value=word.partition("=")[2],
        rule="a field of its ConfigContainer for this recipe" + _string_section(section, known),
        fix=did_you_mean(key, known),
    )  # fmt: skip


def _string_section(section: str, known: set[str]) -> str:
    if section == "mixed_precision" and not any(name.startswith("mixed_precision.") for name in known):
        return "; this recipe's mixed_precision is a name, which has no fields before the run begins"
    return ""


@contextlib.contextmanager
def _complaints() -> Iterator[list[str]]:
    """Collect what Bridge only warns of: a value that a field does not take is left out there, with a log line."""
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if "Could not set attribute" in text or "not found in config object" in text or "back to" in text:
                said.append(text)

    listener = Listener(logging.WARNING)
    logger = logging.getLogger("megatron.bridge.training.utils.omegaconf_utils")
    logger.addHandler(listener)
    try:
        yield said
    finally:
        logger.removeHandler(listener)


def _first_refused(config: Any, words: Sequence[str]) -> str | None:
    """Return the first word that Bridge's parser refuses by itself; None where none does."""
    from megatron.bridge.training.utils import omegaconf_utils

    for word in words:
        try:
            parsed, _ = omegaconf_utils.create_omegaconf_dict_config(config)
            omegaconf_utils.parse_hydra_overrides(parsed, [word])
            omegaconf_utils.OmegaConf.to_container(parsed, resolve=True)
        except Exception:
            return word
    return None


def _name_signal(config: Any) -> None:
    """Make a signal of its name: Bridge's loop needs one, and its argument code leaves text as it is."""
    name = config.train.exit_signal
    if isinstance(name, signal.Signals):
        return
    try:
        config.train.exit_signal = signal.Signals[name] if isinstance(name, str) else signal.Signals(name)
    except (KeyError, ValueError) as error:
        raise SeatrialError("no such signal", key=EXIT_SIGNAL, value=name, fix="SIGUSR2, say") from error
