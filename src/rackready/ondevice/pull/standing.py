"""Standing orders: of each phase, the newest order that began here. The timer compares the node with all of them.

They are only ever compared with, never applied. Each is verified again on every use, so that one of a key that the
site gave up counts no more.
"""

from __future__ import annotations

from contextlib import suppress

from .order import PullOrder, checked, guess, opened
from .places import Config, Places, replace_file

Standing = dict[str, bytes]
"""Phase -> envelope, in the order of the phases."""


def keep(places: Places, order: PullOrder, envelope: bytes) -> None:
    """Let an order stand for its phase. It supersedes the one before, also one that it withdraws. Raises OSError."""
    file = places.standing / f"{order.phase}.json"
    if not file.exists() or file.read_bytes() != envelope:
        replace_file(file, envelope)


def standing(places: Places, config: Config, order: PullOrder) -> Standing:
    """Return the standing orders. ``order``, the present one, names the phases that count; others fall away.

    So do orders of another ledger, and such as claim to be newer than the present one. Raises OSError.
    """
    found: Standing = {}
    for phase in order.phases:
        file = places.standing / f"{phase}.json"
        with suppress(FileNotFoundError):
            found[phase] = file.read_bytes()
    for file in places.standing.iterdir():
        if file.stem not in found or _is_stale(found[file.stem], config, order):
            found.pop(file.stem, None)
            file.unlink()
    return found


def _is_stale(envelope: bytes, config: Config, order: PullOrder) -> bool:
    claimed = guess(envelope)
    return claimed.site != config.site or claimed.sequence > order.sequence


def read(envelope: bytes, places: Places, config: Config) -> PullOrder:
    """Return a standing order, verified but for sequence and time: it was accepted here. Raises PullProblem."""
    accepted = {"sequence": guess(envelope).sequence, "state": "done"}
    return checked(opened(envelope, places, config), config, accepted, 0.0)
