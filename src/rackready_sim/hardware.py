"""Hardware state of one simulated node or switch; the vendor programs answer from it.

The state is plain JSON and contains only hardware. The machine itself keeps what software did to it (loaded drivers,
power limits, counters), and loses it at power-off.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from typing import Any

from rackready.design.facts import NicFacts, NodeFacts, PortFacts, switch_facts
from rackready.design.wiring import compute_rate, trunk_ends
from rackready.design.written_ports import whole_ports
from rackready.model.problems import RackreadyError
from rackready.model.profile import GpuProfile
from rackready.model.site import Site
from rackready.model.supply import Figure
from rackready_sim import gpu_state, host_state
from rackready_sim.bmc_state import build_bmc, gpu_name
from rackready_sim.built import machine_facts

State = dict[str, Any]

_NAMESPACE = uuid.UUID("5f9c1c6e-52a5-4a4e-9d0c-6f2f1a5a7b10")
_OUI = "b8:3f:d2"
_VBIOS = "96.00.89.00.01"
_BOARD_PART = "692-2G520-0200-000"
_NIC_FIRMWARE = "28.43.2566"
_NIC_BOARD = "MT_0000000838"
_CUMULUS = "5.13.1"
_CUMULUS_ROUTED = "5.15.0"
"""Switches of a routed fabric run a release with the newer words, so that both are tried."""
_SUB_PORT = re.compile(r"^swp\d+s\d+$")


def build_state(site: Site, node_name: str) -> State:
    """Return the state of a healthy node of the site; equal input gives equal output.

    Raises KeyError if the site has no such node.
    """
    facts = machine_facts(site, node_name)
    return {
        "node": node_name,
        "index": facts.index,
        "chassis": _chassis(facts),
        "gpus": [_gpu(facts, index) for index in range(facts.platform.gpus)],
        "nvswitches": _nvswitches(facts),
        "nics": [_nic(facts, nic, site.fabric.kind) for nic in facts.nics],
        "fabric_manager": {"stuck": False, "multicast": True},
        "gpudirect": True,
        "nccl": {},
        "dcgm": {"fail": []},
        "xids": [],
        "sxids": [],
        "containers": {"toolkit": True, "stale": []},
        "persistence_broken": False,
        "nouveau": False,
        "rdma_names": "as built",
        "driver_refused": {},
        "management": {"link": "up"},
        "bmc": build_bmc(facts),
        "bmc_faults": {},
        "host": host_state.build(facts),
        "boot_count": 0,
        "faults": [],
    }


def build_switch_state(site: Site, switch_name: str) -> State:
    """Return the state of a healthy switch. Raise KeyError if the site has no such switch."""
    facts = switch_facts(site, switch_name)
    trunks = trunk_ends(site).get(switch_name, [])
    rate = facts.profile.rate
    return {
        "switch": switch_name,
        "os": facts.switch.os,
        "model": facts.profile.id,
        "platform": {
            "product": facts.profile.id.upper(),
            "serial": _serial("MT", switch_name),
            "mac": _mac(switch_name),
            "version": _CUMULUS_ROUTED if trunks else _CUMULUS,
        },
        "ports": {name: {"rate_gbps": rate, "factor": 1.0} for name in whole_ports(facts.switch)}
        | _sub_ports(site, [*(port.port for port in facts.ports), *(end.port for end in trunks)]),
        "cables": {
            **{port.port: {"node": port.node, "netdev": _netdev(site, port)} for port in facts.ports},
            **{end.port: {"switch": end.peer, "port": end.peer_port, "link": "up"} for end in trunks},
        },
        "power": "on",
        "ecn_off": False,
        "faults": [],
    }


def _sub_ports(site: Site, cabled: list[str]) -> State:
    """Return the cabled parts of split ports, so that a fault can name one."""
    return {name: {"rate_gbps": compute_rate(site), "factor": 1.0} for name in cabled if _SUB_PORT.match(name)}


def _netdev(site: Site, port: PortFacts) -> str:
    """Return the interface of the NIC at the other end of a port's cable."""
    return next(nic.netdev for nic in machine_facts(site, port.node).nics if nic.rail == port.rail)


def port_identity(node_index: int, rail: int) -> tuple[str, str]:
    """Return (MAC, GUID) of the NIC of one rail of the k-th node: the same after every rebuild of the rack."""
    mac = f"{_OUI}:{node_index >> 8 & 0xFF:02x}:{node_index & 0xFF:02x}:{rail:02x}"
    digits = mac.replace(":", "")
    guid = f"{digits[:6]}0300{digits[6:]}"
    return mac, ":".join(guid[at : at + 4] for at in range(0, 16, 4))


def hca_guid(node_index: int, rail: int) -> str:
    """Return the node GUID of an HCA; ibsim gives its port the next GUID, so the next HCA's is further away."""
    digits = f"{_OUI.replace(':', '')}030{node_index:04x}{rail * 16:03x}"
    return ":".join(digits[at : at + 4] for at in range(0, 16, 4))


def _chassis(facts: NodeFacts) -> State:
    """Return what identifies the machine. ``board_serial``: reported as Dell does, beside the Service Tag."""
    is_dell = facts.platform.manufacturer.startswith("Dell")
    own = {"board_serial": board_serial(facts.node.name)} if is_dell else {}
    return {
        **own,
        "serial": facts.node.serial,
        "manufacturer": facts.platform.manufacturer,
        "product": facts.platform.product,
        "bios": "1.6.7",  # a DGX H100's (NVIDIA/infra-controller a02fa34, crates/bmc-mock/src/hw/nvidia_dgx_h100.rs)
        "bmc": "25.06.27",
    }


def _gpu(facts: NodeFacts, index: int) -> State:
    profile, name = facts.gpu, f"{facts.node.name}/gpu{index}"
    return {
        "index": index,
        "uuid": f"GPU-{uuid.uuid5(_NAMESPACE, name)}",
        "serial": _serial("165", name),
        "bmc_name": gpu_name(facts, index),
        "pci": _pci(facts, index),
        "numa": _gpu_numa(facts, index),
        "name": profile.product_name,
        "device_id": f"0x{profile.pci_device_id.upper()}10DE",
        "subsystem_id": "0x16C110DE",
        "architecture": profile.architecture,
        "memory_mib": int(profile.memory.value),
        "vbios": _VBIOS,
        "board_part": _BOARD_PART,
        "present": True,
        "lost": False,
        "temperature_c": 29 + _spread(name, 6),
        "ecc": {kind: {"corrected": 0, "uncorrected": 0} for kind in ("volatile", "aggregate")},
        "remapped_rows": {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False},
        "power": _power(profile, name),
        "clocks": {"sm_max_mhz": _published(profile, profile.power.sm_clock_max, "SM clock"), "memory_mhz": 2619},
        "clock_events": 0,
        "compute_factor": 1.0,
        "memory_factor": 1.0,
        "recovery_action": "None",
        "pcie": {
            "gen": 5,
            "width": 16,
            "max_gen": 5,
            "max_width": 16,
            "replay": _spread(name, 5),
            "bridges": gpu_state.bridges(_pci(facts, index), _neighbour(facts, index)),
        },
        "nvlink": _nvlink(profile),
        **gpu_state.extras(profile, index),
    }


def _power(profile: GpuProfile, name: str) -> State:
    limit = int(profile.power.limit.value)
    least = _published(profile, profile.power.min_limit, "lowest power limit")
    return {"default_w": limit, "min_w": least, "max_w": limit, "idle_w": 68 + _spread(name, 9)}


def _published(profile: GpuProfile, figure: Figure | None, what: str) -> int:
    """Return a figure that the simulated card must report. Raise RackreadyError if it is unpublished."""
    if figure is None:
        raise RackreadyError(
            f"GPU profile {profile.id}",
            what,
            expected="a figure, for a card that is simulated",
            actual="not published",
            next_step="Simulate another model, or add it with its source.",
        )
    return int(figure.value)


def _pci(facts: NodeFacts, index: int) -> str:
    """Return the PCI address of a GPU. Raise RackreadyError if the platform profile has none."""
    if index >= len(facts.platform.gpu_pci):
        raise RackreadyError(
            f"platform profile {facts.platform.id}",
            "gpu_pci",
            expected=f"{facts.platform.gpus} addresses, for a server that is simulated",
            actual="not published",
            next_step="Simulate another model, or add them with their source.",
        )
    return facts.platform.gpu_pci[index]


def _nvlink(profile: GpuProfile) -> State:
    if profile.nvlink is None:
        return {"version": 0, "ring_gb_s": 0.0, "links": []}
    speed = int(profile.nvlink.speed.value)
    links = [
        {"id": link, "state": "active", "speed_mb_s": speed, "replay": 0, "crc": 0}
        for link in range(profile.nvlink.links)
    ]
    return {"version": 4, "ring_gb_s": profile.nvlink.ring.value, "links": links}


def _neighbour(facts: NodeFacts, index: int) -> str | None:
    """Return the PCI address of the NIC behind the same switch as a GPU."""
    return next((nic.pci for nic in facts.nics if nic.gpu == index and nic.pci), None)


def _gpu_pci(facts: NodeFacts, gpu: int) -> str | None:
    """Return the PCI address of the GPU behind the same switch as a NIC."""
    return facts.platform.gpu_pci[gpu] if gpu < len(facts.platform.gpu_pci) else None


def _gpu_numa(facts: NodeFacts, index: int) -> int:
    return next((nic.numa for nic in facts.nics if nic.gpu == index), 0)


def _nvswitches(facts: NodeFacts) -> list[State]:
    if not facts.platform.nvswitch:
        return []
    return [
        {"index": index, "pci": f"0000:{bus:02x}:00.0", "device_id": "0x22A310DE"}
        for index, bus in enumerate((0x07, 0x08, 0x09, 0x0A))
    ]


def _nic(facts: NodeFacts, nic: NicFacts, layer: str) -> State:
    mac, guid = port_identity(facts.index, nic.rail)
    guid = guid if layer == "roce" else hca_guid(facts.index, nic.rail)
    return {
        "rail": nic.rail,
        "rdma_device": nic.rdma_device,
        "netdev": nic.netdev,
        "pci": nic.pci,
        "numa": nic.numa,
        "bridges": gpu_state.bridges(nic.pci, _gpu_pci(facts, nic.gpu)),
        "gpu": nic.gpu,
        "mac": mac,
        "guid": guid,
        "fw": _NIC_FIRMWARE,
        "nv": {"LINK_TYPE_P1": 2 if layer == "roce" else 1},
        **({"fabric": layer} if layer == "infiniband" else {}),
        "board": _NIC_BOARD,
        "rate_gbps": nic.rate,
        "link": "up",
        "factor": 1.0,
        "address": nic.address,
        "switch": nic.switch,
        "port": nic.port,
        "module": host_state.module(facts.node.name, nic.rdma_device),
    }


def _serial(prefix: str, name: str) -> str:
    digits = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 10**10
    return f"{prefix}{digits:010d}"


def board_serial(name: str) -> str:
    """Return the serial number of a node's board, in the form of Dell's."""
    return _serial("MXFC4", f"{name}/board")


def _mac(name: str) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"48:b0:2d:{digest[:2]}:{digest[2:4]}:{digest[4:6]}"


def _spread(name: str, width: int) -> int:
    return int(hashlib.sha256(name.encode()).hexdigest()[:4], 16) % width
