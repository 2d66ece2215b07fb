"""Rates of drives and the parallel file system: declared rates are judged, and implausible ones are errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.gates.base import Command, Output
from rackready.gates.engine.registry import gate
from rackready.model.outcome import Outcome, Verdict
from rackready_sim.programs.hwsim import paths
from rackready_sim.programs.hwsim.host import tools
from tests.gates.host.machine import Node, facts, sealed
from tests.gates.host.test_judgement import Change, Document, judge
from tests.gates.support import tells


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def disk(change: Callable[[Document], object]) -> Change:
    """Change what fio says of every drive."""

    def apply(found: Document) -> None:
        for key, tool in found["commands"].items():
            if key.startswith("fio "):
                said_ = json.loads(tool["stdout"])
                change(said_["jobs"][0]["read"])
                tool["stdout"] = json.dumps(said_)

    return apply


DISK = "node/host/performance/disk-bandwidth"
DATA = "SAMSUNG MZQL23T8HCLS-00A07"
HOW = "(inputs models, read_gb_s)"
FEW = (
    "SAMSUNG MZ1L21T9HCLS-00A07: 2 of this model are too few to compare, and no rate is declared: measured, not "
    f"judged {HOW}"
)


def fiftieth(read: Document) -> None:
    read.update(bw_bytes=read["bw_bytes"] // 50, io_bytes=read["io_bytes"] // 50)


def test_a_drive_of_which_no_rate_is_declared_is_said_to_be_held_against_its_siblings_only(node: Node) -> None:
    alike = f"{DATA}: no rate of this model is declared: compared with each other only (0.14 to 0.14 GB/s) {HOW}"
    slow = judge(node, DISK, disk(fiftieth))
    assert (slow.outcome, slow.note) == (Outcome.PASS, f"{FEW}; {alike}")
    verdict = judge(node, DISK, disk(fiftieth), inputs={"models": {DATA: 6.0}})
    assert (len(verdict.findings), {item.expected for item in verdict.findings}) == (8, {"at least 6 GB/s (declared)"})
    assert (verdict.outcome, verdict.note) == (Outcome.FAIL, FEW)
    assert judge(node, DISK, inputs={"models": {DATA: 6.0}}).outcome is Outcome.PASS


def test_fio_without_its_engine_measures_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the RHEL family the engine is a package of its own."""
    monkeypatch.setattr(paths, "is_rhel", lambda: True)
    verdict = judge(node, DISK)
    assert verdict.outcome is Outcome.ERROR
    assert {item[0] for item in tells(verdict)} == {"tool-failed"}
    assert {item.actual for item in verdict.findings} == {"exit 1: fio: failed to load engine"}
    monkeypatch.setattr(tools, "_LIBAIO", "/etc/hosts")
    assert judge(node, DISK).outcome is Outcome.PASS


def listed(change: Callable[[list[Document]], object]) -> Change:
    """Change what lsblk lists."""

    def apply(found: Document) -> None:
        said_ = json.loads(found["commands"]["lsblk"]["stdout"])
        change(said_["blockdevices"])
        found["commands"]["lsblk"]["stdout"] = json.dumps(said_)
        paths_ = {f"fio {drive['path']}" for drive in said_["blockdevices"]}
        for key in [key for key in found["commands"] if key.startswith("fio ") and key not in paths_]:
            del found["commands"][key]

    return apply


def test_a_drive_that_was_read_and_is_not_listed_is_an_error(node: Node) -> None:
    """Its reading may be the one that is not understood."""

    def change(found: Document) -> None:
        said_ = json.loads(found["commands"]["lsblk"]["stdout"])
        del said_["blockdevices"][8]
        found["commands"]["lsblk"]["stdout"] = json.dumps(said_)

    verdict = judge(node, DISK, change)
    assert tells(verdict) == [("drive-read-not-listed", "node01", "every drive on its list", "/dev/nvme8n1")]
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])


def test_drives_that_can_be_held_against_nothing_ask_for_a_rate(node: Node) -> None:
    def few(drives: list[Document]) -> None:
        del drives[4:]
        drives[3]["model"] = "KIOXIA KCD81RUG3T84"

    verdict = judge(node, DISK, listed(few))
    assert tells(verdict) == [
        (
            "drive-rate-not-judged",
            "node01",
            "a declared rate, or 3 drives of one model",
            f"2 of SAMSUNG MZ1L21T9HCLS-00A07, 1 of {DATA}, 1 of KIOXIA KCD81RUG3T84",
        )
    ]
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])
    assert judge(node, DISK, listed(few), inputs={"models": {DATA: 6.0}}).outcome is Outcome.PASS, (
        "one is judged, the others are noted"
    )


def test_a_node_without_drives_has_none_to_read(node: Node) -> None:
    verdict = judge(node, DISK, listed(lambda drives: drives.clear()))
    assert tells(verdict) == [("no-drive-to-read", "node01", "at least one block device with a size", "none")]
    assert verdict.outcome is Outcome.ERROR


def test_a_drive_that_was_read_for_a_moment_is_not_measured(node: Node) -> None:
    verdict = judge(node, DISK, disk(lambda read: read.update(runtime=1, io_bytes=read["bw_bytes"] // 1000)))
    assert set(tells(verdict)) == {
        ("drive-read-too-short", f"node01 /dev/nvme{place}n1", "10 s", "0.001 s") for place in range(10)
    }
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])


def test_a_drive_with_a_read_error_fails(node: Node) -> None:
    """It prints its document, and exits with the number of jobs that had an error."""
    node.state["host"]["drives"][3]["read_errno"] = 5
    node.save()
    drive = f"node01 /dev/{node.state['host']['drives'][3]['name']}n1"
    assert [
        item["exit_code"]
        for key, item in json.loads(node.answer(command(DISK)).stdout)["commands"].items()
        if key == f"fio {drive.split()[1]}"
    ] == [1]
    verdict = judge(node, DISK)
    assert [item[:3] for item in tells(verdict)] == [("drive-read-error", drive, "no error")]
    assert (verdict.outcome, verdict.findings[0].actual.split(",")[0]) == (Outcome.FAIL, "errno 5")


@pytest.mark.parametrize("stdout", ["", None], ids=["no document", "no error of a job"])
def test_a_fio_that_fails_for_another_reason_is_an_error(node: Node, stdout: str | None) -> None:
    def change(found: Document) -> None:
        tool = found["commands"]["fio /dev/nvme3n1"]
        tool.update(exit_code=1, stderr="fio: cannot fork\n", stdout=tool["stdout"] if stdout is None else stdout)

    verdict = judge(node, DISK, change)
    assert [item[:4] for item in tells(verdict)] == [
        ("tool-failed", "node01 /dev/nvme3n1", "exit 0", "exit 1: fio: cannot fork")
    ]
    assert verdict.outcome is Outcome.ERROR


def test_drives_of_a_model_may_differ_by_some_per_cent(node: Node) -> None:
    def part(share: float) -> Change:
        def change(found: Document) -> None:
            said_ = json.loads(found["commands"]["fio /dev/nvme3n1"]["stdout"])
            read = said_["jobs"][0]["read"]
            read.update(bw_bytes=int(read["bw_bytes"] * share), io_bytes=int(read["io_bytes"] * share))
            found["commands"]["fio /dev/nvme3n1"]["stdout"] = json.dumps(said_)

        return change

    assert judge(node, DISK, part(0.94)).outcome is Outcome.PASS
    slow = judge(node, DISK, part(0.85))
    assert ([finding.code for finding in slow.findings], slow.outcome) == (["drive-slow-beside-others"], Outcome.FAIL)
    assert "--ramp_time=2" in command(DISK).argv[-1]


def command(gate_id: str) -> Command:
    return gate(gate_id).plan(facts("node01"), ["node01"])[0].commands[0]


FILESYSTEM = "node/storage/performance/parallel-filesystem"
RATES = {"directory": "/lustre/test", "read_gb_s": 5.0, "write_gb_s": 2.0}


SAID = {"argv": ["x"], "exit_code": 0, "stderr": "", "missing": False, "timed_out": False}


def read(key: str, tool: str, stdout: str, **words: object) -> Output:
    """Return the document of a stage in which one program ran."""
    commands = {tool: {**SAID, "stdout": stdout, **words}}
    document = {"format": "rackready/host-read/v1", "commands": commands, "files": {}, "complete": True}
    return Output(key=key, node="node01", command="captured", exit_code=0, stdout=sealed(document))


def mounted(kind: str, **words: object) -> Output:
    return read("mount", "mount", f"{kind}\n", **words)


def moved(kind: str, read_: float, write: float, error: int = 0, total: int = 16 * 4 * 2**30) -> list[Output]:
    idle = {"io_bytes": 0, "bw_bytes": 0, "runtime": 0}
    done = [{"io_bytes": total, "bw_bytes": rate * 1e9, "runtime": total / rate / 1e6} for rate in (write, read_)]
    jobs = [{"error": error, "read": idle, "write": done[0]}, {"error": 0, "read": done[1], "write": idle}]
    said_ = json.dumps({"fio version": "fio-3.33", "jobs": jobs})
    return [mounted(kind), read("read", "fio", said_, exit_code=1 if error else 0)]


def filesystem(outputs: list[Output], inputs: Mapping[str, object]) -> Verdict:
    known, made = facts("node01"), gate(FILESYSTEM, inputs)
    return made.evaluate(known, made.plan(known, ["node01"])[0], {output.key: output for output in outputs})


def test_nothing_is_written_before_the_mount_is_known() -> None:
    made = gate(FILESYSTEM, RATES)
    run = made.plan(facts("node01"), ["node01"])[0]
    assert run.chained
    assert [(item.key, item.stage, "fio" in item.argv[-1]) for item in run.commands] == [
        ("mount", 0, False),
        ("read", 1, True),
    ]
    assert not made.ended(run, {"mount": mounted("lustre")})
    failed = mounted("", exit_code=1)
    damaged = replace(mounted("lustre"), stdout="{}")
    assert all(made.ended(run, {"mount": output}) for output in (mounted("ext4"), failed, damaged))
    assert made.ended(run, {})
    unsaid = gate(FILESYSTEM, {"directory": "/lustre/test"}).plan(facts("node01"), ["node01"])[0]
    assert [("fio" in item.argv[-1]) for item in unsaid.commands] == [False], "no rate to compare with"


def test_nodes_that_are_measured_together_have_files_of_their_own() -> None:
    runs = gate(FILESYSTEM, RATES).plan(facts("node01", "node02"), ["node01", "node02"])
    for node, run in zip(("node01", "node02"), runs, strict=True):
        assert f"--filename_format=rackready.{node}.$jobnum.$filenum" in run.commands[1].argv[-1]


def test_a_parallel_file_system_of_which_nothing_is_declared_is_an_error() -> None:
    for inputs in ({}, {"directory": "/lustre/test"}, {"read_gb_s": 5.0}):
        verdict = filesystem(moved("lustre", 50, 50), inputs)
        assert tells(verdict) == [
            ("filesystem-not-declared", "node01", "a folder and a rate that the site declares", "none")
        ]
        assert verdict.outcome is Outcome.ERROR


def test_a_parallel_file_system_gives_what_is_declared() -> None:
    good = filesystem(moved("lustre", 5.1, 2.1), RATES)
    assert (good.outcome, good.transport) == (Outcome.PASS, "lustre at /lustre/test")
    slow = filesystem(moved("lustre", 4.9, 2.1), RATES)
    assert tells(slow) == [("filesystem-slow", "node01", "at least 5 GB/s (declared)", "4.90 GB/s", "way=read")]
    broken = filesystem(moved("lustre", 0.1, 2.1, error=5), RATES)
    assert tells(broken) == [("filesystem-error", "node01", "no error", "errno 5")]


def test_files_that_were_moved_in_part_or_faster_than_the_network_are_no_measurement() -> None:
    part = filesystem(moved("lustre", 5.1, 2.1, total=10**6), RATES)
    assert tells(part) == [
        ("filesystem-not-whole", "node01", "68719476736 bytes (16 of 4G)", "1000000 bytes", f"way={way}")
        for way in ("write", "read")
    ]
    fast = filesystem(moved("lustre", 100_000, 2.1), RATES)
    assert [item[:2] + item[3:] for item in tells(fast)] == [
        ("filesystem-implausible", "node01", "100000.00 GB/s", "way=read")
    ]
    assert (part.outcome, fast.outcome, part.measured, fast.measured) == (Outcome.ERROR, Outcome.ERROR, [], [])


@pytest.mark.parametrize("kind", ["ext4", "xfs", "zfs", "ext", "nothing"])
def test_what_is_not_known_as_a_network_file_system_is_none(kind: str) -> None:
    verdict = filesystem([mounted(kind)], RATES)
    assert tells(verdict) == [("filesystem-not-mounted", "node01", "a network file system at /lustre/test", kind)]


def test_a_site_may_name_the_type_of_its_file_system() -> None:
    verdict = filesystem(moved("fuse.quobyte", 50, 50), {**RATES, "kinds": ["fuse.quobyte"]})
    assert (verdict.outcome, verdict.transport) == (Outcome.PASS, "fuse.quobyte at /lustre/test")
