"""The NVIDIA kernel module: which version is loaded, who uses it, and changing it without a reboot where nothing holds it.

Order of stopping and unloading: NVIDIA/gpu-driver-container, script ubuntu24.04/nvidia-driver (function _unload_driver).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .command import NodeProblem, Run, run

SERVICES = (
    "nvidia-cdi-refresh.path",
    "nvidia-cdi-refresh.service",
    "nvidia-dcgm.service",
    "nvidia-persistenced.service",
    "nvidia-imex.service",
    "nvidia-fabricmanager.service",
)
"""Services that hold the module and may be stopped for it, in the order of stopping; they are started in reverse."""

MODULES = ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem", "gdrdrv", "nvidia_fs", "nvidia")
"""Kernel modules in the order of unloading."""

_LOADED_BY_US = ("nvidia", "nvidia_uvm")
_VERSION = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")


@dataclass
class Driver:
    """The driver of one node. ``root`` is where its file system begins (tests)."""

    run: Run = run
    root: Path = Path("/")

    def loaded(self) -> str:
        """Return the version of the loaded module; empty when none is loaded."""
        for path in ("sys/module/nvidia/version", "proc/driver/nvidia/version"):
            try:
                match = _VERSION.search((self.root / path).read_text(encoding="utf-8"))
            except OSError:
                continue
            if match:
                return match[1]
        if "nvidia" not in self.modules():
            return ""
        match = _VERSION.search(self.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]).out)
        return match[1] if match else "unknown"

    def on_disk(self) -> str:
        """Return the version of the installed module; empty when none is installed."""
        done = self.run(["modinfo", "-F", "version", "nvidia"])
        return done.out.strip() if done.returncode == 0 else ""

    def modules(self) -> dict[str, int]:
        """Return the loaded kernel modules with their use counts."""
        rows = [line.split() for line in self.run(["lsmod"]).out.splitlines()[1:]]
        return {row[0]: int(row[2]) for row in rows if len(row) > 2 and row[2].isdigit()}  # noqa: PLR2004 - name, size, use count

    def users(self) -> list[str]:
        """Return the processes that compute on the GPUs, as ``pid name``."""
        done = self.run(["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"])
        if done.returncode != 0:
            return []
        return [" ".join(part.strip() for part in line.split(",")) for line in done.out.splitlines() if line[:1].isdigit()]

    def refuse_if_used(self, wanted: str) -> None:
        """Raise NodeProblem when another version is loaded and something computes with it: nobody's job is killed."""
        loaded = self.loaded()
        if not loaded or loaded == wanted:
            return
        users = self.users()
        if users:
            raise _in_use(wanted, loaded, f"used by {', '.join(users)}")

    def ensure_loaded(self, wanted: str, *, check: bool = False) -> bool:
        """Have the wanted version loaded; returns whether something was (in check mode: would be) loaded.

        Raises NodeProblem when another version is loaded and in use, or when loading fails.
        """
        loaded = self.loaded()
        missing = [name for name in _LOADED_BY_US if name not in self.modules()]
        if loaded == wanted and not missing:
            return False
        if check:
            return True
        stopped: list[str] = []
        if loaded and loaded != wanted:
            self.refuse_if_used(wanted)
            stopped = self._unload(wanted, loaded)
        self._load(wanted)
        self._start(stopped)
        return True

    def _unload(self, wanted: str, loaded: str) -> list[str]:
        stopped = [unit for unit in SERVICES if self.run(["systemctl", "is-active", "--quiet", unit]).returncode == 0]
        for unit in stopped:
            self.run(["systemctl", "stop", unit])
        for name in MODULES:
            if name not in self.modules():
                continue
            done = self.run(["rmmod", name])
            if done.returncode != 0:
                self._start(stopped)
                raise _in_use(wanted, loaded, done.out.strip().splitlines()[-1] if done.out.strip() else f"rmmod {name} failed")
        return stopped

    def _load(self, wanted: str) -> None:
        for name in _LOADED_BY_US:
            done = self.run(["modprobe", name])
            if done.returncode != 0:
                kernel = [line for line in self.run(["dmesg"]).out.splitlines() if "NVRM" in line or "nvidia" in line]
                actual = "; ".join([done.out.strip() or "modprobe failed", *(line.strip() for line in kernel[-1:])])
                raise NodeProblem(f"kernel module {name} {wanted} loads", actual, "Look at `dmesg` on the node; a reboot may be needed.")
        loaded = self.loaded()
        if loaded != wanted:
            raise NodeProblem(f"driver {wanted} loaded", f"{loaded or 'none'} loaded, {self.on_disk() or 'none'} on disk", "Reboot the node, then run again.")

    def _start(self, units: list[str]) -> None:
        for unit in reversed(units):
            self.run(["systemctl", "start", unit])


def _in_use(wanted: str, loaded: str, who: str) -> NodeProblem:
    step = "Drain the node and end what uses its GPUs, or reboot it; then run again. Nothing was changed."
    return NodeProblem(f"driver {wanted}, or another one that nothing holds", f"driver {loaded} is loaded and {who}", step)
