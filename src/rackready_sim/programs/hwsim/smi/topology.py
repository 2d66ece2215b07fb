"""nvidia-smi topo -m: distances between GPUs and NICs."""

from __future__ import annotations

import sys
from typing import Any

from .. import machine, store
from ..host import tools, tree
from ..machine import Gpu

_LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def main(argv: list[str], gpus: list[Gpu]) -> int:
    """Print the matrix for -m; other views are not supported."""
    if not any(arg in {"-m", "--matrix"} for arg in argv):
        sys.stdout.write("Invalid option\n")
        return 2
    nics = machine.nics()
    names = [f"GPU{gpu.index}" for gpu in gpus] + [f"NIC{at}" for at in range(len(nics))]
    heading = "\t".join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    # Driver 580.159.04 underlines it in a pipe, too: tests/fixtures/captured/h200_vm/topo_m.txt.
    sys.stdout.write(f"\t\x1b[4m{heading}\x1b[0m\n")
    for gpu in gpus:
        cells = [" X " if other is gpu else _links(gpu, other) for other in gpus] + [
            distance(gpu.part, nic) for nic in nics
        ]
        numa = gpu.part.get("numa", 0)
        sys.stdout.write(
            "\t".join(
                [
                    f"GPU{gpu.index}",
                    *cells,
                    _near(numa),
                    str(numa),
                    "\tN/A",
                ]
            )
            + "\n"
        )
    for at, nic in enumerate(nics):
        cells = [distance(gpu.part, nic) for gpu in gpus]
        cells += [" X " if other is nic else "NODE" if other["numa"] == nic["numa"] else "SYS" for other in nics]
        sys.stdout.write("\t".join([f"NIC{at}", *cells]) + "\n")
    sys.stdout.write(_LEGEND + "\nNIC Legend:\n\n")
    for at, nic in enumerate(nics):
        sys.stdout.write(f"  NIC{at}: {nic['rdma_device']}\n")
    sys.stdout.write("\n")
    return 0


def _near(numa: int) -> str:
    """Return the CPUs near a GPU, as lscpu lists its NUMA node's."""
    host = store.hardware().get("host") or {}
    if not host:
        return "N/A"
    return tools.ranges(tree.near(host["cpu"], int(host["numa_nodes"]), numa))


def distance(gpu: dict[str, Any], nic: dict[str, Any]) -> str:
    """Return the PCIe distance class of a GPU and a NIC."""
    if nic.get("beside", nic["gpu"]) == gpu["index"]:
        return "PXB"
    return "NODE" if nic["numa"] == gpu.get("numa", 0) else "SYS"


def _links(one: Gpu, other: Gpu) -> str:
    def active(gpu: Gpu) -> int:
        return sum(1 for link in gpu.part["nvlink"]["links"] if link["state"] == "active")

    count = min(active(one), active(other))
    return f"NV{count}" if count else "NODE"
