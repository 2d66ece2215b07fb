"""A node leaves for its vendor: what is gathered, what is not and why, and kills. A real BMC service, real archives."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import signal
import stat
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackready import files
from rackready.campaign.rma import case as cases
from rackready.campaign.rma import gathering, leave, node_room, on_bmc, on_node, stored
from rackready.campaign.rma.archive import RmaArchiveError, pack
from rackready.campaign.rma.case import Case
from rackready.campaign.rma.leave import RmaRefusedError
from rackready.design.site import load_site
from rackready.drivers.process import Interrupted
from rackready.drivers.remote import Answer, Remote
from rackready.handover.returned import open_case
from rackready.ledger.part_history import events_of
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.campaign.rma_node import Faulty, by_name, inside
from tests.unit.cli.bmc_node import Node
from tests.unit.cli.conftest import call, command, no_controller
from tests.unit.sim.bmc_service import served

__all__ = ["call", "command", "no_controller"]

XID = (
    "2026-11-27T03:00:00+0000 node01 kernel: Linux version 6.8.0\n"
    "2026-11-28T01:02:03+0000 node01 kernel: NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus.\n"
)


@pytest.fixture
def faulty(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:  # noqa: ANN401
    del call
    with served(tmp_path) as service:
        yield Faulty(Node(service, tmp_path), tmp_path, monkeypatch)


def test_everything_is_in_one_archive_with_its_sums(faulty: Faulty) -> None:
    faulty.kernel(XID)
    case, document = faulty.leave()
    assert stat.S_IMODE(case.archive.stat().st_mode) == 0o600
    found = inside(case)
    sums = dict(line.split("  ")[::-1] for line in found["MANIFEST.sha256"].decode().splitlines())
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in found.items() if name != "MANIFEST.sha256"}
    assert {"SUMMARY.md", "SUMMARY.json", "bmc-parts/parts.json", "bmc-log/log.json", "history/history.json"} <= set(
        found
    )
    assert {"kernel-log/kernel.log", "nvidia-bug-report/nvidia-bug-report.log.gz", "node-parts/identity.json"} <= set(
        found
    )
    assert json.loads(found["SUMMARY.json"]) == document
    report = gzip.decompress(found["nvidia-bug-report/nvidia-bug-report.log.gz"]).decode()
    assert report == "Start of NVIDIA bug report log file\nBMC_PASSWORD=[scrubbed] kernel says hello\n"
    assert faulty.state() == ("repair", f"rma: GPU 2 lost ({case.id})")
    assert not (faulty.root / "on-node").exists(), "nothing stays on the node"
    gpus = [part for part in document["parts"] if part["kind"] == "gpu"]
    assert (len(gpus), gpus[0]["by"], bool(gpus[0]["serial"])) == (8, "BMC", True)
    with faulty.ledger() as ledger:
        assert str(open_case(ledger, "node01")).startswith(f"node01: case {case.id} - Expected: closed: back from its")


def test_an_xid_accuses_the_gpu_at_its_address(faulty: Faulty) -> None:
    faulty.kernel(XID)
    _, document = faulty.leave(without=["nvidia-bug-report"])
    (fault,) = document["faults"]
    assert (fault["code"], fault["first"], fault["times"]) == ("xid", "2026-11-28T01:02:03+00:00", 1)
    assert fault["accused"] == [{"part": "gpu1", "rule": "xid"}]
    assert fault["text"] == (
        "node01 gpu1 (0000:43:00): Xid 79 (GPU has fallen off the bus), 1 times; vendor's action RESTART_BM"
    )


def test_xids_of_every_boot_count(faulty: Faulty) -> None:
    again = "2026-11-29T04:05:06+0000 node01 kernel: Linux version 6.8.0\n" + XID.splitlines()[1].replace("28T", "29T")
    faulty.kernel(f"{XID}{again}\n2026-11-29T05:00:00+0000 node01 kernel: NVRM: Xid of another form\n")
    case, document = faulty.leave(without=["nvidia-bug-report"])
    (fault,) = document["faults"]
    assert (fault["first"], fault["last"], fault["times"]) == (
        "2026-11-28T01:02:03+00:00", "2026-11-29T01:02:03+00:00", 2,
    )  # fmt: skip
    line = "2026-11-29T05:00:00+0000 node01 kernel: NVRM: Xid of another form"
    assert document["not_read"] == [f"kernel-log/kernel-all-boots.log: an Xid of unknown form: {line}"]
    assert f"- Not read: {document['not_read'][0]}" in inside(case)["SUMMARY.md"].decode()


def test_a_log_that_is_none_is_told(faulty: Faulty) -> None:
    faulty.kernel("No journal files were found.\n")
    _, document = faulty.leave(without=["nvidia-bug-report"])
    (said,) = document["not_read"]
    assert said.startswith("kernel-log/kernel-all-boots.log, boot 1 of 1: no line of a kernel log, but 'No journal")


def test_what_is_not_gathered_is_named_and_stops_nothing(faulty: Faulty) -> None:
    (faulty.bin / "nvidia-bug-report.sh").unlink()
    _, document = faulty.leave(without=["history"])
    assert {name: row["reason"] for name, row in by_name(document).items() if not row["gathered"]} == {
        "evidence": "nothing was measured on the node",
        "history": "left out by --without",
        "ticket": "none was given (--ticket)",
        "nvidia-bug-report": "nvidia-bug-report.sh is not on the node: it comes with the driver",
        "nvdebug": "the site names none (rma.nvdebug)",
        "field-diagnostic": "the site names none (rma.field_diagnostic)",
    }
    assert document["field_diagnostic"] == {"verdict": "NOT RUN", "why": "the site names none (rma.field_diagnostic)"}


def test_of_a_dead_node_its_bmc_and_the_records_are_gathered(faulty: Faulty) -> None:
    faulty.here.down = True
    case, document = faulty.leave()
    rows = by_name(document)
    reason = "the node does not answer over SSH: node01: no SSH service"
    assert {name for name, row in rows.items() if row["reason"] == reason} == {
        "node-parts", "kernel-log", "nvidia-bug-report", "field-diagnostic",
    }  # fmt: skip
    assert all(rows[name]["gathered"] for name in ("bmc-parts", "bmc-log", "history"))
    assert faulty.here.ran == ["true"], "a dead node is asked once"
    assert f"**The node does not answer: {reason}**" in inside(case)["SUMMARY.md"].decode()


def test_a_report_that_hangs_is_kept_and_the_safe_run_follows(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMA_HANGS", "yes")
    monkeypatch.setattr(on_node, "_REPORT_S", 1.0)
    case, document = faulty.leave()
    found = inside(case)
    assert faulty.log.read_text() == "ran plain\nran yes\n"
    assert by_name(document)["nvidia-bug-report"]["note"] == (
        "the plain run did not end within 1 s; run again with --safe-mode --extra-system-data"
    )
    kept = json.loads((case.folder / "nvidia-bug-report.json").read_text())
    assert kept["facts"] == {"exit_code": 0, "safe": True}
    first = found["nvidia-bug-report/nvidia-bug-report.log.gz"]
    assert gzip.decompress(first) == b"Start of NVIDIA bug report log file\n"
    assert b"hello" in gzip.decompress(found["nvidia-bug-report/nvidia-bug-report-safe.log.gz"])


def test_more_than_the_limit_is_not_gathered(faulty: Faulty) -> None:
    faulty.site(limit_mib=1)
    faulty.kernel(XID + "2026-11-28T01:02:03+0000 node01 kernel: x\n" * 60000)
    case, document = faulty.leave()
    reason = by_name(document)["kernel-log"]["reason"]
    assert reason.endswith("Expected: at most 1 MiB Actual: 2 MiB."), reason
    assert not (case.folder / "kernel-log").exists()


def test_nothing_begins_while_jobs_stay_on_the_node(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"node01": NodeResult(Outcome.ERROR, "node01: jobs run on it - Expected: none Actual: 7 (ann, train).")}
    monkeypatch.setattr(leave, "take_out", lambda *_: kept)
    monkeypatch.setattr(leave, "in_production", lambda *_: (["node01"], {}))
    with pytest.raises(RmaRefusedError, match=r"^node01: jobs run on it - Expected: none Actual: 7 \(ann, train\)\.$"):
        faulty.leave()
    assert faulty.here.ran == []
    assert faulty.state()[0] == "quarantined"
    with faulty.ledger() as ledger:
        assert open_case(ledger, "node01") is None


def test_a_node_that_the_scheduler_does_not_know_leaves_all_the_same(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = {"node01": NodeResult(Outcome.ERROR, "the scheduler does not answer")}
    monkeypatch.setattr(leave, "take_out", lambda *_: lost)
    monkeypatch.setattr(leave, "in_production", lambda *_: ([], {}))
    case, _ = faulty.leave(without=["nvidia-bug-report"])
    assert case.archive.exists()


def test_the_ticket_is_in_the_summary_without_its_secrets(faulty: Faulty) -> None:
    ticket = faulty.root / "ticket.json"
    ticket.write_text(json.dumps({"fault": "gpu2 lost", "api_token": "tkn-12345678"}), encoding="utf-8")
    case, document = faulty.leave(ticket=ticket, without=["nvidia-bug-report"])
    assert document["ticket"] == {"fault": "gpu2 lost", "api_token": "[scrubbed]"}
    assert '"fault": "gpu2 lost"' in inside(case)["SUMMARY.md"].decode()


def test_the_same_case_gives_the_same_bytes(faulty: Faulty) -> None:
    case, _ = faulty.leave()
    first = case.archive.read_bytes()
    case.archive.unlink()
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        assert {(item.mode, item.uid, item.mtime) for item in tar} == {(0o600, 0, int(case.begun))}
    results = case.results()
    pages = {name: data.decode() for name, data in _pages(first, case).items()}
    pack(case, list(results.values()), pages)
    assert case.archive.read_bytes() == first


def _pages(data: bytes, case: Case) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        out = {}
        for name in ("SUMMARY.json", "SUMMARY.md"):
            content = tar.extractfile(f"{case.id}/{name}")
            assert content is not None
            out[name] = content.read()
        return out


def test_a_changed_file_is_refused_and_no_archive_is_left(faulty: Faulty) -> None:
    case, _ = faulty.leave()
    (case.folder / "bmc-log/log.json").write_text("{}", encoding="utf-8")
    case.archive.unlink()
    with pytest.raises(RmaArchiveError) as error:
        pack(case, list(case.results().values()), {})
    assert "as gathered Actual: " in str(error.value)
    assert str(error.value).endswith(f"Remove {case.folder}/bmc-log.json, then run again: it is gathered again.")
    assert [path.name for path in case.base.iterdir()] == [case.id], "no archive, and no part of one"


def killed(work: Callable[[], object]) -> None:
    """Run work in a process that kills itself with SIGKILL."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("point", ["within a collector", "before its result", "while packing", "before it is recorded"])
def test_after_a_kill_the_same_command_goes_on(faulty: Faulty, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    with monkeypatch.context() as patch:
        if point == "within a collector":
            patch.setattr(on_node, "copy_all", die)
        elif point == "before its result":
            patch.setattr(cases, "files", _Dies(3))
        elif point == "while packing":
            patch.setattr("rackready.campaign.rma.archive._entry", die)
        else:
            patch.setattr(leave, "_record", die)
        killed(faulty.leave)
    before = faulty.log.read_text().count("ran")
    assert not list((faulty.root / ".rackready/sim/rma").glob("node01-*.tar.gz")) or point == "before it is recorded"
    faulty.here.ran.clear()
    case, document = faulty.leave()
    ran = faulty.log.read_text().count("ran") - before
    assert ran == (0 if point in {"while packing", "before it is recorded"} else 1)
    assert by_name(document)["bmc-parts"]["gathered"]
    assert sorted(path.name for path in case.base.iterdir()) == [case.id, f"{case.id}.tar.gz"]
    assert not list(case.folder.glob(".*")), "nothing unfinished is left"
    with faulty.ledger() as ledger:
        sent = [(event.kind, event.serial) for event in events_of(ledger, node="node01")]
    assert len(sent) == len(set(sent)) > 8


class _Dies:
    """Kills before the n-th result is written."""

    def __init__(self, count: int) -> None:
        self.left = count

    def replace(self, path: Path, data: bytes) -> None:
        self.left -= 1
        if self.left == 0:
            die()
        files.replace(path, data)


def test_a_collector_that_gathered_nothing_is_tried_again(faulty: Faulty) -> None:
    faulty.here.down = True
    first, _ = faulty.leave()
    faulty.here.down = False
    second, document = faulty.leave()
    assert first.id == second.id
    assert by_name(document)["kernel-log"]["gathered"]
    assert faulty.log.read_text() == "ran plain\n"


def test_every_collector_is_named_and_none_is_endless(faulty: Faulty) -> None:
    found = leave.collectors(load_site("sim", root=faulty.root))
    assert [item.name for item in found] == [
        stored.EVIDENCE, stored.HISTORY, stored.TICKET, on_bmc.PARTS, on_bmc.LOG, on_node.PARTS, on_node.KERNEL,
        on_node.BUG_REPORT, "nvdebug", "field-diagnostic",
    ]  # fmt: skip
    assert all(0 < item.limit_s < 3 * 24 * 3600 for item in found)


def test_a_retired_node_is_refused(faulty: Faulty) -> None:
    with faulty.ledger() as ledger:
        ledger.set_state("node01", NodeState.RETIRED, "sold")
    with pytest.raises(RmaRefusedError) as error:
        faulty.leave()
    assert str(error.value) == (
        "node01 - Expected: a node that comes back Actual: retired (sold). "
        "Run `rackready repair node01 --reason '...'` first, if it is to come back."
    )


def test_a_case_that_jobs_kept_from_beginning_hides_no_fault(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty.kernel(XID)
    with monkeypatch.context() as patch:
        patch.setattr(leave, "take_out", lambda *_: {"node01": NodeResult(Outcome.ERROR, "node01: jobs run on it")})
        patch.setattr(leave, "in_production", lambda *_: (["node01"], {}))
        with pytest.raises(RmaRefusedError):
            faulty.leave()
    _, document = faulty.leave(without=["nvidia-bug-report"])
    assert [item["place"] for item in document["accused"]] == ["gpu1"]


@pytest.mark.parametrize("error", [Interrupted(), RackreadyError("the scheduler went away")])
def test_nothing_begins_when_the_wait_for_jobs_is_cut(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def cut(*_: object) -> None:
        raise error

    monkeypatch.setattr(leave, "take_out", cut)
    with pytest.raises(type(error)):
        faulty.leave()
    with faulty.ledger() as ledger:
        assert open_case(ledger, "node01") is None
    assert faulty.here.ran == []


def test_only_a_part_of_the_accused_kind_is_accused(faulty: Faulty) -> None:
    parts = [{"kind": kind, "place": "gpu1", "serial": kind, "number": ""} for kind in ("pcie device", "gpu")]
    accused = [{"kind": "gpu", "place": "gpu1", "by_finding": ["xid"]}]
    with faulty.ledger() as ledger:
        case = Case.begin(ledger, EnvPaths(faulty.root, "sim"), "node01", "x")
        leave._record(ledger, case, {"parts": parts, "accused": accused})
        found = [(event.event, event.kind) for event in events_of(ledger, node="node01")]
    assert found == [("sent", "pcie device"), ("sent", "gpu"), ("accused", "gpu")]


def test_a_known_password_is_not_in_the_summary(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "_revealed", lambda _: "Swordfish-99")
    (faulty.bin / "nvidia-bug-report.sh").write_text("#!/bin/sh\necho Swordfish-99 >&2; exit 3\n", encoding="utf-8")
    faulty.program("dmidecode", "#!/bin/sh\necho cannot use Swordfish-99; exit 1\n")
    case, document = faulty.leave()
    assert "cannot use [scrubbed]" in by_name(document)["node-parts"]["note"]
    assert not any(b"Swordfish-99" in data for data in inside(case).values())


def test_a_folder_that_somebody_else_made_is_not_used(faulty: Faulty) -> None:
    theirs, place = faulty.root / "theirs", faulty.root / "on-node"
    (theirs / "kept").mkdir(parents=True)
    place.symlink_to(theirs)
    seen = []
    faulty.kernel(XID)
    with connected_to(faulty) as desk, node_room.room(desk) as path:
        seen = [place.is_symlink(), stat.S_IMODE(place.stat().st_mode), Path(path).is_dir()]
    assert seen == [False, 0o700, True]
    assert [item.name for item in theirs.iterdir()] == ["kept"]
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    with connected_to(faulty) as desk, node_room.room(desk):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700


class Far(Remote):
    """A node over SSH that notes which commands run to their end though the operator stops."""

    def __init__(self) -> None:
        super().__init__({})
        self.cleaned: list[str] = []

    def run(self, node: str, argv: Sequence[str], **options: Any) -> Answer:  # type: ignore[override]
        if options.get("cleaning"):
            self.cleaned.append(f"{node}: {' '.join(argv)}")
        return Answer(0, "", "", 0.0)


def test_the_folder_on_the_node_is_removed_also_when_the_operator_stops(faulty: Faulty) -> None:
    far = Far()
    with connected_to(faulty) as desk, pytest.raises(Interrupted), node_room.room(replace(desk, runner=far)):
        raise Interrupted
    assert far.cleaned == [f"node01: rm -rf {faulty.root}/on-node"]


def test_a_ticket_that_cannot_be_read_ends_nothing(faulty: Faulty) -> None:
    ticket = faulty.root / "ticket.json"
    ticket.write_text("[" * 100_000, encoding="utf-8")
    case, document = faulty.leave(ticket=ticket, without=["nvidia-bug-report"])
    assert "recursion" in by_name(document)["ticket"]["reason"]
    assert case.archive.exists()


@contextmanager
def connected_to(faulty: Faulty) -> Iterator[gathering.Desk]:
    ctx, paths = PhaseContext("sim", faulty.root, "rma-1"), EnvPaths(faulty.root, "sim")
    site = load_site("sim", root=faulty.root)
    with faulty.ledger() as ledger:
        case = Case.begin(ledger, paths, "node01", "x")
        with leave.connected(ctx, site, paths, ledger, case) as desk:
            yield desk
