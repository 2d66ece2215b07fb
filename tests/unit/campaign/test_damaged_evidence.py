"""Damaged evidence is named, set aside and measured again on its node, even after a kill; other nodes go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.evidence.damaged_evidence import proof, set_aside
from rackready.evidence.output_place import ASIDE
from rackready.evidence.store import EMPTY
from rackready.handover import certify
from rackready.model.evidence import RawOutput
from rackready.model.outcome import Outcome
from rackready.model.phase import PhaseContext
from tests.unit.campaign.test_evidence_check import NODES, R3, SEEN, Rack, rack
from tests.unit.evidence.test_damage import spoil

__all__ = ["rack"]


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours runs after it."""


def ready(rack: Rack) -> None:
    for node in NODES:
        rack.measured(node)


def damage(rack: Rack, node: str = "node01") -> str:
    one = rack.store.records(gate=R3, target=node)[-1]
    spoil(rack.ledger, one, record="{}")
    return one.id


def words(key: str) -> str:
    return f"node01: evidence of {R3} is damaged (record {key}) - Expected: the record as it was written, of SHA-256 "


def test_one_node_measures_one_gate_again_and_its_neighbour_counts_on(rack: Rack) -> None:
    ready(rack)
    key = damage(rack)
    out = rack.run()
    assert (out["node02"].outcome, out["node02"].message) == (Outcome.PASS, SEEN)
    assert rack.due() == {"node01": {R3}}
    assert (rack.taken, rack.returned) == ({}, []), "no neighbour is drained"
    told = [(event.node, event.level, event.text) for event in rack.ledger.events("c1")]
    assert [node for node, _, _ in told] == ["node01", "node01"]
    assert told[0][1] == "warn"
    assert told[0][2].startswith(words(key))
    assert told[0][2].endswith("Set aside as proof (`rackready evidence set-aside`); what it proved is measured again.")
    assert told[1][2].startswith(f"to be measured: node01: {R3} - Expected: pass Actual: error. {words(key)}")
    (row,) = set_aside(rack.ledger)
    assert (row["name"], row["campaign"], proof(rack.ledger, row["id"])) == (key, "c1", b"{}")


def test_measured_again_it_counts_and_is_said_no_more(rack: Rack) -> None:
    ready(rack)
    damage(rack)
    rack.run()
    for gate in (R3, *rack.lights()):  # what was loaded is looked at again
        rack.measured("node01", gate, hours_ago=0.0)
    told = len(rack.ledger.events("c1"))
    assert {result.message for result in rack.run().values()} == {SEEN}
    assert len(rack.ledger.events("c1")) == told


def test_a_dry_run_names_it_and_sets_nothing_aside(rack: Rack) -> None:
    ready(rack)
    key = damage(rack)
    out = rack.run(check=True)
    assert (out["node02"].outcome, out["node01"].outcome) == (Outcome.PASS, Outcome.NOT_RUN)
    assert out["node01"].message.startswith(
        f"would be measured under load: node01: {R3} - Expected: pass Actual: error. {words(key)}"
    )
    assert set_aside(rack.ledger) == []


def test_certify_refuses_one_node_by_name_and_certifies_the_other(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    ready(rack)
    key = damage(rack)
    monkeypatch.setattr(certify, "seen_now", rack.seen_now)
    monkeypatch.setattr(certify, "look", lambda _ctx, counts: rack.look(_ctx, list(counts), kept=counts, quiet=True))
    out = certify.run_certify(PhaseContext("sim", rack.ctx.root, "c1"), NODES)
    assert {node: result.outcome for node, result in out.items()} == {"node01": Outcome.FAIL, "node02": Outcome.PASS}
    assert out["node01"].message.startswith(f"node01: {R3} - Expected: pass Actual: error. {words(key)}")
    assert [row["name"] for row in set_aside(rack.ledger)] == [key]


def judged_from_an_output(rack: Rack) -> Path:
    """Give node01's evidence of one gate an output, which is damaged then."""
    digest = rack.store.put_raw("busbw 478.6")
    raw = RawOutput(host="node01", command="c", exit_code=0, stdout_sha256=digest, stderr_sha256=EMPTY, seconds=1)
    one = rack.store.records(gate=R3, target="node01")[-1]
    rack.store.append(one.model_copy(update={"id": "1" + one.id[1:], "raw": [raw]}))
    file = rack.paths.raw / digest[:2] / f"{digest}.z"
    file.write_bytes(b"damaged")
    return file


def test_killed_while_an_output_is_set_aside_the_next_run_does_it(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    ready(rack)
    file = judged_from_an_output(rack)

    def killed(_self: Path, _target: str) -> Path:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(Killed):
            rack.run()
    assert file.read_bytes() == b"damaged"
    rack.run()
    assert not file.exists()
    assert [path.read_bytes() for path in (rack.paths.state / ASIDE).iterdir()] == [b"damaged"]
    assert rack.due() == {"node01": {R3}}


def test_a_fail_that_is_damaged_is_not_measured_until_it_passes_but_after_a_repair(rack: Rack) -> None:
    ready(rack)
    rack.measured("node01", R3, outcome=Outcome.FAIL)
    key = damage(rack)
    rack.measured("node01", R3, hours_ago=0.0)
    out = rack.run()
    assert (out["node01"].outcome, out["node02"].outcome) == (Outcome.FAIL, Outcome.PASS)
    assert out["node01"].message.startswith(words(key))
    assert (
        "A fail was recorded and stands: when the node is repaired, `rackready repair node01 --reason '...'`."
        in out["node01"].message
    )
    rack.ledger.done(rack.ledger.change_begins("node01", "repair"))
    assert rack.run()["node01"].outcome is Outcome.PASS
    assert set(rack.due()) == {"node01"}
