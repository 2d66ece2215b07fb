"""Checks of provisioning: what a site file contradicts at once, and what must be known before a node is imaged."""

from __future__ import annotations

from collections.abc import Sequence

from rackready.design.imaging import SERVED_BOOTS, boot_of, disks_of
from rackready.design.names import listed
from rackready.design.pull import node_processor
from rackready.design.site_flaws import Flaw, Loc, Subject
from rackready.model.problems import Message
from rackready.model.provisioning import Provisioning
from rackready.model.site import Node, Site

_SHOWN = 5
_IMAGED = "x86_64"
"""Processor of the ramdisk's kernel (images/ramdisk.py) and of the boot loaders (drivers/boot_service/loaders.py)."""


def check_provisioning(subject: Subject) -> list[Flaw]:
    """Return contradictions of boot, service and image, and nodes that cannot be reached from the boot service."""
    site = subject.site
    booting = [(r, n, node) for r, rack in enumerate(site.racks) for n, node in enumerate(rack.nodes)]
    booting = [item for item in booting if item[2].kind == "metal" and boot_of(site, item[2]) in SERVED_BOOTS]
    if not booting or subject.lost.any("provisioning", "service"):
        return []
    settings = site.provisioning
    if settings is None:
        return [
            _lacks(("racks", r, "nodes", n, "boot"), node.boot, "a section provisioning with its service")
            for r, n, node in booting
        ]
    out = _settings(settings, {boot_of(site, node) for _, _, node in booting})
    if settings.service is None:
        return out
    return [
        *out,
        *(
            Flaw.of(
                ("racks", r, "nodes", n, "address"),
                f"{node.name} boots over a network that its address is not in",
                "Correct the address, or provisioning.service.network.",
                expected=f"an address in {settings.service.network} (provisioning.service.network)",
                actual=node.address,
                reads=(("provisioning", "service", "network"),),
            )
            for r, n, node in booting
            if node.address not in settings.service.network
        ),
    ]


def _lacks(loc: Loc, boot: object, wanted: str) -> Flaw:
    return Flaw.of(loc, f"boot {boot}", "Add it, or set boot: disk.", expected=wanted, actual="none")


def _settings(settings: Provisioning, boots: set[str]) -> list[Flaw]:
    """Return what provisioning lacks for these boots."""
    kinds = " and ".join(sorted(boots))
    out = []
    if settings.service is None:
        out.append(_lacks(("provisioning", "service"), kinds, "a boot service"))
    elif settings.service.dhcp == "proxy" and "http" in boots:
        out.append(
            Flaw.of(
                ("provisioning", "service", "dhcp"),
                "UEFI HTTP boot with proxy DHCP",
                "Set dhcp: server, or boot: pxe.",
                expected="server",
                actual="proxy",
                reads=(("provisioning", "boot"),),
            )
        )
    unsigned = settings.service is not None and settings.service.loader == "ipxe" and boots - {"media"}
    if unsigned and settings.secure_boot == "on":
        out.append(
            Flaw.of(
                ("provisioning", "service", "loader"),
                "Secure Boot with the unsigned loader of network boot",
                "Set loader: signed, or boot: media.",
                expected="signed",
                actual="ipxe",
                reads=(("provisioning", "secure_boot"),),
            )
        )
    if settings.image is None and settings.method == "image":
        out.append(_lacks(("provisioning", "image"), kinds, "the name of an image in the image store"))
    return out


def unready(site: Site, nodes: Sequence[str]) -> list[Message]:
    """Return what is not known, or not built yet, for imaging these nodes."""
    booting = [node for node in map(site.node, nodes) if node.kind == "metal" and boot_of(site, node) in SERVED_BOOTS]
    out = []
    if booting and site.provisioning is not None and site.provisioning.method == "installer":
        step = "Set method: image."
        out.append(Message("provisioning.method", "installer", "image", "not supported yet", step))
    return [
        *out,
        *_other_processors(site, booting),
        *_unknown(
            [node for node in booting if node.boot_mac is None],
            "boot_mac",
            "MAC address of the port that it boots from",
            "Add boot_mac to the node, e.g. from the vendor's manifest or its BMC.",
        ),
        *_unknown(
            [node for node in booting if disks_of(site, node) is None],
            "disks",
            "disks that may be written",
            "Add disks to the node, or provisioning.disks: by serial number, or by path below /dev/disk.",
        ),
    ]


def _other_processors(site: Site, nodes: Sequence[Node]) -> list[Message]:
    """Return the nodes that no boot loader of ours starts: all that the boot service sends is for x86."""
    others = {node.name: node_processor(site, node.name) for node in nodes}
    others = {name: processor for name, processor in others.items() if processor != _IMAGED}
    if not others:
        return []
    step = "Install its system by other means, and set boot: disk: rackready takes it from there."
    actual = ", ".join(sorted(set(others.values())))
    return [Message(f"{listed(others, _SHOWN)}: boot", "imaging over the network", _IMAGED, actual, step)]


def _unknown(nodes: Sequence[Node], key: str, what: str, step: str) -> list[Message]:
    names = [node.name for node in nodes]
    return [Message(f"{listed(names, _SHOWN)}: {key}", what, "known", "not given yet", step)] if names else []
