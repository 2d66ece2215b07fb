"""Arguments of the stacks, made from the site file; malformed ones are refused before any resource exists."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address
from pathlib import Path

from pydantic import Field

from rackready.drivers.redfish import BootTarget
from rackready.model.base import Model, Name
from rackready.model.serials import SerialKind
from rackready.model.site import Bmc, Node, Site


class JumpArgs(Model):
    """The jump host through which SSH of a node is reached."""

    host: str = Field(min_length=1)
    port: int = Field(ge=1, le=65535)
    user: str = Field(min_length=1)
    private_key: Path = Field(description="OpenSSH private key on the controller; the key itself never enters a stack")


class SshArgs(Model):
    """Where SSH answers once the node is up, and how to log in."""

    address: IPv4Address = Field(description="in-band address")
    port: int = Field(ge=1, le=65535)
    user: str = Field(min_length=1)
    private_key: Path = Field(description="OpenSSH private key on the controller; the key itself never enters a stack")
    jump: JumpArgs | None = Field(None, description="absent: reached from the controller directly")


class ImagingArgs(Model):
    """The operating system of a node that is imaged. The plan itself is a secret, in a file of the environment."""

    boot: BootTarget = Field(description="where it boots from to be imaged")
    image: Name = Field(description="name of the image")
    digest: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the plan without what one run adds to it")


class NodeArgs(Model):
    """One metal node. Secrets are references that the provider reveals: none is in state, log or process list."""

    env: str = Field(min_length=1, description="environment whose ledger and known_hosts are used")
    node: Name
    serial: str = Field(min_length=1, description="serial number that its BMC must report")
    serial_kind: SerialKind | None = Field(
        None, description="which number it is; null: any. Null is left out of the state: stacks of before stay equal"
    )
    bmc: Bmc
    ssh: SshArgs
    boot: BootTarget = Field(BootTarget.HDD, description="where it boots from when it is powered on")
    timeout_s: int = Field(900, ge=1, description="longest time from power-on until SSH answers, in seconds")
    secure_boot: bool | None = Field(
        None, description="whether Secure Boot must be on; null: as it is. Null is left out of the state"
    )
    imaging: ImagingArgs | None = Field(
        None, description="what is written to its disks; null: it boots what is there. Null is left out of the state"
    )


class RackArgs(Model):
    """One rack: one stack."""

    env: str = Field(min_length=1)
    rack: Name
    nodes: list[NodeArgs] = Field(min_length=1)


def rack_args(site: Site, env: str, rack: str, imaging: Mapping[str, ImagingArgs] | None = None) -> RackArgs:
    """Return the arguments of a rack's stack; ``imaging``: of its nodes that are imaged, from `boot_jobs.write_jobs`.

    Raises KeyError when the site has no such rack.

    Nodes without an imported manifest are left out: `deployable.require` refused them before, and none of them was ever
    created.
    """
    found = next((item for item in site.racks if item.name == rack), None)
    if found is None:
        raise KeyError(rack)
    nodes = [
        NodeArgs(
            env=env,
            node=node.name,
            serial=node.serial,
            serial_kind=None if node.serial_kind == "any" else node.serial_kind,
            bmc=bmc,
            ssh=ssh_args(site, node),
            timeout_s=site.campaign.provision_timeout_s,
            secure_boot=secure_boot_of(site),
            imaging=(imaging or {}).get(node.name),
        )
        for node in found.nodes
        if node.serial is not None and (bmc := node.bmc.known()) is not None
    ]
    return RackArgs(env=env, rack=rack, nodes=nodes)


def secure_boot_of(site: Site) -> bool | None:
    """Return whether Secure Boot must be on, None where any state will do."""
    wanted = site.provisioning.secure_boot if site.provisioning is not None else "any"
    return {"on": True, "off": False}.get(wanted)


def ssh_args(site: Site, node: Node) -> SshArgs:
    """Return where and how rackready logs in to a node."""
    access, hop = site.access, site.access.proxy_jump
    jump = None
    if hop is not None:
        jump = JumpArgs(host=hop.host, port=hop.port, user=hop.user, private_key=hop.private_key or access.private_key)
    return SshArgs(address=node.address, port=access.port, user=access.user, private_key=access.private_key, jump=jump)
