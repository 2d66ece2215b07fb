"""What the PCIe link to the memory that a NIC reads and writes allows."""

from __future__ import annotations

from rackready.design.facts import NodeFacts
from rackready.gates.judging.expectation import Bound
from rackready.gates.judging.node_topology import TLP_BYTES, TLP_PAYLOAD, gpu_link, host_link

GPU, HOST = "gpu_link", "host_link"
WORDS = {GPU: "the GPU's PCIe link", HOST: "the PCIe link of the host"}
"""Inputs of a bound that such a link sets: its rate, Gb/s."""


def of_gpu(facts: NodeFacts) -> Bound | None:
    """Return the payload rate of a GPU's PCIe link, Gb/s; None if its profile has none."""
    return _payload(GPU, gpu_link(facts))


def of_host(facts: NodeFacts) -> Bound | None:
    """Return the payload rate of the link between NIC and host memory, Gb/s; None if the server's profile has none."""
    return _payload(HOST, host_link(facts))


def _payload(name: str, rate: float | None) -> Bound | None:
    if rate is None:
        return None
    source = (
        f"derived: rate of {WORDS[name]} x {TLP_PAYLOAD}/({TLP_PAYLOAD}+{TLP_BYTES}), header and payload of its "
        "packets (PCI Express Base Specification)"
    )
    return Bound(8 * rate * TLP_PAYLOAD / (TLP_PAYLOAD + TLP_BYTES), source, inputs={name: 8 * rate})
