"""Kernel trees of the host: processor frequency, microcode, memory controllers, huge pages, command line."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from .. import bootdisk, bootentries, kmsg, machine, paths, rdmatree

_CPU = "/sys/devices/system/cpu"
_DMI = "/sys/class/dmi/id"
_EDAC = "/sys/devices/system/edac/mc"
_UNITS = "/run/systemd/system"
_KEPT = "/var/lib/hw/kept"
"""Folder with the original files that a fault overwrote."""
_ABSENT = b"\0absent"
_FAILING = """[Unit]
Description=%s

[Service]
Type=oneshot
ExecStart=/bin/false
"""


def own_folders() -> None:
    """Create the machine's own folders in place of links to its host's kernel, and keep their other entries."""
    dmi = Path(_DMI).parent
    if dmi.is_symlink():
        dmi.unlink()
    cpu = Path(_CPU)
    if not cpu.is_symlink():
        return
    _unfold(cpu)
    for place in cpu.glob("cpu[0-9]*"):
        _unfold(place)
    for name in ("smt", "cpufreq", *(f"{place.name}/microcode" for place in cpu.glob("cpu[0-9]*"))):
        (cpu / name).unlink(missing_ok=True)
    Path(_EDAC).parent.unlink(missing_ok=True)


def _unfold(link: Path) -> None:
    origin = link.readlink()
    names = sorted(item.name for item in origin.iterdir())
    link.unlink()
    link.mkdir()
    for name in names:
        (link / name).symlink_to(origin / name)


def write(state: dict[str, Any]) -> None:
    """Lay out the trees; may be repeated after a change of the state."""
    host = state.get("host")
    if host is None:
        return
    _identity(state["chassis"], host["bios"])
    _processors(host["cpu"])
    _settings(host)
    _memory(host)
    if not paths.at("/run/hw/cmdline").exists():  # the boot loader hands it over once; a changed menu waits for a boot
        loader = bootentries if paths.is_rhel() else bootdisk
        _put("/run/hw/cmdline", loader.command_line() or host["cmdline"])
    if not paths.at(
        "/run/hw/numa_balancing"
    ).exists():  # the kernel's default where there are several NUMA nodes; then it is software's to set
        _put("/run/hw/numa_balancing", int(host["numa_nodes"] > 1))
    for nic in machine.nics():
        if rdmatree.folder(nic).is_dir():
            _put(f"/sys/class/infiniband/{nic['rdma_device']}/fw_ver", nic["fw"])


def _identity(chassis: dict[str, Any], bios: dict[str, Any]) -> None:
    """Write the kernel's view of the SMBIOS table: names and access as in drivers/firmware/dmi-id.c.

    The serial of the product is the number on the label; that of the board differs where the BMC's does (Dell).
    """
    serials = {
        "product_serial": chassis["serial"],
        "chassis_serial": chassis["serial"],
        "board_serial": chassis.get("board_serial") or chassis["serial"],
    }
    names = {
        "sys_vendor": chassis["manufacturer"],
        "product_name": chassis["product"],
        "board_vendor": chassis["manufacturer"],
        "chassis_vendor": chassis["manufacturer"],
        **{f"bios_{name}": bios[name] for name in ("vendor", "version", "date")},
    }
    for name, value in {**names, **serials}.items():
        _put(f"{_DMI}/{name}", value)
    for name in serials:
        paths.at(f"{_DMI}/{name}").chmod(0o400)


def cpus(cpu: dict[str, Any]) -> int:
    """Return the number of hardware threads."""
    return int(cpu["sockets"]) * int(cpu["cores"]) * int(cpu["threads"])


def place(cpu: dict[str, Any], number: int) -> tuple[int, int]:
    """Return core and socket of a CPU: as on x86, first threads of all cores socket by socket, then second ones."""
    cores = int(cpu["sockets"]) * int(cpu["cores"])
    return number % cores, number % cores // int(cpu["cores"])


def near(cpu: dict[str, Any], numa_nodes: int, node: int) -> list[int]:
    """Return the CPUs of a NUMA node: an equal share of the cores, with all of their threads."""
    share = int(cpu["sockets"]) * int(cpu["cores"]) // numa_nodes
    return [number for number in range(cpus(cpu)) if place(cpu, number)[0] // share == node]


def _processors(cpu: dict[str, Any]) -> None:
    _put(f"{_CPU}/smt/control", "on" if cpu["threads"] > 1 else "off")
    _put(f"{_CPU}/smt/active", int(cpu["threads"] > 1))
    for number in range(cpus(cpu)):
        _put(f"{_CPU}/cpu{number}/microcode/version", cpu.get("microcode_of", {}).get(str(number), cpu["microcode"]))


def _settings(host: dict[str, Any]) -> None:
    """Write what software may set afterwards, once, and again when the state has another value: a fault sets it so.

    Governors are those of intel_pstate in active mode (drivers/cpufreq/intel_pstate.c).
    """
    cpu = host["cpu"]
    online = [number for number in range(cpus(cpu)) if number not in set(cpu["offline"])]
    policies = [f"{_CPU}/cpufreq/policy{number}" for number in online]
    files = {f"{policy}/scaling_governor": cpu["governor"] for policy in policies}
    pools = host["hugepages"].items()
    files |= {f"/sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages": count for size, count in pools}
    seen = paths.at("/run/hw/settings.json")
    before = json.loads(seen.read_text()) if seen.exists() else {}
    for name, value in files.items():
        if before.get(name) != value or not paths.at(name).exists():
            _put(name, value)
    for policy in policies:
        _put(f"{policy}/scaling_available_governors", "performance powersave")
        _put(f"{policy}/affected_cpus", policy.rpartition("policy")[2])
    for number in cpu["offline"]:  # a policy without a CPU stays (drivers/cpufreq/cpufreq.c, cpufreq_offline)
        if paths.at(f"{_CPU}/cpufreq/policy{number}").exists():
            _put(f"{_CPU}/cpufreq/policy{number}/affected_cpus", "")
    _put("/run/hw/settings.json", json.dumps(files))


def _memory(host: dict[str, Any]) -> None:
    dimms = [dimm for dimm in host["dimms"] if dimm["present"]]
    seen = set()
    age = int(time.time() - _booted())
    for controller in sorted({dimm["controller"] for dimm in dimms}):
        here = [dimm for dimm in dimms if dimm["controller"] == controller]
        top = f"{_EDAC}/mc{controller}"
        _put(f"{top}/mc_name", f"Intel_10nm Socket#{controller // 4} IMC#{controller % 4}")
        _put(f"{top}/seconds_since_reset", age)
        for kind, name in (("ce", "corrected"), ("ue", "uncorrected")):
            _put(f"{top}/{kind}_count", sum(dimm[name] for dimm in here))
            _put(f"{top}/{kind}_noinfo_count", 0)
        for place, dimm in enumerate(here):
            folder = f"{top}/dimm{place}"
            seen.add(folder)
            _put(f"{folder}/dimm_label", dimm["locator"])
            _put(f"{folder}/size", dimm["size_gb"] * 1024)
            _put(f"{folder}/dimm_ce_count", dimm["corrected"])
            _put(f"{folder}/dimm_ue_count", dimm["uncorrected"])
    for old in paths.at(_EDAC).glob("mc*/dimm*"):
        if f"{_EDAC}/{old.parent.name}/{old.name}" not in seen:
            shutil.rmtree(old)


def _booted() -> float:
    stamp = paths.at("/run/hw/booted")
    return stamp.stat().st_mtime if stamp.exists() else time.time()


def services(state: dict[str, Any]) -> None:
    """Make services fail as the state demands, and restore the others."""
    wanted = set(state.get("host", {}).get("failed_services", []))
    folder = paths.at(_UNITS)
    mark = "x-failing-"
    have = {path.name.removeprefix(mark) for path in folder.glob(f"{mark}*")} if folder.is_dir() else set()
    if wanted == have:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name in wanted - have:
        (folder / name).write_text(_FAILING % name.removesuffix(".service"))
        (folder / f"{mark}{name}").write_text("")
    for name in have - wanted:
        (folder / name).unlink(missing_ok=True)
        (folder / f"{mark}{name}").unlink(missing_ok=True)
    _systemctl("daemon-reload")
    for name in wanted - have:
        _systemctl("start", name)
    for name in have - wanted:
        _systemctl("reset-failed", name)


def foreign(state: dict[str, Any]) -> None:
    """Write foreign texts over files as the state demands, and restore the originals afterwards."""
    wanted = state.get("host", {}).get("foreign_files", {})
    kept = paths.at(_KEPT)
    for path in sorted(set(wanted) | {_unquoted(place.name) for place in kept.glob("*")}):
        copy, place = kept / path.replace("/", "%"), paths.at(path)
        if path in wanted and not copy.exists():
            kept.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(place.read_bytes() if place.exists() else _ABSENT)
        before = copy.read_bytes()
        if path in wanted:
            place.parent.mkdir(parents=True, exist_ok=True)
            text = wanted[path]["text"].encode()
            place.write_bytes(before + text if wanted[path]["more"] and before != _ABSENT else text)
        elif before == _ABSENT:
            place.unlink(missing_ok=True)
            copy.unlink()
        else:
            place.write_bytes(before)
            copy.unlink()


def _unquoted(name: str) -> str:
    return name.replace("%", "/")


def follow(state: dict[str, Any], last: dict[str, Any]) -> None:
    """Report news since the last look: machine checks, and links that went down for a moment."""
    seen = len(last.get("host", {}).get("machine_checks", []))
    for line in state.get("host", {}).get("machine_checks", [])[seen:]:
        kmsg.say(line)
    before = {nic["rdma_device"]: nic.get("module", {}).get("flaps", 0) for nic in last["nics"]}
    _flaps(before)


def _flaps(before: dict[str, int]) -> None:
    for nic in machine.nics():
        times = nic.get("module", {}).get("flaps", 0) - before.get(nic["rdma_device"], 0)
        for _ in range(times):
            for up in (False, True):
                rdmatree.log_link(nic, up=up)
        if times > 0:
            rdmatree.add(nic, {"link_downed": times})


def report(state: dict[str, Any]) -> None:
    """Report at power-on memory errors and links that flapped.

    The kernel's first line is written before this, once (firmware.py).
    """
    for line in state.get("host", {}).get("machine_checks", []):
        kmsg.say(line)
    _flaps({})


def cover_command_line() -> None:
    """Show the state's kernel command line: a container otherwise shows its host's."""
    if Path("/run/hw/cmdline").exists():
        subprocess.run(["mount", "--bind", "/run/hw/cmdline", "/proc/cmdline"], check=True)


def cover_numa_balancing() -> None:
    """Give the machine its own switch for automatic NUMA balancing: containers otherwise share that of their host."""
    if Path("/run/hw/numa_balancing").exists() and Path("/proc/sys/kernel/numa_balancing").exists():
        subprocess.run(["mount", "--bind", "/run/hw/numa_balancing", "/proc/sys/kernel/numa_balancing"], check=True)


def _systemctl(*words: str) -> None:
    subprocess.run(["systemctl", *words], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _put(path: str, value: object) -> None:
    place = paths.at(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    real = Path("/run/hw/sys")
    if real.is_dir() and place.parent.stat().st_dev == real.stat().st_dev:
        raise PermissionError(f"{path} is the host's own kernel's")
    text = f"{value}\n"
    if not place.exists() or place.read_text() != text:
        place.write_text(text)
