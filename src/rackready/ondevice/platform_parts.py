"""Print what a server consists of, for its platform profile, as one JSON document.

Sent to the server's python3 on standard input. It needs no driver: PCI devices, the switches between them, network
interfaces and RDMA devices come from sysfs; names of GPUs from nvidia-smi, where it is installed; processors, memory,
drives and slots from lscpu, dmidecode and lsblk. "unread" is kind -> why it could not be read.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

FORMAT = "rackready/platform-parts/v1"
PCI = "/sys/bus/pci/devices"
NET = "/sys/class/net"
RDMA = "/sys/class/infiniband"
DMI = "/sys/class/dmi/id"
EFI = "/sys/firmware/efi"
GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
SHIM = "605dab50-e046-4300-abb6-3dd810dd8b23"
"""Owners of UEFI variables: the specification's, and shim's (lcp/mokutil 9ae73db, src/mokutil.c)."""
DMI_FILES = ("sys_vendor", "product_name", "board_vendor", "board_name", "bios_vendor", "bios_version", "bios_date")
PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TIMEOUT_S = 60
NVIDIA = "0x10de"
GPU_CLASSES = ("0x030000", "0x030200")
"""VGA and 3D controllers."""
SWITCH_CLASS = "0x068000"
"""Class of an NVSwitch: other bridge device."""
NIC_CLASSES = ("0x0200", "0x0207")
"""Ethernet and InfiniBand controllers."""
LOCAL = ("nvme", "sata", "sas", "ata")
"""Transports of the server's own drives: media of its BMC (usb) and network volumes come and go."""
ADDRESS = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
MANAGED = b"SW_MNG"
"""Mark in the vital product data of the ConnectX-7 on a B200 board (NVIDIA/gpu-driver-container 06a208c, where the
driver looks for NVLink management ports)."""


class UnreadError(Exception):
    """A kind of parts could not be read; the argument gives the reason."""


def main() -> int:
    """Print the document; always exit 0: missing parts are in it."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "machine": {name: read(f"{DMI}/{name}") for name in DMI_FILES},
        "secure_boot": secure_boot(),
        "gpus": [device(address) for address in addresses() if is_gpu(address)],
        "nvswitches": [device(address) for address in addresses() if is_nvswitch(address)],
        "nics": [nic(address) for address in addresses() if is_nic(address)],
    }
    kinds: dict[str, Callable[[], Any]] = {
        "driver": driver,
        "cpu": cpu,
        "memory": memory,
        "drives": drives,
        "slots": slots,
        "chassis": chassis,
    }
    document["unread"] = {}
    for kind, look in kinds.items():
        document[kind] = None
        try:
            document[kind] = look()
        except (UnreadError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            document["unread"][kind] = str(error) or type(error).__name__
    document["complete"] = True
    sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
    return 0


def read(path: str) -> str | None:
    """Return a small file's text, None when it cannot be read or is empty."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().strip() or None
    except OSError:
        return None


def secure_boot() -> str:
    """Return whether the kernel accepts signed modules only: "on", else "off" and why. As ondevice/secure_boot.py."""
    if not os.path.isdir(f"{EFI}/efivars"):  # noqa: PTH112
        return "off (no UEFI variables)"
    if variable("SecureBoot") != 1:
        return "off"
    if variable("SetupMode") == 1:
        return "off (setup mode)"
    shim = os.path.exists(f"{EFI}/efivars/MokSBStateRT-{SHIM}")  # noqa: PTH110
    return "off (shim does not verify)" if shim else "on"


def variable(name: str) -> int | None:
    """Return a number of the UEFI specification's, None without it: four bytes of attributes, then the value."""
    try:
        with open(f"{EFI}/efivars/{name}-{GLOBAL}", "rb") as file:  # noqa: PTH123
            data = file.read()
    except OSError:
        return None
    return int.from_bytes(data[4:], "little") if len(data) > 4 else None  # noqa: PLR2004 - the attributes


def entries(folder: str) -> list[str]:
    """Return the names in a folder, sorted; none when it does not exist."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return []


def run(*argv: str) -> str:
    """Return what a program prints. Raises UnreadError."""
    try:
        done = subprocess.run(
            argv,
            env=dict(os.environ, LC_ALL="C", PATH=PLACES),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise UnreadError(argv[0] + " is not installed")  # noqa: B904 - the words say it
    except subprocess.TimeoutExpired:
        raise UnreadError(f"{argv[0]} did not end within {TIMEOUT_S} s")  # noqa: B904 - the same
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise UnreadError(": ".join([f"{' '.join(argv)}: exit {done.returncode}", *said[-1:]]))
    return done.stdout.decode(errors="replace")


# PCI ------------------------------------------------------------------------------------------------------------------


def addresses() -> list[str]:
    """Return the address of every PCI function."""
    return [name for name in entries(PCI) if ADDRESS.match(name)]


def is_gpu(address: str) -> bool:
    """Return whether a function is an NVIDIA GPU."""
    return read(f"{PCI}/{address}/vendor") == NVIDIA and read(f"{PCI}/{address}/class") in GPU_CLASSES


def is_nvswitch(address: str) -> bool:
    """Return whether a function is an NVSwitch."""
    return read(f"{PCI}/{address}/vendor") == NVIDIA and read(f"{PCI}/{address}/class") == SWITCH_CLASS


def is_nic(address: str) -> bool:
    """Return whether a function is a network controller that is not virtual (SR-IOV)."""
    kind = read(f"{PCI}/{address}/class") or ""
    return kind.startswith(NIC_CLASSES) and not os.path.exists(f"{PCI}/{address}/physfn")  # noqa: PTH110


def device(address: str) -> dict[str, Any]:
    """Return a function's ids, NUMA node, and the bridges above it, root port first (its place in /sys/devices)."""
    base = f"{PCI}/{address}"
    parts = os.path.realpath(base).split("/")
    numa = read(f"{base}/numa_node")
    return {
        "pci": address,
        "vendor": read(f"{base}/vendor"),
        "device": read(f"{base}/device"),
        "numa": int(numa) if numa and numa.lstrip("-").isdigit() else -1,
        "bridges": [part for part in parts if ADDRESS.match(part) and part != address],
    }


def nic(address: str) -> dict[str, Any]:
    """Return one network controller with its interfaces, RDMA devices and the rate of its port, Gb/s."""
    base = f"{PCI}/{address}"
    names, devices = entries(f"{base}/net"), entries(f"{base}/infiniband")
    return {
        **device(address),
        "netdevs": [{"name": name, "mac": read(f"{NET}/{name}/address")} for name in names],
        "rdma": devices,
        "rate": rate(names, devices),
        "firmware": read(f"{RDMA}/{devices[0]}/fw_ver") if devices else None,
        "board": read(f"{RDMA}/{devices[0]}/board_id") if devices else None,
        "managed": managed(f"{base}/vpd"),
    }


def rate(names: list[str], devices: list[str]) -> int | None:
    """Return the highest rate that a port supports; that of its link where ethtool lists none; None when unknown."""
    for name in names:
        try:
            modes = [int(found) for found in re.findall(r"\b(\d+)base\w+/Full", supported(run("ethtool", name)))]
        except UnreadError:
            continue
        if modes:
            return max(modes) // 1000
    for name in devices:
        port = f"{RDMA}/{name}/ports/1"
        found = re.match(r"(\d+) Gb/sec", read(f"{port}/rate") or "")
        if found and "ACTIVE" in (read(f"{port}/state") or ""):
            return int(found.group(1))
    return None


def supported(text: str) -> str:
    """Return the part of ethtool's text on link modes that the port supports (not those that it advertises)."""
    return text.partition("Supported link modes:")[2].partition("Supported pause")[0]


def managed(path: str) -> bool:
    """Return whether a card's vital product data marks it as part of the GPU board."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return MANAGED in file.read(1 << 15)
    except OSError:
        return False


# programs -------------------------------------------------------------------------------------------------------------


def driver() -> dict[str, Any]:
    """Return the driver's version, and the name and NVLink fabric state of every GPU by PCI address."""
    log = ET.fromstring(run("nvidia-smi", "-q", "-x"))  # noqa: S314 - nvidia-smi of this machine printed it
    found = {}
    for gpu in log.findall("gpu"):
        address = (gpu.get("id") or "").lower()[-12:]
        found[address] = {"name": gpu.findtext("product_name"), "fabric": gpu.findtext("fabric/state")}
    return {"version": log.findtext("driver_version"), "gpus": found}


def cpu() -> dict[str, Any]:
    """Return model, sockets, cores and threads of the processors, and the number of NUMA nodes that have some."""
    fields = dict(flat(json.loads(run("lscpu", "--json"))["lscpu"]))
    nodes = [key for key, value in fields.items() if re.match(r"NUMA node\d+ CPU", key) and value]
    return {
        "model": fields["Model name"],
        "sockets": int(fields["Socket(s)"]),
        "cores": int(fields["Core(s) per socket"]),
        "threads": int(fields["Thread(s) per core"]),
        "numa_nodes": len(nodes),
    }


def flat(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return lscpu's rows without their tree (util-linux 2.38 nests them)."""
    found = []
    for row in rows:
        found.append((str(row["field"]).rstrip(":"), str(row.get("data") or "")))
        found += flat(row.get("children") or [])
    return found


def structures(text: str) -> list[dict[str, str]]:
    """Return every structure of dmidecode's text as field -> value."""
    return [
        dict(line.strip().split(": ", 1) for line in block.splitlines() if line.startswith("\t") and ": " in line)
        for block in text.split("\n\n")
    ]


def memory() -> dict[str, int]:
    """Return the number of memory modules and their size in all, GiB."""
    units = {"MB": 1, "GB": 1024, "TB": 1024 * 1024}
    sizes = []
    for fields in structures(run("dmidecode", "--type", "memory")):
        found = re.match(r"(\d+) (MB|GB|TB)$", fields.get("Size", ""))
        if found and "Locator" in fields:
            sizes.append(int(found.group(1)) * units[found.group(2)])
    if not sizes:
        raise UnreadError("dmidecode reports no memory module")
    return {"modules": len(sizes), "gib": sum(sizes) // 1024}


def drives() -> list[dict[str, Any]]:
    """Return model and size in bytes of every drive of the server itself."""
    columns = "PATH,TRAN,RM,SIZE,MODEL"
    found = json.loads(run("lsblk", "--json", "--bytes", "--nodeps", "--exclude", "1,7,11", "--output", columns))
    return [
        {"model": str(item.get("model") or "").strip(), "bytes": int(item["size"])}
        for item in found["blockdevices"]
        if item.get("tran") in LOCAL
    ]


def slots() -> list[dict[str, str]]:
    """Return name, usage and bus address of every slot."""
    return [
        {"name": fields["Designation"], "usage": fields.get("Current Usage", ""), "pci": fields.get("Bus Address", "")}
        for fields in structures(run("dmidecode", "--type", "slot"))
        if "Designation" in fields
    ]


def chassis() -> dict[str, Any]:
    """Return the height of the chassis, U; None where the firmware gives none."""
    for fields in structures(run("dmidecode", "--type", "chassis")):
        found = re.match(r"(\d+) U$", fields.get("Height", ""))
        if found:
            return {"units": int(found.group(1))}
    return {"units": None}


if __name__ == "__main__":
    sys.exit(main())
