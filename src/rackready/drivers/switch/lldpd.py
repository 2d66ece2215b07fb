"""Neighbours of a switch whose system runs lldpd, read with `sudo lldpcli` in its own form json0 (lldpcli(8)).

``within``: the words before `lldpcli` where lldpd runs in a container.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rackready.drivers.switch.base import Neighbour, Session, SwitchError
from rackready.ondevice import lldp

_T = TypeVar("_T")
_TIMEOUT_S = 60.0


def neighbours(session: Session, switch: str, within: Sequence[str] = ()) -> dict[str, list[Neighbour]]:
    """Return port -> its neighbours. Raises SwitchError."""
    seen = _read(session, switch, (*within, *lldp.NEIGHBOURS), lldp.parse_neighbours)
    return {port: [neighbour(item) for item in items] for port, items in seen.items()}


def known_as(session: Session, switch: str, within: Sequence[str] = ()) -> frozenset[str]:
    """Return the names and chassis ids that the switch sends. Raises SwitchError."""
    return frozenset(_read(session, switch, (*within, *lldp.CHASSIS), lldp.parse_chassis))


def neighbour(item: dict[str, str]) -> Neighbour:
    """Return what ondevice/lldp.py reports of one neighbour."""
    return Neighbour(item["system"], item["chassis"], item["port"], item["port_type"], item["description"])


def _read(session: Session, switch: str, argv: tuple[str, ...], parse: Callable[[str], _T]) -> _T:
    command = " ".join(argv)
    code, text = session.as_root(argv, timeout_s=_TIMEOUT_S)
    if code != 0:
        raise SwitchError(
            switch,
            f"`sudo {command}`",
            expected="success",
            actual=f"exit {code}, {' '.join(text.split())[:300] or 'no output'}",
            next_step="Check that lldpd runs on the switch (docs/runbooks/lldp.md), and that its user may use sudo.",
        )
    try:
        return parse(text)
    except lldp.ShapeError as error:
        raise SwitchError(
            switch,
            f"`sudo {command}`",
            expected="neighbours in lldpcli's form json0",
            actual=str(error),
            next_step="Run it on the switch; its lldpd may be too old or too new for rackready.",
        ) from error
