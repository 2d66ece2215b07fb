"""Faults that can be put into a simulated node's hardware state. They change hardware only; the code under test is not told."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rackready.model.problems import RackreadyError

State = dict[str, Any]
Apply = Callable[..., None]

_KEPT = ("faults", "boot_count", "node", "index")
"""Keys of the state that a repair leaves as they are."""


class FaultError(RackreadyError):
    """A fault that cannot be injected: unknown name, unknown or missing parameter, or a part that the node does not have."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One way for hardware to be broken."""

    name: str
    layer: str
    description: str
    apply: Apply
    params: dict[str, int | float | str] = field(default_factory=dict)
    """Parameter to default value; the default's type is the parameter's type."""
    caught_by: str = ""
    """Id of the gate that is meant to catch it (documentation, and what tests assert)."""


def inject(state: State, name: str, **params: Any) -> None:
    """Change ``state`` in place as the named fault does, and record it in ``state['faults']``.

    Raises FaultError for an unknown fault, parameter or part; the state is unchanged then.
    """
    fault = FAULTS.get(name)
    if fault is None:
        raise FaultError(f"Fault '{name}' - Expected: one of {', '.join(sorted(FAULTS))} Actual: '{name}'. Name a fault from the list.")
    chosen = {**fault.params, **_typed(fault, params)}
    fault.apply(state, **chosen)
    state["faults"].append({"name": name, "params": chosen})


def clear(state: State, healthy: State, name: str | None = None) -> int:
    """Repair one fault by name, or all of them, from the healthy state; return how many were repaired (0 when there was none)."""
    kept = [item for item in state["faults"] if name is not None and item["name"] != name]
    cleared = len(state["faults"]) - len(kept)
    if cleared:
        state.update({key: copy.deepcopy(value) for key, value in healthy.items() if key not in _KEPT})
        state["faults"] = []
        for item in kept:
            inject(state, item["name"], **item["params"])
    return cleared


def _typed(fault: Fault, params: dict[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in params.items() if value is not None}
    unknown = sorted(set(given) - set(fault.params))
    if unknown:
        takes = ", ".join(sorted(fault.params)) or "no parameters"
        raise FaultError(f"Fault '{fault.name}' - Expected: {takes} Actual: {', '.join(unknown)}. Leave out what it does not take.")
    try:
        return {key: type(fault.params[key])(value) for key, value in given.items()}
    except ValueError as error:
        raise FaultError(f"Fault '{fault.name}' - Expected: a value of the parameter's type Actual: {error}. Give a number.") from error


def _part(state: State, kind: str, index: int, key: str = "index") -> State:
    found: State | None = next((item for item in state.get(kind, []) if item[key] == index), None)
    if found is None:
        known = ", ".join(str(item[key]) for item in state.get(kind, [])) or "none"
        raise FaultError(f"{state.get('node', 'node')} {kind} - Expected: one of {known} Actual: {index}. Name a part that the node has.")
    return found


def _gpu(state: State, gpu: int) -> State:
    return _part(state, "gpus", gpu)


def _nvlink_down(state: State, gpu: int, link: int) -> None:
    links = {"links": _gpu(state, gpu)["nvlink"]["links"], "node": state.get("node")}
    _part(links, "links", link, "id")["state"] = "inactive"


def _gpu_missing(state: State, gpu: int) -> None:
    _gpu(state, gpu)["present"] = False


def _gpu_lost(state: State, gpu: int) -> None:
    _gpu(state, gpu)["lost"] = True
    _xid(state, gpu, 79)


def _gpu_slow(state: State, gpu: int, factor: float) -> None:
    _gpu(state, gpu)["compute_factor"] = factor


def _memory_slow(state: State, gpu: int, factor: float) -> None:
    _gpu(state, gpu)["memory_factor"] = factor


def _ecc(state: State, gpu: int, count: int) -> None:
    for kind in ("volatile", "aggregate"):
        _gpu(state, gpu)["ecc"][kind]["uncorrected"] += count


def _remap(state: State, gpu: int) -> None:
    rows = _gpu(state, gpu)["remapped_rows"]
    rows["uncorrectable"] += 1
    rows["pending"] = True


def _remap_failure(state: State, gpu: int) -> None:
    _gpu(state, gpu)["remapped_rows"]["failure"] = True


def _xid(state: State, gpu: int, code: int) -> None:
    state["xids"].append({"pci": _gpu(state, gpu)["pci"], "code": code})


def _pcie_width(state: State, gpu: int, width: int) -> None:
    _gpu(state, gpu)["pcie"]["width"] = width


def _pcie_gen(state: State, gpu: int, gen: int) -> None:
    _gpu(state, gpu)["pcie"]["gen"] = gen


def _wrong_model(state: State, gpu: int) -> None:
    _gpu(state, gpu).update(name="NVIDIA H100 PCIe", device_id="0x233110DE", memory_mib=81559)


def _throttle(state: State, gpu: int, mask: int) -> None:
    part = _gpu(state, gpu)
    part["clock_events"] = mask
    part["compute_factor"] = min(part["compute_factor"], 0.55)
    part["temperature_c"] = 91 if mask & 0x60 else part["temperature_c"]


def _nic_down(state: State, nic: int) -> None:
    _part(state, "nics", nic, "rail")["link"] = "down"


def _nic_slow(state: State, nic: int, factor: float) -> None:
    _part(state, "nics", nic, "rail")["factor"] = factor


def _nic_rate(state: State, nic: int, rate: int) -> None:
    _part(state, "nics", nic, "rail")["rate_gbps"] = rate


def _fabric_stuck(state: State) -> None:
    state["fabric_manager"]["stuck"] = True


def _dcgm_fail(state: State, gpu: int, test: str) -> None:
    _gpu(state, gpu)
    state["dcgm"]["fail"].append({"gpu": gpu, "test": test})


def _management_down(state: State) -> None:
    state["management"]["link"] = "down"


def _nouveau(state: State) -> None:
    state["nouveau"] = True


def _missing_after_boot(state: State, gpu: int) -> None:
    _gpu(state, gpu)["missing_from_boot"] = state.get("boot_count", 0) + 1


_GPU: dict[str, int | float | str] = {"gpu": 0}
_NIC: dict[str, int | float | str] = {"nic": 1}
_INVENTORY = "node/gpu/sanity/inventory"
_NCCL = "node/gpu/performance/nccl-all-reduce"
_PAIR = "pair/fabric/performance/ib-write-bw"
_R1 = "node/gpu/validation/dcgm-r1"
_R3 = "node/gpu/validation/dcgm-r3"

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault("nvlink-down", "nvlink", "one NVLink of a GPU does not train", _nvlink_down, {"gpu": 0, "link": 0}, _INVENTORY),
        Fault("gpu-missing", "pcie", "a GPU is not on the bus", _gpu_missing, _GPU, _INVENTORY),
        Fault("gpu-lost", "pcie", "a GPU falls off the bus while running (Xid 79)", _gpu_lost, _GPU, _INVENTORY),
        Fault("gpu-missing-after-power-cycle", "pcie", "a GPU that does not come back after the next power cycle", _missing_after_boot, _GPU, _INVENTORY),
        Fault("gpu-wrong-model", "gpu", "a GPU of another model than the site says", _wrong_model, _GPU, _INVENTORY),
        Fault("gpu-slow", "gpu", "a GPU computes at a fraction of its speed", _gpu_slow, {"gpu": 0, "factor": 0.6}, _R3),
        Fault("memory-slow", "gpu", "a GPU's memory is slower than its model's", _memory_slow, {"gpu": 0, "factor": 0.5}, _R3),
        Fault("ecc-uncorrectable", "memory", "uncorrectable ECC errors", _ecc, {"gpu": 0, "count": 1}, _INVENTORY),
        Fault("row-remap-pending", "memory", "a row remapping waits for a reset", _remap, _GPU, _R1),
        Fault("row-remap-failure", "memory", "a row could not be remapped", _remap_failure, _GPU, _R1),
        Fault("xid", "driver", "an Xid message appears in the kernel log", _xid, {"gpu": 0, "code": 48}, ""),
        Fault("pcie-width", "pcie", "a GPU's PCIe link trained with fewer lanes", _pcie_width, {"gpu": 0, "width": 8}, _R3),
        Fault("pcie-gen", "pcie", "a GPU's PCIe link trained at a lower generation", _pcie_gen, {"gpu": 0, "gen": 3}, _INVENTORY),
        Fault("thermal-slowdown", "gpu", "a GPU runs too hot and slows down", _throttle, {"gpu": 0, "mask": 0x40}, _R3),
        Fault("power-brake", "power", "the power supply asserts the power brake", _throttle, {"gpu": 0, "mask": 0x80}, _R3),
        Fault("nic-down", "fabric", "the cable of a rail is out", _nic_down, _NIC, _PAIR),
        Fault("nic-slow", "fabric", "a NIC carries a fraction of its rate", _nic_slow, {"nic": 1, "factor": 0.5}, _PAIR),
        Fault("nic-rate", "fabric", "a link trained at a lower rate, Gb/s", _nic_rate, {"nic": 1, "rate": 200}, _PAIR),
        Fault("fabric-manager-stuck", "nvlink", "the NVSwitch fabric never finishes training", _fabric_stuck, {}, _R1),
        Fault("dcgm-fail", "gpu", "a GPU fails one DCGM diagnostic plugin", _dcgm_fail, {"gpu": 0, "test": "memory"}, _R3),
        Fault("host-unreachable", "management", "the cable of the host's management network is out: it boots, and nobody reaches it", _management_down),
        Fault("nouveau-loaded", "driver", "nouveau is bound at boot unless it is denied", _nouveau, {}, _R1),
    )
}
