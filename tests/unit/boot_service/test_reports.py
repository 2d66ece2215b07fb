"""Reports: order, and each file that does not count."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rackready.drivers.boot_service.reports import REPORT_LIMIT, read
from tests.unit.boot_service.made import DIGEST, report

IGNORED = "It is ignored; look at the node's console for the reason."


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)


def test_reports_come_in_the_order_of_arrival_whatever_the_node_s_clock_says(tmp_path: Path) -> None:
    put(tmp_path, "ffffffff-0001.json", report("node01", "started", boot="ffffffff", at="2038-01-01T00:00:00Z"))
    put(tmp_path, "ffffffff-0002.json", report("node01", "writing", boot="ffffffff", percent=40))
    time.sleep(0.02)
    put(tmp_path, "00000000-0002.json", report("node01", "done", boot="00000000"))
    put(tmp_path, "00000000-0001.json", report("node01", "started", boot="00000000", at="1970-01-01T00:00:00Z"))
    found = read(tmp_path, "node01", DIGEST)
    assert [(item.boot[0], item.step) for item in found.reports] == [
        ("f", "started"),
        ("f", "writing"),
        ("0", "started"),
        ("0", "done"),
    ]
    assert found.strange == ()


def test_no_folder_has_no_reports(tmp_path: Path) -> None:
    assert read(tmp_path / "none", "node01").reports == ()


def test_disks_are_read(tmp_path: Path) -> None:
    disk = {
        "path": "/dev/vda",
        "serial": "S1",
        "size": 1,
        "model": "",
        "holds": ["gpt, 3 partitions"],
        "chosen": "system",
    }
    put(tmp_path, "0a1b2c3d-0001.json", report("node01", "refused", code="disk-has-data", disks=[disk]))
    (found,) = read(tmp_path, "node01").reports
    assert (found.code, found.disks[0].holds, found.disks[0].chosen) == (
        "disk-has-data",
        ["gpt, 3 partitions"],
        "system",
    )


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("notes.txt", "", "Expected: BOOT-NNNN.json Actual: another name"),
        (
            "0a1b2c3d-0001.json",
            report("node01", "x"),
            "Expected: rackready/imaging-report/v1 Actual: step: not 'started',",
        ),
        ("0a1b2c3d-0001.json", "{", "Expected: rackready/imaging-report/v1 Actual: not JSON (EOF while"),
        (
            "0a1b2c3d-0001.json",
            report("node01", "done", schema="v2"),
            "Actual: schema: not 'rackready/imaging",
        ),
        ("0a1b2c3d-0001.json", report("node02", "done"), "Expected: node node01 Actual: node node02"),
        ("0a1b2c3e-0001.json", report("node01", "done"), "Expected: boot 0a1b2c3e Actual: boot 0a1b2c3d"),
        (
            "0a1b2c3d-0001.json",
            report("node01", "done", digest="e" * 64),
            f"Expected: plan {DIGEST} Actual: plan {'e' * 64}",
        ),
        (
            "0a1b2c3d-0001.json",
            " " * (REPORT_LIMIT + 1),
            f"Expected: at most {REPORT_LIMIT} bytes Actual: {REPORT_LIMIT + 1} bytes",
        ),
    ],
    ids=["name", "step", "json", "schema", "node", "boot", "plan", "size"],
)
def test_what_is_no_report_of_this_plan_is_named_and_does_not_count(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    put(tmp_path, name, text)
    put(tmp_path, "0a1b2c3d-0009.json", report("node01", "started"))
    found = read(tmp_path, "node01", DIGEST)
    assert [item.step for item in found.reports] == ["started"]
    (strange,) = map(str, found.strange)
    assert strange.startswith(f"{tmp_path / name}: not a report of this plan - ")
    assert words in strange
    assert strange.endswith(IGNORED)
