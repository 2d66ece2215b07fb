"""Watches the power supplies of a node while its outlets go off one at a time: that a supply of it loses its input shows that the outlet feeds it.

A supply that had input and falls quiet with its outlet lost it where its Status says that it is out (State
UnavailableOffline or Absent, Health Critical). One that merely falls quiet was not seen to lose anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rackready.drivers.redfish import Bmc, BmcError, BmcLoginError, BmcUnreachableError
from rackready.drivers.redfish_read import read
from rackready.gates.bmc.documents import Document, Told, absent, name
from rackready.gates.bmc.inputs import fed, newer, older, supplies

_HOST = "Chassis/*!hgx_*"
"""The chassis of the host: those of an HGX board have no supplies, and answer nothing while the host is off."""
_INPUT_S = 30.0
"""How long a BMC may take to show that a supply lost its input, s. Judgement: they read their supplies every few seconds, some every 15 s."""
_BACK_S = 300.0
"""How long a BMC that has booted may take to tell of its supplies, s. Judgement: it answers minutes before it has found all of its parts."""
_POLL_S = 2.0
_OUT = frozenset({"UnavailableOffline", "Absent"})
_WORDS = {True: "input", False: "no input", None: "not told"}

Looked = dict[str, bool | None]
"""Supply -> whether it has input; None where the BMC does not say it."""


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
        """Whether every supply has input, so that one that loses it is seen; False where none tells it any more.

        BMCs may tell it only of a node that is on. Raises BmcError when some have none, or are another number than the
        outlets.
        """
        if len(self.supplies) != len(self.outlets):
            text = (
                f"{self._bmc.where}: power supplies - Expected: {len(self.outlets)}, one for each outlet of "
                f"{self.node} ({', '.join(self.outlets)}) "
                f"Actual: {len(self.supplies)} ({', '.join(self.supplies) or 'none'}). "
                f"Look what is plugged in where, and correct outlets of {self.node} "
                "in the site file; a supply that is missing is put in first."
            )
            raise BmcError(text)
        found = self._until(lambda looked: all(looked.values()), _INPUT_S)
        if all(found.values()):
            return True
        if all(has is None for has in found.values()):
            return False
        text = (
            f"{self._bmc.where}: power supplies - Expected: input at each, before an outlet of {self.node} goes off "
            f"Actual: {_shown(found)}. "
            f"{', '.join(self.outlets)} show On: find the cord, breaker or supply that is dead, repair it, then run "
            "again."
        )
        raise BmcError(text)

    def lost(self, outlet: str) -> None:
        """Wait until a supply is seen to lose its input to an outlet that is off. Raises BmcError when none does, or several do."""
        before = [supply for supply in self.supplies if supply not in self.took.values()]
        try:
            found = self._until(
                lambda looked: any(looked[supply] is False for supply in before), _INPUT_S, by_status=True
            )
        except BmcUnreachableError as error:
            text = (
                f"{self._bmc.where}: {outlet} - Expected: a BMC that answers, since other outlets of {self.node} "
                f"are on Actual: {error} "
                f"Look which supplies of {self.node} hang on this outlet, and correct its outlets in the site file."
            )
            raise BmcError(text) from error
        gone = [supply for supply in before if found[supply] is False]
        if len(gone) != 1:
            raise BmcError(self._wrong(outlet, gone, {supply: found[supply] for supply in before}))
        self.took[outlet] = gone[0]

    def back(self) -> Looked:
        """Wait until every supply has input again, and return what is seen then. Raises no BmcError: what cannot be asked is not told."""
        return self._until(lambda looked: all(looked.values()), _BACK_S, patient=True)

    def _wrong(self, outlet: str, gone: Sequence[str], found: Looked) -> str:
        where = f"{self._bmc.where}: {outlet}"
        if gone:
            return (
                f"{where} - Expected: one power supply of {self.node} without input, since this outlet is off "
                f"Actual: {', '.join(gone)}. "
                "Then another of its outlets feeds none: look what is plugged in where, and correct outlets of "
                f"{self.node} in the site file."
            )
        return (
            f"{where} - Expected: a power supply of {self.node} that loses its input within {_INPUT_S:.0f} s, since "
            "the site says that this outlet feeds it "
            f"Actual: {_shown(found)}. Look what is plugged in there (it was without that feed meanwhile), and "
            f"correct outlets of {self.node} in the site file."
        )

    def _until(
        self, enough: Callable[[Looked], bool], limit_s: float, *, by_status: bool = False, patient: bool = False
    ) -> Looked:
        """Look until it is enough, or the time is over; the last look begins after it. Raises BmcError unless ``patient``."""
        begun = time.monotonic()
        while True:
            last = time.monotonic() - begun > limit_s
            try:
                found = self._look(by_status=by_status)
            except BmcError as error:
                if not patient:
                    raise
                found = dict.fromkeys(self.supplies)
                last |= isinstance(error, BmcLoginError)  # it is not asked again: BMCs lock accounts
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
                continue  # what it would tell is not told
        found = Told.of(documents, self._trails, {})
        has = _has if by_status else fed
        now = {called: has(supply, found) for called, supply in _named(found).items()}
        return {supply: now.get(supply) for supply in self.supplies}


def watch(node: str, bmc: Bmc, outlets: Sequence[str], *, given_back: bool) -> Watch | None:
    """Return what watches a node's supplies; None where its BMC does not tell of any whether it has input. Raises BmcError when that cannot be known.

    ``given_back``: the BMC has just got its power back, and may tell it a little later.
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


def _first(node: str, bmc: Bmc) -> tuple[Told, list[str]]:
    """Walk to the supplies, and return what was found and which addresses tell of them. Raises BmcError when a part of it cannot be read."""
    gathered = read(bmc, [*newer(_HOST), older(_HOST)], lambda: None)
    found = Told.of(gathered.documents, gathered.trails, gathered.unread)
    if found.unread:
        address, why = next(iter(found.unread.items()))
        text = (
            f"{bmc.where}: power supplies - Expected: to read whether each has input, before an outlet of {node} "
            f"goes off Actual: {address} unread: {why}. "
            "Update or restart the BMC, then run again."
        )
        raise BmcError(text)
    of_newer = [address for trail in newer(_HOST) for address in found.trails[trail]]
    return found, of_newer or list(found.trails[older(_HOST)])


def _named(found: Told) -> dict[str, Document]:
    """Return the supplies and empty places by name, by address where several have the same."""
    listed = list(supplies(found, _HOST))
    names = [name(supply) for supply in listed]
    return {
        called if names.count(called) == 1 else str(supply.get("@odata.id")): supply
        for called, supply in zip(names, listed, strict=True)
    }


def _has(supply: Document, found: Told) -> bool | None:
    """Whether a supply that had input has it; one that tells nothing of it now lost it where its Status says that it is out."""
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
