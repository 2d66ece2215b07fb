"""Trust in BMCs' TLS certificates: what each one shows, what is pinned, and the pin itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rackready.design.bmc_pins import pin, pins
from rackready.drivers.redfish_tls import Served, served
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger
from rackready.model.bmc import Bmc as BmcSite
from rackready.model.problems import RackreadyError
from rackready.model.site import Node, Site

BMC_CERTIFICATE = "bmc-certificate"
"""The ledger's operation for a pinned certificate."""
_AT_ONCE = 32
"""BMCs read at a time, a waiting thread each."""


class BmcUnknownError(RackreadyError):
    """A node that the site does not have, or whose BMC is not known yet."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Trust in one BMC. ``pinned``: SHA-256, "" without one; ``shown``: None when ``trouble`` says why it is not read.

    ``decides``: the key of the site file that decides in place of a pin, "" when a pin may be made.
    """

    node: str
    site: BmcSite
    pinned: str = ""
    shown: Served | None = None
    trouble: str = ""
    decides: str = ""

    @property
    def first(self) -> bool:
        """Whether this is the first contact: nothing is pinned and nothing in the site file decides."""
        return self.shown is not None and not self.pinned and not self.decides

    @property
    def differs(self) -> bool:
        """Whether another certificate is pinned than the one that it shows."""
        return self.shown is not None and bool(self.pinned) and self.shown.sha256 != self.pinned


def chosen(site: Site, wanted: Sequence[str], *, leave_out: Iterable[str] = ()) -> list[Node]:
    """Return the nodes of these names; without names, every node with a known BMC. Raises BmcUnknownError."""
    nodes = {node.name: node for node in site.nodes()}
    if unknown := [name for name in wanted if name not in nodes]:
        raise BmcUnknownError(
            ", ".join(unknown), expected="nodes of the site", actual="no such node", next_step="Correct the name."
        )
    if without := [name for name in wanted if nodes[name].bmc.known() is None]:
        raise BmcUnknownError(
            ", ".join(without),
            "bmc",
            expected="address and password in the site file",
            actual="not known yet",
            next_step="Import the vendor's manifest (`rackready import manifest`), or write them there.",
        )
    left = set(leave_out)
    names = dict.fromkeys(wanted) or [name for name, node in nodes.items() if node.bmc.known() and name not in left]
    return [nodes[name] for name in names]


def known(node: Node) -> BmcSite:
    """Return the BMC of a chosen node."""
    site = node.bmc.known()
    assert site is not None  # noqa: S101 - chosen() refuses it
    return site


def look(nodes: Sequence[Node], store: Path) -> list[Trust]:
    """Return what each node's BMC shows, in the same order; no login, and nothing is written."""
    pinned = pins(store)
    with ThreadPoolExecutor(max_workers=max(1, min(_AT_ONCE, len(nodes))), thread_name_prefix="trust") as pool:
        return list(pool.map(lambda node: _look(node, pinned.get(node.name, "")), nodes))


def _look(node: Node, pinned: str) -> Trust:
    site = known(node)
    decides = "bmc.ca" if site.ca is not None else ""
    if site.fingerprint is not None and site.fingerprint != pinned:
        pinned, decides = site.fingerprint, "bmc.fingerprint"
    try:
        return Trust(node.name, site, pinned, served(node.name, site), decides=decides)
    except RackreadyError as error:
        return Trust(node.name, site, pinned, trouble=str(error), decides=decides)


def trust(ledger: Ledger, store: Path, found: Trust) -> str:
    """Pin the certificate that a BMC showed, record it in the ledger and return a message.

    Call it only while holding the controller lock.
    """
    assert found.shown is not None  # noqa: S101 - nothing to pin
    shown = found.shown.sha256
    run_effect(
        ledger,
        found.node,
        BMC_CERTIFICATE,
        hashlib.sha256(shown.encode()).hexdigest(),
        before=lambda: {"pinned": found.pinned, "shown": shown},
        observe=lambda _stored: (
            Observation.HAPPENED if pins(store).get(found.node) == shown else Observation.NOT_HAPPENED
        ),
        act=lambda _token: _pin(store, found.node, shown),
    )
    instead = f" in place of {found.pinned}" if found.pinned else ""
    return f"{found.node}: pinned SHA-256 {shown}{instead}"


def _pin(store: Path, node: str, shown: str) -> dict[str, str]:
    pin(store, node, shown)
    return {"pinned": shown}
