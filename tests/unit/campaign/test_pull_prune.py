"""Pruning keeps what nodes may still ask for, what runs wait for, and all evidence."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.campaign.pull import wait as wait_module
from rackready.campaign.pull.order import present, write
from rackready.campaign.pull.prune import Prunable, Pruning
from rackready.campaign.pull.report import REPORT
from rackready.design.pinned import site_of
from rackready.drivers.release.document import canonical
from rackready.drivers.release.objects import objects_of
from rackready.ledger.store import Ledger
from tests.unit.campaign.pull_node import NODES, Rack, with_keys


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    """Return two nodes whose keys are as the controller makes them."""
    monkeypatch.setattr(wait_module, "_POLL_S", 0.02)
    return with_keys(tmp_path)


def release(rack: Rack, name: str) -> set[str]:
    """Store a release, let it be the one that is ordered next, and return the names of its objects of its own."""
    store = objects_of(rack.paths)
    code, own = store.put(b"code"), store.put(name.encode())
    wheels = [{"file": "a.whl", **store.put(b"wheel").document()}]
    document = {"version": 1, "node": "node01", "code": code.document(), "wheels": wheels, "files": []}
    blob = store.put(canonical({**document, "variables": own.document(), "ansible_core": "2.19.0", "python": "3.11"}))
    rack.release = blob.sha256
    for path in store.folder.iterdir():
        os.utime(path, (time.time() - 7200,) * 2)
    return {blob.sha256, own.sha256}


def pruned(rack: Rack, *, remove: bool = True) -> Prunable:
    pruning = Pruning(site_of(rack.ctx), rack.paths, NODES, 3, ())
    with Ledger.open(rack.paths.database) as ledger:
        found = pruning.look(ledger)
        if remove:
            pruning.remove(ledger, found)
    return found


def objects(rack: Rack) -> set[str]:
    return {path.name for path in objects_of(rack.paths).folder.iterdir()}


def reports(rack: Rack) -> list[str]:
    return sorted(path.stem for path in (rack.paths.node_reports / "node01").iterdir())


def test_what_the_newest_order_names_stays_and_what_no_order_names_goes(rack: Rack) -> None:
    unordered, first = release(rack, "unordered"), release(rack, "first")
    rack.run()
    second = release(rack, "second")
    rack.run()
    shared = objects(rack) - unordered - first - second
    assert len(shared) == 2
    found = pruned(rack, remove=False)
    assert ({path.name for path in found.objects}, found.kept) == (unordered | first, 1)
    assert found.size == sum(path.stat().st_size for path in (*found.objects, *found.reports))
    pruned(rack)
    assert objects(rack) == second | shared
    assert pruned(rack).objects == ()


def test_each_phase_of_each_node_counts_with_its_variables(rack: Rack) -> None:
    installed = release(rack, "install")
    rack.run()
    order = present(rack.paths, "node01")
    assert order is not None
    extra = objects_of(rack.paths).put(b"variables of the phase")
    tuned = release(rack, "optimize")
    named = {"release": rack.release, "phase": "optimize", "extra": extra.document(), "sequence": 90}
    write(rack.paths, replace(order, **named), rack.signer)  # type: ignore[arg-type]
    write(rack.paths, replace(order, sequence=91), rack.signer)
    other = release(rack, "of another node")
    rack.run(["node02"])
    assert pruned(rack).objects == ()
    assert installed | tuned | other | {extra.sha256} <= objects(rack)


def test_the_ledger_alone_is_enough(rack: Rack) -> None:
    ordered = release(rack, "ordered")
    rack.run()
    for folder in ("orders", "standing/node01"):
        for path in (rack.paths.state / "release" / folder).iterdir():
            path.unlink()
    assert pruned(rack).objects == ()
    assert ordered <= objects(rack)


def test_objects_of_a_build_that_may_still_run_stay(rack: Rack) -> None:
    store = objects_of(rack.paths)
    young = store.put(b"of a build without an index yet")
    assert pruned(rack).objects == ()
    os.utime(store.path(young.sha256), (time.time() - 3605,) * 2)
    assert [path.name for path in pruned(rack).objects] == [young.sha256]


def test_older_reports_go_and_their_evidence_stays(rack: Rack) -> None:
    release(rack, "first")
    rack.run()
    rack.run()
    tokens = [entry.token for entry in rack.entries() if entry.operation == "install:install.yml"]
    rack.nodes["node01"].compare(tokens[0])
    rack.nodes["node01"].compare(tokens[1])
    assert len(reports(rack)) == 4
    raw = next(entry.result[REPORT]["raw"] for entry in rack.entries() if entry.token == tokens[0])
    (evidence,) = rack.paths.raw.rglob(f"{raw}*")
    before = evidence.read_bytes()
    evidence.unlink()
    pruned(rack)
    assert reports(rack) == [f"{tokens[1]}-apply", f"{tokens[1]}-check"]
    assert evidence.read_bytes() == before, "a report goes only when it is stored as evidence"


def test_a_report_that_an_interrupted_run_waits_for_stays(rack: Rack) -> None:
    with Ledger.open(rack.paths.database) as ledger:
        token = ledger.begin("node01", "install:install.yml", "d", {}).token
    rack.nodes["node01"].compare(token)
    rack.nodes["node01"].compare(token + 5)
    assert pruned(rack).reports == ()
    with Ledger.open(rack.paths.database) as ledger:
        ledger.failed(token, "interrupted")
    pruned(rack)
    assert reports(rack) == [f"{token + 5}-check"]


def test_a_report_that_cannot_be_verified_stays(rack: Rack) -> None:
    rack.run()
    (path,) = (rack.paths.node_reports / "node01").iterdir()
    path.with_name("1-check.json").write_text("{}")
    assert pruned(rack).reports == ()
    assert "1-check" in reports(rack)
