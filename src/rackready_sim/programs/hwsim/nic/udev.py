"""Names of RDMA devices: what udev does with them at boot, and `rdma dev set DEVICE name NAME` of iproute2.

Naming: linux-rdma/rdma-core @1840c1b, kernel-boot/rdma_rename.c (NAME_FALLBACK of a card that is no onboard device).
Words and codes of rdma: iproute2/iproute2 @27a477b, rdma/dev.c and utils.c; the kernel refuses a name in use with
EEXIST (ib_device_rename).
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

from .. import machine, paths, rdmatree, store
from . import nv

_RULES = ("/etc/udev/rules.d", "/usr/lib/udev/rules.d")
_RUN = re.compile(r'SUBSYSTEM=="infiniband".*RUN\+="([^"]+)"')


def rdma() -> None:
    """Do what udev does for each RDMA device of a booting machine: the system's naming, then the rules' programs."""
    if store.hardware().get("rdma_names") == "pci":
        for nic in machine.nics():
            rename(nic, by_pci(nic))
    for path in sorted(path for folder in _RULES for path in paths.at(folder).glob("*.rules")):
        for line in path.read_text().splitlines():
            found = None if line.startswith("#") else _RUN.search(line)
            for _ in machine.nics() if found else ():
                subprocess.run(shlex.split(found[1]), check=False, capture_output=True)  # type: ignore[index]


def by_pci(nic: store.State) -> str:
    """Return rdma-core's name of a card with one function: the protocol, the bus and the slot, decimal."""
    domain, bus, rest = nic["pci"].split(":")
    slot, function = rest.split(".")
    start = "ib" if nv.is_infiniband(nic) else "roce"
    start += f"P{int(domain, 16)}" if int(domain, 16) else ""
    return f"{start}p{int(bus, 16)}s{int(slot, 16)}" + (f"f{int(function, 16)}" if int(function, 16) else "")


def rename(nic: store.State, name: str) -> None:
    """Give a NIC's RDMA device another name, in every tree and in what software set for it."""
    old = nic["rdma_device"]
    for parent in ("/sys/class/infiniband", f"/sys/bus/pci/devices/{nic['pci']}/infiniband"):
        if (paths.at(parent) / old).exists():
            (paths.at(parent) / old).rename(paths.at(parent) / name)
    with store.change() as runtime:
        for kind in ("nic", "counters"):
            if old in runtime[kind]:
                runtime[kind][name] = runtime[kind].pop(old)
        store.write(paths.at(store.RENAMED), json.dumps({**store.rdma_names(), nic["pci"]: name}))


def main(argv: list[str]) -> int:
    """Show the RDMA devices (`rdma dev`), or rename one."""
    known = {nic["rdma_device"]: nic for nic in machine.nics() if rdmatree.folder(nic).exists()}
    if argv[:2] != ["dev", "set"]:
        sys.stdout.write(
            "".join(f"{at}: {name}: node_type ca fw {nic['fw']}\n" for at, (name, nic) in enumerate(known.items()))
        )
        return 0
    device, _, name = argv[2:5]
    if device not in known:
        sys.stderr.write(f"Wrong device name - {device}\n")
        return 1
    if name in known:
        sys.stderr.write("error: File exists\n")
        return 1
    rename(known[device], name)
    return 0
