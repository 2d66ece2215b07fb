"""What a server consists of, read from a kernel tree and from texts of the tools."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rackready.ondevice import platform_parts as script
from rackready.ondevice.secure_boot import SecureBoot

SUPPORTED = """Settings for enp26s0np0:
\tSupported ports: [ FIBRE ]
\tSupported link modes:   100000baseCR2/Full
\t                        200000baseCR4/Full
\t                        400000baseCR4/Full
\tSupported pause frame use: Symmetric
\tAdvertised link modes:  800000baseCR8/Full
\tSpeed: Unknown!
"""
SMI = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">
<nvidia_smi_log><driver_version>580.173.02</driver_version>
<gpu id="00000000:1B:00.0"><product_name>NVIDIA H100 80GB HBM3</product_name>
<fabric><state>Completed</state></fabric></gpu></nvidia_smi_log>
"""
MEMORY = """# dmidecode 3.5
Handle 0x1100, DMI type 17, 92 bytes
Memory Device
\tSize: 64 GB
\tLocator: DIMM_A1

Handle 0x1101, DMI type 17, 92 bytes
Memory Device
\tSize: 65536 MB
\tLocator: DIMM_B1

Handle 0x1102, DMI type 17, 92 bytes
Memory Device
\tSize: No Module Installed
\tLocator: DIMM_C1
"""
SLOTS = """Handle 0x0900, DMI type 9, 24 bytes
System Slot Information
\tDesignation: CPU1 SLOT3 PCIe 5.0 X16
\tCurrent Usage: In Use
\tBus Address: 0000:19:00.0

Handle 0x0901, DMI type 9, 24 bytes
System Slot Information
\tDesignation: CPU1 SLOT4 PCIe 5.0 X16
\tCurrent Usage: Available
"""
CPU = {
    "lscpu": [
        {"field": "CPU(s):", "data": "224", "children": []},
        {
            "field": "Vendor ID:",
            "data": "GenuineIntel",
            "children": [
                {
                    "field": "Model name:",
                    "data": "Intel(R) Xeon(R) Platinum 8480+",
                    "children": [
                        {"field": "Thread(s) per core:", "data": "2"},
                        {"field": "Core(s) per socket:", "data": "56"},
                        {"field": "Socket(s):", "data": "2"},
                    ],
                }
            ],
        },
        {"field": "NUMA node0 CPU(s):", "data": "0-55,112-167"},
        {"field": "NUMA node1 CPU(s):", "data": "56-111,168-223"},
        {"field": "NUMA node2 CPU(s):", "data": None},
    ]
}


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel tree with one switch: a GPU and a card below it; a board's own card and a virtual function beside."""
    for name in ("PCI", "NET", "RDMA", "DMI"):
        monkeypatch.setattr(script, name, str(tmp_path / name.lower()))
    below = "pci0000:17/0000:17:01.0/0000:18:00.0"
    function(tmp_path, f"{below}/0000:19:02.0/0000:1b:00.0", "0x10de", "0x2330", "0x030200")
    function(tmp_path, f"{below}/0000:19:00.0/0000:1a:00.0", "0x15b3", "0x1021", "0x020000", "enp26s0np0", "rocep26s0")
    function(tmp_path, "pci0000:aa/0000:ab:00.0", "0x15b3", "0x1021", "0x020700", "ibs100", "ibp171s0")
    (tmp_path / "pci/0000:ab:00.0/vpd").write_bytes(b"\x82\x04\x00NAME\x90\x10\x00SMSW_MNG\x78")
    function(tmp_path, f"{below}/0000:19:00.0/0000:1a:00.2", "0x15b3", "0x101e", "0x020000")
    (tmp_path / "pci/0000:1a:00.2/physfn").mkdir()
    function(tmp_path, "pci0000:00/0000:07:00.0", "0x10de", "0x22a3", "0x068000")
    return tmp_path


def function(  # noqa: PLR0913, PLR0917 - what sysfs shows of one function
    root: Path, place: str, vendor: str, device: str, kind: str, netdev: str = "", rdma: str = ""
) -> None:
    folder = root / "devices" / place
    folder.mkdir(parents=True)
    for name, value in {"vendor": vendor, "device": device, "class": kind, "numa_node": "0"}.items():
        (folder / name).write_text(f"{value}\n")
    if netdev:
        (folder / "net" / netdev).mkdir(parents=True)
        net = root / "net" / netdev
        net.mkdir(parents=True)
        (net / "address").write_text("b8:3f:d2:00:01:01\n")
    if rdma:
        (folder / "infiniband" / rdma).mkdir(parents=True)
        port = root / "rdma" / rdma / "ports/1"
        port.mkdir(parents=True)
        (port / "rate").write_text("200 Gb/sec (4X HDR)\n")
        (port / "state").write_text("4: ACTIVE\n")
        (root / "rdma" / rdma / "fw_ver").write_text("28.43.2566\n")
    (root / "pci").mkdir(exist_ok=True)
    (root / "pci" / Path(place).name).symlink_to(os.path.relpath(folder, root / "pci"))


def answers(monkeypatch: pytest.MonkeyPatch, **texts: str) -> None:
    """Let programs answer; the others are not installed."""

    def run(*argv: str) -> str:
        words = "_".join(word.lstrip("-") for word in argv).replace("-", "_")
        found = next((text for name, text in texts.items() if words.startswith(name)), None)
        if found is None:
            message = f"{argv[0]} is not installed"
            raise script.UnreadError(message)
        return found

    monkeypatch.setattr(script, "run", run)


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert script.main() == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_devices_come_with_the_bridges_above_them(
    sysfs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sysfs.is_dir()
    answers(monkeypatch, ethtool_enp26s0np0=SUPPORTED)
    found = printed(capsys)
    assert found["gpus"] == [
        {
            "pci": "0000:1b:00.0",
            "vendor": "0x10de",
            "device": "0x2330",
            "numa": 0,
            "bridges": ["0000:17:01.0", "0000:18:00.0", "0000:19:02.0"],
        }
    ]
    assert [switch["device"] for switch in found["nvswitches"]] == ["0x22a3"]  # type: ignore[attr-defined]
    near, board = found["nics"]  # type: ignore[misc] - the virtual function is left out
    assert (near["pci"], near["bridges"]) == ("0000:1a:00.0", ["0000:17:01.0", "0000:18:00.0", "0000:19:00.0"])
    assert near["netdevs"] == [{"name": "enp26s0np0", "mac": "b8:3f:d2:00:01:01"}]
    assert (near["rdma"], near["firmware"], near["managed"]) == (["rocep26s0"], "28.43.2566", False)
    assert (near["rate"], board["rate"]) == (400, 200), "supported by the port; where ethtool is silent, of the link"
    assert board["managed"] is True


def test_a_port_without_link_and_modes_has_no_rate(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch)
    (sysfs / "rdma/rocep26s0/ports/1/state").write_text("1: DOWN\n")
    assert script.rate(["enp26s0np0"], ["rocep26s0"]) is None


def test_tools_give_processors_memory_drives_and_slots(
    sysfs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sysfs.is_dir()
    drives = {
        "blockdevices": [
            {"path": "/dev/nvme0n1", "tran": "nvme", "size": 3840755982336, "model": "PM9A3 "},
            {"path": "/dev/sda", "tran": "usb", "size": 1, "model": "Virtual CDROM"},
        ]
    }
    answers(
        monkeypatch,
        nvidia_smi=SMI,
        lscpu=json.dumps(CPU),
        dmidecode_type_memory=MEMORY,
        dmidecode_type_slot=SLOTS,
        dmidecode_type_chassis="Chassis Information\n\tHeight: 8 U\n",
        lsblk=json.dumps(drives),
    )
    found = printed(capsys)
    assert found["unread"] == {}
    assert found["driver"] == {
        "version": "580.173.02",
        "gpus": {"0000:1b:00.0": {"name": "NVIDIA H100 80GB HBM3", "fabric": "Completed"}},
    }
    assert found["cpu"] == {
        "model": "Intel(R) Xeon(R) Platinum 8480+",
        "sockets": 2,
        "cores": 56,
        "threads": 2,
        "numa_nodes": 2,
    }
    assert found["memory"] == {"modules": 2, "gib": 128}
    assert found["drives"] == [{"model": "PM9A3", "bytes": 3840755982336}]
    assert found["slots"] == [
        {"name": "CPU1 SLOT3 PCIe 5.0 X16", "usage": "In Use", "pci": "0000:19:00.0"},
        {"name": "CPU1 SLOT4 PCIe 5.0 X16", "usage": "Available", "pci": ""},
    ]
    assert found["chassis"] == {"units": 8}


def test_what_cannot_be_read_is_named(
    sysfs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sysfs.is_dir()
    answers(monkeypatch, lscpu="no JSON", dmidecode_type_memory="# dmidecode 3.5\n")
    unread = printed(capsys)["unread"]
    assert isinstance(unread, dict)
    assert unread["memory"] == "dmidecode reports no memory module"
    assert unread["driver"] == "nvidia-smi is not installed"
    assert set(unread) == {"driver", "cpu", "memory", "drives", "slots", "chassis"}


def efi(root: Path, values: dict[str, int]) -> None:
    folder = root / "sys/firmware/efi/efivars"
    folder.mkdir(parents=True)
    for name, value in values.items():
        owner = script.SHIM if name.startswith("Mok") else script.GLOBAL
        (folder / f"{name}-{owner}").write_bytes(b"\x06\x00\x00\x00" + bytes([value]))


@pytest.mark.parametrize(
    ("values", "state"),
    [
        (None, "off (no UEFI variables)"),
        ({}, "off"),
        ({"SecureBoot": 0}, "off"),
        ({"SecureBoot": 1}, "on"),
        ({"SecureBoot": 1, "SetupMode": 0}, "on"),
        ({"SecureBoot": 1, "SetupMode": 1}, "off (setup mode)"),
        ({"SecureBoot": 1, "MokSBStateRT": 1}, "off (shim does not verify)"),
    ],
)
def test_secure_boot_is_read_as_the_driver_s_check_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, int] | None, state: str
) -> None:
    monkeypatch.setattr(script, "EFI", str(tmp_path / "sys/firmware/efi"))
    if values is not None:
        efi(tmp_path, values)
    assert script.secure_boot() == state
    assert SecureBoot(root=tmp_path).on() is (state == "on")


def test_the_document_has_the_state(
    sysfs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "EFI", str(sysfs / "sys/firmware/efi"))
    efi(sysfs, {"SecureBoot": 1})
    answers(monkeypatch)
    assert printed(capsys)["secure_boot"] == "on"
