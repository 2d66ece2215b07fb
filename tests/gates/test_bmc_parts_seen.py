"""Differences of two inventories of a node.

A disk is its serial number and size, a link its width and, where that is steady, its speed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from rackready.format_error import FormatError
from rackready.gates.base import Output
from rackready.gates.bmc.parts_seen import BmcInventory, differences, look, read_inventory
from tests.gates.redfish_world import SYSTEM, World, gathered, healthy, world
from tests.gates.support import document

NIC, GPU, NVME = "0000:18:00.0", "0000:1b:00.0", "0000:01:00.0"
FAST = "32.0 GT/s PCIe"
PARTS: dict[str, Any] = {
    "format": "rackready/part-inventory/v1",
    "boot_id": "boot-1",
    "pci": {
        NIC: {"id": "0x15b3:0x1021", "class": "0x020000", "width": 16, "speed": FAST},
        GPU: {"id": "0x10de:0x2330", "class": "0x030200", "width": 16, "speed": FAST},
        NVME: {"id": "0x144d:0xa824", "class": "0x010802", "width": 4, "speed": "16.0 GT/s PCIe"},
    },
    "disks": {"S1": {"name": "nvme2n1", "sectors": "7501476528"}, "S2": {"name": "nvme3n1", "sectors": "7501476528"}},
    "memory_bytes": 2**41,
    "complete": True,
}
FINGERPRINT = {"format": "rackready/fingerprint/v1", "nics": [{"device": "mlx5_0", "guid": "b8"}], "complete": True}
GPUS = document("nvml/dgx_h100_healthy.json")
Change = Callable[[dict[str, Any]], object]


def looked(change: Change = lambda found: found, of_bmc: Callable[[World], object] = lambda _: None) -> BmcInventory:
    """One inventory of a node after this change of what its kernel sees, and of what its BMC shows."""
    shown = world(healthy())
    of_bmc(shown)
    there = copy.deepcopy(PARTS)
    change(there)
    bmc = next(command for command in look("node01", 0, 0) if command.via == "bmc")
    told = {
        "gpus-0": json.dumps(GPUS),
        "nics-0": json.dumps(FINGERPRINT),
        "parts-0": json.dumps(there),
        bmc.key: gathered(shown, bmc.argv[1:]),
    }
    return read_inventory({key: Output(key, "node01", "x", 0, text, seconds=1.0) for key, text in told.items()}, 0)


def differs(change: Change) -> list[tuple[str, str, str, str]]:
    return [(item.part, item.kind.code, item.before, item.after) for item in differences(looked(), looked(change))]


def swap(found: dict[str, Any]) -> None:
    found["disks"]["S1"]["name"], found["disks"]["S2"]["name"] = "nvme3n1", "nvme2n1"


def test_disks_whose_kernel_names_swapped_are_the_same_disks() -> None:
    assert differs(swap) == []


def test_a_gpu_that_idles_at_a_lower_speed_is_the_same() -> None:
    assert differs(lambda found: found["pci"][GPU].update(speed="2.5 GT/s PCIe")) == []


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (
            lambda found: found["disks"]["S1"].update(sectors="3750738264"),
            ("disk S1", "part-changed-with-cycle", "7501476528 sectors", "3750738264 sectors"),
        ),
        (
            lambda found: found["disks"]["S1"].update(sectors=None),
            ("disk S1", "part-changed-with-cycle", "7501476528 sectors", "size not reported"),
        ),
        (
            lambda found: found["disks"].pop("S1"),
            ("disk S1", "part-gone-after-cycle", "7501476528 sectors", "not there"),
        ),
        (
            lambda found: found["pci"][NIC].update(speed="16.0 GT/s PCIe"),
            (f"pci {NIC}", "part-speed-changed-with-cycle", FAST, "16.0 GT/s PCIe"),
        ),
        (
            lambda found: found["pci"][NVME].update(speed="8.0 GT/s PCIe"),
            (f"pci {NVME}", "part-speed-changed-with-cycle", "16.0 GT/s PCIe", "8.0 GT/s PCIe"),
        ),
        (
            lambda found: found["pci"][NIC].update(speed=None),
            (f"pci {NIC}", "part-speed-changed-with-cycle", FAST, "none reported"),
        ),
        (lambda found: found["pci"][GPU].update(width=8), (f"pci {GPU}", "part-width-changed-with-cycle", "x16", "x8")),
        (
            lambda found: found["pci"][GPU].update(width=None),
            (f"pci {GPU}", "part-width-changed-with-cycle", "x16", "none reported"),
        ),
        (lambda found: found["pci"].pop(NIC), (f"pci {NIC}", "part-gone-after-cycle", "0x15b3:0x1021", "not there")),
    ],
)
def test_what_differs_is_said_once(change: Change, difference: tuple[str, str, str, str]) -> None:
    assert differs(change) == [difference]


def test_looks_that_were_stored_before_speeds_were_asked_are_held_by_width() -> None:
    def older(found: dict[str, Any]) -> None:
        for function in found["pci"].values():
            del function["speed"]

    assert differences(looked(older), looked(older)) == []


def _bare(there: World) -> None:
    for key in ("Members", "Members@odata.count"):
        del there[f"{SYSTEM}/Storage"][key]


def test_a_bmc_whose_storage_lists_no_members_is_compared_without_it() -> None:
    """As a DGX H100's."""
    found = looked(of_bmc=_bare)
    assert found.bare == (f"{SYSTEM}/Storage",)
    assert not [part for part in found.parts if part.startswith("drive ")]
    assert [part for part in found.parts if part.startswith("dimm ")]
    assert looked().bare == ()
    assert {item.kind.code for item in differences(looked(), found)} == {"part-gone-after-cycle"}


def test_another_collection_without_members_is_not_taken_for_empty() -> None:
    with pytest.raises(FormatError, match=f"{SYSTEM}/Memory: no collection: it has no Members"):
        looked(of_bmc=lambda there: there[f"{SYSTEM}/Memory"].pop("Members"))
