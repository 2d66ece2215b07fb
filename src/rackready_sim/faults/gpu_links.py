"""Faults of the links of GPUs: NVLink, the NVSwitch fabric and PCIe slots."""

from __future__ import annotations

from rackready_sim.faults.base import GPU, Fault, State, gpu_of, part

_PCIE = "node/gpu/sanity/pcie-path"
_NVLINK = "node/gpu/sanity/nvlink"
_FABRIC = "node/gpu/sanity/fabric"
_AFFINITY = "node/gpu/sanity/affinity"
_COPY = "node/gpu/performance/nvbandwidth"


def _nvlink_down(state: State, gpu: int, link: int) -> None:
    links = {"links": gpu_of(state, gpu)["nvlink"]["links"], "node": state.get("node")}
    part(links, "links", link, "id")["state"] = "inactive"


def _pcie_width(state: State, gpu: int, width: int) -> None:
    _end(state, gpu, "width", width)


def _pcie_gen(state: State, gpu: int, gen: int) -> None:
    _end(state, gpu, "gen", gen)


def _end(state: State, gpu: int, key: str, value: int) -> None:
    """Set both ends of a link, the GPU's and that of the port above it: both train alike."""
    pcie = gpu_of(state, gpu)["pcie"]
    pcie[key] = value
    for bridge in pcie["bridges"][:1]:
        bridge[key] = value


def _bridge(state: State, gpu: int, key: str, value: int) -> None:
    """Set the link between PCIe switch and root port.

    The GPU's own link does not show it; all traffic across both does.
    """
    pcie = gpu_of(state, gpu)["pcie"]
    for bridge in pcie["bridges"][1:]:
        bridge[key] = value
    gpu_of(state, gpu)["host_factor"] = 0.5


def _bridge_width(state: State, gpu: int, width: int) -> None:
    _bridge(state, gpu, "width", width)


def _bridge_gen(state: State, gpu: int, gen: int) -> None:
    _bridge(state, gpu, "gen", gen)


def _slot_gen(state: State, gpu: int, gen: int) -> None:
    """Limit the port above the GPU, as a BIOS setting or a wrong riser does.

    The link then trains at the lower rate of its two ends, and looks right.
    """
    _end(state, gpu, "gen", gen)
    gpu_of(state, gpu)["pcie"]["bridges"][0]["max_gen"] = gen


def _root_gen(state: State, gpu: int, gen: int) -> None:
    """Limit the root port: the link below it trains at the lower rate of its two ends."""
    _bridge(state, gpu, "gen", gen)
    gpu_of(state, gpu)["pcie"]["bridges"][-1]["max_gen"] = gen


def _replays(state: State, gpu: int, rate: int) -> None:
    gpu_of(state, gpu)["replay_rate_per_min"] = rate


def _nvlink_slow(state: State, gpu: int, link: int, speed: int) -> None:
    links = {"links": gpu_of(state, gpu)["nvlink"]["links"], "node": state.get("node")}
    part(links, "links", link, "id")["speed_mb_s"] = speed


def _nvlink_errors(state: State, gpu: int, link: int, count: int) -> None:
    links = {"links": gpu_of(state, gpu)["nvlink"]["links"], "node": state.get("node")}
    part(links, "links", link, "id").update(replay=count, recovery=1, crc=count * 20)


def _fabric_failed(state: State, gpu: int) -> None:
    gpu_of(state, gpu)["fabric"]["status"] = "Insufficient Resources"


def _fabric_unhealthy(state: State, gpu: int) -> None:
    gpu_of(state, gpu)["fabric"]["health"] = {
        "summary": "Unhealthy",
        "bandwidth": "Degraded",
        "route_recovery_in_progress": "False",
        "route_unhealthy": "True",
        "access_timeout_recovery": "False",
        "incorrect_configuration": "None",
    }


def _swapped(state: State, gpu: int) -> None:
    """Swap two NICs: everything answers, but each GPU's rail is on the far side."""
    gpu_of(state, gpu)
    other = (gpu + 4) % len(state["gpus"])
    for nic in state["nics"]:
        if nic["gpu"] in {gpu, other}:
            nic["beside"] = other if nic["gpu"] == gpu else gpu


def _fabric_stuck(state: State) -> None:
    state["fabric_manager"]["stuck"] = True


FAULTS = (
    Fault("nvlink-down", "nvlink", "one NVLink of a GPU does not train", _nvlink_down, {"gpu": 0, "link": 0}, _NVLINK),
    Fault(
        "nvlink-slow",
        "nvlink",
        "one NVLink of a GPU trained at a lower rate, MB/s",
        _nvlink_slow,
        {"gpu": 0, "link": 0, "speed": 19922},
        _NVLINK,
    ),
    Fault(
        "nvlink-errors",
        "nvlink",
        "one NVLink of a GPU replays and recovers",
        _nvlink_errors,
        {"gpu": 0, "link": 0, "count": 7},
        _NVLINK,
    ),
    Fault(
        "pcie-width", "pcie", "a GPU's PCIe link trained with fewer lanes", _pcie_width, {"gpu": 0, "width": 8}, _PCIE
    ),
    Fault(
        "pcie-gen", "pcie", "a GPU's PCIe link trained at a lower generation", _pcie_gen, {"gpu": 0, "gen": 3}, _PCIE
    ),
    Fault(
        "pcie-bridge-width",
        "pcie",
        "the link above a GPU's PCIe switch trained with fewer lanes",
        _bridge_width,
        {"gpu": 0, "width": 8},
        _PCIE,
    ),
    Fault(
        "pcie-bridge-gen",
        "pcie",
        "the link above a GPU's PCIe switch trained at a lower generation",
        _bridge_gen,
        {"gpu": 0, "gen": 4},
        _PCIE,
    ),
    Fault(
        "pcie-slot-gen",
        "pcie",
        "the port above a GPU supports only a lower generation: wrong riser, BIOS limit",
        _slot_gen,
        {"gpu": 0, "gen": 4},
        _PCIE,
    ),
    Fault(
        "pcie-root-gen",
        "pcie",
        "the root port of a GPU supports only a lower generation: BIOS limit",
        _root_gen,
        {"gpu": 0, "gen": 4},
        _PCIE,
    ),
    Fault(
        "pcie-replays",
        "pcie",
        "a GPU's PCIe link replays under load, per minute",
        _replays,
        {"gpu": 0, "rate": 90000},
        _COPY,
    ),
    Fault(
        "fabric-manager-stuck",
        "nvlink",
        "the NVSwitch fabric never finishes training",
        _fabric_stuck,
        {},
        _FABRIC,
        at_boot=True,
    ),
    Fault("fabric-failed", "nvlink", "a GPU is not admitted to the NVSwitch fabric", _fabric_failed, GPU, _FABRIC),
    Fault(
        "fabric-unhealthy", "nvlink", "the fabric reports a degraded route for a GPU", _fabric_unhealthy, GPU, _FABRIC
    ),
    Fault(
        "affinity-swapped",
        "pcie",
        "the NICs of two GPUs, four places apart, are swapped",
        _swapped,
        GPU,
        _AFFINITY,
    ),
)
