"""An output that says when it was made says what the manifest says: an old report does not become new by its stamp."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackready.gates.records.captured import CaptureRefusedError
from rackready.gates.records.imported_times import printed_times
from rackready.model.outcome import Outcome
from tests.gates.support import text
from tests.gates.test_imported import Carried

STAMP = "2026-11-22T09:00:00+00:00"
"""When the manifest says that it was captured."""
STEP = "Correct the capture time in the manifest, or the wrong clock, and import it again."
ECC, DISKS, CLOCK, EVENTS, XID = (
    "node/gpu/sanity/ecc",
    "node/host/performance/disk-bandwidth",
    "node/host/sanity/clock",
    "bmc/log/sanity/events",
    "node/gpu/sanity/xid",
)
NO_PRINT: dict[str, Any] = {"fingerprint": None, "fingerprint_after": None}
SMI = text("smi/dgx_h100_healthy.xml")


def smi(stamp: str) -> str:
    before, _, rest = SMI.partition("<timestamp>")
    return f"{before}<timestamp>{stamp}</timestamp>{rest.partition('</timestamp>')[2]}"


def readings(**stdout: str) -> str:
    """A document of what tools said on a host."""
    commands = {key: {"argv": [key], "stdout": said} for key, said in stdout.items()}
    return json.dumps({"format": "rackready/host-read/v1", "commands": commands, "files": {}})


def gathered(kind: str, clock: str) -> str:
    at = "/redfish/v1/x"
    documents = {at: {"@odata.id": at, "@odata.type": f"#{kind}.v1_4_0.{kind}", "DateTime": clock}}
    return json.dumps({"format": "rackready/redfish/v1", "trails": {}, "documents": documents, "unread": {}})


def journal(*stamps: str) -> str:
    return "".join(f"{stamp} node01 kernel: mlx5_core 0000:18:00.0: Port module event\n" for stamp in stamps)


def under_load(stamp: str) -> str:
    return json.dumps({"format": "rackready/under-load/v1", "samples": [], "last": smi(stamp)})


def brought(tmp_path: Path, gate: str, key: str, said: str, **more: Any) -> Carried:
    tmp_path.mkdir(exist_ok=True)
    found = Carried(tmp_path)
    found.put("said.txt", said)
    found.outputs = [found.output(gate=gate, key=key, file="said.txt", **more)]
    return found


def refused(found: Carried) -> list[str]:
    """What of the refusal is about when outputs were made."""
    try:
        found.bring()
    except CaptureRefusedError as error:
        return [str(item) for item in error.messages if "made at the time in the manifest" in str(item)]
    return []


OLD = [
    (
        ECC,
        "smi",
        smi("Fri Oct 30 08:15:00 2026"),
        "the timestamp of nvidia-smi",
        "2026-10-30T08:15:00, in any time zone",
    ),
    (
        ECC,
        "smi",
        smi("Sat Nov 21 20:07:00 2026"),
        "the timestamp of nvidia-smi",
        "2026-11-21T20:07:00, in any time zone",
    ),
    (
        ECC,
        "smi",
        smi("Sun Nov 22 06:52:30 2026"),
        "the timestamp of nvidia-smi",
        "2026-11-22T06:52:30, in any time zone",
    ),
    (
        ECC,
        "smi",
        under_load("Fri Oct 30 08:15:00 2026"),
        "the timestamp of nvidia-smi",
        "2026-10-30T08:15:00, in any time zone",
    ),
    (
        ECC,
        "smi",
        "Fri Oct 30 08:15:00 2026       \n+----+\n",
        "the first line of nvidia-smi",
        "2026-10-30T08:15:00, in any time zone",
    ),
    (
        ECC,
        "smi",
        "Timestamp                                 : Fri Oct 30 08:15:00 2026\n",
        "the timestamp of nvidia-smi",
        "2026-10-30T08:15:00, in any time zone",
    ),
    (
        DISKS,
        "read",
        readings(fio='{"fio version": "fio-3.33", "timestamp": 1793347200}'),
        "the timestamp of fio",
        "2026-10-30T08:00:00+00:00",
    ),
    (
        DISKS,
        "read",
        readings(smartctl='{"smartctl": {}, "local_time": {"time_t": 1793347200}}'),
        "the local time of smartctl",
        "2026-10-30T08:00:00+00:00",
    ),
    (
        CLOCK,
        "read",
        readings(chronyc="C0000202,192.0.2.2,3,1793347200.25,0,0,0,0,0,0,0,0,64.4,Normal\n"),
        "the reference time of chronyd",
        "2026-10-30T08:00:00.250000+00:00",
    ),
    (
        EVENTS,
        "redfish",
        gathered("Manager", "2026-10-30T08:00:00+00:00"),
        "the clock of the BMC",
        "2026-10-30T08:00:00+00:00",
    ),
    (
        EVENTS,
        "redfish",
        gathered("LogService", "2026-10-30T08:00:00"),
        "the clock of the BMC",
        "2026-10-30T08:00:00+00:00",
    ),
    (
        XID,
        "kernel",
        journal("2026-11-22T08:00:00+0000", "2026-11-22T11:30:00+0000"),
        "the newest line of the kernel's log",
        "2026-11-22T11:30:00+00:00",
    ),
    (
        "node/gpu/performance/nccl-all-reduce",
        "launch0",
        '{"version": 3, "start_time": "2026-10-30T08:00:00Z"}',
        "the start time of nccl-tests",
        "2026-10-30T08:00:00+00:00",
    ),
    (
        "node/gpu/stress/hpl",
        "hpl",
        "HPL_pdgesv() start time Fri Oct 30 08:15:00 2026\n",
        "the start time of HPL",
        "2026-10-30T08:15:00, in any time zone",
    ),
]


@pytest.mark.parametrize(
    ("gate", "key", "said", "what", "when"), OLD, ids=lambda value: str(value)[:30].replace("\n", " ")
)
def test_an_output_that_says_that_it_was_made_at_another_time_is_refused_with_both_times(
    tmp_path: Path, gate: str, key: str, said: str, what: str, when: str
) -> None:
    expected = f"made at the time in the manifest, {STAMP} for 30 s"
    assert refused(brought(tmp_path, gate, key, said, seconds=30.0)) == [
        f"node01: {gate} {key}, said.txt - Expected: {expected} Actual: {what} is {when}. {STEP}"
    ]


def test_how_long_it_took_may_be_left_out(tmp_path: Path) -> None:
    old = brought(tmp_path, ECC, "smi", smi("Fri Oct 30 08:15:00 2026"))
    assert [problem.split(" Actual: ")[0] for problem in refused(old)] == [
        f"node01: {ECC} smi, said.txt - Expected: made at the time in the manifest, {STAMP}"
    ]


@pytest.mark.parametrize(
    "said",
    [
        smi("Sun Nov 22 09:00:12 2026"),
        smi("Sun Nov 22 08:56:00 2026"),
        smi("Sun Nov 22 10:00:12 2026"),
        smi("Sun Nov 22 14:45:12 2026"),
        smi("Sat Nov 21 22:00:12 2026"),
        smi("Sun Nob 22 09:00:12 2026"),
        readings(fio='{"fio version": "fio-3.33", "timestamp": 1795338020}', lsblk='{"blockdevices": []}'),
        readings(chronyc="C0000202,192.0.2.2,3,1795335000.25,0,0,0,0,0,0,0,0,64.4,Normal\n"),
        readings(chronyc="00000000,,0,0.000000000,0,0,0,0,0,0,0,0,0.0,Not synchronised\n"),
        gathered("Manager", "2026-11-22T01:00:00+00:00"),
        gathered("Drive", "2020-01-01T00:00:00+00:00"),
        journal("2026-10-30T08:00:00+0000"),
        '{"version": 3, "start_time": "2026-11-22T10:00:07"}',
    ],
    ids=[
        "now",
        "a clock that is slow",
        "an hour east",
        "Nepal",
        "Hawaii",
        "no date",
        "fio",
        "set before",
        "never set",
        "a bmc",
        "no clock",
        "a quiet log",
        "no zone",
    ],
)
def test_what_agrees_with_the_manifest_or_says_nothing_is_taken(tmp_path: Path, said: str) -> None:
    assert refused(brought(tmp_path, ECC, "smi", said, seconds=30.0)) == []


@pytest.mark.parametrize(
    "said",
    [
        "",
        "{",
        "[]",
        '{"format": []}',
        '{"format": "rackready/host-read/v1", "commands": [1]}',
        "null",
        '{"start_time": 5}',
        '{"fio version": 1, "timestamp": 1e300}',
    ],
)
def test_what_cannot_be_read_says_no_time(said: str) -> None:
    assert printed_times(said) == []


def test_an_old_report_that_is_stamped_now_is_refused_whole_and_one_of_then_is_judged(tmp_path: Path) -> None:
    """Only the manifest differs between these imports. A capture with one refused output is refused completely."""
    report = smi("Sun Nov 22 06:52:30 2026")
    old = brought(tmp_path / "old", ECC, "smi", report, time="2026-11-22T11:59:50+00:00", seconds=0.5, **NO_PRINT)
    with pytest.raises(CaptureRefusedError) as error:
        old.bring()
    assert len(error.value.messages) == 1
    assert old.store.records() == []
    then = brought(tmp_path / "then", ECC, "smi", report, time="2026-11-22T06:52:29+00:00", seconds=0.5, **NO_PRINT)
    assert [item.verdict.outcome for item in then.bring()] == [Outcome.PASS]
