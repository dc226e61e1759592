"""Leaving nodes out by hand, and letting them back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seatrial.errors import SeatrialError
from seatrial.run import node_history
from seatrial.spec.profile import load_profile
from seatrial.supervise.excluded import Excluded


def change_nodes(
    profile: str, runs: Path | None, exclude: Sequence[str], release: Sequence[str], reason: str, days: int | None,
    by: str,
) -> None:  # fmt: skip
    """Have runs of a profile avoid the nodes in ``exclude`` for ``days``, and no longer those in ``release``.

    ``days``, ``runs`` (where its runs lie): None: as the profile says.

    Raises SeatrialError for an unknown profile, and where it cannot be put on record.
    """
    data = dict(load_profile(profile).data)
    where = (runs or Path(data["paths"]["runs"])).expanduser().resolve()
    data["paths"] = dict(data["paths"]) | {"runs": str(where)}
    if days is not None:
        data["recovery"] = dict(data["recovery"]) | {"exclusion_days": days}
    listed = Excluded(data, by)
    avoided = listed.listed()
    if unknown := sorted({*release} - {*avoided}):
        raise SeatrialError(f"{unknown[0]} is not left out", key="--release", value=unknown[0],
                            fix=f"one of {', '.join(sorted(avoided)) or 'none: no node is'}")  # fmt: skip
    try:
        listed.add(exclude, reason)
        listed.release(release)
        for node in release:
            history = node_history.path_for(where, str(data["name"]))
            node_history.add(history, node, node_history.RELEASED, reason, by)
    except OSError as error:
        raise SeatrialError(f"cannot be put on record: {error.strerror}", file=where / ".seatrial") from error
