"""Software and parameters of the compute network cards, for role nic_stack."""

from __future__ import annotations

from typing import Any, Literal

from rackready.design.facts import NodeFacts
from rackready.model.profile import PlatformProfile
from rackready.model.site import Site
from rackready.model.software import SoftwareProfile
from rackready.profiles import loader

_LINK_TYPE: dict[Literal["roce", "infiniband"], int] = {"roce": 2, "infiniband": 1}
"""mlxconfig's LINK_TYPE: IB=1, ETH=2 (Mellanox/mstflint @b9d9e844, mlxconfig_dbs/mlxconfig_host.db)."""
_ATS = {"ATS_ENABLED": 0}
"""Off on bare metal, for GPUDirect (Mellanox/nic-configuration-operator @8bfbeb3, configvalidation.go)."""


def nic_stack_vars(site: Site, software: SoftwareProfile) -> dict[str, Any]:
    """Return the variables of role nic_stack that are the same on every node."""
    doca = software.doca_ofed if site.software.nic_stack == "doca" else None
    return {
        "nic_stack_kind": site.software.nic_stack,
        "nic_stack_system": software.os,
        "nic_stack_mft": software.mft,
        "nic_stack_doca_version": doca.version if doca is not None else "",
        "nic_stack_doca_packages": dict(doca.packages) if doca is not None else {},
        "nic_stack_open_modules": software.open_modules,
        "nic_stack_max_read_request": site.software.nic_max_read_request or 0,
    }


def needs_umad(site: Site, platform: PlatformProfile) -> bool:
    """Return whether the kernel module ib_umad must be loaded: for InfiniBand's tools, and for boards with NVLink 5.

    Such a board is managed by NVLSM through a network card of its own, also in Ethernet sites
    (NVIDIA/gpu-driver-container, ubuntu24.04/precompiled/nvidia-driver).
    """
    nvlink = loader.gpu(platform.gpu).nvlink
    subnet = platform.runs_fabric_manager and nvlink is not None and nvlink.has_subnet
    return subnet or site.fabric.kind == "infiniband"


def nic_cards(site: Site, facts: NodeFacts) -> dict[str, dict[str, int]]:
    """Return PCI address of each compute NIC to its non-volatile parameters.

    A card has one LINK_TYPE for each port, and a PCI function for each port.
    """
    own = dict(facts.platform.nic_parameters.values) if facts.platform.nic_parameters is not None else {}
    metal = _ATS if facts.node.kind == "metal" else {}
    return {
        nic.pci: {f"LINK_TYPE_P{_port(nic.pci)}": _LINK_TYPE[site.fabric.kind], **metal, **own}
        for nic in facts.nics
        if nic.pci
    }


def nic_names(site: Site, facts: NodeFacts) -> dict[str, dict[str, str]]:
    """Return PCI address of each compute NIC to the names of its RDMA device and interface that the profile declares.

    Role nic_stack gives the cards these names, whatever the operating system calls them (docs/adr/0017). An InfiniBand
    port has an interface only with ib_ipoib, and no declared name.
    """
    on_net = site.fabric.kind == "roce"
    named = {
        nic.pci: {
            kind: name
            for kind, name in (("infiniband", nic.rdma_device), ("net", nic.netdev if on_net else ""))
            if name
        }
        for nic in facts.nics
        if nic.pci
    }
    return {pci: names for pci, names in named.items() if names}


def _port(pci: str) -> int:
    """Return the number of the port behind a PCI function: the first function has port 1."""
    return int(pci.rpartition(".")[2]) + 1
