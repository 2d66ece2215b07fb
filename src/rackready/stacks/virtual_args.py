"""Arguments of the virtual stack, made from the site file: one domain, and how its hypervisor is reached."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from rackready.design.cloud_init import seed_digest, seed_files
from rackready.design.virtual_domain import DomainFacts, domain_facts, hypervisor_of
from rackready.design.virtual_place import numa_of
from rackready.drivers.passthrough.judge import Wanted
from rackready.drivers.ssh.target import read_private_key
from rackready.model.base import Model, Name, SecretRef
from rackready.model.site import Node, Site
from rackready.stacks.args import SshArgs, ssh_args


class HostArgs(Model):
    """A hypervisor. Secrets are references that the provider reveals."""

    name: Name
    reach: Literal["ssh", "local"]
    uri: str = Field(min_length=1, description="libvirt URI there")
    stop_s: int = Field(ge=1, description="longest time from asking a guest to end until it is cut, in seconds")
    ssh: SshArgs
    sudo_password: SecretRef | None = None


class DomainArgs(Model):
    """One virtual node."""

    env: str = Field(min_length=1, description="environment whose ledger and known_hosts are used")
    node: Name
    host: HostArgs
    facts: DomainFacts
    wanted: Wanted = Field(description="what the preflight looks for on the hypervisor")
    seed: dict[str, str] = Field(description="files of its cloud-init seed; they hold public keys and no secret")
    ssh: SshArgs | None = Field(
        None, description="where SSH answers; absent: it has no network, so nobody waits for it"
    )
    timeout_s: int = Field(900, ge=1, description="longest time from its start until SSH answers, in seconds")


class VirtualArgs(Model):
    """The virtual nodes of one rack: one stack."""

    env: str = Field(min_length=1)
    rack: Name
    domains: list[DomainArgs]


def virtual_args(site: Site, env: str, rack: str) -> VirtualArgs:
    """Return the arguments of a rack's virtual stack. Raises KeyError when the site has no such rack.

    Nodes that are only planned are left out: `deployable.require` refused them before. Raises SshLoginError for a
    private key of the site that cannot be read.
    """
    found = next((item for item in site.racks if item.name == rack), None)
    if found is None:
        raise KeyError(rack)
    return VirtualArgs(
        env=env, rack=rack, domains=[_domain(site, env, node) for node in found.nodes if is_described(site, node)]
    )


def is_described(site: Site, node: Node) -> bool:
    """Whether a node is virtual and the site says what it is made of, and on what."""
    return node.kind == "virtual" and node.virtual is not None and hypervisor_of(site, node) is not None


def _domain(site: Site, env: str, node: Node) -> DomainArgs:
    facts, machine = domain_facts(site, node.name), node.virtual
    seed = seed_files(site, node, facts, _keys(site))
    networked = machine is not None and bool(machine.bridge or machine.nics)
    return DomainArgs(
        env=env,
        node=node.name,
        host=_host(site, node),
        facts=facts.model_copy(update={"seed_digest": seed_digest(seed)}),
        wanted=wanted_of(site, node.name),
        seed=seed,
        ssh=ssh_args(site, node) if networked else None,
        timeout_s=site.campaign.provision_timeout_s,
    )


def wanted_of(site: Site, name: str) -> Wanted:
    """Return what a virtual node needs of its hypervisor. Raises KeyError for one that is only planned."""
    node = site.node(name)
    host, machine = hypervisor_of(site, node), node.virtual
    if host is None or machine is None:  # `is_described` looked
        raise KeyError(node.name)
    places = {device.pci: numa_of(site, host.name, device) for device in machine.devices()}
    return Wanted(
        facts=domain_facts(site, name),
        devices=machine.devices(),
        numa={pci: numa for pci, numa in places.items() if numa is not None},
        pages=machine.huge_pages,
        fabric_manager=machine.fabric_manager,
        host_cpus={numa.id: numa.cpus for numa in host.numa},
    )


def _host(site: Site, node: Node) -> HostArgs:
    host = hypervisor_of(site, node)
    if host is None:  # `is_described` looked
        raise KeyError(node.host)
    login = ssh_args(site, site.node(host.name))
    return HostArgs(
        name=host.name,
        reach=host.reach,
        uri=host.uri,
        stop_s=host.stop_timeout_s,
        ssh=login,
        sudo_password=site.access.sudo_password,
    )


def _keys(site: Site) -> dict[str, list[str]]:
    """Return the public keys of each user of the guest; by default, that of rackready's own login."""
    if site.provisioning is not None and site.provisioning.users:
        return {user.name: [_line(path) for path in user.keys] for user in site.provisioning.users}
    key = read_private_key("controller", Path(site.access.private_key))
    return {site.access.user: [f"{key.get_name()} {key.get_base64()}"]}


def _line(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()
