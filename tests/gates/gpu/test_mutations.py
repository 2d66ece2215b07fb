"""Damage to captured outputs of the GPU tools: nothing crashes, and what was bad never becomes a pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, seed

from rackready.gates.base import Output
from rackready.gates.engine.registry import gate
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome
from tests.gates.damage import Damage, apply, damages
from tests.gates.gpu.test_copies import JSON, TABLE
from tests.gates.gpu.test_performance import FP16, SMI, slowed
from tests.gates.gpu.test_smi import changed
from tests.gates.support import later, text
from tests.gates.test_mutations import CALM

S = "node/gpu/sanity/"
TOPO = text("topo/dgx_h100_healthy.txt")
ONE = {"launches": 1, "precisions": ["fp16"], "duration_s": 8, "warm_up_s": 2}


@dataclass(frozen=True)
class Row:
    gate: str
    key: str
    captured: str
    rest: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, object] = field(default_factory=dict)

    def outcome(self, damaged: str) -> Outcome:
        known = facts("dgx_h100", 1)
        found = gate(self.gate, self.inputs)
        run = found.plan(known, ["node01"])[0]
        texts = {**self.rest, self.key: damaged}
        return found.evaluate(
            known, run, {key: Output(key, "node01", "x", 0, out, seconds=60.0) for key, out in texts.items()}
        ).outcome


COPIES = {"before": SMI, "after": later(SMI)}
BAD = [
    Row(f"{S}ecc", "smi", changed(1, ("<dram_uncorrectable>0<", "<dram_uncorrectable>2<"))),
    Row(f"{S}row-remap", "smi", changed(1, ("<remapped_row_pending>No<", "<remapped_row_pending>Yes<"))),
    Row(f"{S}recovery-action", "smi", changed(1, ("<gpu_recovery_action>None<", "<gpu_recovery_action>Reset<"))),
    Row(f"{S}settings", "smi", changed(1, ("<persistence_mode>Enabled<", "<persistence_mode>Disabled<"))),
    Row(f"{S}settings", "smi", changed(1, ("<display_active>Disabled<", "<display_active>Enabled<"))),
    Row(f"{S}fabric", "smi", changed(1, ("<state>Completed<", "<state>In Progress<"))),
    Row(f"{S}affinity", "topo", TOPO.replace("NIC2: mlx5_4", "NIC2: mlx5_5").replace("NIC3: mlx5_5", "NIC3: mlx5_4")),
    Row("node/gpu/performance/gemm", "fp16-0", slowed(6, 10), inputs=ONE),
    Row("node/gpu/performance/nvbandwidth", "copy-0", JSON.replace('"device_local_copy"', '"another"'), COPIES,
        {"launches": 1}),
]  # fmt: skip
GOOD = [
    *(
        Row(f"{S}{name}", "smi", SMI)
        for name in ("ecc", "row-remap", "inforom", "recovery-action", "clocks", "settings", "fabric")
    ),
    Row(f"{S}xid", "log", text("kernel/dgx_h100_noise.txt")),
    Row(f"{S}affinity", "topo", TOPO),
    Row("node/gpu/performance/gemm", "fp16-0", FP16, inputs=ONE),
    Row("node/gpu/performance/nvbandwidth", "copy-0", JSON, COPIES, {"launches": 1}),
    Row("node/gpu/performance/nvbandwidth", "copy-0", TABLE, COPIES, {"launches": 1}),
]


@pytest.mark.parametrize("row", BAD, ids=lambda row: row.gate)
def test_what_is_bad_is_no_pass_to_begin_with(row: Row) -> None:
    assert row.outcome(row.captured) is not Outcome.PASS


@pytest.mark.parametrize("row", BAD, ids=lambda row: row.gate)
@seed(20261122)
@CALM
@given(damage=damages())
def test_bad_never_becomes_pass(row: Row, damage: Damage) -> None:
    assert row.outcome(apply(row.captured, damage)) is not Outcome.PASS


@pytest.mark.parametrize("row", GOOD, ids=lambda row: f"{row.gate} {row.captured[:12]!r}")
@seed(20261122)
@CALM
@given(damage=damages())
def test_damage_never_crashes(row: Row, damage: Damage) -> None:
    assert row.outcome(apply(row.captured, damage)) in {Outcome.PASS, Outcome.FAIL, Outcome.ERROR}
