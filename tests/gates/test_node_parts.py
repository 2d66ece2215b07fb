"""The list of a node's parts and measuring programs.

How another list affects evidence, and what the script reads from the node's tools.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rackready.design.site import load_site
from rackready.drivers.remote import Answer
from rackready.evidence.store import EvidenceStore
from rackready.gates.records.node_parts import SEEN, PartsReading, compare, differences, see
from rackready.ledger.store import Ledger
from rackready.model.outcome import Finding
from rackready.ondevice import node_parts as script
from rackready.paths import EnvPaths
from tests.gates.support import told

PARTS = {
    "BIOS": {"BIOS": "American Megatrends International, LLC. 1.6.7 09/02/2025"},
    "memory modules": {
        "memory module DIMM_P0_A0": "64 GB MTC40F2046S1RC48BA1 80CE1111",
        "memory module DIMM_P0_A1": "64 GB MTC40F2046S1RC48BA1 80CE2222",
    },
    "module of mlx5_0": {"module of mlx5_0": "NVIDIA MMA4Z00-NS400 MT2421FT0001"},
    "programs": {"program all_reduce_perf": "/usr/bin/all_reduce_perf 0123456789abcdef"},
    "drives": {"drive S6EYNA0T01": "SAMSUNG MZQL23T8HCLS-00A07"},
}
DIMM = "memory module DIMM_P0_A1 was 64 GB MTC40F2046S1RC48BA1 80CE2222, is 64 GB MTC40F2046S1RC48BA1 80CE9999"


class Rack:
    """One node with these parts, and its records."""

    def __init__(self, root: Path) -> None:
        self.site = load_site("sim")
        paths = EnvPaths(root, "sim")
        self.ledger = Ledger.open(paths.database)
        self.store = EvidenceStore.open(self.ledger, paths.raw)
        self.parts: dict[str, dict[str, str]] = copy.deepcopy(PARTS)
        self.unread: dict[str, str] = {}
        self.asked = 0

    def run(self, _node: str, argv: Sequence[str], **_more: Any) -> Answer:
        self.asked += 1
        assert json.loads(argv[-1])["modules"][0] == "mlx5_0"
        text = json.dumps(
            {"format": script.FORMAT, "boot_id": "b", "parts": self.parts, "unread": self.unread, "complete": True}
        )
        return Answer(0, text, "", 0.1)

    def see(self, campaign: str = "c1", within_s: float = 900) -> PartsReading | Finding:
        return see(self, self.site, self.store, self.ledger, campaign, ["node01"], within_s)["node01"]  # type: ignore[arg-type]

    def told(self, campaign: str) -> list[str]:
        return [event.text for event in self.ledger.events(campaign)]


@pytest.fixture
def rack(tmp_path: Path) -> Rack:
    return Rack(tmp_path)


def test_the_first_look_records_and_changes_nothing(rack: Rack) -> None:
    found = rack.see()
    assert isinstance(found, PartsReading)
    assert found.changed == ()
    assert json.loads(rack.store.raw(found.digest)) == PARTS
    assert rack.ledger.last_change("node01").at == 0
    assert rack.see("c2") == found, "the same list"
    assert rack.ledger.last_change("node01").at == 0


def test_one_run_reads_once(rack: Rack) -> None:
    rack.see()
    rack.see()
    assert rack.asked == 1
    rack.see(within_s=0)
    rack.see("c2")
    assert rack.asked == 3, "another run, or one that was cut off long ago, reads again"


@pytest.mark.parametrize(
    ("kind", "part", "now", "words"),
    [
        ("memory modules", "memory module DIMM_P0_A1", "64 GB MTC40F2046S1RC48BA1 80CE9999", DIMM),
        (
            "module of mlx5_0", "module of mlx5_0", "NVIDIA MMA4Z00-NS400 MT2421FT0002",
            "module of mlx5_0 was NVIDIA MMA4Z00-NS400 MT2421FT0001, is NVIDIA MMA4Z00-NS400 MT2421FT0002",
        ),
        (
            "BIOS", "BIOS", "American Megatrends International, LLC. 1.5.3 01/02/2025",
            ("BIOS was American Megatrends International, LLC. 1.6.7 09/02/2025, "
            "is American Megatrends International, LLC. 1.5.3 01/02/2025"),
        ),
        (
            "programs", "program all_reduce_perf", "/usr/bin/all_reduce_perf fedcba9876543210",
            ("program all_reduce_perf was /usr/bin/all_reduce_perf 0123456789abcdef, "
            "is /usr/bin/all_reduce_perf fedcba9876543210"),
        ),
    ],
)  # fmt: skip
def test_another_part_is_a_change_that_voids_what_was_measured_and_is_named(
    rack: Rack, kind: str, part: str, now: str, words: str
) -> None:
    rack.see()
    rack.parts[kind][part] = now
    before = time.time()
    assert rack.see("c2").changed == (words,)  # type: ignore[union-attr]
    assert rack.ledger.last_change("node01").at >= before, "every record of before is about another node"
    assert rack.told("c2") == [f"changed since it was measured: {words}. Earlier evidence no longer counts."]
    assert rack.see("c3").changed == (), "said once"  # type: ignore[union-attr]


def test_parts_that_changed_beside_our_own_change_are_named_and_are_no_drift(rack: Rack) -> None:
    rack.see()
    rack.ledger.done(rack.ledger.change_begins("node01", "install"), {})
    rack.parts["programs"]["program all_reduce_perf"] = "/usr/bin/all_reduce_perf fedcba9876543210"
    assert rack.see("c2").changed == ()  # type: ignore[union-attr]
    words = "program all_reduce_perf was /usr/bin/all_reduce_perf 0123456789abcdef, is /usr/bin/all_reduce_perf fedc"
    (told,) = rack.told("c2")
    assert told.startswith(f"changed since it was measured: {words}")


def test_parts_that_can_no_longer_be_read_are_an_error_and_nothing_is_recorded(rack: Rack) -> None:
    rack.see()
    del rack.parts["drives"]
    rack.unread = {"drives": "lsblk is not installed", "libraries": "ldconfig: exit 1"}
    found = rack.see("c2")
    assert str(found) == (
        "node01: parts that were seen before cannot be read - Expected: drives Actual: drives: lsblk is not installed. "
        "Run the named program on the node by hand; evidence counts only while the node's parts can be read."
    )
    last = rack.ledger.latest("node01", SEEN)
    assert last is not None
    assert last.result["campaign"] == "c1"


def test_a_list_that_is_cut_off_is_an_error_and_nothing_is_recorded(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rack, "run", lambda *_args, **_more: Answer(0, '{"format": ', "", 0.1))
    found = rack.see()
    assert isinstance(found, Finding)
    cut = "JSON cut off or damaged at line 1 column 11"
    assert told(found) == ("parts-unreadable", "node01", "a complete document", cut)
    assert rack.ledger.latest("node01", SEEN) is None


def test_a_list_that_is_not_stored_any_more_is_taken_for_another_one(rack: Rack, tmp_path: Path) -> None:
    first = rack.see()
    assert isinstance(first, PartsReading)
    for path in EnvPaths(tmp_path, "sim").raw.rglob("*.z"):
        path.unlink()
    rack.parts["BIOS"]["BIOS"] = "another"
    assert rack.see("c2").changed == (
        f"the list of parts differs from {first.digest[:12]}, which is no longer stored here",
    )  # type: ignore[union-attr]


def test_what_is_gone_and_new_is_named_and_kinds_that_were_not_read_are_left_out() -> None:
    before = {"drives": {"drive A": "one"}, "programs": {"program fio": "x"}}
    now = {"drives": {"drive B": "two"}, "BIOS": {"BIOS": "1"}}
    assert differences(before, now) == ["drive A (one) is gone", "drive B (two) is new"]


def test_the_script_reads_what_dmidecode_says(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "# dmidecode 3.4\nGetting SMBIOS data from sysfs.\nSMBIOS 3.5.0 present.\n\n"
        "Handle 0x1100, DMI type 17, 92 bytes\nMemory Device\n\tSize: 64 GB\n\tLocator: DIMM_A1\n\tBank Locator: "
        "NODE 1\n\tSerial Number: 80CE01\n"
        "\tPart Number: MTC40F2046S1RC48BA1   \n\n"
        "Handle 0x1101, DMI type 17, 92 bytes\nMemory Device\n\tSize: No Module Installed\n\tLocator: DIMM_A2\n\n"
    )
    monkeypatch.setattr(script, "run", lambda *_argv: text)
    assert script.memory() == {
        "memory module DIMM_A1": (
            "64 GB MTC40F2046S1RC48BA1 80CE01",
            {"slot": "DIMM_A1", "size": "64 GB", "part": "MTC40F2046S1RC48BA1", "serial": "80CE01"},
        )
    }
    monkeypatch.setattr(script, "run", lambda *_argv: "# dmidecode 3.4\n\n")
    assert script.tried(script.memory) == ({}, "dmidecode reports no memory module")


def test_the_script_tells_media_of_the_bmc_from_drives(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [
        {"path": "/dev/nvme0n1", "tran": "nvme", "model": "SAMSUNG MZQL2", "serial": "S6E01 "},
        {"path": "/dev/sda", "tran": "usb", "model": "Virtual CDROM", "serial": "AAAA"},
        {"path": "/dev/sdb", "tran": "fc", "model": "LUN", "serial": "600"},
    ]
    monkeypatch.setattr(script, "run", lambda *_argv: json.dumps({"blockdevices": devices}))
    monkeypatch.setattr(script, "read", {"/sys/class/nvme/nvme0/firmware_rev": "GDC7502Q"}.get)
    own = {"serial": "S6E01", "model": "SAMSUNG MZQL2 GDC7502Q"}
    assert script.drives() == {"drive S6E01": ("SAMSUNG MZQL2 GDC7502Q", own)}


@pytest.mark.parametrize(
    ("told", "words", "own"),
    [
        (
            {"Vendor Name": "NVIDIA ", "Vendor Part Number": "MCP4Y10", "Vendor Serial Number": "MT 77"},
            "NVIDIA MCP4Y10 MT 77",
            {"vendor": "NVIDIA", "part": "MCP4Y10", "serial": "MT 77"},
        ),
        ({"Vendor Name": "N/A"}, "none", {}),
        (None, "none", {}),
    ],
)
def test_the_script_reads_the_module_of_a_port(
    told: dict[str, str] | None, words: str, own: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = json.dumps({"result": {"output": {"Module Info": told}}})
    monkeypatch.setattr(script, "run", lambda *_argv: answer)
    assert script.module("mlx5_0") == {"module of mlx5_0": (words, own)}


def test_the_document_has_the_identity_of_parts_in_words_and_as_fields(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for look in ("bios", "bmc", "drives", "programs", "libraries"):
        monkeypatch.setattr(script, look, lambda *_names: {"a part": ("words", {})})
    own = {"slot": "A1", "size": "64 GB", "part": "M3", "serial": "AB"}
    monkeypatch.setattr(script, "memory", lambda: {"memory module A1": ("64 GB M3 AB", own)})
    monkeypatch.setattr(script.sys, "argv", ["-", json.dumps({"modules": [], "programs": [], "libraries": []})])
    assert script.main() == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parts"]["memory modules"] == {"memory module A1": "64 GB M3 AB"}
    assert found["parts"]["BIOS"] == {"a part": "words"}
    assert found["numbers"] == {"memory modules": {"memory module A1": own}}


def test_a_program_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "PLACES", "/nonexistent")
    assert script.tried(script.bios) == ({}, "dmidecode is not installed")
    assert script.programs(["fio"]) == {}


def test_a_comparison_names_each_change_and_records_nothing(rack: Rack) -> None:
    rack.see("c1")
    entries = rack.ledger.entries("node01")
    assert compare(rack, rack.site, rack.store, rack.ledger, ["node01"]) == {"node01": []}  # type: ignore[arg-type]
    modules = rack.parts["memory modules"]
    modules["memory module DIMM_P0_A1"] = "64 GB MTC40F2046S1RC48BA1 80CE9999"
    rack.parts["drives"] = {"drive NEW": "SAMSUNG"}
    found = compare(rack, rack.site, rack.store, rack.ledger, ["node01"])  # type: ignore[arg-type]
    assert found["node01"] == [
        ("drive S6EYNA0T01", "SAMSUNG MZQL23T8HCLS-00A07", ""),
        ("drive NEW", "", "SAMSUNG"),
        (
            "memory module DIMM_P0_A1",
            "64 GB MTC40F2046S1RC48BA1 80CE2222",
            "64 GB MTC40F2046S1RC48BA1 80CE9999",
        ),
    ]
    assert rack.ledger.entries("node01") == entries, "another list is no change of the node until a deploy sees it"
    rack.unread = {"drives": "lsblk is not installed"}
    assert isinstance(compare(rack, rack.site, rack.store, rack.ledger, ["node01"])["node01"], Finding)  # type: ignore[arg-type]
