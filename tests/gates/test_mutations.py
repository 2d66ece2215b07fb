"""A damaged output never crashes a gate, and a bad one never becomes a pass. Fixed seed: the same damage each time."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, seed, settings

from rackready.model.outcome import Outcome
from tests.gates.damage import Damage, apply, damages
from tests.gates.support import Case, Said, between, judge, text
from tests.gates.test_ib_write_bw import UP
from tests.gates.test_nccl_ring import BASE

INVENTORY, VERSIONS = "node/gpu/sanity/inventory", "node/gpu/sanity/versions"
R1, R3 = "node/gpu/validation/dcgm-r1", "node/gpu/validation/dcgm-r3"
NODE, RING, WRITE = (
    "node/gpu/performance/nccl-all-reduce",
    "cluster/fabric/performance/nccl-all-reduce-ring",
    "pair/fabric/performance/ib-write-bw",
)
ONCE: Mapping[str, object] = {"launches": 1}
BACK = Said(between(text("perftest/dgx_h100_rail1_healthy.txt"), "192.168.1.12", "192.168.1.11"))

BAD = [
    (INVENTORY, "inventory", "nvml/dgx_h100_gpu2_link4_inactive.json", {}, {}, 1, 0),
    (INVENTORY, "inventory", "nvml/dgx_h100_gpu5_lost.json", {}, {}, 1, 0),
    (INVENTORY, "inventory", "nvml/dgx_h100_gpu3_missing.json", {}, {}, 1, 0),
    (VERSIONS, "versions", "versions/dgx_h100_fabric_manager_older.json", {}, {}, 1, 0),
    (R3, "dcgmi", "dcgm/dgx_h100_r3_dcgm4_gpu3_memory.json", {}, {}, 1, 205),
    (R1, "dcgmi", "dcgm/dgx_h100_r1_dcgm4_persistence_off.json", {}, {}, 1, 226),
    (R1, "dcgmi", "dcgm/dgx_h100_r1_dcgm3_gpu1_persistence.json", {}, {}, 1, 226),
    (R1, "dcgmi", "dcgm/dcgm4_hostengine_down.json", {}, {}, 1, 226),
    (NODE, "launch0", "nccl/dgx_h100_8_slow.txt", {}, ONCE, 1, 0),
    (NODE, "launch0", "nccl/dgx_h100_8_wrong_values.txt", {}, ONCE, 1, 1),
    (NODE, "launch0", "nccl/dgx_h100_8_unchecked.txt", {}, ONCE, 1, 0),
    (NODE, "launch0", "nccl/dgx_h100_8_healthy.json", {}, ONCE, 1, 0),
    (NODE, "launch0", "nccl/dgx_h100_8_nvls_off.txt", {}, ONCE, 1, 0),
    (NODE, "launch0", "nccl/dgx_h100_8_shm.txt", {}, ONCE, 1, 0),
    (RING, "launch0", "nccl/2x_dgx_h100_ring_socket.txt", BASE, ONCE, 2, 0),
    (RING, "launch0", "nccl/2x_dgx_h100_ring_no_gdr.txt", BASE, ONCE, 2, 0),
    (WRITE, "client-forth", "perftest/dgx_h100_rail1_slow.txt", {**UP, "client-back": BACK}, {}, 2, 0),
    (WRITE, "client-forth", "perftest/dgx_h100_rail1_megabytes.txt", {**UP, "client-back": BACK}, {}, 2, 0),
    (WRITE, "client-forth", "perftest/dgx_h100_rail1_infiniband.txt", {**UP, "client-back": BACK}, {}, 2, 0),
]
GOOD = [
    (INVENTORY, "inventory", "nvml/dgx_h100_healthy.json", {}, {}, 1, 0),
    (VERSIONS, "versions", "versions/dgx_h100_healthy.json", {}, {}, 1, 0),
    (R3, "dcgmi", "dcgm/dgx_h100_r3_dcgm4_healthy.json", {}, {}, 1, 0),
    (R3, "dcgmi", "dcgm/dgx_h100_r3_dcgm3_healthy.json", {}, {}, 1, 0),
    (NODE, "launch0", "nccl/dgx_h100_8_healthy.txt", {}, ONCE, 1, 0),
    (RING, "launch0", "nccl/2x_dgx_h100_ring_healthy.txt", BASE, ONCE, 2, 0),
    (WRITE, "client-forth", "perftest/dgx_h100_rail1_healthy.txt", {**UP, "client-back": BACK}, {}, 2, 0),
]
Row = tuple[str, str, str, Mapping[str, Said], Mapping[str, object], int, int]


def outcome(row: Row, damaged: str) -> Outcome:
    gate_id, key, name, rest, inputs, nodes, code = row
    return judge(
        gate_id, Case(name, {**rest, key: Said(damaged, exit_code=code)}, Outcome.ERROR, (), inputs, nodes)
    ).outcome


def name_of(row: Row) -> str:
    return row[2]


CALM = settings(
    max_examples=40, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("row", BAD, ids=name_of)
@seed(20261121)
@CALM
@given(damage=damages())
def test_bad_never_becomes_pass(row: Row, damage: Damage) -> None:
    assert outcome(row, apply(text(row[2]), damage)) is not Outcome.PASS


@pytest.mark.parametrize("row", GOOD, ids=name_of)
@seed(20261121)
@CALM
@given(damage=damages())
def test_damage_never_crashes(row: Row, damage: Damage) -> None:
    assert outcome(row, apply(text(row[2]), damage)) in {Outcome.PASS, Outcome.FAIL, Outcome.ERROR}


@pytest.mark.parametrize("row", GOOD, ids=name_of)
def test_a_truncated_document_never_passes(row: Row) -> None:
    whole = text(row[2]).rstrip()
    last = max(0, len(whole.rstrip("-\n")) - 200)
    for end in [*range(0, last, max(1, last // 60)), last]:
        if outcome(row, whole[:end]) is Outcome.PASS:
            assert "MsgRate" in whole[:end], end
            break


@pytest.mark.parametrize("row", [*BAD, *GOOD], ids=name_of)
@pytest.mark.parametrize(
    "garbage", ["", " \n", "null", "[]", "{}", '{"a": 1}', "0", '"text"', "\x00\x01", "nan", "{" * 50], ids=repr
)
def test_garbage_is_an_error(row: Row, garbage: str) -> None:
    assert outcome(row, garbage) is Outcome.ERROR
