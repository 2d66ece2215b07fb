"""Devices that the loaded driver sees: GPUs, NICs and their present condition."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from . import paths, store
from .ib import node as ib
from .nic import nv

State = dict[str, Any]


class DriverNotLoadedError(Exception):
    """The NVIDIA kernel module is not loaded."""


class LibraryMissingError(Exception):
    """The NVML library is not installed."""


class VersionMismatchError(Exception):
    """The NVML library and the loaded kernel module are of different versions; the argument is the library's."""


class Gpu:
    """One GPU with the settings that software made."""

    def __init__(self, part: State, runtime: State, persistence: bool) -> None:  # noqa: FBT001  (a record)
        self.part, self.runtime, self.persistence = part, runtime, persistence

    @property
    def index(self) -> int:
        """Position by PCI address, as the driver counts."""
        return int(self.runtime["index"])

    @property
    def slot(self) -> int:
        """Position in the chassis, independent of missing siblings."""
        return int(self.part["index"])

    @property
    def lost(self) -> bool:
        """Whether it fell off the bus."""
        return bool(self.part["lost"])

    @property
    def bus_id(self) -> str:
        """PCI address as NVML prints it."""
        return f"0000{self.part['pci']}".upper()

    @property
    def power_limit(self) -> float:
        """Power limit in force, W."""
        wanted = float(self.runtime.get("power_limit_w", self.part["power"]["default_w"]))
        cap = self.part.get("power_cap_w")
        return min(wanted, float(cap)) if cap else wanted

    @property
    def compute_mode(self) -> str:
        """Compute mode in nvidia-smi's word: what software set, else that of the hardware state."""
        return str(self.runtime.get("compute_mode", self.part["compute_mode"]))

    @property
    def locked_clocks(self) -> tuple[int, int] | None:
        """Locked SM clock range, MHz."""
        locked = self.runtime.get("locked_sm_mhz")
        return (int(locked[0]), int(locked[1])) if locked else None

    @property
    def sm_limit(self) -> int:
        """Highest SM clock that it may reach now, MHz."""
        top = int(self.part["clocks"]["sm_max_mhz"])
        cap = int(self.part.get("sm_cap_mhz") or top)
        return min(top, cap, self.locked_clocks[1]) if self.locked_clocks else min(top, cap)

    @property
    def sm_clock(self) -> int:
        """SM clock while idle, MHz: parked unless a lower bound is locked."""
        return min(self.sm_limit, self.locked_clocks[0]) if self.locked_clocks else 345

    @property
    def power_draw(self) -> float:
        """Draw while idle, W: a locked clock costs a little."""
        idle = float(self.part["power"]["idle_w"])
        return idle + (self.sm_clock - 345) * 0.028

    @property
    def loaded(self) -> bool:
        """Whether a program keeps it busy now."""
        return float(self.runtime.get("loaded_until", 0.0)) > time.time()

    @property
    def temperature(self) -> int:
        """GPU temperature, C: that of its state while idle, plus the rise under load."""
        rise = int(self.part.get("thermal", {}).get("load_rise_c", 0)) if self.loaded else 0
        return int(self.part["temperature_c"]) + rise

    @property
    def loaded_clock(self) -> int:
        """SM clock under full load, MHz: below its limit if the power limit or a slowdown holds it down."""
        held = 0.55 if int(self.part["clock_events"]) & 0xE8 else 1.0
        power: float = min(1.0, (self.power_limit / float(self.part["power"]["default_w"])) ** 0.5)
        return int(self.sm_limit * min(power, held) * 0.93)

    @property
    def events(self) -> int:
        """Clock event reasons, the NVML bit mask."""
        return int(self.part["clock_events"]) or 0x1

    @property
    def speed(self) -> float:
        """Fraction of the model's compute speed under full load, from silicon, power limit, clock limit and MPS."""
        top = float(self.part["clocks"]["sm_max_mhz"])
        power: float = min(1.0, (self.power_limit / float(self.part["power"]["default_w"])) ** 0.5)
        share = float(self.runtime.get("mps_share", 1.0))
        return float(self.part["compute_factor"]) * min(power, self.sm_limit / top) * share


def present(part: State, state: State) -> bool:
    """Return whether the part is on the bus since this boot."""
    from_boot = part.get("missing_from_boot")
    gone = from_boot is not None and state.get("boot_count", 0) >= from_boot
    return bool(part.get("present", True)) and not gone


def driver_version() -> str | None:
    """Return the version of the loaded kernel module; None if none is loaded."""
    module = store.runtime()["modules"].get("nvidia")
    return module["version"] if module else None


def refused(version: str, step: str) -> bool:
    """Return whether the GPUs fail at a step (``load`` or ``init``) of this driver version."""
    found = store.hardware().get("driver_refused", {})
    return bool(found.get("driver") == version and found.get("step") == step)


def library_version() -> str | None:
    """Return the version of the installed NVML library; None if none is installed."""
    link = paths.at(f"{paths.libraries()}/libnvidia-ml.so.1")
    if not link.exists():
        return None
    return link.resolve().name.split(".so.", 1)[1]


def open_driver() -> str:
    """Initialise as NVML does: load the driver through nvidia-modprobe if allowed, then compare versions.

    Returns the driver version. Raises LibraryMissingError, DriverNotLoadedError or VersionMismatchError.
    """
    library = library_version()
    if library is None:
        raise LibraryMissingError
    helper = paths.at("/usr/bin/nvidia-modprobe")
    if driver_version() is None and helper.exists() and os.geteuid() == 0:
        import subprocess  # noqa: PLC0415  (rare)

        subprocess.run([str(helper)], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    loaded = driver_version()
    if loaded is None:
        raise DriverNotLoadedError
    if loaded != library:
        raise VersionMismatchError(library)
    return loaded


def gpus() -> list[Gpu]:
    """Return the GPUs on the bus, in PCI order, as the driver counts them."""
    state, runtime = store.hardware(), store.runtime()
    parts = sorted((part for part in state["gpus"] if present(part, state)), key=lambda part: part["pci"])
    found = []
    for index, part in enumerate(parts):
        uuid = part["uuid"]
        settings = {"index": index, "mps_share": mps_share(runtime), **runtime["gpu"].get(uuid, {})}
        found.append(
            Gpu(part, settings, bool(runtime["persistence"].get(uuid)) and not state.get("persistence_broken"))
        )
    return found


def mps_share(runtime: State) -> float:
    """Return the part of a GPU's threads that a CUDA program gets now, with MPS or without."""
    found = runtime.get("mps")
    return float(found["percent"]) / 100 if found and alive(found["pid"]) else 1.0


def set_gpu(gpu: Gpu, **values: Any) -> None:
    """Set runtime values of one GPU; None restores the default. Without persistence nothing is kept."""
    if not gpu.persistence:
        return
    with store.change() as runtime:
        settings = runtime["gpu"].setdefault(gpu.part["uuid"], {})
        for key, value in values.items():
            if value is None:
                settings.pop(key, None)
            else:
                settings[key] = value


def load(gpus_under_load: list[Gpu], counted_s: float, real_s: float) -> None:
    """Record that these GPUs are busy for ``real_s`` from now on, so that readers see them warm.

    ``counted_s`` counts for their error rates.
    """
    with store.change() as runtime:
        busy = runtime.setdefault("busy_s", {})
        for gpu in gpus_under_load:
            uuid = gpu.part["uuid"]
            busy[uuid] = busy.get(uuid, 0.0) + counted_s
            runtime["gpu"].setdefault(uuid, {})["loaded_until"] = time.time() + real_s


def set_persistence(gpu: Gpu, *, on: bool) -> None:
    """Turn persistence mode on or off; off makes the driver forget the GPU's settings."""
    with store.change() as runtime:
        runtime["persistence"][gpu.part["uuid"]] = on
        if not on:
            runtime["gpu"].pop(gpu.part["uuid"], None)


def nics() -> list[State]:
    """Return the compute NICs that are on the bus."""
    state = store.hardware()
    return [nic for nic in state["nics"] if present(nic, state)]


def carrier(nic: State) -> bool:
    """Return whether the NIC's link is up: the cable is plugged in, and both ends are up."""
    if ib.is_cabled(nic):
        return ib.active(nic)
    if nic["link"] != "up" or nv.is_infiniband(nic):  # the switches are Ethernet
        return False
    path = paths.at(f"/sys/class/net/{nic['netdev']}/carrier")
    try:
        return path.read_text().strip() == "1"
    except OSError:
        return False


def fabric_state(gpu: Gpu) -> str:
    """Return what a GPU reports of its NVSwitch fabric: Not Started, In Progress or Completed.

    N/A without NVSwitches and on Ampere, whose GPUs do not register: bottlerocket-os/bottlerocket pull request 3873
    shows it on a p4d whose fabric manager runs. The driver: NVIDIA/open-gpu-kernel-modules subdevice_ctrl_gpu_kernel.c,
    subdeviceCtrlCmdGetGpuFabricProbeInfo_IMPL (no probe: UNSUPPORTED).
    """
    if not store.hardware()["nvswitches"] or gpu.part["architecture"] == "ampere":
        return "N/A"
    return str(store.runtime()["fabric"]["state"])


def fabric_usable() -> bool:
    """Return whether CUDA may start: NVSwitch machines need a fabric manager that runs and has finished."""
    if not store.hardware()["nvswitches"]:
        return True
    fabric = store.runtime()["fabric"]
    return fabric["state"] == "Completed" and alive(fabric.get("pid"))


def alive(pid: object) -> bool:
    """Return whether a process lives."""
    return isinstance(pid, int) and Path(f"/proc/{pid}").exists()
