"""A damaged reading of a bad host never passes, and one of a good host never crashes a gate (fixed seed)."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, seed, settings

from rackready.gates.base import Gate, GateFacts, Output, Run
from rackready.gates.engine.registry import gate
from rackready.model.outcome import Outcome
from rackready_sim import faults
from tests.gates.damage import Damage, apply, damages
from tests.gates.host.machine import Node, facts, sealed

BAD = [
    ("cpu-offline", "lscpu"),
    ("numa-nodes", "lscpu"),
    ("dimm-missing", "dmidecode"),
    ("dimm-slow", "dmidecode"),
    ("clock-unsynchronised", "chronyc"),
    ("clock-offset", "chronyc"),
    ("acs-on", "lspci"),
    ("drive-worn", "smart /dev/nvme3"),
    ("drive-media-errors", "smart /dev/nvme3"),
    ("drive-warns", "smart /dev/nvme3"),
    ("drive-missing", "scan"),
    ("drive-slow", "fio /dev/nvme3n1"),
    ("memlock-limited", "prlimit"),
    ("link-ber", "mlxlink-mlx5_0"),
    ("optics-light", "mlxlink-mlx5_0"),
    ("optics-hot", "mlxlink-mlx5_0"),
    ("cable-wrong-part", "mlxlink-mlx5_0"),
]
Captured = tuple[Gate, GateFacts, Run, Output]


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Captured]:
    found = {}
    for name, _ in BAD:
        with pytest.MonkeyPatch.context() as patch:  # for each fault, so that the next node is the same one, put back
            node, known = Node(tmp_path_factory.mktemp("node"), patch), facts("node01")
            node.inject(name)
            made = gate(faults.FAULTS[name].caught_by)
            run = made.plan(known, ["node01"])[0]
            found[name] = (made, known, run, node.answer(run.commands[0]))
    return found


@pytest.mark.parametrize(("name", "tool"), BAD, ids=lambda value: value)
@seed(20261122)
@settings(max_examples=40, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=damages())
def test_bad_never_becomes_pass(captured: dict[str, Captured], name: str, tool: str, damage: Damage) -> None:
    made, known, run, output = captured[name]
    document = copy.deepcopy(json.loads(output.stdout))
    document["commands"][tool]["stdout"] = apply(document["commands"][tool]["stdout"], damage)
    verdict = made.evaluate(known, run, {output.key: replace(output, stdout=sealed(document))})
    assert verdict.outcome in {Outcome.FAIL, Outcome.ERROR}
