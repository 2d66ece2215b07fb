"""Imported outputs: same judgement, recorded importer; unproven ones satisfy nothing, hidden fails are refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tarfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rackready.evidence.store import EvidenceStore, new_id
from rackready.gates.records.captured import CaptureRefusedError, read
from rackready.gates.records.imported import Import, Imported, check_by
from rackready.handover.policy import Moment, decide
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome, Verdict
from rackready.model.problems import RackreadyError
from rackready.model.profile import GateSetEntry
from rackready.paths import EnvPaths
from tests.gates.stage import fingerprint_of, site_with
from tests.gates.support import text

INVENTORY = "node/gpu/sanity/inventory"
PAIR = "pair/fabric/performance/ib-write-bw"
CORRECT = "Correct the manifest."
NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
REDUCE = "node/gpu/performance/nccl-all-reduce"
SITE = site_with(4)
ROOT = Path(__file__).resolve().parents[2]


class Carried:
    """A folder that somebody brought, with one healthy inventory of node01."""

    def __init__(self, tmp_path: Path, *, made: bool = False) -> None:
        """``made``: the folder lies there already."""
        self.root = tmp_path
        self.folder = tmp_path / "captured"
        self.folder.mkdir(exist_ok=made)
        self.paths = EnvPaths(tmp_path, "sim")
        self.ledger = Ledger.open(self.paths.database)
        self.store = EvidenceStore.open(self.ledger, self.paths.raw)
        self.outputs = [self.output()]
        self.put("inventory.json", text("nvml/dgx_h100_healthy.json"))
        self.prints("print.json")

    def output(self, **changed: Any) -> dict[str, Any]:
        one = {
            "node": "node01",
            "gate": INVENTORY,
            "key": "inventory",
            "exit_code": 0,
            "file": "inventory.json",
            "time": "2026-11-22T09:00:00+00:00",
        }
        return {**one, "fingerprint": "print.json", "fingerprint_after": "print.json", **changed}

    def put(self, name: str, content: str) -> None:
        (self.folder / name).write_text(content, encoding="utf-8")

    def prints(self, name: str, node: str = "node01", **changed: Any) -> None:
        """What the node is; node01's GPUs are those of the healthy inventory."""
        gpus = (
            {"gpus": [{"index": index, "id": f"165000000000{index}", "vbios": "96.00"} for index in range(8)]}
            if node == "node01"
            else {}
        )
        self.put(name, fingerprint_of(node, (), **{"chassis_serial": f"S{int(node[-2:])}", **gpus, **changed}).stdout)

    def manifest(self, **changed: Any) -> None:
        self.put(
            "manifest.json",
            json.dumps({"schema": "rackready/captured/v1", "by": "field team", "outputs": self.outputs, **changed}),
        )

    def bring(self, at: datetime = NOW, source: Path | None = None, addresses: tuple[str, ...] = ()) -> list[Imported]:
        if not (self.folder / "manifest.json").exists():
            self.manifest()
        return Import(
            SITE, self.store, self.ledger, read(source or self.folder), "import-1", "ops", at, addresses=addresses
        ).run()

    def refused(self, **more: Any) -> list[str]:
        with pytest.raises(CaptureRefusedError) as refusal:
            self.bring(**more)
        assert self.store.records() == [], "nothing was imported"
        return [str(item) for item in refusal.value.messages]

    def decision(self, *, boot_id: str = "b1", after_boot: bool = False) -> tuple[str, ...]:
        """What handover says of it, on a node that is as the fingerprint says."""
        found = self.store.valid("node01", self.desired())
        entry = GateSetEntry(id=INVENTORY, after_boot=after_boot)
        return decide(
            "node01", [entry], found, {}, Moment(NOW.timestamp(), boot_id, self.ledger.last_change("node01").at)
        ).refusals

    def desired(self) -> str:
        from rackready.design.facts import desired_digest  # noqa: PLC0415

        return desired_digest(SITE, "node01")


@pytest.fixture
def carried(tmp_path: Path) -> Carried:
    return Carried(tmp_path)


def test_a_captured_output_is_judged_and_recorded_with_who_brought_it(carried: Carried) -> None:
    (found,) = carried.bring()
    assert (found.node, found.gate, found.verdict.outcome, found.lacks) == ("node01", INVENTORY, Outcome.PASS, ())
    (record,) = carried.store.records(target="node01")
    brought: Any = record.inputs["imported"]
    assert (brought["by"], brought["captured_by"], brought["at"]) == ("ops", "field team", "2026-11-22T12:00:00+00:00")
    assert record.started == datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
    assert carried.store.raw(record.raw[0].stdout_sha256) == text("nvml/dgx_h100_healthy.json")
    assert carried.decision() == carried.decision(after_boot=True) == ()


def test_the_same_code_judges(carried: Carried) -> None:
    carried.put("inventory.json", text("nvml/dgx_h100_gpu2_link4_inactive.json"))
    (found,) = carried.bring()
    assert found.verdict.outcome is Outcome.FAIL
    assert str(found.verdict.findings[0]).startswith(
        "node01 gpu2: NVLink down - Expected: 18 links active Actual: 17 (link 4 inactive)."
    )


@pytest.mark.parametrize(
    ("content", "code"),
    [("", 0), (text("nvml/dgx_h100_healthy.json")[:400], 0), (text("nvml/dgx_h100_healthy.json"), 9)],
)
def test_what_is_empty_cut_off_or_contradicts_itself_is_an_error(carried: Carried, content: str, code: int) -> None:
    carried.put("inventory.json", content)
    carried.outputs[0]["exit_code"] = code
    assert [found.verdict.outcome for found in carried.bring()] == [Outcome.ERROR]


# what it proves ----------------------------------------------------------------------------------------------------


def test_without_a_fingerprint_it_satisfies_nothing_and_says_so(carried: Carried) -> None:
    carried.outputs[0]["fingerprint"] = None
    (found,) = carried.bring()
    assert found.verdict.outcome is Outcome.PASS
    assert found.lacks == (
        "no fingerprint with its chassis serial and GPUs proves that it is this node: it satisfies no gate",
    )
    assert "no such evidence" in carried.decision()[0]


def test_a_fingerprint_without_a_chassis_serial_proves_no_host(carried: Carried) -> None:
    carried.prints("print.json", chassis_serial=None)
    (found,) = carried.bring()
    assert found.lacks[0].startswith("no fingerprint with its chassis serial")
    assert "no such evidence" in carried.decision()[0]


def test_what_was_captured_where_no_gpu_answers_is_taken_and_proves_nothing(carried: Carried) -> None:
    """That the driver does not answer is what the capture is to show."""
    carried.prints("print.json", gpu_error="Driver/library version mismatch", gpus=[], driver=None)
    carried.put(
        "inventory.json",
        json.dumps({"format": "rackready/nvml-inventory/v2", "error": "NVML: Driver/library version mismatch"}),
    )
    carried.outputs[0]["exit_code"] = 1
    (found,) = carried.bring()
    assert found.verdict.outcome is not Outcome.PASS
    assert found.lacks[0].startswith("no fingerprint with its chassis serial and GPUs")
    assert "no such evidence" in carried.decision()[0]


def test_another_machines_fingerprint_is_refused_where_no_gpu_answers_too(carried: Carried) -> None:
    carried.prints("print.json", chassis_serial="S77", gpu_error="no driver", gpus=[], driver=None)
    assert [problem.partition(" It is")[0] for problem in carried.refused()] == [
        "node01: print.json - Expected: serial S1 Actual: system S77."
    ]


@pytest.mark.parametrize("after", [{"boot_id": "b2"}, {"driver": "570.1"}, None])
def test_without_an_equal_fingerprint_after_it_no_boot_is_proven(
    carried: Carried, after: dict[str, str] | None
) -> None:
    carried.outputs[0]["fingerprint_after"] = None if after is None else "after.json"
    carried.prints("after.json", **(after or {}))
    (found,) = carried.bring()
    assert found.lacks == ("no equal fingerprint afterwards proves the boot: it satisfies no gate with after_boot",)
    assert carried.decision() == ()
    assert carried.decision(after_boot=True)[0].startswith(
        f"node01: {INVENTORY} - Expected: measured since the node's last boot Actual: measured before it."
    )


def test_another_machines_fingerprint_is_refused(carried: Carried) -> None:
    carried.prints("print.json", chassis_serial="S77")
    step = "It is from another machine: import outputs of this node, or correct its serial in the site file."
    assert carried.refused() == [f"node01: print.json - Expected: serial S1 Actual: system S77. {step}"]


def test_what_was_captured_before_the_nodes_last_change_does_not_count(
    carried: Carried, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", NOW.timestamp)
        carried.ledger.change_begins("node01", "install")
    carried.outputs[0]["time"] = "2026-11-21T01:00:00+00:00"
    carried.bring()
    assert "Expected: measured after the node's last change Actual: measured before it." in carried.decision()[0]


# what is refused ---------------------------------------------------------------------------------------------------


def test_an_import_does_not_hide_a_fail_on_record(carried: Carried, tmp_path: Path) -> None:
    carried.put("inventory.json", text("nvml/dgx_h100_gpu2_link4_inactive.json"))
    carried.bring()
    carried.put("inventory.json", text("nvml/dgx_h100_healthy.json"))
    carried.outputs[0]["time"] = "2026-11-22T10:00:00+00:00"
    carried.manifest()
    with pytest.raises(CaptureRefusedError) as refusal:
        carried.bring()
    assert str(refusal.value) == (
        f"{carried.folder}: 1 problem; nothing was imported.\n"
        f"  node01: {INVENTORY} - Expected: no fail on record Actual: fail, measured 2026-11-22 09:00 UTC. "
        "Repair it, then `rackready repair node01 --reason '...'`."
    )
    assert tmp_path.exists()


def test_a_fail_on_record_stands_against_an_import_behind_a_newer_pass_too(carried: Carried) -> None:
    carried.put("inventory.json", text("nvml/dgx_h100_gpu2_link4_inactive.json"))
    carried.bring()
    [failed] = carried.store.records(target="node01")
    later = {
        "id": new_id(),
        "started": failed.started + timedelta(minutes=5),
        "finished": failed.finished + timedelta(minutes=5),
    }
    carried.store.append(failed.model_copy(update={**later, "verdict": Verdict(outcome=Outcome.PASS)}))
    carried.put("inventory.json", text("nvml/dgx_h100_healthy.json"))
    carried.outputs[0]["time"] = "2026-11-22T10:00:00+00:00"
    carried.manifest()
    with pytest.raises(CaptureRefusedError) as refusal:
        carried.bring()
    assert [str(item) for item in refusal.value.messages] == [
        (
            f"node01: {INVENTORY} - Expected: no fail on record Actual: fail, measured 2026-11-22 09:00 UTC. "
            "Repair it, then `rackready repair node01 --reason '...'`."
        )
    ]


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.PASS])
def test_a_record_that_was_written_ahead_of_time_does_not_refuse_an_import_after_a_repair(
    carried: Carried, outcome: Outcome
) -> None:
    carried.bring()
    [record] = carried.store.records(target="node01")
    later = datetime.now(UTC) + timedelta(hours=8)
    ahead = {"id": new_id(), "started": later, "finished": later, "verdict": Verdict(outcome=outcome)}
    carried.store.append(record.model_copy(update=ahead))
    carried.outputs[0]["time"] = "2026-11-22T10:00:00+00:00"
    carried.manifest()
    with pytest.raises(CaptureRefusedError):
        carried.bring()
    carried.ledger.done(carried.ledger.change_begins("node01", "repair"))
    assert [found.verdict.outcome for found in carried.bring()] == [Outcome.PASS]


def test_what_is_older_than_the_record_is_refused(carried: Carried) -> None:
    carried.bring()
    carried.outputs[0]["time"] = "2026-11-22T08:00:00+00:00"
    carried.manifest()
    with pytest.raises(CaptureRefusedError) as refusal:
        carried.bring()
    step = "Measure again: older outputs do not count."
    assert [str(item) for item in refusal.value.messages] == [
        (
            f"node01: {INVENTORY} - Expected: newer than the last record (2026-11-22 09:00 UTC) "
            f"Actual: 2026-11-22 08:00 UTC. {step}"
        )
    ]


def test_every_problem_is_said_at_once(carried: Carried) -> None:
    carried.outputs += [
        carried.output(key="inventry"),
        carried.output(key="inventory"),
        carried.output(gate="node/gpu/sanity/nothing"),
        carried.output(node="node02", run="node09"),
    ]
    carried.prints("print.json")
    carried.outputs[-1] |= {"fingerprint": None, "fingerprint_after": None}
    found = carried.refused()
    assert (
        found[0] == f"{INVENTORY}, run node01: inventry on node01 - Expected: one of inventory on node01 "
        f"Actual: none of them. {CORRECT}"
    )
    assert (
        found[1]
        == f"{INVENTORY}, run node01: inventory - Expected: one output of each command Actual: another before it. "
        f"{CORRECT}"
    )
    assert found[2] == f"{INVENTORY}: run node09 - Expected: one of node01, node02 Actual: none of them. {CORRECT}"
    assert (
        found[3]
        == "gate node/gpu/sanity/nothing - Expected: an id that `rackready gate list` shows Actual: none of them. "
        f"{CORRECT}"
    )


def test_a_node_that_the_site_has_not_and_a_time_to_come_are_refused(carried: Carried) -> None:
    carried.outputs = [
        carried.output(node="node77", fingerprint=None, fingerprint_after=None),
        carried.output(time="2026-11-23T09:00:00+00:00"),
    ]
    assert carried.refused() == [
        f"node node77 - Expected: a node of the site Actual: none of that name. {CORRECT}",
        (
            f"node01: {INVENTORY} inventory - Expected: captured before now Actual: 2026-11-23T09:00:00+00:00. "
            "Correct the clock that is wrong, or the manifest."
        ),
    ]


def test_what_ended_after_now_is_refused(carried: Carried) -> None:
    carried.outputs = [carried.output(seconds=1e308)]
    assert carried.refused() == [
        (
            f"node01: {INVENTORY} inventory - Expected: captured before now "
            "Actual: 2026-11-22T09:00:00+00:00, which took 1e+308 s. "
            "Correct the clock that is wrong, or the manifest."
        )
    ]


def test_a_fingerprint_of_another_shape_is_refused_with_its_place(carried: Carried) -> None:
    carried.prints("print.json", nics="x")
    said = (
        "node01: print.json - Expected: what ondevice/fingerprint.py prints "
        "Actual: nics: not a list. Import the output of that script on node01."
    )
    assert carried.refused() == [said]


@pytest.mark.parametrize("error", ["no python", None])
def test_a_fingerprint_that_says_an_error_is_none_whatever_else_it_says(carried: Carried, error: str | None) -> None:
    carried.prints("print.json", error=error, nics=[1])
    said = (
        "node01: print.json - Expected: what ondevice/fingerprint.py prints "
        f"Actual: an error in its place: {error}. Import the output of that script on node01."
    )
    assert carried.refused() == [said]


def test_a_tar_archive_of_the_folder_is_read_without_unpacking(carried: Carried, tmp_path: Path) -> None:
    carried.manifest()
    archive = tmp_path / "node01.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(carried.folder, arcname="captured")
    (found,) = carried.bring(source=archive)
    assert (found.verdict.outcome, found.lacks) == (Outcome.PASS, ())


# everything, or nothing --------------------------------------------------------------------------------------------


def test_a_manifest_is_imported_once(carried: Carried) -> None:
    carried.bring()
    with pytest.raises(CaptureRefusedError) as refusal:
        carried.bring()
    assert [str(item) for item in refusal.value.messages] == [
        (
            "manifest - Expected: one that was not imported yet Actual: imported at 2026-11-22T12:00:00+00:00 by "
            "ops, as import-1. "
            "Its records still count; after a repair, import new outputs."
        )
    ]
    assert len(carried.store.records()) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from rackready.evidence import store
from rackready.gates.records import imported
from tests.gates.test_imported import Carried
where, name = {"judging": (imported, "evaluated"), "writing": (store, "_row")}[sys.argv[2]]
real, calls = getattr(where, name), []
def second(*arguments):
    calls.append(name)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
setattr(where, name, second)
Carried(Path(sys.argv[1]), made=True).bring()
"""


@pytest.mark.parametrize("where", ["judging", "writing"])
def test_an_import_that_is_killed_in_the_middle_leaves_nothing_and_is_made_again(
    carried: Carried, tmp_path: Path, where: str
) -> None:
    carried.put("reduce.txt", text("nccl/dgx_h100_8_healthy.txt"))
    carried.outputs.append(carried.output(gate=REDUCE, key="launch0", file="reduce.txt"))
    carried.manifest()
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), where],
        cwd=ROOT,
        check=False,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (carried.store.records(), carried.ledger.campaigns()) == ([], [])
    assert [found.gate for found in carried.bring()] == [INVENTORY, REDUCE]
    [row] = carried.ledger.campaigns()
    assert (row["id"], row["kind"], row["status"], row["nodes"]) == ("import-1", "import", "finished", ["node01"])


def test_nobody_imports_nothing() -> None:
    with pytest.raises(RackreadyError, match="--by ' ' - Expected: a person or a team"):
        check_by(" ")
    assert check_by("ops ") == "ops"
