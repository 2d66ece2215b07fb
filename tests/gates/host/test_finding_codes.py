"""Findings of host gates that are rare on good hardware, each by its code, place and values."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.model.outcome import Outcome
from tests.gates import test_versions as versions
from tests.gates.host.machine import Node
from tests.gates.host.test_damage import DISKS, OPTICS, drive, port
from tests.gates.host.test_judgement import WHERE, Change, Document, judge
from tests.gates.host.test_storage import DISK, RATES, filesystem, moved, sealed
from tests.gates.support import Case, Told, tells
from tests.gates.support import judge as of_case

H = "node/host/sanity/"
NIC = "0000:18:00.0"
SWITCH = "address=0000:17:00.0"
SPARE = "node01 /dev/nvme4 (SAMSUNG MZQL23T8HCLS-00A07 S6EYNA0TCA46989E)"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def file(path: str, text: str | None) -> Change:
    """Another text of a file of the node; None: it is not there."""
    return lambda found: found["files"].update({path: {} if text is None else {path: text}})


def failed_read(found: Document) -> None:
    """Fio could not read a drive: EIO."""
    said = json.loads(found["commands"]["fio /dev/nvme3n1"]["stdout"])
    said["jobs"][0]["error"] = 5
    found["commands"]["fio /dev/nvme3n1"]["stdout"] = json.dumps(said)


def no_kind(found: Document) -> None:
    """Lspci without the Express capability of one switch port."""
    tool = found["commands"]["lspci"]
    lines = tool["stdout"].splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if "Downstream Port" in line)
    tool["stdout"] = "".join(lines[:at] + lines[at + 1 :])


def no_counters(found: Document) -> None:
    """The kernel counts memory errors in another form."""
    files = next(files for pattern, files in found["files"].items() if pattern.endswith("dimm_[cu]e_count"))
    files[min(files)] = "many"


def first_service_down(found: Document) -> None:
    tool = found["commands"]["is-active"]
    tool.update(stdout=tool["stdout"].replace("active", "inactive", 1), exit_code=3)


@pytest.mark.parametrize(
    ("gate_id", "change", "outcome", "finding"),
    [
        (
            f"{H}services",
            first_service_down,
            Outcome.FAIL,
            ("service-not-active", "node01", "active", "inactive", "name=chrony.service"),
        ),
        (
            DISKS,
            drive(lambda said: said["nvme_smart_health_information_log"].update(available_spare=9)),
            Outcome.FAIL,
            ("drive-spare-blocks", SPARE, "at least 10% (the drive's own threshold)", "9%"),
        ),
        (
            DISK,
            failed_read,
            Outcome.FAIL,
            ("drive-read-error", "node01 /dev/nvme3n1", "no error", "errno 5, 6.82 GB/s"),
        ),
        (
            OPTICS,
            port("Physical Counters and BER Info", Effective_Physical_BER="N/A"),
            Outcome.ERROR,
            ("link-ber-not-reported", WHERE, "at most 1e-12", "N/A", "what=bit error rate after correction"),
        ),
        (
            OPTICS,
            port("Operational Info", State="Polling"),
            Outcome.FAIL,
            ("optics-link-down", WHERE, "Active", "Polling: No issue was observed"),
        ),
        (
            OPTICS,
            port("Module Info", Vendor_Part_Number="N/A"),
            Outcome.ERROR,
            ("module-part-not-reported", WHERE, "the module's or cable's part number", "N/A"),
        ),
        (
            f"{H}memory-errors",
            no_counters,
            Outcome.ERROR,
            ("memory-errors-unreadable", "node01", "whole numbers", "invalid literal for int() with base 10: 'many'"),
        ),
        (
            f"{H}numa",
            file(f"/sys/bus/pci/devices/{NIC}/numa_node", "-1"),
            Outcome.FAIL,
            ("numa-no-affinity", "node01 mlx5_0", "0", "none (-1)"),
        ),
        (
            f"{H}iommu",
            file(f"/sys/bus/pci/devices/{NIC}/vendor", None),
            Outcome.ERROR,
            ("pci-device-not-found", "node01 mlx5_0", f"/sys/bus/pci/devices/{NIC}/vendor", "nothing", f"pci={NIC}"),
        ),
        (
            f"{H}pcie-acs",
            no_kind,
            Outcome.ERROR,
            ("pcie-port-kind-unknown", "node01 0000:17:00.0", "root, upstream or downstream port", "nothing", SWITCH),
        ),
        (
            f"{H}cpu",
            lambda found: found["commands"].pop("lscpu"),
            Outcome.ERROR,
            ("tool-not-run", "node01", "its output", "nothing", "name=lscpu"),
        ),
    ],
    ids=["service", "spare", "read", "ber", "link", "part", "edac", "numa", "iommu", "acs", "tool"],
)
def test_a_node(node: Node, gate_id: str, change: Change, outcome: Outcome, finding: Told) -> None:
    verdict = judge(node, gate_id, change)
    assert (tells(verdict), verdict.outcome) == ([finding], outcome)


def test_a_parallel_file_system_of_which_fio_prints_no_document() -> None:
    mount, output = moved("lustre", 5.1, 2.1)
    document = json.loads(output.stdout)
    document["commands"]["fio"]["stdout"] = "fio: failed to load engine\n"
    verdict = filesystem([mount, replace(output, stdout=sealed(document))], RATES)
    wanted = ("filesystem-fio-unreadable", "node01", "its JSON document", "no JSON: fio: failed to load engine")
    assert (tells(verdict), verdict.outcome) == ([wanted], Outcome.ERROR)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (
            lambda found: found["nvml"].update(cuda=None),
            ("cuda-version-not-reported", "node01", "at least 13.0", "nothing"),
        ),
        (lambda found: found.pop("packages"), ("packages-not-reported", "node01", "installed versions", "nothing")),
    ],
    ids=["cuda", "packages"],
)
def test_versions_that_a_node_does_not_report(change: Change, finding: Told) -> None:
    verdict = of_case(versions.GATE, Case("silent", {"versions": versions.changed(change)}, Outcome.ERROR))
    assert (tells(verdict), verdict.outcome) == ([finding], Outcome.ERROR)
