"""The mutation corpus: a seed draws the same mutants, alone or among all; outputs are gathered once per code."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from rackready.gates.base import Run
from rackready.gates.bmc.fans import Fans
from rackready.gates.engine.registry import gate
from rackready.model.outcome import Outcome
from tests.gates import corpus, gathering
from tests.gates.gathering import Seen, gathered
from tests.gates.redfish_world import broken, said, world
from tests.gates.support import rack


def of_fans(fault: str = "fan-failed") -> Seen:
    facts, found = rack(), Fans()
    run, outputs = said(found, facts, world(broken(fault)))
    return Seen(found, facts, run, outputs, found.evaluate(facts, run, outputs).outcome)


def drawn(monkeypatch: pytest.MonkeyPatch, seen: list[Seen], count: int, seed: int) -> list[str]:
    """The mutants that are judged."""
    texts: list[str] = []
    monkeypatch.setattr(corpus, "judge", lambda _, name, key, outputs: texts.append(f"{name} {outputs[key].stdout}"))
    assert corpus.play(seen, count, seed) == []
    return texts


def test_a_seed_draws_the_same_mutants_again_and_fewer_are_the_first_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [of_fans(), of_fans("fan-slow")]
    many = drawn(monkeypatch, seen, 40, 1)
    assert drawn(monkeypatch, seen, 10, 1) == many[:10]
    assert drawn(monkeypatch, seen, 40, 2) != many


def test_a_gate_alone_has_the_outputs_that_it_has_among_all() -> None:
    one = of_fans()
    assert list(corpus.by_gate([one], [Fans.id])) == [Fans.id]
    assert corpus.by_gate([one])[Fans.id] == corpus.by_gate([one], [Fans.id])[Fans.id] == [one]


def test_every_seed_and_the_commands_that_end_badly_are_a_piece_of_work_each() -> None:
    found = corpus.Corpus(corpus.by_gate([of_fans()], [Fans.id]), 5).played([7, 8], jobs=2)
    assert found == {(Fans.id, None): [], (Fans.id, 7): [], (Fans.id, 8): []}


@pytest.mark.parametrize("gate_id", [Fans.id, "cluster/fabric/performance/nccl-all-reduce"])
def test_what_was_seen_is_written_and_read_again(gate_id: str) -> None:
    """Also of a gate whose class is made, and has no name of its own."""
    made = gate(gate_id)
    one = Seen(made, rack(2), Run("node01", "node01", ("node01",), ()), {}, Outcome.ERROR)
    again = pickle.loads(pickle.dumps(one))  # noqa: S301 - written here
    assert (type(again.gate), again.gate.inputs, again.facts, again.run) == (
        type(made),
        made.inputs,
        one.facts,
        one.run,
    )


def test_outputs_are_gathered_once_until_code_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gathers: list[int] = []
    told: list[str] = []
    state = ["one"]

    def gather(jobs: int) -> list[Seen]:
        gathers.append(jobs)
        return [of_fans()]

    monkeypatch.setattr(gathering, "ROOT", tmp_path)
    monkeypatch.setattr(gathering, "KEPT", tmp_path / "kept" / "outputs.pickle")
    monkeypatch.setattr(gathering, "_gather", gather)
    monkeypatch.setattr(gathering, "_state", lambda: state[0])
    for whatever_code, now, count in ((False, "one", 1), (False, "one", 1), (True, "two", 1), (False, "two", 2)):
        state[0] = now
        (one,) = gathered(2, whatever_code=whatever_code, say=told.append)
        assert (one.outcome, len(gathers)) == (Outcome.FAIL, count)
    words = (
        "the gate tests run",
        "1 outputs gathered in",
        "are used again",
        "with other code are judged anew",
        "the gate tests run",
        "1 outputs gathered in",
    )
    assert [word in text for word, text in zip(words, told, strict=True)] == [True] * 6


def test_the_state_of_the_code_is_that_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "ROOT", tmp_path)
    file = tmp_path / "src" / "gate.py"
    file.parent.mkdir()
    file.write_text("a")
    before = gathering._state()
    assert gathering._state() == before
    file.write_text("b")
    assert gathering._state() != before
