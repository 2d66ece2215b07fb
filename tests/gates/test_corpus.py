"""The mutation corpus: draws depend on seeds and outputs alone; outputs are gathered once until code changes."""

from __future__ import annotations

import pickle
import tempfile
from dataclasses import replace
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

pytest_plugins = ["pytester"]


def of_fans(fault: str = "fan-failed") -> Seen:
    facts, found = rack(), Fans()
    run, outputs = said(found, facts, world(broken(fault)))
    return Seen(found, facts, run, outputs, found.evaluate(facts, run, outputs).outcome)


def drawn(monkeypatch: pytest.MonkeyPatch, seen: list[Seen], count: int, seed: int) -> list[str]:
    """Return the mutants that are judged."""
    texts: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "judge", lambda _, name, key, outputs: texts.append(f"{name} {outputs[key].stdout}"))
        assert corpus.play(seen, count, seed) == []
    return texts


def test_a_seed_draws_the_same_mutants_again_and_fewer_are_the_first_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [of_fans(), of_fans("fan-slow")]
    many = drawn(monkeypatch, seen, 40, 1)
    assert drawn(monkeypatch, seen, 10, 1) == many[:10]
    assert drawn(monkeypatch, seen, 40, 2) != many


INNER = """
from rackready.gates.bmc.fans import Fans
from tests.gates.redfish_world import broken, said, world
from tests.gates.support import rack

def {name}():
    for fault in {faults}:
        fans, facts = Fans(), rack()
        fans.evaluate(facts, *said(fans, facts, world(broken(fault))))
"""


def test_a_renamed_test_draws_the_same_damage(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it moves to another file, or judges the same outputs in another order."""
    pytester.makeconftest("from tests.gates.conftest import *")
    faults = ("fan-failed", "fan-slow")
    draws: list[list[str]] = []
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "judge", lambda *mutant: draws[-1].append(repr(mutant[1:])))
        for file, name, order in (
            ("test_one", "test_before", faults),
            ("test_one", "test_after", faults),
            ("test_two", "test_after", faults[::-1]),
        ):
            draws.append([])
            path = pytester.makepyfile(**{file: INNER.format(name=name, faults=order)})
            pytester.inline_run(path, "-p", "no:cacheprovider").assertoutcome(passed=1)
    assert [len(draw) for draw in draws] == [2, 2, 2], "one damaged output and one command that ended badly"
    assert draws[0] == draws[1] == draws[2]


def test_other_outputs_draw_other_damage_and_temporary_folders_do_not_matter() -> None:
    def printed(text: str) -> str:
        one = of_fans()
        (key, output), *_ = one.outputs.items()
        return corpus.fingerprint(replace(one, outputs={**one.outputs, key: replace(output, stdout=text)}))

    temporary = tempfile.gettempdir()
    assert printed(f"in {temporary}/test_before0/a: 1") == printed(f"in {temporary}/test_after0/a: 1")
    assert printed("in a: 1") != printed("in a: 2")


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
