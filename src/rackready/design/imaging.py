"""The plan by which the ramdisk writes a node's operating system: disks, image, host name and cloud-init seed.

cloud-init takes its files as YAML, of which JSON is a part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rackready.model.base import Model
from rackready.model.provisioning import BootKind, NodeDisks, Provisioning
from rackready.model.site import Node, Site

SCHEMA = "rackready/imaging/v1"
SERVED_BOOTS: frozenset[BootKind] = frozenset({"http", "pxe", "media"})
"""Boots that need the boot service."""
_WORDS = {"http": "UEFI HTTP boot", "pxe": "UEFI PXE boot", "media": "virtual media"}


class StoredImage(Model):
    """One image of the image store, as plans name it."""

    model_config = Model.model_config | {"extra": "ignore"}  # the store's own record has more

    name: str
    sha256: str
    size: int
    """Bytes of the compressed file."""
    unpacked: int
    """Bytes on the node's root file system."""
    mdadm: bool | None = None
    """Whether it has mdadm; None: not known."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user of the installed system, with the text of its OpenSSH public keys."""

    name: str
    keys: tuple[str, ...]
    sudo: bool = True


@dataclass(frozen=True, slots=True)
class HostKey:
    """An SSH host key that the controller made for a node. ``public``: "ssh-ed25519 AAAA..."; ``private`` is secret."""

    kind: str
    private: str
    public: str


def boot_of(site: Site, node: Node) -> BootKind:
    """Return where a node boots from while it is provisioned."""
    if node.boot is not None:
        return node.boot
    return site.provisioning.boot if site.provisioning is not None else "disk"


def disks_of(site: Site, node: Node) -> NodeDisks | None:
    """Return the disks of a node that its plan names, None while the site file names none."""
    if node.disks is not None:
        return node.disks
    return site.provisioning.disks if site.provisioning is not None else None


def imaged_nodes(site: Site) -> list[Node]:
    """Return the metal nodes whose operating system rackready writes over the network."""
    return [node for node in site.nodes() if node.kind == "metal" and boot_of(site, node) in SERVED_BOOTS]


def imaging_words(site: Site, node: Node) -> str:
    """Return in words what imaging does to a node, e.g. "write image debian12 to serial S1 (UEFI PXE boot)"."""
    settings, disks = site.provisioning, disks_of(site, node)
    if settings is None or disks is None:
        raise ValueError(node.name)
    system = " and ".join(disk.called for disk in disks.system)
    scratch = f", scratch on {', '.join(disk.called for disk in disks.scratch)}" if disks.scratch else ""
    return f"write image {settings.image} to {system}{scratch} ({_WORDS[boot_of(site, node)]})"


def node_plan(
    site: Site, node: Node, image: StoredImage, keys: Sequence[HostKey], logins: Sequence[Login]
) -> dict[str, Any]:
    """Return a node's plan without the fields of a single installation, see ``for_run``.

    It holds the private host keys: it is a secret. Raises ValueError for a node that `deployable.require` refuses.
    """
    settings, disks = site.provisioning, disks_of(site, node)
    if settings is None or settings.service is None or disks is None or node.serial is None or node.boot_mac is None:
        raise ValueError(node.name)
    service = settings.service
    return {
        "schema": SCHEMA,
        "node": node.name,
        "serial": node.serial,
        "image": {
            "name": image.name,
            "url": f"https://{service.address}:{service.https_port}/images/{image.sha256}.tar.zst",
            "sha256": image.sha256,
            "size": image.size,
            "unpacked": image.unpacked,
        },
        "disks": disks.model_dump(mode="json", exclude_none=True),
        "kernel_options": list(settings.kernel_options),
        "hostname": node.name,
        "seed": {
            "user-data": _cloud_config(user_data(node.name, keys, logins)),
            "network-config": _text(network_config(settings, node)),
        },
        "secure_boot": settings.secure_boot,
    }


def user_data(hostname: str, keys: Sequence[HostKey], logins: Sequence[Login]) -> dict[str, Any]:
    """Return cloud-init's user data: host name, our host keys, users with keys only.

    cloud-init makes no keys where it gets some, and keeps them only with ``ssh_deletekeys`` false (its default is
    true). The ramdisk sizes the root file system: growpart knows no md devices.
    """
    return {
        "hostname": hostname,
        "preserve_hostname": False,
        "manage_etc_hosts": "localhost",
        "ssh_pwauth": False,
        "disable_root": all(login.name != "root" for login in logins),
        "ssh_deletekeys": False,
        "ssh_keys": {
            f"{key.kind}_{part}": text
            for key in keys
            for part, text in (("private", key.private), ("public", key.public))
        },
        "users": [_user(login) for login in logins],
        "growpart": {"mode": "off"},
        "resize_rootfs": False,
    }


def _user(login: Login) -> dict[str, Any]:
    user: dict[str, Any] = {"name": login.name, "lock_passwd": True, "ssh_authorized_keys": list(login.keys)}
    if login.name != "root":
        user["shell"] = "/bin/bash"
        user |= {"sudo": "ALL=(ALL) NOPASSWD:ALL"} if login.sudo else {}
    return user


def network_config(settings: Provisioning, node: Node) -> dict[str, Any]:
    """Return cloud-init's network configuration, version 2: the node's static address on the port that it booted from.

    The port is found by its MAC address: its name may differ between the ramdisk and the installed system.
    """
    service = settings.service
    if service is None:
        raise ValueError(node.name)
    port: dict[str, Any] = {
        "match": {"macaddress": node.boot_mac},
        "addresses": [f"{node.address}/{service.network.prefixlen}"],
        "dhcp4": False,
    }
    if service.gateway is not None:
        port["routes"] = [{"to": "0.0.0.0/0", "via": str(service.gateway)}]
    if service.dns:
        port["nameservers"] = {"addresses": [str(server) for server in service.dns]}
    return {"version": 2, "ethernets": {"boot": port}}


def for_run(plan: dict[str, Any], *, run: str, erase: bool) -> dict[str, Any]:
    """Return a plan for one installation, with its digest.

    ``run``: empty for a first installation; the campaign that may erase, for one that replaces what is there. It makes
    the digest differ from that of the installation before, which a ramdisk would take as done.
    """
    name = plan["node"]
    meta = {"instance-id": f"{name}-{run}" if run else name, "local-hostname": name}
    whole = {**plan, "erase": erase, "seed": {**plan["seed"], "meta-data": _text(meta)}}
    return {**whole, "digest": digest_of(whole)}


def digest_of(plan: dict[str, Any]) -> str:
    """Return the SHA-256 (hex) of a plan without its digest, as JSON with sorted keys."""
    rest = {key: value for key, value in plan.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


def _cloud_config(document: dict[str, Any]) -> str:
    return f"#cloud-config\n{_text(document)}"
