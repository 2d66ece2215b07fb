"""Faults of GPUs, their NVLinks and their PCIe slots."""

from __future__ import annotations

from rackready.sim.faults.base import GPU, Fault, State, gpu_of, part


def _nvlink_down(state: State, gpu: int, link: int) -> None:
    links = {"links": gpu_of(state, gpu)["nvlink"]["links"], "node": state.get("node")}
    part(links, "links", link, "id")["state"] = "inactive"


def _gpu_missing(state: State, gpu: int) -> None:
    gpu_of(state, gpu)["present"] = False


def _gpu_lost(state: State, gpu: int) -> None:
    gpu_of(state, gpu)["lost"] = True
    _xid(state, gpu, 79)


def _gpu_slow(state: State, gpu: int, factor: float) -> None:
    gpu_of(state, gpu)["compute_factor"] = factor


def _memory_slow(state: State, gpu: int, factor: float) -> None:
    gpu_of(state, gpu)["memory_factor"] = factor


def _ecc(state: State, gpu: int, count: int) -> None:
    for kind in ("volatile", "aggregate"):
        gpu_of(state, gpu)["ecc"][kind]["uncorrected"] += count


def _remap(state: State, gpu: int) -> None:
    rows = gpu_of(state, gpu)["remapped_rows"]
    rows["uncorrectable"] += 1
    rows["pending"] = True


def _remap_failure(state: State, gpu: int) -> None:
    gpu_of(state, gpu)["remapped_rows"]["failure"] = True


def _xid(state: State, gpu: int, code: int) -> None:
    state["xids"].append({"pci": gpu_of(state, gpu)["pci"], "code": code})


def _pcie_width(state: State, gpu: int, width: int) -> None:
    gpu_of(state, gpu)["pcie"]["width"] = width


def _pcie_gen(state: State, gpu: int, gen: int) -> None:
    gpu_of(state, gpu)["pcie"]["gen"] = gen


def _wrong_model(state: State, gpu: int) -> None:
    gpu_of(state, gpu).update(name="NVIDIA H100 PCIe", device_id="0x233110DE", memory_mib=81559)


def _throttle(state: State, gpu: int, mask: int) -> None:
    part = gpu_of(state, gpu)
    part["clock_events"] = mask
    part["compute_factor"] = min(part["compute_factor"], 0.55)
    part["temperature_c"] = 91 if mask & 0x60 else part["temperature_c"]


def _fabric_stuck(state: State) -> None:
    state["fabric_manager"]["stuck"] = True


def _dcgm_fail(state: State, gpu: int, test: str) -> None:
    gpu_of(state, gpu)
    state["dcgm"]["fail"].append({"gpu": gpu, "test": test})


def _missing_after_boot(state: State, gpu: int) -> None:
    gpu_of(state, gpu)["missing_from_boot"] = state.get("boot_count", 0) + 1


_INVENTORY = "node/gpu/sanity/inventory"
_R1 = "node/gpu/validation/dcgm-r1"
_R3 = "node/gpu/validation/dcgm-r3"

FAULTS = (
    Fault("nvlink-down", "nvlink", "one NVLink of a GPU does not train", _nvlink_down, {"gpu": 0, "link": 0}, _INVENTORY),
    Fault("gpu-missing", "pcie", "a GPU is not on the bus", _gpu_missing, GPU, _INVENTORY),
    Fault("gpu-lost", "pcie", "a GPU falls off the bus while running (Xid 79)", _gpu_lost, GPU, _INVENTORY),
    Fault("gpu-missing-after-power-cycle", "pcie", "a GPU does not come back after the next power cycle", _missing_after_boot, GPU, _INVENTORY, at_boot=True),
    Fault("gpu-wrong-model", "gpu", "a GPU of another model than the site says", _wrong_model, GPU, _INVENTORY),
    Fault("gpu-slow", "gpu", "a GPU computes at a fraction of its speed", _gpu_slow, {"gpu": 0, "factor": 0.6}, _R3),
    Fault("memory-slow", "gpu", "a GPU's memory is slower than its model's", _memory_slow, {"gpu": 0, "factor": 0.5}, _R3),
    Fault("ecc-uncorrectable", "memory", "uncorrectable ECC errors", _ecc, {"gpu": 0, "count": 1}, _INVENTORY),
    Fault("row-remap-pending", "memory", "a row remapping waits for a reset", _remap, GPU, _R1),
    Fault("row-remap-failure", "memory", "a row could not be remapped", _remap_failure, GPU, _R1),
    Fault("xid", "driver", "an Xid message appears in the kernel log", _xid, {"gpu": 0, "code": 48}, ""),
    Fault("pcie-width", "pcie", "a GPU's PCIe link trained with fewer lanes", _pcie_width, {"gpu": 0, "width": 8}, _R3),
    Fault("pcie-gen", "pcie", "a GPU's PCIe link trained at a lower generation", _pcie_gen, {"gpu": 0, "gen": 3}, _INVENTORY),
    Fault("thermal-slowdown", "gpu", "a GPU runs too hot and slows down", _throttle, {"gpu": 0, "mask": 0x40}, _R3),
    Fault("power-brake", "power", "the power supply asserts the power brake", _throttle, {"gpu": 0, "mask": 0x80}, _R3),
    Fault("fabric-manager-stuck", "nvlink", "the NVSwitch fabric never finishes training", _fabric_stuck, {}, _R1),
    Fault("dcgm-fail", "gpu", "a GPU fails one DCGM diagnostic plugin", _dcgm_fail, {"gpu": 0, "test": "memory"}, _R3),
)
