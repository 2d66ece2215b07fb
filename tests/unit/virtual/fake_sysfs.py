"""A file system tree of a hypervisor with what the preflight reads; a test breaks one thing in it."""

from __future__ import annotations

from pathlib import Path

from rackready.model.virtual import PassedDevice

MIB = 1 << 20
GPU_BARS = (16 * MIB, 128 << 30, 32 * MIB)
"""Windows of an H100: registers, memory, doorbells (`lspci -v`, public captures)."""
NIC_BARS = (32 * MIB,)


class FakeHost:
    """A hypervisor whose devices are each in an IOMMU group of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/cmdline", "BOOT_IMAGE=/vmlinuz intel_iommu=on iommu=pt")
        self.write("dev/kvm", "")
        self.write("sys/firmware/acpi/tables/DMAR", "")
        self.write("usr/share/nvidia/nvswitch/fabricmanager.cfg", "# mode\nFABRIC_MODE=1\n")
        for path in ("usr/share/OVMF/OVMF_CODE_4M.fd", "usr/share/OVMF/OVMF_VARS_4M.fd"):
            self.write(path, "")
        for numa, cpus in ((0, "0-55,112-167"), (1, "56-111,168-223")):
            self.write(f"sys/devices/system/node/node{numa}/cpulist", cpus)
            for size, free in ((1048576, 900), (2048, 200_000)):
                at = f"sys/devices/system/node/node{numa}/hugepages/hugepages-{size}kB/free_hugepages"
                self.write(at, str(free))
        self.write("sys/bus/pci/devices/0000:00:01.0/class", "0x060400")

    def write(self, path: str, text: str) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def link(self, path: str, target: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        (self.root / target).mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(self.root / target)

    def add(self, pci: str, group: int, *, numa: int, bars: tuple[int, ...] = NIC_BARS, kind: str = "0x020000") -> None:
        at = f"sys/bus/pci/devices/{pci}"
        lines, start = [], 1 << 40
        for size in bars:
            lines.append(f"0x{start:016x} 0x{start + size - 1:016x} 0x000000000014220c")
            start += 1 << 40
        lines += ["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * (13 - len(lines))
        self.write(f"{at}/resource", "\n".join(lines))
        self.write(f"{at}/class", kind)
        self.write(f"{at}/numa_node", str(numa))
        self.join(pci, group)

    def join(self, pci: str, group: int) -> None:
        folder = f"sys/kernel/iommu_groups/{group}"
        self.link(f"sys/bus/pci/devices/{pci}/iommu_group", folder)
        self.link(f"{folder}/devices/{pci}", f"sys/bus/pci/devices/{pci}")

    def driver(self, pci: str, name: str) -> None:
        self.link(f"sys/bus/pci/devices/{pci}/driver", f"sys/bus/pci/drivers/{name}")

    def give(self, gpus: list[PassedDevice], nics: list[PassedDevice], numa: dict[str, int]) -> None:
        for at, device in enumerate(gpus):
            self.add(device.pci, 10 + at, numa=numa[device.pci], bars=GPU_BARS, kind="0x030200")
        for at, device in enumerate(nics):
            self.add(device.pci, 40 + at, numa=numa[device.pci])
            self.driver(device.pci, "mlx5_core")
            if device.vf_of is not None:
                self.add(device.vf_of, 60 + at, numa=numa[device.pci])
                self.link(f"sys/bus/pci/devices/{device.pci}/physfn", f"sys/bus/pci/devices/{device.vf_of}")
