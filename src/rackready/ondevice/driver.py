"""The NVIDIA kernel module: its version, its users, and changing it without a reboot where nothing holds it.

Order of stopping and unloading: NVIDIA/gpu-driver-container, script ubuntu24.04/nvidia-driver (function
_unload_driver).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .command import NodeProblem, Run, run
from .fence import FOLDER, at_work, fence
from .gpu_users import PODS_STEP, device_users, gpu_users, pod_users
from .mps import SERVER, Mps
from .whole_file import replace_file

SERVICES = (
    "rackready-mps.service",
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

OPERATION = "install"
"""The lock of package installation: a driver's package builds and replaces the module that is loaded here."""
_STOPPED = "driver-stopped.json"
"""Services that were stopped and not started again yet, below the fence's folder: a run that is killed in between
leaves it."""
_UNLOADED = "driver-unloaded.json"
"""Modules that were unloaded with the driver and are not loaded again yet, and the boot in which that was, in the same
folder. At a boot, the system's own settings load what they name."""
_ONCE = "nvidia-cdi-refresh."
"""A service that ends when its work is done, and the path that starts it."""
_LOADED_BY_US = ("nvidia", "nvidia_uvm")
_VERSION = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")


@dataclass
class Driver:
    """The driver of one node.

    ``root`` is the start of its file system (tests). ``notes``: findings about other runs, in words.
    """

    run: Run = run
    root: Path = Path("/")
    folder: Path = FOLDER
    lock_wait_s: float = 600.0
    notes: list[str] = field(default_factory=list)

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
        """Return the processes that compute on the GPUs, as ``pid name``; none without a loaded driver.

        Where nvidia-smi does not answer, as after the packages of another version, what holds the devices counts.
        """
        try:
            found = gpu_users(self.run)
        except NodeProblem:
            return device_users(self.root, SERVICES)
        idle = any(SERVER in row for row in found) and not Mps(self.run, self.root).clients()
        return [row for row in found if not (idle and SERVER in row)]  # it ends with the unit of MPS

    def answers(self) -> set[str]:
        """Return the driver versions that nvidia-smi reports for the GPUs. Raises NodeProblem if it fails."""
        done = self.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
        if done.returncode != 0:
            actual = " ".join(done.out.split()) or f"exit code {done.returncode}"
            raise NodeProblem("nvidia-smi answers", actual, "Check `dmesg` on the node.")
        return {line.strip() for line in done.out.splitlines() if line.strip()}

    def active(self) -> list[str]:
        """Return the services that hold the module and run now, or that an interrupted run stopped."""
        left = self._left_stopped()
        return [unit for unit in SERVICES if unit in left or self._is_active(unit)]

    def start(self, units: list[str]) -> list[str]:
        """Start those of the services that do not run; return those that still do not run."""
        for unit in reversed([unit for unit in SERVICES if unit in units and not self._is_active(unit)]):
            self.run(["systemctl", "start", unit])
        return [unit for unit in units if not unit.startswith(_ONCE) and not self._is_active(unit)]

    def _is_active(self, unit: str) -> bool:
        return self.run(["systemctl", "is-active", "--quiet", unit]).returncode == 0

    def refuse_if_used(self, wanted: str) -> None:
        """Raise NodeProblem when another version is loaded and something computes with it: no job is killed."""
        loaded = self.loaded()
        if not loaded or loaded == wanted:
            return
        users = self.users()
        if users:
            raise _in_use(wanted, loaded, f"used by {', '.join(users)}")

    def refuse_if_held(self, wanted: str) -> None:
        """Raise NodeProblem as ``refuse_if_used``, and when a pod holds another version open without computing.

        It would keep the module from being unloaded. A dry run does not ask: the device plugin is on every node in
        production.
        """
        self.refuse_if_used(wanted)
        loaded = self.loaded()
        if loaded and loaded != wanted and (pods := pod_users(self.root)):
            expected = f"driver {wanted}, or another one that no pod holds open"
            raise NodeProblem(expected, f"driver {loaded} is loaded and held by {', '.join(pods)}", PODS_STEP)

    def ensure_loaded(
        self, wanted: str, token: int = 0, ledger: str = "", *, operation: str = OPERATION, check: bool = False
    ) -> bool:
        """Load the wanted version under the node's fence; return whether one was (in check mode: would be) loaded.

        A run that a killed controller left at work is waited for, and its effect observed. Raises NodeProblem when
        another version is loaded and in use, when loading fails, when a newer controller of the same ledger was here,
        or when the lock is not free in time.
        """
        left = self._left_stopped() or self.left_unloaded()
        if check or (self._as_wanted(wanted) and not at_work(operation, folder=self.folder) and not left):
            return not self._as_wanted(wanted)
        with fence(operation, token, ledger, folder=self.folder, wait_s=self.lock_wait_s) as notes:
            try:
                return self.bring(wanted, notes)
            finally:
                self.notes += notes

    def _as_wanted(self, wanted: str) -> bool:
        modules = self.modules()
        return self.loaded() == wanted and all(name in modules for name in _LOADED_BY_US)

    def bring(self, wanted: str, notes: list[str]) -> bool:
        """Observe again, now that no other run acts, and load what is missing. The caller holds the fence."""
        left = self._left_stopped()
        if left:
            notes.append(f"an interrupted run left stopped: {', '.join(left)}")
        changed = not self._as_wanted(wanted)
        loaded = self.loaded()
        if changed:
            self._refuse_unbuilt(wanted)
        if changed and loaded and loaded != wanted:
            self.refuse_if_held(wanted)
            self._unload(wanted, loaded)
        if changed:
            self._load(wanted)
        missing = self.left_unloaded()
        notes += self._reload()
        self._start()
        return changed or bool(left) or missing != self.left_unloaded()

    def _refuse_unbuilt(self, wanted: str) -> None:
        """Refuse before anything is unloaded: packages of the vendor end well though dkms built no module."""
        there = self.on_disk()
        if there != wanted:
            log = f"var/lib/dkms/nvidia/{wanted}/build/make.log"  # dkms 3.0.10, report_build_problem
            step = "Install the module's package for the running kernel, or see `dkms status` on the node."
            if (self.root / "var/lib/dkms/nvidia").exists():
                step = f"See /{log} on the node." if (self.root / log).exists() else "See `dkms status` on the node."
            raise NodeProblem(
                f"module nvidia {wanted} built for the running kernel", f"{there or 'none'} on disk", step
            )

    def _left_stopped(self) -> list[str]:
        try:
            found = json.loads((self.folder / _STOPPED).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # none, or torn by a power cut: enabled services start at boot
            return []
        return [unit for unit in SERVICES if unit in found]

    def left_unloaded(self) -> list[str]:
        """Return the modules that were unloaded with the driver in this boot, and are not loaded again."""
        try:
            found = json.loads((self.folder / _UNLOADED).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # none, or torn by a power cut
            return []
        there = self.modules()
        noted = found["modules"] if found["boot"] == self._boot() else []
        return [name for name in reversed(MODULES) if name in noted and name not in there]

    def _boot(self) -> str:
        path = self.root / "proc/sys/kernel/random/boot_id"
        return path.read_text(encoding="ascii").strip() if path.exists() else ""

    def _reload(self) -> list[str]:
        """Load the modules that were unloaded with the driver; return a text for each that does not load.

        Modules of other packages, such as nvidia_fs and gdrdrv, are built for each driver, and their build may fail.
        """
        lost = []
        for name in self.left_unloaded():
            done = self.run(["modprobe", name])
            if done.returncode != 0:
                said = (done.out.strip().splitlines() or ["no output"])[-1].rstrip(".")
                lost.append(
                    f"kernel module {name} was loaded before the change of the driver and does not load now: {said}. "
                    "See `dkms status` and `dmesg` on the node, then run again"
                )
        if not self.left_unloaded():
            (self.folder / _UNLOADED).unlink(missing_ok=True)
        return lost

    def _unload(self, wanted: str, loaded: str) -> None:
        active = [unit for unit in SERVICES if self._is_active(unit)]
        stopped = {*active, *self._left_stopped()}
        replace_file(self.folder / _STOPPED, json.dumps(sorted(stopped)))
        beside = [name for name in MODULES[:-1] if name in {*self.modules(), *self.left_unloaded()}]
        replace_file(self.folder / _UNLOADED, json.dumps({"boot": self._boot(), "modules": beside}))
        for unit in active:
            self.run(["systemctl", "stop", unit])
        for name in MODULES:
            if name not in self.modules():
                continue
            done = self.run(["rmmod", name])
            if done.returncode != 0:
                lost = self._reload()
                self._start()
                said = done.out.strip().splitlines()[-1] if done.out.strip() else f"rmmod {name} failed"
                raise _in_use(wanted, loaded, said, lost)

    def _load(self, wanted: str) -> None:
        for name in _LOADED_BY_US:
            done = self.run(["modprobe", name])
            if done.returncode != 0:
                kernel = [line for line in self.run(["dmesg"]).out.splitlines() if "NVRM" in line or "nvidia" in line]
                actual = "; ".join([done.out.strip() or "modprobe failed", *(line.strip() for line in kernel[-1:])])
                raise NodeProblem(
                    f"kernel module {name} {wanted} loads",
                    actual,
                    "Check `dmesg` on the node; a reboot may be needed.",
                )
        loaded = self.loaded()
        if loaded != wanted:
            raise NodeProblem(
                f"driver {wanted} loaded",
                f"{loaded or 'none'} loaded, {self.on_disk() or 'none'} on disk",
                "Reboot the node, then run again.",
            )

    def _start(self) -> None:
        """Start what was stopped for the module, by this run or by one that was interrupted."""
        for unit in reversed(self._left_stopped()):
            self.run(["systemctl", "start", unit])
        (self.folder / _STOPPED).unlink(missing_ok=True)


def _in_use(wanted: str, loaded: str, who: str, lost: Sequence[str] = ()) -> NodeProblem:
    step = "Drain the node and end what uses its GPUs, or reboot it; then run again."
    actual = "; ".join([f"driver {loaded} is loaded and {who}", *lost])
    expected = f"driver {wanted}, or another one that nothing holds"
    return NodeProblem(expected, actual, step if lost else f"{step} Nothing was changed.")
