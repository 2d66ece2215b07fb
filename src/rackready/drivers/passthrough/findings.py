"""Findings about a hypervisor that cannot run a virtual node, or cannot give it a device."""

from __future__ import annotations

from rackready.model.finding_kinds import FailKind, Kinds

_BY = "the preflight of virtual nodes"
_IOMMU_STEPS = (
    "Turn on VT-d (Intel) or AMD-Vi in the BIOS, then run again.",
    "Add intel_iommu=on iommu=pt to the kernel command line and reboot.",
)

IOMMU_OFF = FailKind(
    "passthrough-iommu-off",
    "IOMMU",
    meaning="The kernel made no IOMMU groups, so that no device can be given to a guest.",
    next_step="{step}",
    steps=_IOMMU_STEPS,
    by=_BY,
)
ABSENT = FailKind(
    "passthrough-device-absent",
    "PCI device",
    meaning="The hypervisor has no device at this address.",
    next_step="Compare with `lspci -D` there; correct the address in the site file.",
    by=_BY,
)
DRIVER = FailKind(
    "passthrough-driver-bound",
    "driver of the device",
    meaning="A driver of the hypervisor uses the GPU; taking it away while in use hangs the driver.",
    next_step="Blacklist {driver} on the hypervisor and bind the device to vfio-pci at boot, then run again.",
    by=_BY,
)
GROUP = FailKind(
    "passthrough-group-shared",
    "IOMMU group {group}",
    meaning="The device can reach others of its group without the IOMMU. A group goes to one guest as a whole.",
    next_step="Turn on ACS in the BIOS, or give the whole group to this node.",
    by=_BY,
)
NUMA = FailKind(
    "passthrough-numa-node",
    "NUMA node of the device",
    meaning="The guest's processors and memory were planned on another NUMA node than that of the device.",
    next_step="Correct `numa` of the device in the site file.",
    by=_BY,
)
UNPLACED = FailKind(
    "passthrough-window-unplaced",
    "memory windows",
    meaning="The firmware gave a window of the device no address: there was no room below its limit.",
    next_step="Turn on above-4G decoding in the BIOS, then run again.",
    by=_BY,
)
WINDOW = FailKind(
    "passthrough-window-small",
    "64-bit memory window of the guest",
    meaning="The devices' windows do not fit. The guest loses devices, its boot disk among them.",
    next_step="Set `bars_mib` of its devices in the site file to what they have.",
    by=_BY,
)
FUNCTION = FailKind(
    "passthrough-function",
    "physical function",
    meaning="The device is not the virtual function that the site file says.",
    next_step="Make the virtual functions (sriov_numvfs), or correct `pci` and `vf_of` in the site file.",
    by=_BY,
)
PAGES = FailKind(
    "passthrough-huge-pages",
    "free {size} huge pages of NUMA node {numa}",
    meaning="QEMU takes all of the guest's memory at its start, from this NUMA node alone.",
    next_step="Reserve more at boot (hugepagesz, hugepages), stop other guests, or choose another size.",
    by=_BY,
)
FABRIC_MODE = FailKind(
    "passthrough-fabric-mode",
    "FABRIC_MODE of the fabric manager",
    meaning="Guests with some of the GPUs need the shared NVSwitch model; in another one CUDA does not start.",
    next_step="Set FABRIC_MODE=1 in /usr/share/nvidia/nvswitch/fabricmanager.cfg and restart it without guests.",
    by=_BY,
)
PARTITION = FailKind(
    "passthrough-fabric-partition",
    "partition of {gpus} GPUs",
    meaning="The fabric manager has no active partition of this size: CUDA does not start in the guest.",
    next_step="List partitions with `fmpm -l`, activate that of its GPUs with `fmpm -a ID`, then run again.",
    by=_BY,
)
HOST_CPUS = FailKind(
    "hypervisor-numa-cpus",
    "CPUs of NUMA node {numa}",
    meaning="The site file describes the hypervisor otherwise than it is: guests would be pinned to wrong CPUs.",
    next_step="Correct numa of the hypervisor in the site file.",
    by=_BY,
)
HOST_LACKS = FailKind(
    "hypervisor-lacks",
    "{what}",
    meaning="The hypervisor lacks a program, a file or a feature that every virtual node needs.",
    next_step="{step}",
    steps=(
        "Load kvm_intel or kvm_amd, with virtualization on in the BIOS.",
        "Install it on the hypervisor.",
        "Put it there: the distribution's package has it.",
        "Upgrade the hypervisor: older ones cannot give a guest the processor's address width.",
    ),
    by=_BY,
)
FINDINGS: Kinds = (
    *(IOMMU_OFF, ABSENT, DRIVER, GROUP, NUMA, UNPLACED),
    *(WINDOW, FUNCTION, PAGES, FABRIC_MODE, PARTITION, HOST_CPUS, HOST_LACKS),
)
