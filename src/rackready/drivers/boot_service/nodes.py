"""One armed node: its record, and every file that is made from it."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import shutil
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from rackready import files
from rackready.drivers.boot_service import authority
from rackready.drivers.boot_service.layout import Layout, dashed
from rackready.model.base import MacAddress, Model, Name
from rackready.model.problems import RackreadyError
from rackready.model.provisioning import ProvisioningService
from rackready.model.wanted import fault
from rackready.paths import private_dir
from rackready.render.environment import render

PLAN_SCHEMA = "rackready/imaging/v1"
_DIGEST = r"^[0-9a-f]{64}$"
_READABLE = 0o644
"""dnsmasq as root serves only files that everybody may read; the folder above them is private."""


_SERIAL_CONSOLE = "console=ttyS0,115200n8"
"""Without a speed, Linux takes 9600 baud (drivers/tty/serial/8250/8250_port.c, serial8250_console_setup); serial
consoles of BMCs and OVMF have 115200."""


class BootServiceError(RackreadyError):
    """The boot service cannot do what it was asked."""


class ArmedNode(Model):
    """A node that the service answers, with its plan."""

    name: Name
    mac: MacAddress = Field(description="port that it boots from")
    address: IPv4Address = Field(description="address that DHCP gives it")
    plan: dict[str, Any] = Field(description="plan of schema rackready/imaging/v1", repr=False)

    @model_validator(mode="after")
    def _its_plan(self) -> Self:
        for key, wanted in (("schema", PLAN_SCHEMA), ("node", self.name)):
            if self.plan.get(key) != wanted:
                message = f"plan.{key} - Expected: {wanted} Actual: {self.plan.get(key)}"
                raise ValueError(message)
        if len(str(self.plan.get("digest", ""))) != hashlib.sha256().digest_size * 2:
            message = "plan.digest - Expected: SHA-256 in hex Actual: none"
            raise ValueError(message)
        return self


class Record(Model):
    """What the service knows of an armed node; every other file of the node is made from it."""

    node: Name
    mac: MacAddress
    address: IPv4Address
    digest: str = Field(pattern=_DIGEST, description="digest of its plan")
    plan_sha256: str = Field(pattern=_DIGEST, description="hash of plan.json")
    token: str = Field(min_length=32, repr=False, description="the node shows it to get its plan")


def command_line(settings: ProvisioningService, record: Record, ca_sha256: str) -> str:
    """Return the kernel command line of the ramdisk."""
    secure = f"https://{settings.address}:{settings.https_port}"
    plain = f"http://{settings.address}:{settings.http_port}"
    return " ".join(
        [
            f"rackready.plan={secure}/nodes/{record.node}/plan.json",
            f"rackready.token={record.token}",
            f"rackready.ca_sha256={ca_sha256}",
            f"rackready.ca={plain}/boot/ca.pem",
            _SERIAL_CONSOLE,
            "console=tty0",
            f"BOOTIF=01-{dashed(record.mac)}",
        ]
    )


def bearer_hash(token: str) -> str:
    """Return what nginx's secure_link compares: MD5 of the header in base64url. 256 random bits stand behind it."""
    digest = hashlib.md5(f"Bearer {token}".encode(), usedforsecurity=False).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def record_of(layout: Layout, node: str) -> Record | None:
    """Return the record of an armed node, None when it is not armed. Raises BootServiceError."""
    path = layout.record(node)
    try:
        return Record.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise BootServiceError(
            path,
            "record of an armed node",
            expected="token, MAC and address",
            actual=fault(error.errors(include_input=False)[0]),
            next_step=f"Run `rackready boot-service disarm {node}`, then provision it again.",
        ) from error


def armed_nodes(layout: Layout) -> list[str]:
    """Return the nodes with a record, sorted: those that are armed, half armed or half disarmed."""
    return sorted(path.stem for path in layout.armed.glob("[!.]*.json"))


def arm(layout: Layout, settings: ProvisioningService, node: ArmedNode) -> Record:
    """Write the files of a node and return its record; the same node with the same plan keeps its token.

    The record comes first and dnsmasq's line last: killed between, the node is answered nothing and a repetition goes
    on. Reports of an earlier arming are set aside before, so that no old `done` counts. Raises BootServiceError.
    """
    _inside(settings, node)
    _alone(layout, node)
    text = json.dumps(node.plan, indent=1, sort_keys=True).encode()
    fresh = Record(
        node=node.name,
        mac=node.mac,
        address=node.address,
        digest=str(node.plan["digest"]),
        plan_sha256=hashlib.sha256(text).hexdigest(),
        token=secrets.token_hex(32),
    )
    old = record_of(layout, node.name)
    record = fresh
    if old is not None and old == fresh.model_copy(update={"token": old.token}):
        record = old
    else:
        disarm(layout, node.name)  # another plan, port or address: nothing of the old one may stay
        _set_reports_aside(layout, node.name)
        files.replace(layout.record(node.name), record.model_dump_json().encode())
    _write(layout, settings, record, text)
    return record


def _write(layout: Layout, settings: ProvisioningService, record: Record, plan: bytes) -> None:
    private_dir(layout.reports(record.node))
    files.replace(layout.plan(record.node), plan)
    line = command_line(settings, record, authority.fingerprint(layout.tls))
    base = f"http://{settings.address}:{settings.http_port}/boot"
    device = f"(http,{settings.address}:{settings.http_port})/boot"
    rendered: dict[Path, tuple[str, dict[str, object], int]] = {
        layout.node_conf(record.node): (
            "nginx-node.conf.j2",
            {"root": layout.root, "node": record.node, "bearer_md5": bearer_hash(record.token)},
            files.PRIVATE,
        ),
        layout.ipxe(record.mac): ("node.ipxe.j2", {"node": record.node, "base": base, "line": line}, files.PRIVATE),
        layout.grub(record.mac): ("grub-node.cfg.j2", {"node": record.node, "base": device, "line": line}, _READABLE),
        layout.host(record.node): (
            "dnsmasq-host.j2",
            {"mac": record.mac, "address": record.address, "node": record.node},
            files.PRIVATE,
        ),
    }
    for path, (template, data, mode) in rendered.items():
        files.replace(path, render(f"provisioning/{template}", **data).encode(), mode=mode)


def disarm(layout: Layout, node: str) -> bool:
    """Remove what arming made, and return whether there was anything; reports stay.

    dnsmasq's line goes first and the record last: killed between, the node still counts as armed, and a repetition goes
    on. A record that cannot be read names no MAC: then the loaders' files are found by their content.
    """
    paths = [layout.host(node), layout.node_conf(node), layout.plan(node), *_loader_files(layout, node)]
    found = [path for path in [*paths, layout.record(node)] if path.exists()]
    medium = layout.media(node)
    if medium.is_dir():
        shutil.rmtree(medium)
    for path in found:
        path.unlink(missing_ok=True)
    return bool(found)


def _loader_files(layout: Layout, node: str) -> list[Path]:
    """Return the loaders' files of a node, by the plan that they name: a MAC may have changed since."""
    mark = f"/nodes/{node}/plan.json".encode()
    listed = [*(layout.tftp / "grub").glob("grub.cfg-01-*"), *layout.boot.glob("*.ipxe")]
    return [path for path in listed if mark in path.read_bytes()]


def _set_reports_aside(layout: Layout, node: str) -> None:
    """Move the reports of the last arming to ``earlier``, which keeps one set."""
    folder = layout.reports(node)
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    earlier = folder.with_name("earlier")
    if earlier.exists():
        shutil.rmtree(earlier)
    folder.rename(earlier)


def _inside(settings: ProvisioningService, node: ArmedNode) -> None:
    if node.address not in settings.network or node.address == settings.address:
        raise BootServiceError(
            node.name,
            "address for network boot",
            expected=f"an address in {settings.network}, other than the boot service's",
            actual=node.address,
            next_step="Correct provisioning.service.network, or the node's address.",
        )


def _alone(layout: Layout, node: ArmedNode) -> None:
    """Refuse a MAC or address that another armed node has. Raises BootServiceError."""
    for name in armed_nodes(layout):
        other = record_of(layout, name) if name != node.name else None
        for what, mine, its in (
            ("MAC address", node.mac, other.mac if other else None),
            ("address", node.address, other.address if other else None),
        ):
            if mine == its:
                raise BootServiceError(
                    node.name,
                    f"{what} {mine}",
                    expected="one node with it",
                    actual=f"{name} is armed with it",
                    next_step="Correct the site file.",
                )
