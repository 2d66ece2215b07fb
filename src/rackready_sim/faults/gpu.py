"""Faults of GPUs: presence, speed, memory, settings, cooling, containers and DCGM."""

from __future__ import annotations

from rackready_sim.faults.base import GPU, Fault, State, gpu_of, part


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


def _ecc_storm(state: State, gpu: int, rate: int) -> None:
    gpu_of(state, gpu)["ecc_rate_per_min"] = rate


def _sram_threshold(state: State, gpu: int) -> None:
    part = gpu_of(state, gpu)
    part["sram"]["aggregate"]["parity"] = 12
    part["sram_threshold_exceeded"] = True


def _inforom(state: State, gpu: int) -> None:
    gpu_of(state, gpu)["inforom"]["valid"] = False


def _recovery(state: State, gpu: int, action: str) -> None:
    gpu_of(state, gpu)["recovery_action"] = action


def _sxid(state: State, switch: int, code: int) -> None:
    found = part(state, "nvswitches", switch)
    kind = "Non-fatal" if code in {12028, 22013, 19084} else "Fatal"
    state["sxids"].append(
        {"switch": switch, "pci": found["pci"], "code": code, "text": f"{kind}, Link 30 LTSSM Fault Up"}
    )


def _hot_idle(state: State, gpu: int, celsius: int) -> None:
    gpu_of(state, gpu)["temperature_c"] = celsius


def _hot_under_load(state: State, gpu: int) -> None:
    gpu_of(state, gpu)["thermal"]["load_rise_c"] = 62


def _power_cap(state: State, gpu: int, watts: int) -> None:
    gpu_of(state, gpu)["power_cap_w"] = watts


def _clock_cap(state: State, gpu: int, mhz: int) -> None:
    gpu_of(state, gpu)["sm_cap_mhz"] = mhz


def _clock_cap_all(state: State, mhz: int) -> None:
    for gpu in state["gpus"]:
        gpu["sm_cap_mhz"] = mhz


def _driver_refused(state: State, driver: str, step: str) -> None:
    state["driver_refused"] = {"driver": driver, "step": step}


def _mig(state: State, gpu: int) -> None:
    gpu_of(state, gpu)["mig_mode"] = "Enabled"


def _compute_mode(state: State, gpu: int) -> None:
    gpu_of(state, gpu)["compute_mode"] = "Prohibited"


def _ecc_off(state: State, gpu: int) -> None:
    gpu_of(state, gpu)["ecc_mode"] = "Disabled"


def _toolkit(state: State) -> None:
    state["containers"]["toolkit"] = False


def _cdi_stale(state: State) -> None:
    state["containers"]["stale"] = ["/usr/lib/x86_64-linux-gnu/libcuda.so.570.86.10"]


def _cdi_missing(state: State, gpu: int) -> None:
    gpu_of(state, gpu)["in_container"] = False


def _gemm_slow(state: State, gpu: int, percent: float) -> None:
    gpu_of(state, gpu)["compute_factor"] = 1 - percent / 100


def _wrong_results(state: State, gpu: int) -> None:
    gpu_of(state, gpu)["wrong_results"] = 3


def _persistence(state: State) -> None:
    state["persistence_broken"] = True


def _display(state: State, gpu: int) -> None:
    gpu_of(state, gpu)["display_active"] = "Enabled"


def _wrong_model(state: State, gpu: int) -> None:
    gpu_of(state, gpu).update(name="NVIDIA H100 PCIe", device_id="0x233110DE", memory_mib=81559)


def _throttle(state: State, gpu: int, mask: int) -> None:
    part = gpu_of(state, gpu)
    part["clock_events"] = mask
    part["compute_factor"] = min(part["compute_factor"], 0.55)
    part["temperature_c"] = 91 if mask & 0x60 else part["temperature_c"]


def _dcgm_fail(state: State, gpu: int, test: str) -> None:
    gpu_of(state, gpu)
    state["dcgm"]["fail"].append({"gpu": gpu, "test": test})


def _missing_after_boot(state: State, gpu: int) -> None:
    gpu_of(state, gpu)["missing_from_boot"] = state.get("boot_count", 0) + 1


_INVENTORY = "node/gpu/sanity/inventory"
_R3 = "node/gpu/validation/dcgm-r3"
_XID = "node/gpu/sanity/xid"
_ECC = "node/gpu/sanity/ecc"
_REMAP = "node/gpu/sanity/row-remap"
_INFOROM = "node/gpu/sanity/inforom"
_ACTION = "node/gpu/sanity/recovery-action"
_CLOCKS = "node/gpu/sanity/clocks"
_SETTINGS = "node/gpu/sanity/settings"
_CONTAINERS = "node/gpu/sanity/containers"
_GEMM = "node/gpu/performance/gemm"
_COPY = "node/gpu/performance/nvbandwidth"
_BURN = "node/gpu/stress/burn"
_INTEGRITY = "node/gpu/stress/compute-integrity"

FAULTS = (
    Fault("gpu-missing", "pcie", "a GPU is not on the bus", _gpu_missing, GPU, _INVENTORY),
    Fault("gpu-lost", "pcie", "a GPU falls off the bus while running (Xid 79)", _gpu_lost, GPU, _XID),
    Fault(
        "gpu-missing-after-power-cycle",
        "pcie",
        "a GPU is missing after the next power cycle",
        _missing_after_boot,
        GPU,
        _INVENTORY,
        at_boot=True,
    ),
    Fault("gpu-wrong-model", "gpu", "a GPU of another model than in the site file", _wrong_model, GPU, _INVENTORY),
    Fault("gpu-slow", "gpu", "a GPU computes at a fraction of its speed", _gpu_slow, {"gpu": 0, "factor": 0.6}, _R3),
    Fault(
        "gemm-slow-3",
        "gpu",
        "a GPU computes 3 % slower than it should, without any error",
        _gemm_slow,
        {"gpu": 0, "percent": 3.0},
        _GEMM,
    ),
    Fault(
        "gemm-slow-5",
        "gpu",
        "a GPU computes 5 % slower than it should, without any error",
        _gemm_slow,
        {"gpu": 0, "percent": 5.0},
        _GEMM,
    ),
    Fault(
        "gemm-slow-10",
        "gpu",
        "a GPU computes 10 % slower than it should, without any error",
        _gemm_slow,
        {"gpu": 0, "percent": 10.0},
        _GEMM,
    ),
    Fault(
        "wrong-results",
        "gpu",
        "a GPU computes wrong results under load, and reports no error",
        _wrong_results,
        GPU,
        _INTEGRITY,
    ),
    Fault(
        "memory-slow",
        "gpu",
        "a GPU's memory is slower than its model's",
        _memory_slow,
        {"gpu": 0, "factor": 0.5},
        _COPY,
    ),
    Fault("ecc-uncorrectable", "memory", "uncorrectable ECC errors", _ecc, {"gpu": 0, "count": 1}, _ECC),
    Fault(
        "ecc-corrected-storm",
        "memory",
        "corrected ECC errors appear under load, per minute",
        _ecc_storm,
        {"gpu": 0, "rate": 400},
        _BURN,
    ),
    Fault("ecc-off", "memory", "ECC is off on a GPU", _ecc_off, GPU, _ECC),
    Fault(
        "sram-threshold",
        "memory",
        "SRAM errors over the GPU's life exceed the vendor's threshold",
        _sram_threshold,
        GPU,
        _ECC,
    ),
    Fault("row-remap-pending", "memory", "a row remapping waits for a reset", _remap, GPU, _REMAP),
    Fault("row-remap-failure", "memory", "a row could not be remapped", _remap_failure, GPU, _REMAP),
    Fault("inforom-corrupt", "gpu", "a GPU's InfoROM is corrupt", _inforom, GPU, _INFOROM),
    Fault(
        "recovery-action",
        "gpu",
        "the driver asks for a recovery action",
        _recovery,
        {"gpu": 0, "action": "Drain and Reset"},
        _ACTION,
    ),
    Fault("xid", "driver", "an Xid message appears in the kernel log", _xid, {"gpu": 0, "code": 48}, _XID),
    Fault("sxid", "nvlink", "an NVSwitch reports an SXid in the kernel log", _sxid, {"switch": 0, "code": 20034}, _XID),
    Fault(
        "thermal-slowdown", "thermal", "a GPU runs too hot and slows down", _throttle, {"gpu": 0, "mask": 0x40}, _CLOCKS
    ),
    Fault(
        "hot-idle",
        "thermal",
        "a GPU is hot while idle: its cooling does not reach it",
        _hot_idle,
        {"gpu": 0, "celsius": 74},
        _CLOCKS,
    ),
    Fault(
        "hot-under-load", "thermal", "a GPU exceeds its slowdown threshold only under load", _hot_under_load, GPU, _BURN
    ),
    Fault(
        "power-brake", "power", "the power supply asserts the power brake", _throttle, {"gpu": 0, "mask": 0x80}, _CLOCKS
    ),
    Fault(
        "power-cap-low",
        "power",
        "a GPU's power is capped below its limit, W",
        _power_cap,
        {"gpu": 0, "watts": 500},
        _SETTINGS,
    ),
    Fault("clocks-locked-low", "gpu", "one GPU's clock is held low, MHz", _clock_cap, {"gpu": 0, "mhz": 1200}, _GEMM),
    Fault(
        "clocks-locked-low-all",
        "gpu",
        "the clocks of all GPUs of a node are held low, MHz: siblings look alike",
        _clock_cap_all,
        {"mhz": 1200},
        _BURN,
    ),
    Fault("persistence-off", "gpu", "persistence mode does not stay on", _persistence, {}, _SETTINGS),
    Fault(
        "driver-refused",
        "gpu",
        "one driver version does not load (step load) or finds no GPU (step init); the role nvidia_driver reports it",
        _driver_refused,
        {"driver": "580.178.01", "step": "load"},
    ),
    Fault("display-active", "gpu", "a graphical session runs on a GPU", _display, GPU, _SETTINGS),
    Fault("mig-on", "gpu", "MIG mode is on where it should not be", _mig, GPU, _SETTINGS),
    Fault(
        "compute-mode-prohibited",
        "gpu",
        "a GPU accepts no work: compute mode Prohibited",
        _compute_mode,
        GPU,
        _SETTINGS,
    ),
    Fault("container-toolkit-broken", "services", "the Container Toolkit fails", _toolkit, {}, _CONTAINERS),
    Fault(
        "cdi-stale",
        "services",
        "the CDI specification names libraries of a driver that is gone",
        _cdi_stale,
        {},
        _CONTAINERS,
    ),
    Fault("cdi-missing-gpu", "services", "the CDI specification lacks a GPU", _cdi_missing, GPU, _CONTAINERS),
    Fault("dcgm-fail", "gpu", "a GPU fails one DCGM diagnostic plugin", _dcgm_fail, {"gpu": 0, "test": "memory"}, _R3),
)
