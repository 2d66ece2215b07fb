"""The BMCs of a site's nodes as campaigns open them: known, and with a password of their own."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.drivers.bmc_password import needs_rotation, rotate
from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcError
from rackready.ledger.store import Ledger
from rackready.model.site import Site


@dataclass(frozen=True, slots=True)
class NodeBmcs:
    """Opens BMCs. ``purpose``: what for, in errors and progress."""

    site: Site
    ledger: Ledger
    campaign: str
    purpose: str

    def open(self, name: str) -> Bmc:
        """Return the BMC of a node, with its own password set at first contact. Raises RackreadyError."""
        node = self.site.node(name)
        site = node.bmc.known()
        if site is None or node.serial is None:
            raise BmcError(
                name,
                self.purpose,
                expected="address, password and serial of its BMC in the site file",
                actual="not known yet",
                next_step="Import the vendor's manifest, then run again.",
            )
        if needs_rotation(site):
            rotate(self.ledger, name, site, lambda text: self.say(name, text))
        return Bmc(name, site)

    def say(self, node: str, text: str) -> None:
        """Report progress on a node."""
        self.ledger.event(self.campaign, node, self.purpose, text)
