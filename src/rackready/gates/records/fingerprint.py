"""Fingerprint of a node when it is measured, bound to its desired state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rackready.design.facts import desired_digest
from rackready.format_error import FormatError
from rackready.gates.base import trouble
from rackready.gates.engine.runner import Connection, output_of
from rackready.gates.engine.shipped_script import command, document
from rackready.gates.formats import printed
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.records.sanitize import clean
from rackready.model.evidence import UNREAD, Fingerprint
from rackready.model.outcome import Finding
from rackready.model.serials import Serials
from rackready.model.site import Node, Site
from rackready.ondevice import fingerprint as script

_STEP = "Check that install has run on the node and that its driver is loaded, then run the gate again."


FINGERPRINT_UNREADABLE = ErrorKind(
    "fingerprint-unreadable",
    "fingerprint unreadable",
    meaning="The serials and versions of the node cannot be read, so it is unknown which node was measured.",
    next_step=_STEP,
)


class Unreached(Finding):
    """A node did not accept a login: nothing is known about it, good or bad."""


def gather(
    connection: Connection, site: Site, nodes: Sequence[str], workers: int = 16
) -> Mapping[str, Fingerprint | Finding]:
    """Return the fingerprint of every node, or the finding why there is none (Unreached if the login failed)."""
    with ThreadPoolExecutor(max_workers=max(1, min(len(nodes), workers))) as pool:
        return dict(zip(nodes, pool.map(lambda node: _one(connection, site, node), nodes), strict=True))


def _one(connection: Connection, site: Site, node: str) -> Fingerprint | Finding:
    asked = command("fingerprint", node, script, timeout_s=60)
    answer = connection.run(node, asked.argv, stdin=asked.stdin, timeout_s=asked.timeout_s)
    output = output_of(asked, answer)
    bad = trouble(output, node, "reading of serials and versions")
    if bad is not None:
        return clean(bad if answer.reached else Unreached(**dict(bad)))
    try:
        return build(document(output, script.FORMAT, printed.Fingerprint), site, node)
    except FormatError as error:
        return clean(FINGERPRINT_UNREADABLE.found(node, "serials, firmware, kernel and driver", str(error)))


def serials_of(found: dict[str, Any]) -> Serials:
    """Return the numbers that a node's operating system reports for it."""
    given = found.get("serials") or {}
    return Serials.of(
        ("system", found.get("chassis_serial") or given.get("product_serial")),
        ("sku", given.get("product_sku")),
        ("chassis", given.get("chassis_serial")),
        ("board", given.get("board_serial")),
    )


def is_of(serials: Serials, node: Node) -> bool:
    """Return whether these numbers of an operating system are the node's.

    Where Redfish has Dell's Service Tag as the SKU, DMI has it as the serial of the product: it counts as both.
    """
    if node.serial is None:
        return False
    return serials.matches(node.serial, node.serial_kind) or (
        node.serial_kind == "sku" and serials.matches(node.serial, "system")
    )


def build(found: dict[str, Any], site: Site, node: str) -> Fingerprint:
    """Return the fingerprint in a document. Raise FormatError if it does not identify the node or a NIC.

    A GPU without identity (for example one that fell off the bus) is marked as unread; the gates find out why.

    If the board reports no chassis serial to the operating system, the site's is used: the BMC confirmed it before the
    node was powered on.
    """
    if "error" in found:  # such a document has no shape that was checked
        raise FormatError(f"an error in its place: {found['error']}")
    if found.get("gpu_error"):
        raise FormatError(str(found["gpu_error"]))
    gpus, nics = found.get("gpus") or [], found.get("nics") or []
    nameless = [str(nic.get("device")) for nic in nics if not nic.get("guid")]
    if nameless or not gpus or not all(found.get(key) for key in ("driver", "kernel", "boot_id")):
        raise FormatError(
            f"no identity of {', '.join(nameless)}" if nameless else "no GPU, driver, kernel or boot id in it"
        )
    return Fingerprint(
        node=node,
        chassis_serial=str(found.get("chassis_serial") or site.node(node).serial),
        gpus=[str(gpu.get("id") or f"{UNREAD}gpu{gpu.get('index')}") for gpu in gpus],
        nics=sorted(f"{nic['device']}={nic['guid']}" for nic in nics),
        driver=str(found["driver"]),
        vbios=[str(gpu.get("vbios") or "") for gpu in gpus],
        nic_firmware=[str(nic.get("firmware") or "") for nic in nics],
        kernel=str(found["kernel"]),
        desired_digest=desired_digest(site, node),
        boot_id=str(found["boot_id"]),
    )
