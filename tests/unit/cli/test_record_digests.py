"""A record that was altered behind a signed certificate: found in the records, by verify, and before it is signed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rackready.design.site import load_site
from rackready.evidence.store import EvidenceStore
from rackready.gates.records.node_parts import PartsReading
from rackready.handover import verify
from rackready.handover.acceptance import acceptance
from rackready.handover.certificate import on_file, read
from rackready.handover.certify import Desk
from rackready.handover.keys import Keys
from rackready.handover.validity import shown, void_by_records
from rackready.ledger.store import Ledger
from rackready.model.outcome import Finding, Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.paths import EnvPaths
from tests.unit.handover import certified

STEP = (
    "Find out who changed the database. Then `rackready repair node01 --reason '...'`: everything is measured again, "
    "and the node is certified anew."
)
LOOKED = NodeResult(Outcome.PASS, "26 gates count")


@pytest.fixture
def root(call: Callable[..., object], tmp_path: Path) -> Path:
    """A site repository; a certificate is made by each test."""
    _ = call
    return tmp_path


@contextmanager
def desk(root: Path) -> Iterator[Desk]:
    site, paths = load_site("sim", root=root), EnvPaths(root, "sim")
    with Ledger.open(paths.database) as ledger:
        yield Desk(PhaseContext("sim", root, "c1"), site, paths, ledger, EvidenceStore.read_only(ledger, paths.raw))


def verified(root: Path) -> NodeResult:
    with desk(root) as found:
        return verify._verified(found, "node01", certified.seen(root), _no_parts(), LOOKED)


def _no_parts() -> PartsReading | Finding:
    return Finding(what="parts", where="node01", expected="read", actual="not asked", next_step="None.")


def rack(root: Path, keys: Keys) -> dict[str, Any]:
    site = load_site("sim", root=root)
    nodes: list[dict[str, Any]] = acceptance(site, keys, site.racks[0])["nodes"]
    return next(node for node in nodes if node["name"] == "node01")


def test_an_altered_record_voids_the_certificate_everywhere(root: Path) -> None:
    keys = certified.certify(root)
    assert all(len(item["recordSha256"]) == 64 for item in read(keys, "node01").predicate["gates"])
    assert rack(root, keys)["counts"] is True
    assert verified(root).outcome is Outcome.PASS
    record = certified.alter(root, certified.MEASURED)
    site = load_site("sim", root=root)
    (why,) = void_by_records(site, keys.paths, shown(on_file(keys, "node01"), keys.trusted(), "node01"))
    then = next(i["recordSha256"] for i in read(keys, "node01").predicate["gates"] if i["record"] == record)
    assert why.startswith(
        f"node01: record {record} of {certified.MEASURED} - Expected: sha256 {then[:12]}, as certified Actual: "
    )
    assert why.endswith(f". {STEP}")
    about = rack(root, keys)
    assert (about["counts"], about["certificate"]["void"]) == (False, [why])
    assert (verified(root).outcome, verified(root).message) == (Outcome.ERROR, why)


def test_no_new_certificate_blesses_an_altered_record(root: Path) -> None:
    keys = certified.certify(root)
    before = on_file(keys, "node01")
    record = certified.alter(root, certified.MEASURED)
    with desk(root) as found:
        result = found.certify("node01", certified.seen(root))
    assert result.outcome is Outcome.ERROR
    assert f"node01: record {record} of {certified.MEASURED} - Expected: sha256 " in result.message
    assert ", as in the certificate on file Actual: " in result.message
    assert on_file(keys, "node01") == before
    certified.measure(root)  # other records: what a repair leads to
    with desk(root) as found:
        assert found.certify("node01", certified.seen(root)).outcome is Outcome.PASS
    assert verified(root).outcome is Outcome.PASS


def test_a_certificate_without_digests_counts_and_says_what_it_leaves_open(root: Path) -> None:
    keys = certified.certify(root, with_digests=False)
    count = len(read(keys, "node01").predicate["gates"])
    left = f"{count} of {count} records without SHA-256: not verified that they are as certified"
    certified.alter(root, certified.MEASURED)
    about = rack(root, keys)
    assert (about["counts"], about["certificate"]["unproven"]) == (True, left)
    assert verified(root).message.endswith(f"counts: 26 gates count; {left}")
    with desk(root) as found:
        assert found.certify("node01", certified.seen(root)).changed, "the next one has them"
    assert rack(root, keys)["certificate"]["unproven"] == ""
