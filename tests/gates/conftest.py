"""Fixtures of all gate tests: healthy BMCs, no network, and a second judgement of a damaged output."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rackready.gates.engine import validate
from tests.gates.corpus import damaged_sample
from tests.gates.gathering import Collector
from tests.gates.outcomes import report_properties
from tests.gates.redfish_world import FakeBmcs


@pytest.fixture(autouse=True)
def bmcs_of_the_stage(monkeypatch: pytest.MonkeyPatch) -> FakeBmcs:
    """What a stage asks when a gate goes to a BMC. A test may put states of broken nodes into it."""
    found = FakeBmcs()
    monkeypatch.setattr(validate, "bmcs", lambda *_: found)
    return found


@pytest.fixture(autouse=True)
def damaged_as_well(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Damage an output of each test, chosen by its name, and judge it again: a sample of `make fuzz` in every run."""
    whole_corpus = any(isinstance(plugin, Collector) for plugin in request.config.pluginmanager.get_plugins())
    if whole_corpus or request.path.name == "test_mutations.py":  # these damage what they judge themselves
        yield
        return
    noted = Collector()
    noted.stand_between(monkeypatch.setattr)
    yield
    noted.closed = True
    request.node.user_properties += report_properties(
        {(one.gate.id, one.outcome) for one in noted.seen.values()}, noted.codes
    )
    wrong = damaged_sample(noted.seen.values(), request.node.nodeid)
    assert not noted.undeclared, (
        f"findings that the gate's class does not declare (Gate.findings): {', '.join(sorted(noted.undeclared))}"
    )
    assert not wrong, "\n".join(
        f"{item.gate} {item.mutator} of {item.key}: {item.what}\n{item.text[-1500:]}" for item in wrong
    )
