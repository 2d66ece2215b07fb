"""Why a hypervisor cannot give a device to a guest, per device, from trees like a kernel's sysfs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers.passthrough.judge import Wanted, judge, notes
from rackready.ondevice import passthrough_facts
from rackready.stacks.virtual_args import wanted_of
from tests.unit.design.virtual_sites import EIGHT, FULL, ONE, VFS, devices, site
from tests.unit.virtual.fake_sysfs import FakeHost

GPU, NIC, VF = "0000:9d:00.0", "0000:9a:00.0", "0000:9a:00.2"


def wanted(machine: dict[str, Any]) -> Wanted:
    made = wanted_of(site(machine), "guest01")
    return Wanted.model_validate(json.loads(made.model_dump_json()))


NEW = {"libvirt": [8, 7, 0], "qemu": [10, 1, 0]}


def shown(host: FakeHost, need: Wanted, **more: Any) -> dict[str, Any]:
    tools = ["virsh", "qemu-img", "xorriso"]
    return passthrough_facts.read(host.root, need.request()) | {"tools": tools, "versions": NEW, **more}


def found(host: FakeHost, machine: dict[str, Any], **more: Any) -> list[str]:
    need = wanted(machine)
    seen = shown(host, need, **more)
    return [f"{item.code}: {item}" for item in judge("train-1", need, json.loads(json.dumps(seen)))]


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return ready(tmp_path, ONE)


def ready(root: Path, machine: dict[str, Any]) -> FakeHost:
    made, need = FakeHost(root), wanted(machine)
    count = len(machine["gpus"])
    made.give(need.devices[:count], need.devices[count:], need.numa)
    return made


@pytest.mark.parametrize("machine", [ONE, VFS])
def test_a_host_that_is_ready_has_no_finding(machine: dict[str, Any], tmp_path: Path) -> None:
    assert found(ready(tmp_path, machine), machine) == []


def no_iommu(host: FakeHost) -> None:
    shutil.rmtree(host.root / "sys/kernel/iommu_groups")
    host.write("proc/cmdline", "BOOT_IMAGE=/vmlinuz quiet")


def no_iommu_in_the_bios(host: FakeHost) -> None:
    no_iommu(host)
    (host.root / "sys/firmware/acpi/tables/DMAR").unlink()


def audio_in_the_group(host: FakeHost) -> None:
    host.add("0000:9d:00.1", 77, numa=1, kind="0x040300")
    host.join("0000:9d:00.1", 10)
    host.driver("0000:9d:00.1", "snd_hda_intel")
    host.join("0000:00:01.0", 10)  # a bridge of the group is no hindrance


def no_window(host: FakeHost) -> None:
    at = f"sys/bus/pci/devices/{GPU}/resource"
    host.write(at, "0x0000000000000000 0x0000001fffffffff 0x000000000014220c")


def large_windows(host: FakeHost) -> None:
    host.add(GPU, 10, numa=1, bars=(512 << 30, 32 << 20), kind="0x030200")


BROKEN: dict[str, tuple[Callable[[FakeHost], object], str]] = {
    "iommu off": (
        no_iommu,
        (
            "passthrough-iommu-off: train-1: IOMMU - Expected: IOMMU groups Actual: none; kernel command line: "
            "BOOT_IMAGE=/vmlinuz quiet. Add intel_iommu=on iommu=pt to the kernel command line and reboot."
        ),
    ),
    "iommu off in the BIOS": (
        no_iommu_in_the_bios,
        (
            "passthrough-iommu-off: train-1: IOMMU - Expected: IOMMU groups Actual: none; kernel command line: "
            "BOOT_IMAGE=/vmlinuz quiet. Turn on VT-d (Intel) or AMD-Vi in the BIOS, then run again."
        ),
    ),
    "no such device": (
        lambda host: (host.root / f"sys/bus/pci/devices/{NIC}").rename(host.root / "gone"),
        (
            f"passthrough-device-absent: train-1 {NIC}: PCI device - Expected: a device Actual: none. "
            "Compare with `lspci -D` there; correct the address in the site file."
        ),
    ),
    "the driver has it": (
        lambda host: host.driver(GPU, "nvidia"),
        (
            f"passthrough-driver-bound: train-1 {GPU}: driver of the device - "
            "Expected: vfio-pci or none Actual: nvidia. "
            "Blacklist nvidia on the hypervisor and bind the device to vfio-pci at boot, then run again."
        ),
    ),
    "a group with others": (
        audio_in_the_group,
        (
            f"passthrough-group-shared: train-1 {GPU}: IOMMU group 10 - Expected: nothing else of the hypervisor "
            "Actual: 0000:9d:00.1. Turn on ACS in the BIOS, or give the whole group to this node."
        ),
    ),
    "another NUMA node": (
        lambda host: host.write(f"sys/bus/pci/devices/{GPU}/numa_node", "0"),
        (
            f"passthrough-numa-node: train-1 {GPU}: NUMA node of the device - Expected: 1 Actual: 0. "
            "Correct `numa` of the device in the site file."
        ),
    ),
    "no room below 4G": (
        no_window,
        (
            f"passthrough-window-unplaced: train-1 {GPU}: memory windows - Expected: an address for each "
            "Actual: 1 without. Turn on above-4G decoding in the BIOS, then run again."
        ),
    ),
    "windows larger than planned": (
        large_windows,
        (
            "passthrough-window-small: train-1: 64-bit memory window of the guest - Expected: 1049632 MiB or more "
            "Actual: 524288 MiB. Set `bars_mib` of its devices in the site file to what they have."
        ),
    ),
    "too few huge pages": (
        lambda host: host.write("sys/devices/system/node/node1/hugepages/hugepages-1048576kB/free_hugepages", "191"),
        (
            "passthrough-huge-pages: train-1: free 1G huge pages of NUMA node 1 - Expected: 192 Actual: 191. "
            "Reserve more at boot (hugepagesz, hugepages), stop other guests, or choose another size."
        ),
    ),
    "the fabric manager of whole machines": (
        lambda host: host.write("usr/share/nvidia/nvswitch/fabricmanager.cfg", "FABRIC_MODE=0"),
        (
            "passthrough-fabric-mode: train-1: FABRIC_MODE of the fabric manager - Expected: 1 Actual: 0. "
            "Set FABRIC_MODE=1 in /usr/share/nvidia/nvswitch/fabricmanager.cfg and restart it without guests."
        ),
    ),
    "other processors": (
        lambda host: host.write("sys/devices/system/node/node1/cpulist", "1-3"),
        (
            "hypervisor-numa-cpus: train-1: CPUs of NUMA node 1 - Expected: 56-111,168-223 Actual: 1-3. "
            "Correct numa of the hypervisor in the site file."
        ),
    ),
    "no KVM": (
        lambda host: (host.root / "dev/kvm").unlink(),
        (
            "hypervisor-lacks: train-1: /dev/kvm - Expected: there Actual: absent. "
            "Load kvm_intel or kvm_amd, with virtualization on in the BIOS."
        ),
    ),
    "no firmware": (
        lambda host: (host.root / "usr/share/OVMF/OVMF_CODE_4M.fd").unlink(),
        (
            "hypervisor-lacks: train-1: /usr/share/OVMF/OVMF_CODE_4M.fd - Expected: there Actual: no such file. "
            "Put it there: the distribution's package has it."
        ),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_each_hindrance_is_named_alone(case: str, host: FakeHost) -> None:
    spoil, text = BROKEN[case]
    spoil(host)
    assert found(host, ONE) == [text]


def test_a_virtual_function_of_another_card_is_named(tmp_path: Path) -> None:
    host = ready(tmp_path, VFS)
    host.link(f"sys/bus/pci/devices/{VF}/physfn", "sys/bus/pci/devices/0000:c0:00.0")
    assert found(host, VFS) == [
        (
            f"passthrough-function: train-1 {VF}: physical function - Expected: {NIC} Actual: 0000:c0:00.0. "
            "Make the virtual functions (sriov_numvfs), or correct `pci` and `vf_of` in the site file."
        )
    ]


def test_a_window_that_holds_the_sum_but_not_the_alignment_is_named(tmp_path: Path) -> None:
    """Eight GPUs of 512 GiB: their sum is half of 8 TiB, where one was unusable (tianocore/edk2, PR 12997)."""
    machine = {**FULL, "gpus": devices(EIGHT, bars_mib=512 * 1024 + 48)}
    host, need = ready(tmp_path, machine), wanted(machine)
    for group, device in enumerate(need.devices[:8]):
        host.add(device.pci, 100 + group, numa=need.numa[device.pci], bars=(16 << 20, 512 << 30, 32 << 20))
    assert found(host, machine) == []
    small = need.model_copy(update={"facts": need.facts.model_copy(update={"window_mib": 8 << 20})})
    expected = (8 << 20) + 12 * 32 + 1024
    assert [str(item) for item in judge("train-1", small, shown(host, small))] == [
        (
            f"train-1: 64-bit memory window of the guest - Expected: {expected} MiB or more Actual: {8 << 20} MiB. "
            "Set `bars_mib` of its devices in the site file to what they have."
        )
    ]


def test_programs_that_are_missing_are_named(host: FakeHost) -> None:
    need = wanted(ONE)
    seen = shown(host, need, tools=["virsh"])
    assert [str(item) for item in judge("train-1", need, seen)] == [
        "train-1: qemu-img - Expected: installed Actual: not on the PATH. Install it on the hypervisor.",
        (
            "train-1: xorriso or genisoimage - Expected: installed Actual: not on the PATH. "
            "Install it on the hypervisor."
        ),
    ]


@pytest.mark.parametrize(
    ("libvirt", "actual"), [([8, 0, 0], "8.0.0"), ([7, 10, 0], "7.10.0"), ([], "of unknown version")]
)
def test_a_libvirt_that_cannot_give_the_address_width_is_named(libvirt: list[int], actual: str, host: FakeHost) -> None:
    """Ubuntu 22.04 has 8.0.0; a processor's address width in a domain is of 8.7.0."""
    assert found(host, ONE, versions={**NEW, "libvirt": libvirt}) == [
        (
            f"hypervisor-lacks: train-1: libvirt - Expected: 8.7 or newer Actual: {actual}. "
            "Upgrade the hypervisor: older ones cannot give a guest the processor's address width."
        )
    ]


def test_an_older_qemu_is_told_for_several_large_windows_alone(host: FakeHost) -> None:
    need, older = wanted(ONE), {**NEW, "qemu": [8, 2, 2]}
    told = "QEMU 8.2.2 may stall for minutes at the start with GPU windows of 256 GiB: 10.1 does not"
    seen = shown(host, need, versions=older, partitions=[])
    assert notes(need, seen) == []
    for pci in (GPU, NIC):
        seen["devices"][pci]["bars"] = [256 << 30]
    assert notes(need, seen) == [told]
    assert notes(need, {**seen, "versions": NEW}) == []


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """An `fmpm` whose answer is of the shape in NVIDIA/Fabric-Manager-Client, fmpm.cpp, listPartitions."""
    made = tmp_path / "bin" / "fmpm"
    made.parent.mkdir()
    made.write_text(f"#!/bin/sh\n{text}")
    made.chmod(0o755)
    monkeypatch.setenv("PATH", f"{made.parent}:/bin:/usr/bin")


def listed(*partitions: tuple[int, int]) -> str:
    info = [
        {"gpuInfo": [], "isActive": active, "numGpus": gpus, "partitionId": number}
        for number, (gpus, active) in enumerate(partitions)
    ]
    text = json.dumps({"maxNumPartitions": 15, "numPartitions": len(info), "partitionInfo": info, "version": 1})
    return f"[ \"$*\" = -l ] && echo '{text}'"


@pytest.mark.parametrize(
    ("partitions", "actual"),
    [
        (((8, 1), (1, 0)), "active ones of 8"),
        (((8, 0), (1, 0)), "none is active"),
        (((8, 0), (1, 1)), ""),
    ],
)
def test_a_guest_of_a_shared_board_needs_an_active_partition(
    partitions: tuple[tuple[int, int], ...],
    actual: str,
    host: FakeHost,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program(tmp_path, monkeypatch, listed(*partitions))
    text = (
        f"passthrough-fabric-partition: train-1: partition of 1 GPUs - Expected: active Actual: {actual}. "
        "List partitions with `fmpm -l`, activate that of its GPUs with `fmpm -a ID`, then run again."
    )
    assert found(host, ONE) == ([text] if actual else [])


def test_partitions_that_nobody_can_list_are_told(
    host: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, monkeypatch, "echo 'Failed to connect to Fabric Manager instance.'; exit 1")
    need = wanted(ONE)
    assert notes(need, shown(host, need)) == [
        (
            "partitions were not looked at, no fmpm: activate one of 1 GPUs before the guest starts, "
            "see docs/howto/virtual.md"
        )
    ]
