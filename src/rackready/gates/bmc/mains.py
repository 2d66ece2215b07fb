"""PDU outlets that feed a node: switched off, one at a time where its supplies are watched, and always on again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackready.drivers.redfish_outlets import OutletStateError, PduOutlet
from rackready.gates.bmc.watch import Watch
from rackready.model.problems import RackreadyError
from rackready.model.site import Bmc as BmcSite
from rackready.model.site import Outlet, Site


@dataclass(slots=True)
class Mains:
    """The outlets of one node.

    ``asked``: those that were told to switch off. ``watch``: checks that they feed the node, None where only silence
    can.
    """

    outlets: Sequence[PduOutlet]
    asked: list[PduOutlet] = field(default_factory=list)
    watch: Watch | None = None

    @property
    def names(self) -> list[str]:
        """Return the outlets' names for messages."""
        return [outlet.stated.called for outlet in self.outlets]

    def stored(self) -> list[dict[str, Any]]:
        """Return what the ledger keeps of them, so that a later run can switch them on."""
        return [outlet.stated.model_dump(mode="json") for outlet in self.outlets]

    def require_on(self) -> None:
        """Raise BmcError unless all of them are on and may be switched."""
        for outlet in self.outlets:
            outlet.require_on()

    def off(self) -> None:
        """Switch all of them off, and wait until each reports off. Raises BmcError; some may be off then.

        With a watch they go one at a time: each only after the previous one was seen to feed the node. Only silence can
        show it for the last.
        """
        for number, outlet in enumerate(self.outlets, 1):
            self.asked.append(outlet)
            outlet.switch("Off")
            if self.watch is not None and number < len(self.outlets):
                outlet.wait("Off")
                self.watch.lost(outlet.stated.called)
        for outlet in self.outlets:
            outlet.wait("Off")

    def on(self) -> None:
        """Switch on those that were told to switch off; one that fails does not stop the others.

        The last one to go off comes first: if something was wrong, it was with that one, and another machine may be
        waiting for it. One that is seen off is switched on once more: a PDU whose answer was lost may switch off late.
        Raises RackreadyError, which names the outlets that did not come on.
        """
        asked = self.asked[::-1]
        dark = _on(asked)
        off = [one for one in asked if isinstance(dark.get(one.stated.called), OutletStateError)]
        for outlet in off:
            del dark[outlet.stated.called]
        dark |= _on(off)
        if dark:
            raise RackreadyError(", ".join(dark), "not seen on again", expected="On", actual=next(iter(dark.values())))

    def all_on(self) -> bool:
        """Return whether those that were told to switch off are on now. Raises RackreadyError."""
        return all(outlet.is_on() for outlet in self.asked)


@dataclass(frozen=True, slots=True)
class Feeds:
    """The power feeds that a site declares: outlets by node, and the Redfish services of its devices."""

    outlets: Mapping[str, Sequence[Outlet]] = field(default_factory=dict)
    services: Mapping[str, BmcSite] = field(default_factory=dict)

    @classmethod
    def of_site(cls, site: Site) -> Feeds:
        """Return the feeds of a site."""
        services = {device.name: device.bmc for device in site.devices if device.bmc is not None}
        return cls({node.name: node.outlets for node in site.nodes() if node.outlets}, services)

    def mains(self, node: str) -> Mains:
        """Return the outlets of a node; none where the site names none."""
        return self._mains(node, self.outlets.get(node, ()))

    def left_off(self, node: str, stored: Sequence[Mapping[str, Any]]) -> Mains:
        """Return outlets that an interrupted run may have left off; ``on`` switches all on. Raises RackreadyError."""
        outlets = [Outlet.model_validate(item) for item in stored]
        for other, named in self.outlets.items():
            if other != node and (taken := next((outlet for outlet in outlets if outlet in named), None)) is not None:
                raise RackreadyError(
                    node,
                    taken.called,
                    expected="its own, as when its power was taken away",
                    actual=f"the site file now gives it to {other}",
                    next_step="Nothing was switched: check what is plugged in there, and switch it on by hand.",
                )
        found = self._mains(node, outlets)
        found.asked = list(found.outlets)
        return found

    def _mains(self, node: str, outlets: Sequence[Outlet]) -> Mains:
        missing = [outlet for outlet in outlets if outlet.pdu not in self.services]
        if missing:
            raise RackreadyError(
                node,
                missing[0].called,
                expected=f"device {missing[0].pdu} with a bmc in the site file",
                actual="none",
                next_step="Add it, or switch the outlet on by hand: a killed run may have left it off.",
            )
        return Mains([PduOutlet(outlet, self.services[outlet.pdu]) for outlet in outlets])


def _on(outlets: Sequence[PduOutlet]) -> dict[str, Exception]:
    """Switch outlets on. Return why some are not seen on: what the PDU refused, or what it shows."""
    refused: dict[str, Exception] = {}
    dark: dict[str, Exception] = {}
    for outlet in outlets:
        _try(outlet, lambda one: one.switch("On"), refused)
    for outlet in outlets:  # even where the PDU refused: the outlet may be on
        _try(outlet, lambda one: one.wait("On"), dark)
    return {name: refused.get(name, seen) for name, seen in dark.items()}


def _try(outlet: PduOutlet, step: Callable[[PduOutlet], None], failed: dict[str, Exception]) -> None:
    """Do one step, and record the error if it fails: the other outlets are waiting."""
    try:
        step(outlet)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other outlets must come on, and it is told
        failed[outlet.stated.called] = error
