"""Processes that use the GPUs of a node: those that nvidia-smi lists, or those that hold the devices open."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from .command import NodeProblem, Run

_ARGV = ["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"]
_DEVICE = re.compile(r"/dev/nvidia(?:\d+|-uvm)(?: \(deleted\))?$")
"""A GPU, and unified memory, which CUDA opens. /dev/nvidiactl alone is no use of a GPU."""
_DRIVER = re.compile(r"/dev/nvidia")
"""Any device of the driver: one that is open keeps its module loaded, and the MIG mode of GPUs as it is."""
_PODS = "kubepods"
"""In the cgroup of each process of a pod (kubernetes pkg/kubelet/cm/node_container_manager_linux.go)."""
PODS_STEP = (
    "Nothing was changed. Pods of DaemonSets, such as the device plugin, stay on a drained node. Let the GPU Operator "
    "take its own away: `kubectl label node NODE nvidia.com/gpu.deploy.operands=false --overwrite`. When they are "
    "gone, run this phase again for the node (`rackready install --limit NODE`; MIG: `optimize`). Then `kubectl label "
    "node NODE nvidia.com/gpu.deploy.operands-` and `rackready deploy`. See docs/howto/kubernetes.md."
)
"""What to do about them (NVIDIA/gpu-operator controllers/state_manager.go, hasOperandsDisabled)."""
_GONE = (FileNotFoundError, ProcessLookupError)
"""Errors of a process or a descriptor that ends while it is looked at."""


def gpu_users(run: Run) -> list[str]:
    """Return the processes as ``pid name``.

    Raises NodeProblem if nvidia-smi fails: a process that it does not list must not lose its GPU.
    """
    done = run(_ARGV)
    if done.returncode != 0:
        step = "Run `nvidia-smi` on the node and correct what it reports; then run again. Nothing was changed."
        actual = f"exit {done.returncode}: {' '.join(done.out.split()) or 'no output'}"
        raise NodeProblem("nvidia-smi lists what uses the GPUs", actual, step)
    return [" ".join(line.replace(",", " ").split()) for line in done.out.splitlines() if line[:1].isdigit()]


def device_users(root: Path, units: Collection[str]) -> list[str]:
    """Return the processes that hold a GPU open as ``pid name``, without those of the system's ``units``.

    It needs no nvidia-smi, which fails from the moment that a package replaces its library. Raises NodeProblem if a
    process cannot be looked at.
    """
    found = _holders(root, _DEVICE)
    return [f"{path.name} {_read(path / 'comm').strip()}" for path in found if not _is_of(path, units)]


def pod_users(root: Path) -> list[str]:
    """Return the processes of pods that hold the driver open as ``pid name``. Raises NodeProblem as ``device_users``.

    NVML is enough for that: the device plugin waits for Xids, and nvidia-smi lists no process that computes
    (NVIDIA/k8s-device-plugin internal/rm/health.go). NVIDIA/k8s-driver-manager evicts all of the operator's pods.
    """
    return [
        f"{path.name} {_read(path / 'comm').strip()}"
        for path in _holders(root, _DRIVER)
        if _PODS in _read(path / "cgroup")
    ]


def _holders(root: Path, device: re.Pattern[str]) -> list[Path]:
    processes = sorted((root / "proc").glob("[0-9]*"), key=lambda path: int(path.name))
    try:
        return [path for path in processes if any(device.match(name) for name in _opened(path))]
    except PermissionError as error:
        step = "Give the user of Ansible root's rights on the node (sudo), then run again. Nothing was changed."
        raise NodeProblem("access to the open files of all processes", str(error), step) from error


def _opened(process: Path) -> Iterator[str]:
    with suppress(*_GONE):
        for descriptor in (process / "fd").iterdir():
            with suppress(*_GONE):
                yield str(descriptor.readlink())


def _is_of(process: Path, units: Collection[str]) -> bool:
    """Return whether a process is of one of the units: a user's unit of the same name is below user.slice."""
    words = re.findall(r"/system\.slice/([^/\n]+)", _read(process / "cgroup"))
    return any(word in units for word in words)


def _read(path: Path) -> str:
    with suppress(*_GONE):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
