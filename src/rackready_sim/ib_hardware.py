"""Hardware state of the InfiniBand switches of a simulated rack, and of the cables to its nodes."""

from __future__ import annotations

import hashlib
from typing import Any

from rackready.model.base import expand_range
from rackready.model.site import Site
from rackready.profiles import loader
from rackready_sim.built import machine_facts
from rackready_sim.errors import describe
from rackready_sim.hardware import hca_guid
from rackready_sim.image import INFINIBAND, Variant

State = dict[str, Any]


def build_state(site: Site) -> State:
    """Return switches and HCAs of a healthy fabric; equal input gives equal output."""
    return {
        "fabric": site.name,
        "switches": [_switch(item.name, item.model) for item in site.switches],
        "hcas": [hca for node in site.nodes() for hca in _hcas(site, node.name)],
        "faults": [],
    }


def _hcas(site: Site, node: str) -> list[State]:
    """Return a node's cabled HCAs, described as rdma-ndd does."""
    facts = machine_facts(site, node)
    return [
        {
            "node": node,
            "guid": hca_guid(facts.index, nic.rail).replace(":", ""),
            "description": f"{node} {nic.rdma_device}",
            "switch": nic.switch,
            "port": int(nic.port),
            "rate": nic.rate,
        }
        for nic in facts.nics
        if nic.switch
    ]


def _switch(name: str, model: str) -> State:
    """Return a switch; its description has the form of MLNX-OS: MF0;<name>:<model>/U1."""
    digits = hashlib.sha256(name.encode()).hexdigest()[:6]
    ports = expand_range(loader.switch(model).ports)
    return {
        "name": name,
        "guid": f"b83fd20300f{digits[:5]}",
        "ports": len(ports),
        "description": f"MF0;{name}:M{model.upper()}/U1",
    }


def variants(others: set[Variant]) -> set[Variant]:
    """Return the image of nodes at InfiniBand switches. Raises SimError for nodes of another system than Debian."""
    if others:
        names = ", ".join(sorted(item.name for item in others))
        raise describe(
            "nodes at InfiniBand switches", "Debian or Ubuntu", names, "Choose a version set of these (software.set)."
        )
    return {INFINIBAND}
