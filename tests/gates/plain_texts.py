"""Outputs of a node's own tools, in their real form, for gates whose commands are our scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rackready.ondevice.rdma_counters import ERRORS
from tests.gates.support import text

SMI = text("smi/dgx_h100_healthy.xml")
UUIDS = re.findall(r"<uuid>([^<]+)</uuid>", SMI)


def nvlink(links: int = 18, inactive: tuple[int, int] | None = None) -> str:
    """`nvidia-smi nvlink -s` (driver 580). ``inactive``: GPU and link."""
    lines = []
    for gpu, uuid in enumerate(UUIDS):
        lines.append(f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: {uuid})")
        lines += [
            f"\t Link {link}: {'<inactive>' if (gpu, link) == inactive else '26.562 GB/s'}" for link in range(links)
        ]
    return "\n".join(lines) + "\n"


MODULE = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.173.02  Release Build  "
    "(dvs-builder@U22-I3-G07-1-1)  Sun Nov  1 12:00:00 UTC 2026\n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)\n"
)
"""/proc/driver/nvidia/version."""
PACKAGES = """\
installed cuda-toolkit-13-0 13.0.2-1
installed datacenter-gpu-manager-4-core 1:4.6.0-1
installed libnccl2 2.28.9-1+cuda13.0
config-files libnccl-dev 2.20.1-1+cuda12.4
not-installed nvidia-docker2
installed nvidia-container-toolkit 1.20.0-1
installed nvidia-fabricmanager 580.173.02-1
"""
DPKG_L = """\
Desired=Unknown/Install/Remove/Purge/Hold
| Status=Not/Inst/Conf-files/Unpacked/halF-conf/Half-inst/trig-aWait/Trig-pend
|/ Err?=(none)/Reinst-required (Status,Err: uppercase=bad)
||/ Name                          Version             Architecture Description
+++-=============================-===================-============-=================================
ii  cuda-toolkit-13-0             13.0.2-1            amd64        CUDA Toolkit 13.0 meta-package
hi  datacenter-gpu-manager-4-core 1:4.6.0-1           amd64        Data Center GPU Manager
ii  libnccl2:amd64                2.28.9-1+cuda13.0   amd64        NCCL runtime
ii  nvidia-container-toolkit      1.20.0-1            amd64        NVIDIA Container toolkit
ii  nvidia-fabricmanager          580.173.02-1        amd64        Fabric Manager
"""
SERVICES = """\
nvidia-dcgm.service          loaded active running NVIDIA DCGM service
nvidia-fabricmanager.service loaded active running NVIDIA fabric manager service
nvidia-persistenced.service  loaded active running NVIDIA Persistence Daemon
ssh.service                  loaded active running OpenBSD Secure Shell server
"""
MANAGER = "Fabric Manager version is : 580.173.02\n"


def lspci(gpus: list[dict[str, Any]]) -> str:
    """`lspci -D -nn -vvv` (pciutils 3.9) of the links of ``pcie_path``: each bridge leads to the buses below it."""
    out = [
        (
            "0000:00:00.0 Host bridge [0600]: Intel Corporation Device [8086:09a2] (rev 20)\n\tSubsystem: Intel "
            "Corporation Device [8086:0000]\n"
        )
    ]
    for gpu in gpus:
        links, bus = gpu["links"], int(gpu["pci"][5:7], 16)
        for at, link in reversed(list(enumerate(links))):
            port = (
                "Endpoint"
                if at == 0
                else "Root Port"
                if at == len(links) - 1
                else "Downstream Port"
                if at == 1
                else "Upstream Port"
            )
            head = "3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)"
            head = (
                head
                if at == 0
                else "PCI bridge [0604]: Broadcom / LSI PEX890xx PCIe Gen 5 Switch [1000:c030] (rev b0) (prog-if 00 "
                "[Normal decode])"
            )
            first = bus - at + 1
            buses = (
                ""
                if at == 0
                else f"\tBus: primary={first - 1:02x}, secondary={first:02x}, subordinate={bus:02x}, sec-latency=0\n"
            )
            out.append(f"{link['pci']} {head}\n{buses}\tCapabilities: [60] Express (v2) {port}, MSI 00\n{_ends(link)}")
    return "\n".join(out)


def _ends(link: Mapping[str, Any]) -> str:
    most, now = (
        f"Speed {link[f'{name}_link_speed']:g}GT/s, Width x{link[f'{name}_link_width']:g}"
        for name in ("max", "current")
    )
    down = " (downgraded)" if link["current_link_speed"] < link["max_link_speed"] else ""
    return (
        f"\t\tLnkCap:\tPort #0, {most}, ASPM not "
        f"supported\n\t\tLnkSta:\t{now.replace(',', down + ',')}\n\t\t\tTrErr- Train- SlotClk+ DLActive-\n"
    )


def port_files(device: str, sent: int, **changed: str) -> str:
    """`grep -H '' /sys/class/infiniband/DEVICE/ports/1/{state,link_layer,...}`; counters are in words of 4 bytes."""
    values = {"state": "4: ACTIVE", "link_layer": "Ethernet", "rate": "400 Gb/sec (4X NDR)"}
    values |= {
        "counters/port_xmit_data": str(sent // 4),
        "counters/port_rcv_data": "0",
        **{f"counters/{name}": "0" for name in ERRORS},
        **changed,
    }
    return "".join(f"/sys/class/infiniband/{device}/ports/1/{leaf}:{value}\n" for leaf, value in values.items())


def ibstat(*devices: str, rate: str = "400", state: str = "Active", physical: str = "LinkUp") -> str:
    """`ibstat` (rdma-core)."""
    return "".join(
        f"CA '{device}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.39.1002\n\tHardware "
        "version: 0\n"
        "\tNode GUID: 0xa088c20300000000\n\tSystem image GUID: 0xa088c20300000000\n\tPort 1:\n\t\tState: "
        f"{state}\n\t\tPhysical state: {physical}\n"
        f"\t\tRate: {rate}\n\t\tBase lid: 0\n\t\tLMC: 0\n\t\tSM lid: 0\n\t\tCapability mask: 0x00010000\n\t\tPort "
        "GUID: 0xa288c2fffe000000\n"
        "\t\tLink layer: Ethernet\n"
        for device in devices
    )
