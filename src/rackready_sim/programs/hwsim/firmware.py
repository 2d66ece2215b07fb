"""Power-on before any software runs: lay out device trees, probe modules, reset the runtime state."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from . import bootdisk, kmod, kmsg, machine, paths, pcitree, rdmatree, store
from .host import tree as hosttree
from .nic import udev
from .smi import mig

_REAL_SYS = "/run/hw/sys"
_OVERLAYS = (
    "/sys/class",
    "/sys/module",
    "/sys/devices/system",
    "/sys/bus/pci/devices",
    "/proc/driver",
    "/sys/kernel/debug",
    "/sys/kernel/mm/hugepages",
)
_LINKED = ("class", "module", "system")
"""Folders whose own entries stay visible beside the machine's."""
_CONTAINED = 94
"""With MIG on, the driver names the GPU instance of a contained error.

NVIDIA/open-gpu-kernel-modules, src/nvidia/src/kernel/gpu/arch/ampere/kern_gpu_error_cont_ga100.c: form 1.
"""
_DENY_FOLDERS = ("/etc/modprobe.d", "/lib/modprobe.d", "/usr/lib/modprobe.d")


def main(_argv: list[str]) -> int:
    """Run once at boot; a switch has no devices of this kind."""
    if "switch" in store.hardware():
        return 0
    folder = paths.at("/run/hw")
    folder.mkdir(parents=True, exist_ok=True)
    for left in ("kmsg.log", "cmdline", "settings.json", Path(store.RENAMED).name):
        (folder / left).unlink(missing_ok=True)
    (folder / "booted").touch()
    kmsg.say(
        f"Linux version {paths.kernel()} (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14) 12.2.0) #1 SMP "
        "PREEMPT_DYNAMIC"
    )
    store.write(folder / "runtime.json", "{}")
    with store.change() as runtime:
        runtime.update(store.fresh())
    _mount_all()
    (folder / "sys-ready").write_text("")
    hosttree.own_folders()
    lay_out()
    hosttree.cover_command_line()
    hosttree.cover_numa_balancing()
    hosttree.report(store.hardware())
    udev.rdma()
    coldplug()
    return 0


def lay_out() -> None:
    """Write the device trees of the parts that are on the bus."""
    state = store.hardware()
    pcitree.write(state)
    hosttree.write(state)
    for nic in machine.nics():
        rdmatree.write(nic)


def coldplug() -> None:
    """Load the modules that the kernel loads for its devices, and report the devices' errors."""
    for name in kmod.inbox():
        kmod.load(name)
    if store.hardware().get("nouveau") and (not denied("nouveau") or bootdisk.early("nouveau")):
        kmod.load("nouveau")
    if kmod.module_version("nvidia") and not denied("nvidia"):
        kmod.load("nvidia")
    for xid in store.hardware()["xids"]:
        kmsg.say(xid_line(xid["pci"], xid["code"], xid.get("text", "")))
    for sxid in store.hardware().get("sxids", []):
        kmsg.say(sxid_line(sxid))


def xid_line(pci: str, code: int, text: str = "") -> str:
    """Return the kernel's line for an Xid."""
    texts = {
        13: "pid=4711, name=python3, Graphics SM Warp Exception on (GPC 1, TPC 2, SM 0): Illegal Instruction Parameter",
        31: "pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_2 faulted "
        "@ 0x7f3c_00000000.",
        48: "pid='<unknown>', name=<unknown>, DBE (double bit error) ECC Error",
        63: "pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.",
        64: "pid='<unknown>', name=<unknown>, Row Remapper: No spare row, remapping failed.",
        74: "pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 2(0x10000, 0x0, 0x0, 0x0, 0x0, "
        "0x0, 0x0)",
        79: "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        92: "pid='<unknown>', name=<unknown>, High single-bit ECC error rate",
        94: "pid='<unknown>', name=<unknown>, Contained: CE User Channel (0x9). RST: No, D-RST: No",
        95: "pid='<unknown>', name=<unknown>, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
        119: "pid=2108, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected "
        "function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4).",
        154: "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
    }
    where = f"PCI:{pci.rsplit('.', 1)[0]}{_mig_instance(pci) if code == _CONTAINED else ''}"
    return f"NVRM: Xid ({where}): {code}, {text or texts.get(code, 'Ch 00000008')}"


def _mig_instance(pci: str) -> str:
    """Return the GPU instance as the driver names it; empty where the GPU has none."""
    found = [one for gpu in machine.gpus() if gpu.part["pci"] == pci for one in mig.instances(gpu)]
    return f" GPU-I:{found[0]['id']:02}" if found else ""


def sxid_line(sxid: dict[str, Any]) -> str:
    """Return the kernel's line for an SXid of an NVSwitch."""
    return f"nvidia-nvswitch{sxid['switch']}: SXid (PCI:{sxid['pci']}): {sxid['code']}, {sxid['text']}"


def denied(name: str) -> bool:
    """Return whether a modprobe configuration forbids loading a module by alias."""
    for folder in _DENY_FOLDERS:
        for path in sorted(paths.at(folder).glob("*.conf")):
            if any(line.split("#")[0].split() == ["blacklist", name] for line in path.read_text().splitlines()):
                return True
    return False


def _mount_all() -> None:
    real = Path(_REAL_SYS)
    real.mkdir(parents=True, exist_ok=True)
    _run("mount", "--rbind", "/sys", _REAL_SYS)
    for target in _OVERLAYS:
        if Path(target).is_dir():
            _cover(Path(target))


def _cover(target: Path) -> None:
    """Mount a memory file system over a kernel folder and link the old entries back in, to allow new entries."""
    entries = (
        sorted(item.name for item in target.iterdir())
        if target.is_relative_to("/sys") and target.name in _LINKED
        else []
    )
    _run("mount", "-t", "tmpfs", "-o", "mode=755,size=16m", "hw", str(target))
    for name in entries:
        origin = Path(_REAL_SYS) / target.relative_to("/sys") / name
        (target / name).symlink_to(origin)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True)
