"""Several processes write at once and one is killed: every record is whole or absent, on either database."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from rackready.evidence.store import EvidenceStore
from rackready.ledger.store import Ledger
from rackready.paths import Database

ROOT = Path(__file__).resolve().parents[3]
BATCH, BATCHES = 20, 50

WRITER = """
import sys
from pathlib import Path
from rackready.evidence.store import EvidenceStore
from rackready.ledger.store import Ledger
from rackready.paths import EnvPaths
from tests.unit.evidence.test_store import record
root, who, batches, size = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
ledger = Ledger.open(EnvPaths(root, "lab").database)
store = EvidenceStore.open(ledger, root / "raw")
for number in range(batches):
    store.append(*(record(f"{who}-{number}", nodes=[f"{who}-{number}", "partner"]) for _ in range(size)))
    ledger.event("c", who, "p", str(number))
    print(number, flush=True)
"""


def begin(root: Path, who: str, batches: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root), who, str(batches), str(BATCH)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_nothing_is_lost_or_half_written(database: Database, tmp_path: Path) -> None:
    ledger = Ledger.open(database)
    writers = [begin(tmp_path, who, BATCHES) for who in ("a", "b")]
    victim = begin(tmp_path, "victim", 100_000)
    assert victim.stdout is not None
    for line in victim.stdout:
        if int(line) == 4:
            break
    victim.kill()
    committed = [0, 1, 2, 3, 4, *(int(line) for line in victim.stdout if line.endswith("\n"))]
    seen: list[int] = []
    while any(writer.poll() is None for writer in writers):  # as the display of a campaign does
        seen += [event.id for event in ledger.events("c", max(seen, default=0))]
    assert [writer.wait() for writer in writers] == [0, 0]
    seen += [event.id for event in ledger.events("c", max(seen, default=0))]

    found = Counter(record.target for record in EvidenceStore.read_only(ledger, tmp_path / "raw").records())
    assert set(found.values()) == {BATCH}, "each batch whole or not at all"
    assert {f"{who}-{number}" for who in ("a", "b") for number in range(BATCHES)} <= set(found), (
        "nothing that was committed is lost"
    )
    of_victim = {target for target in found if target.startswith("victim")}
    assert of_victim - {f"victim-{number}" for number in committed} <= {f"victim-{len(committed)}"}, (
        "beside those at most the one that was under way"
    )
    assert {f"victim-{number}" for number in committed} <= of_victim
    assert len(EvidenceStore.read_only(ledger, tmp_path / "raw").records(node="partner")) == sum(found.values()), (
        "each with its nodes"
    )
    assert seen == [event.id for event in ledger.progress("c")], "whoever follows the progress misses no line"
