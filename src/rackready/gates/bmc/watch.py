"""Watching a node's power supplies while its outlets go off one at a time: a lost input shows which outlet feeds it.

A supply that had input and stops reporting when its outlet goes off has lost it where its Status shows that it is out
(State UnavailableOffline or Absent, Health Critical). Otherwise no loss was seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcError, BmcLoginError, BmcUnreachableError
from rackready.drivers.redfish_read import read
from rackready.gates.bmc.documents import BmcAnswer, Document, absent, name
from rackready.gates.bmc.inputs import fed, newer, older, supplies
from rackready.model.problems import quoted

_HOST = "Chassis/*!hgx_*"
"""The chassis of the host: those of an HGX board have no supplies, and do not answer while the host is off."""
_INPUT_S = 30.0
"""How long a BMC may take to show that a supply lost its input, s. Judgement: BMCs read their supplies every few
seconds, some every 15 s."""
_BACK_S = 300.0
"""How long a BMC that has booted may take to report its supplies, s. Judgement: it answers minutes before it has
found all of its parts."""
_POLL_S = 2.0
_OUT = frozenset({"UnavailableOffline", "Absent"})
_WORDS = {True: "input", False: "no input", None: "not reported"}

Looked = dict[str, bool | None]
"""Supply -> whether it has input; None where the BMC does not report it."""


@dataclass(slots=True)
class Watch:
    """The supplies of one node. ``took``: outlet -> the supply that was seen to lose its input to it."""

    node: str
    outlets: Sequence[str]
    supplies: Sequence[str]
    _bmc: Bmc
    _trails: Mapping[str, Sequence[str]]
    _addresses: Sequence[str]
    took: dict[str, str] = field(default_factory=dict)

    def ready(self) -> bool:
        """Return whether every supply has input, so that a loss is seen; False where none reports it any more.

        BMCs may report it only while the node is on. Raises BmcError when some supplies have no input, or when their
        number differs from the outlets'.
        """
        if len(self.supplies) != len(self.outlets):
            raise BmcError(
                self._bmc.where,
                "power supplies",
                expected=f"{len(self.outlets)}, one for each outlet of {self.node} ({', '.join(self.outlets)})",
                actual=f"{len(self.supplies)} ({', '.join(self.supplies) or 'none'})",
                next_step=f"Check what is plugged in where, and correct the outlets of {self.node} in the site file; "
                "if a supply is missing, fit it first.",
            )
        found = self._until(lambda looked: all(looked.values()), _INPUT_S)
        if all(found.values()):
            return True
        if all(has is None for has in found.values()):
            return False
        raise BmcError(
            self._bmc.where,
            "power supplies",
            expected=f"input at each, before an outlet of {self.node} goes off",
            actual=_shown(found),
            next_step=f"{', '.join(self.outlets)} show On: find the cord, breaker or supply that is dead, repair "
            "it, then run again.",
        )

    def lost(self, outlet: str) -> None:
        """Wait until a supply loses its input to an outlet that is off. Raises BmcError when none or several do."""
        before = [supply for supply in self.supplies if supply not in self.took.values()]
        try:
            found = self._until(
                lambda looked: any(looked[supply] is False for supply in before), _INPUT_S, by_status=True
            )
        except BmcUnreachableError as error:
            raise BmcError(
                self._bmc.where,
                outlet,
                expected=f"a BMC that answers, since other outlets of {self.node} are on",
                actual=quoted(str(error)),
                next_step=f"Check which supplies of {self.node} are plugged into this outlet, and correct its outlets "
                "in the site file.",
            ) from error
        gone = [supply for supply in before if found[supply] is False]
        if len(gone) != 1:
            raise self._wrong(outlet, gone, {supply: found[supply] for supply in before})
        self.took[outlet] = gone[0]

    def back(self) -> Looked:
        """Wait until every supply has input again, and return the last answer.

        A BMC that does not answer raises nothing here.
        """
        return self._until(lambda looked: all(looked.values()), _BACK_S, patient=True)

    def _wrong(self, outlet: str, gone: Sequence[str], found: Looked) -> BmcError:
        if gone:
            return BmcError(
                self._bmc.where,
                outlet,
                expected=f"one power supply of {self.node} without input, since this outlet is off",
                actual=", ".join(gone),
                next_step="So another of its outlets feeds none. Check what is plugged in where, and correct the "
                f"outlets of {self.node} in the site file.",
            )
        return BmcError(
            self._bmc.where,
            outlet,
            expected=f"a power supply of {self.node} that loses its input within {_INPUT_S:.0f} s, since the site "
            "file says that this outlet feeds it",
            actual=_shown(found),
            next_step="Check what is plugged in there (it had no power from this outlet meanwhile), and correct the "
            f"outlets of {self.node} in the site file.",
        )

    def _until(
        self, enough: Callable[[Looked], bool], limit_s: float, *, by_status: bool = False, patient: bool = False
    ) -> Looked:
        """Ask until ``enough`` is true or the time is over; the last request starts after the time limit.

        Raises BmcError unless ``patient``.
        """
        begun = time.monotonic()
        while True:
            last = time.monotonic() - begun > limit_s
            try:
                found = self._look(by_status=by_status)
            except BmcError as error:
                if not patient:
                    raise
                found = dict.fromkeys(self.supplies)
                last |= isinstance(error, BmcLoginError)  # do not log in again: BMCs lock accounts
            if last or enough(found):
                return found
            time.sleep(_POLL_S)

    def _look(self, *, by_status: bool) -> Looked:
        """Ask for every supply once. Raises BmcError when the BMC as a whole does not answer."""
        documents: dict[str, Document] = {}
        for address in self._addresses:
            try:
                documents[address] = self._bmc.get(address)
            except (BmcLoginError, BmcUnreachableError):
                raise
            except BmcError:
                continue  # this supply counts as not reported
        found = BmcAnswer.of(documents, self._trails, {})
        has = _has if by_status else fed
        now = {called: has(supply, found) for called, supply in _named(found).items()}
        return {supply: now.get(supply) for supply in self.supplies}


def watch(node: str, bmc: Bmc, outlets: Sequence[str], *, given_back: bool) -> Watch | None:
    """Return the watch of a node's supplies, or None where its BMC does not report whether any has input.

    ``given_back``: the BMC has just got its power back, and may report it a little later. Raises BmcError when it
    cannot be known.
    """
    begun = time.monotonic()
    while True:
        last = not given_back or time.monotonic() - begun > _BACK_S
        found, addresses = _first(node, bmc)
        named = _named(found)
        there = [called for called, supply in named.items() if not absent(supply)]
        told = any(fed(supply, found) is not None for supply in named.values())
        if told and (last or len(there) == len(outlets)):
            return Watch(node, outlets, there, bmc, found.trails, addresses)
        if last:
            return None
        time.sleep(_POLL_S)


def _first(node: str, bmc: Bmc) -> tuple[BmcAnswer, list[str]]:
    """Return what the BMC reports about supplies, and the addresses to ask again.

    Raises BmcError when a part of it cannot be read.
    """
    gathered = read(bmc, [*newer(_HOST), older(_HOST)], lambda: None)
    found = BmcAnswer.of(gathered.documents, gathered.trails, gathered.unread)
    if found.unread:
        address, why = next(iter(found.unread.items()))
        raise BmcError(
            bmc.where,
            "power supplies",
            expected=f"to read whether each has input, before an outlet of {node} goes off",
            actual=f"{address} unread: {why}",
            next_step="Update or restart the BMC, then run again.",
        )
    of_newer = [address for trail in newer(_HOST) for address in found.trails[trail]]
    return found, of_newer or list(found.trails[older(_HOST)])


def _named(found: BmcAnswer) -> dict[str, Document]:
    """Return the supplies and empty slots by name, or by address where several have the same name."""
    listed = list(supplies(found, _HOST))
    names = [name(supply) for supply in listed]
    return {
        called if names.count(called) == 1 else str(supply.get("@odata.id")): supply
        for called, supply in zip(names, listed, strict=True)
    }


def _has(supply: Document, found: BmcAnswer) -> bool | None:
    """Return whether a supply that had input still has it.

    One that reports nothing now has lost it where its Status shows that it is out.
    """
    told, status = fed(supply, found), supply.get("Status")
    if (
        told is None
        and isinstance(status, dict)
        and (status.get("State") in _OUT or status.get("Health") == "Critical")
    ):
        return False
    return told


def _shown(found: Looked) -> str:
    return ", ".join(f"{supply} {_WORDS[has]}" for supply, has in found.items())
