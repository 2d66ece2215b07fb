"""modprobe, rmmod, lsmod and modinfo for the vendor's modules; other calls go to the machine's own programs.

A kernel module is a file that the package's build step put under /lib/modules. Loading it uses the file's present
version.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable

from . import kmsg, machine, paths, real, store

_NEEDS = {
    "nvidia": [],
    "nvidia_uvm": ["nvidia"],
    "nvidia_modeset": ["nvidia"],
    "nvidia_drm": ["nvidia_modeset"],
    "nvidia_peermem": ["nvidia"],
}
_SIZE = {
    "nvidia": 14372864,
    "nvidia_uvm": 2068480,
    "nvidia_modeset": 1830912,
    "nvidia_drm": 139264,
    "nvidia_peermem": 20480,
}
_INBOX = {
    "mlx5_core": 2228224, "mlx5_ib": 495616, "ib_core": 520192, "ib_uverbs": 192512, "ib_umad": 40960,
    "rdma_cm": 147456, "rdma_ucm": 32768, "ib_ipoib": 159744, "mlxfw": 36864,
}  # fmt: skip
_ALWAYS = ("mlx5_core", "mlx5_ib", "ib_core", "ib_uverbs", "mlxfw")
_PARAMS = """ResmanDebugLevel: 4294967295
RmLogonRC: 1
ModifyDeviceFiles: 1
DeviceFileUID: 0
DeviceFileGID: 0
DeviceFileMode: 438
InitializeSystemMemoryAllocations: 1
UsePageAttributeTable: 4294967295
EnableMSI: 1
EnablePCIeGen3: 0
MemoryPoolSize: 0
KMallocHeapMaxSize: 0
VMallocHeapMaxSize: 0
IgnoreMMIOCheck: 0
EnableStreamMemOPs: 0
EnableUserNUMAManagement: 1
NvLinkDisable: 0
RmProfilingAdminOnly: 1
PreserveVideoMemoryAllocations: 0
EnableS0ixPowerManagement: 0
S0ixPowerManagementVideoMemoryThreshold: 256
DynamicPowerManagement: 3
DynamicPowerManagementVideoMemoryThreshold: 200
RegisterPCIDriver: 1
EnablePCIERelaxedOrderingMode: 0
EnableResizableBar: 0
EnableGpuFirmware: 18
EnableGpuFirmwareLogs: 2
RegistryDwords: ""
RegistryDwordsPerDevice: ""
RmMsg: ""
GpuBlacklist: ""
TemporaryFilePath: ""
ExcludedGpus: ""
"""
"""As the driver prints its parameters (NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia/nv-procfs.c and nv-reg.h)."""
_MAJOR = 195
_CONTROL_MINOR = 255
_UVM_MAJOR = 509
_CONTROL = (
    ("nvidiactl", "nvidia", _MAJOR, _CONTROL_MINOR),
    ("nvidia-modeset", "nvidia", _MAJOR, 254),
    ("nvidia-uvm", "nvidia_uvm", _UVM_MAJOR, 0),
    ("nvidia-uvm-tools", "nvidia_uvm", _UVM_MAJOR, 1),
)


def canonical(name: str) -> str:
    """Return the module's name as the kernel writes it."""
    return name.replace("-", "_").removesuffix(".ko")


def known(name: str) -> bool:
    """Return whether the simulated machine answers for this module."""
    return canonical(name) in _NEEDS or canonical(name) in _INBOX or canonical(name) == "nouveau"


def module_version(name: str) -> str | None:
    """Return the version of the built module on disk; None if it was not built for this kernel."""
    path = paths.module_file(canonical(name))
    if not path.exists():
        return None
    fields = dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
    return fields.get("version")


def has_ofed() -> bool:
    """Return whether OFED's RDMA driver is built for this kernel, in the kernel's own place."""
    return paths.module_file("mlx5_core").exists()


def load(name: str) -> str:
    """Load a module and its dependencies; return an error text, empty on success."""
    name = canonical(name)
    if name in store.runtime()["modules"]:
        return ""
    if name in _INBOX or name == "nouveau":
        _mark(name, "")
        return ""
    version = module_version(name)
    error = _refusal(name, version)
    if error or version is None:
        return error
    _mark(name, version)
    if name == "nvidia":
        _probe(version)
    return ""


def control_nodes() -> str:
    """Make the driver's control devices of loaded modules: no module makes its own; return an error text.

    As `nvidia-ctk system create-device-nodes --control-devices` (NVIDIA/nvidia-container-toolkit v1.20.0,
    pkg/system/nvdevices/devices.go): in this order, with majors of /proc/devices.
    """
    for name, module, major, minor in _CONTROL:
        if module not in store.runtime()["modules"]:
            return f"failed to create device node {name}: failed to determine major: invalid device node"
        _node(name, major, minor)
    return ""


def _refusal(name: str, version: str | None) -> str:
    """Return why a module of the vendor cannot be loaded, empty if it can; load what it needs first."""
    if version is None:
        return f"modprobe: FATAL: Module {name} not found in directory /lib/modules/{paths.kernel()}"
    if name == "nvidia_peermem" and not has_ofed():  # built empty: NVIDIA's conftest.sh found no peer memory client
        return "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument"
    error = next((error for error in map(load, _NEEDS[name]) if error), "")
    if not error and name == "nvidia" and _blocked(version):
        return "modprobe: ERROR: could not insert 'nvidia': No such device"
    return error


def unload(name: str, program: str = "rmmod") -> str:
    """Unload a module; return an error text, empty on success."""
    name = canonical(name)
    loaded = store.runtime()["modules"]
    if name not in loaded:
        return f"rmmod: ERROR: Module {name} is not currently loaded" if program == "rmmod" else ""
    users = [other for other in loaded if name in _NEEDS.get(other, [])]
    prefix = "rmmod: ERROR: Module" if program == "rmmod" else "modprobe: FATAL: Module"
    if users:
        return (
            f"{prefix} {name} is in use by: {' '.join(users)}" if program == "rmmod" else f"{prefix} {name} is in use."
        )
    if name == "nvidia" and clients():
        return f"{prefix} {name} is in use" if program == "rmmod" else f"{prefix} {name} is in use."
    with store.change() as runtime:
        runtime["modules"].pop(name)
        if name == "nvidia":
            runtime.update(gpu={}, mig={}, persistence={}, fabric={"state": "Not Started"})
    if name == "nvidia":
        for leaf in ("version", "params"):
            paths.at(f"/proc/driver/nvidia/{leaf}").unlink(missing_ok=True)
    _unlink(name)
    return ""


def clients() -> list[str]:
    """Return the programs that hold the driver open."""
    runtime = store.runtime()
    return [name for name, pid in runtime["clients"].items() if machine.alive(pid)]


def _blocked(version: str) -> bool:
    if machine.refused(version, "load"):  # NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia/nv.c and nv-pci.c
        gpus = machine.gpus()
        for gpu in gpus:
            kmsg.say(f"NVRM: The NVIDIA GPU {gpu.bus_id[4:].lower()} (PCI ID: 10de:2330)")
            kmsg.say("NVRM: installed in this system is not supported by the")
            kmsg.say(f"NVRM: NVIDIA {version} driver release.")
        kmsg.say(f"NVRM: The NVIDIA probe routine failed for {len(gpus)} device(s).")
        kmsg.say("NVRM: None of the NVIDIA devices were initialized.")
        return True
    return "nouveau" in store.runtime()["modules"] or not machine.gpus()


def _mark(name: str, version: str) -> None:
    with store.change() as runtime:
        runtime["modules"][name] = {"version": version, "open": True}
    folder = paths.at(f"/sys/module/{name}")
    if paths.sys_ready() and not folder.is_symlink():
        folder.mkdir(parents=True, exist_ok=True)
        if version:
            (folder / "version").write_text(f"{version}\n")
        (folder / "refcnt").write_text("0\n")
        (folder / "initstate").write_text("live\n")


def _probe(version: str) -> None:
    kmsg.say("nvidia: loading out-of-tree module taints kernel.")
    kmsg.say(f"nvidia-nvlink: Nvlink Core is being initialized, major device number {_MAJOR + 40}")
    kmsg.say(
        f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  "
        "(dvs-builder@U22-I3-AE18-23-3)"
    )
    _node("nvidiactl", _MAJOR, _CONTROL_MINOR)
    for gpu in machine.gpus():
        _node(f"nvidia{gpu.index}", _MAJOR, gpu.index)
    proc = paths.at("/proc/driver/nvidia")
    if paths.sys_ready():
        proc.mkdir(parents=True, exist_ok=True)
        text = (
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  "
            "(dvs-builder@U22-I3-AE18-23-3)\n"
        )
        (proc / "version").write_text(text)
        (proc / "params").write_text(_PARAMS)
    if store.hardware()["nvswitches"]:
        devices = paths.at("/proc/driver/nvidia-nvswitch/devices")
        if paths.sys_ready():
            for switch in store.hardware()["nvswitches"]:
                (devices / switch["pci"]).mkdir(parents=True, exist_ok=True)
        for switch in store.hardware()["nvswitches"]:
            _node(f"nvidia-nvswitch{switch['index']}", _MAJOR + 40, switch["index"])
        _node("nvidia-nvswitchctl", _MAJOR + 40, _CONTROL_MINOR)


def _node(name: str, major: int, minor: int) -> None:
    path = paths.at(f"/dev/{name}")
    if path.exists() or os.geteuid() != 0:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
    path.chmod(0o666)


def _unlink(name: str) -> None:
    for path in paths.at("/dev").glob("nvidia[0-9c]*") if name == "nvidia" else ():
        path.unlink()
    folder = paths.at(f"/sys/module/{name}")
    for leaf in ("version", "refcnt", "initstate"):
        (folder / leaf).unlink(missing_ok=True)
    if folder.exists() and not any(folder.iterdir()):
        folder.rmdir()


def _fail(error: str) -> int:
    if error:
        sys.stderr.write(f"{error}\n")
    return 1 if error else 0


def modprobe(argv: list[str]) -> int:
    """Load modules, or remove them with -r; -a accepts several names."""
    names = [arg for arg in argv if not arg.startswith("-") and "=" not in arg]
    if not names or not known(names[0]):
        return real.become("modprobe", argv, absent=0)
    if any(arg in {"-n", "--dry-run", "--show", "--show-depends", "-D"} for arg in argv):
        return 0
    quiet = any(arg in {"-q", "--quiet"} for arg in argv)
    several = any(arg in {"-a", "--all"} for arg in argv)
    act: Callable[[str], str] = _remove_tree if any(arg in {"-r", "--remove"} for arg in argv) else load
    errors = [error for error in map(act, names if several or act is _remove_tree else names[:1]) if error]
    if not quiet:
        _fail("\n".join(errors))
    return 1 if errors else 0


def _remove_tree(name: str) -> str:
    return unload(name, "modprobe")


def rmmod(argv: list[str]) -> int:
    """Remove modules."""
    names = [arg for arg in argv if not arg.startswith("-")]
    if not names or not known(names[0]):
        return real.become("rmmod", argv, absent=0)
    return _fail("\n".join(error for error in map(unload, names) if error))


def lsmod(_argv: list[str]) -> int:
    """List loaded modules."""
    loaded = list(store.runtime()["modules"])
    sys.stdout.write(f"{'Module':<19} {'Size':>8}  Used by\n")
    for name in reversed(loaded):
        users = [other for other in loaded if name in _NEEDS.get(other, [])]
        count = len(users) + (len(clients()) if name == "nvidia" else 0)
        size = _SIZE.get(name) or _INBOX.get(name) or 2433024
        sys.stdout.write(f"{name:<19} {size:>8}  {count}{' ' + ','.join(users) if users else ''}\n")
    return 0


def modinfo(argv: list[str]) -> int:
    """Describe a module on disk; -F prints one field."""
    names = [arg for arg in argv if not arg.startswith("-")]
    only = _option(argv, "-F", "--field")
    names = [name for name in names if name != only]
    if not names or canonical(names[0]) not in _NEEDS:
        return real.become("modinfo", argv, absent=0)
    name = canonical(names[0])
    version = module_version(name)
    if version is None:
        sys.stderr.write(f"modinfo: ERROR: Module {names[0]} not found.\n")
        return 1
    fields = {
        "filename": str(paths.module_file(name)),
        "version": version,
        "license": "Dual MIT/GPL",
        "vermagic": f"{paths.kernel()} SMP mod_unload",
    }
    for key, value in fields.items():
        if only is None:
            sys.stdout.write(f"{key + ':':<16}{value}\n")
        elif key == only:
            sys.stdout.write(f"{value}\n")
    return 0


def _option(argv: list[str], *names: str) -> str | None:
    for at, arg in enumerate(argv[:-1]):
        if arg in names:
            return argv[at + 1]
    return next((arg.split("=", 1)[1] for arg in argv if "=" in arg and arg.split("=", 1)[0] in names), None)


def inbox() -> tuple[str, ...]:
    """Return the modules that the kernel loads for the NICs automatically."""
    return _ALWAYS
