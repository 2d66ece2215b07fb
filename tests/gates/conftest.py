"""Fixtures of all gate tests: BMCs of healthy nodes, no network, and each test's outputs judged again with damage."""

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
    """Return the BMCs that a stage asks. A test may put states of broken nodes into it."""
    found = FakeBmcs()
    monkeypatch.setattr(validate, "bmcs", lambda *_: found)
    return found


@pytest.fixture(autouse=True)
def damaged_as_well(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Judge an output of each test again, damaged: a part of the mutation corpus (`make fuzz`) for every run.

    The outputs themselves decide which one is damaged and how: `corpus.damaged_sample`.
    """
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
    wrong = damaged_sample(noted.seen.values())
    assert not noted.undeclared, (
        f"findings that the gate's class does not declare (Gate.findings): {', '.join(sorted(noted.undeclared))}"
    )
    assert not wrong, "\n".join(
        f"{item.gate} {item.mutator} of {item.key}: {item.what}\n{item.text[-1500:]}" for item in wrong
    )
