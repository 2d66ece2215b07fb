"""Outputs that gates share are read and parsed once, and each node is still judged by its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.evidence.error import EvidenceError
from rackready.evidence.report import write
from rackready.evidence.store import EvidenceStore
from rackready.format_error import FormatError
from rackready.gates.formats import smi_xml
from rackready.gates.records import sanitize
from rackready.gates.records.rejudge import Rejudge
from rackready.model.outcome import Metric, Outcome, Verdict
from tests.gates.phase_rack import Rack, play
from tests.gates.support import text

REPORT = text("smi/dgx_h100_healthy.xml")


def test_gates_get_the_same_report_and_other_texts_another() -> None:
    first = smi_xml.parse(REPORT)
    assert smi_xml.parse("".join(REPORT)) is first
    pci = first.gpus[3].pci
    other = smi_xml.parse(REPORT.replace(pci, "00000000:EE:00.0"))
    assert [gpu.pci for gpu in other.gpus].count("00000000:EE:00.0") == 1
    assert [gpu.pci for gpu in smi_xml.parse(REPORT).gpus] == [gpu.pci for gpu in first.gpus]


def test_each_node_of_many_keeps_its_own_report() -> None:
    """More nodes than reports are kept, each read several times, in turns."""
    nodes = range(2 * smi_xml._KEPT)
    for _ in range(3):
        for node in nodes:
            found = smi_xml.parse(REPORT.replace("<driver_version>", f"<driver_version>{node}-"))
            assert found.driver.startswith(f"{node}-")


def test_a_report_that_cannot_be_read_is_an_error_each_time() -> None:
    for _ in range(2):
        with pytest.raises(FormatError, match="cut off"):
            smi_xml.parse(REPORT[:2000])


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return hash -> how often the store was asked for it."""
    asked: Counter[str] = Counter()
    raw = EvidenceStore.raw

    def counted(store: EvidenceStore, digest: str) -> str:
        asked[digest] += 1
        return raw(store, digest)

    monkeypatch.setattr(EvidenceStore, "raw", counted)
    return asked


def test_a_text_is_read_once_for_each_node_and_a_damaged_one_is_never_kept(tmp_path: Path, reads: Counter[str]) -> None:
    played = play(tmp_path, Rack())
    write(played.site, played.paths, "c1", Rejudge())
    judge = Rejudge()
    judge.begin(played.site, played.ledger, played.store)
    worker = judge._worker
    assert worker is not None
    reads.clear()
    judge.node("node01", played.store.concluded("node01"))
    assert reads
    assert set(reads.values()) == {1}
    digest, other = list(reads)[:2]
    assert worker._text(digest) != worker._text(other)
    assert reads[digest] == 1, "the text of the present node is kept"
    judge.node("node02", played.store.concluded("node02"))
    path = played.paths.raw / digest[:2] / f"{digest}.z"
    path.write_bytes(b"damaged")
    judge.node("node01", {})
    for _ in range(2):
        with pytest.raises(EvidenceError, match="cannot be read"):
            worker._text(digest)


def test_a_clean_verdict_stays_the_same_object_whatever_was_cleaned_before() -> None:
    """A kept text that is equal is no change: a copy of each of 12,500 times 500 metrics takes minutes."""

    def verdict(words: Sequence[str] = ("a", "name", "of", "its", "own")) -> Verdict:
        name = "-".join(words)
        return Verdict(outcome=Outcome.PASS, metrics=[Metric(name=name, target=f"{name}/0", value=1.0, unit="s")])

    first, second = verdict(), verdict()
    assert first.metrics[0].name is not second.metrics[0].name
    assert sanitize.clean(first) is first
    assert sanitize.clean(second) is second
    dirty = second.model_copy(update={"note": "\x1b[31mpassword=hunter2hunter2"})
    cleaned = sanitize.clean(dirty)
    assert (cleaned.metrics, "hunter2" in str(cleaned.note), "\x1b" in str(cleaned.note)) == (
        first.metrics,
        False,
        False,
    )
