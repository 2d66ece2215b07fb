"""Outputs that identify their node: a contradiction to the fingerprint or to another node's outputs is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rackready.gates.judging.output_identity import Gpu, OutputIdentity, identity
from rackready.gates.records.captured import CaptureRefusedError
from rackready.gates.records.imported import Imported
from rackready.model.outcome import Outcome
from tests.gates.support import launched, text
from tests.gates.test_imported import INVENTORY, REDUCE, Carried

HEALTHY = text("nvml/dgx_h100_healthy.json")
SMI = text("smi/dgx_h100_healthy.xml")
AFFINITY = "node/gpu/sanity/affinity"
ECC, NVLINK, R1, BMC = (
    "node/gpu/sanity/ecc",
    "node/gpu/sanity/nvlink",
    "node/gpu/validation/dcgm-r1",
    "bmc/health/sanity/rollup",
)
OWN = "the GPUs of its fingerprint (1650000000000, 1650000000001 and 6 more)"
STEP = "It is from another machine or from another time: import outputs that were captured on {} with this fingerprint."


@pytest.fixture
def carried(tmp_path: Path) -> Carried:
    return Carried(tmp_path)


def inventory(change: Mapping[str, str]) -> str:
    """The healthy inventory with texts replaced; each must be there."""
    out = HEALTHY
    for old, new in change.items():
        assert old in out, old
        out = out.replace(old, new)
    return out


def uuids(first: str = "GPU-00000000-0000-4000-8000-00000000000") -> str:
    return "".join(f"GPU {at}: NVIDIA H100 80GB HBM3 (UUID: {first}{at})\n" for at in range(8))


def redfish(serial: str) -> str:
    system = {"@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem", "SerialNumber": serial}
    board = {"@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem", "SerialNumber": "HGX-1"}
    return json.dumps(
        {"format": "rackready/redfish/v1", "documents": {"/a": system, "/b": board, "/c": {"SerialNumber": "S9"}}}
    )


SAID: list[tuple[str, str, OutputIdentity]] = [
    (
        "inventory",
        HEALTHY,
        OutputIdentity(
            {Gpu(f"165000000000{at}", f"GPU-00000000-0000-4000-8000-00000000000{at}") for at in range(8)},
            {"580.173.02"},
        ),
    ),
    (
        "report",
        SMI,
        OutputIdentity(
            {Gpu(f"165000000000{at + 1}", f"GPU-0000000{at}-0000-0000-0000-000000000000") for at in range(8)},
            {"580.173.02"},
        ),
    ),
    ("links", uuids("GPU-a"), OutputIdentity({Gpu(uuid=f"GPU-a{at}") for at in range(8)})),
    ("query", "0, GPU-a0\n1, GPU-a1\n", OutputIdentity({Gpu(uuid="GPU-a0"), Gpu(uuid="GPU-a1")})),
    (
        "discovery",
        "| 0      | Name: X     |\n|        | Device UUID: GPU-a0    |\n+--------+",
        OutputIdentity({Gpu(uuid="GPU-a0")}),
    ),
    (
        "containers",
        json.dumps({"format": "rackready/containers/v2", "gpus": {"rc": 0, "out": "0, GPU-a0\n1, GPU-a1\n"}}),
        OutputIdentity({Gpu(uuid="GPU-a0"), Gpu(uuid="GPU-a1")}),
    ),
    ("copies", text("nvbandwidth/dgx_h100_healthy.txt"), OutputIdentity(drivers={"580.173.02"})),
    ("copies, JSON", text("nvbandwidth/dgx_h100_healthy.json"), OutputIdentity(drivers={"580.173.02"})),
    ("launch", text("nccl/dgx_h100_8_healthy.txt"), OutputIdentity(launches={"node01 41000"})),
    ("BMC", redfish("S1"), OutputIdentity(machines={"S1", "HGX-1"})),
    ("watched", json.dumps({"format": "rackready/under-load/v1", "last": SMI}), OutputIdentity(drivers={"580.173.02"})),
    ("topology, which names none", text("topo/dgx_h100_healthy.txt"), OutputIdentity()),
    ("cut off", HEALTHY[:400], OutputIdentity()),
    ("empty", "", OutputIdentity()),
]


@pytest.mark.parametrize(("output", "wanted"), [row[1:] for row in SAID], ids=[row[0] for row in SAID])
def test_what_an_output_says_of_whose_it_is(output: str, wanted: OutputIdentity) -> None:
    found = identity(output)
    assert (found.drivers, found.machines, found.launches) == (wanted.drivers, wanted.machines, wanted.launches)
    assert found.gpus == (wanted.gpus if "under-load" not in output else identity(SMI).gpus)


def test_dcgms_diagnostic_names_its_gpus_and_driver() -> None:
    found = identity(text("dcgm/dgx_h100_r3_dcgm4_healthy.json"))
    assert found.drivers == {"580.173.02"}
    assert len(found.gpus) == 8
    assert all(gpu.serial and not gpu.uuid for gpu in found.gpus)


@pytest.mark.parametrize("word", ["<<<NOT_SUPPORTED>>>", "<<<NULL>>>", ""])
def test_a_board_without_serial_has_no_word_of_dcgms_for_one(word: str) -> None:
    """Two nodes with such boards would share a part."""
    diagnostic = text("dcgm/dgx_h100_r3_dcgm4_healthy.json")
    one = identity(diagnostic.replace('"1650000000003"', f'"{word}"'))
    assert one.gpus == identity(diagnostic).gpus - {Gpu("1650000000003")}


def test_a_number_without_end_names_no_launch() -> None:
    assert identity(text("nccl/dgx_h100_8_healthy.txt").replace("Pid  41000", f"Pid {'4' * 5000}")) == OutputIdentity()


REFUSED: list[tuple[str, str, str, str, str, str]] = [
    (
        "serials",
        INVENTORY,
        "inventory",
        inventory({"1650000": "1659999"}),
        OWN,
        "1659999000000, 1659999000001 and 6 more",
    ),
    ("one serial", INVENTORY, "inventory", inventory({"1650000000003": "1659999000003"}), OWN, "1659999000003"),
    (
        "driver",
        INVENTORY,
        "inventory",
        inventory({"580.173.02": "570.1"}),
        "driver 580.173.02, as in its fingerprint",
        "570.1",
    ),
    ("report", ECC, "smi", SMI, OWN, "1650000000008"),
    (
        "diagnostic",
        R1,
        "dcgmi",
        text("dcgm/dgx_h100_r1_dcgm3_healthy.json"),
        "driver 580.173.02, as in its fingerprint",
        "535.309.01",
    ),
    ("machine", BMC, "redfish", redfish("S7"), "the machine of its fingerprint, serial S1", "HGX-1, S7"),
]


@pytest.mark.parametrize(
    ("gate", "key", "output", "expected", "actual"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_contradicts_its_fingerprint_is_refused(
    carried: Carried, gate: str, key: str, output: str, expected: str, actual: str
) -> None:
    carried.put("other.txt", output)
    carried.outputs = [carried.output(gate=gate, key=key, file="other.txt")]
    assert carried.refused() == [
        f"node01: {gate} {key}, other.txt - Expected: {expected} Actual: {actual}. {STEP.format('node01')}"
    ]


@pytest.mark.parametrize(
    ("links", "refused"),
    [(uuids(), False), (uuids("GPU-a"), True), (uuids() + "GPU 8: X (UUID: GPU-b)\n", True)],
    ids=["own", "others", "one more"],
)
def test_uuids_are_held_against_those_that_the_nodes_own_outputs_give_to_its_serials(
    carried: Carried, links: str, *, refused: bool
) -> None:
    carried.put("links.txt", links)
    carried.outputs.append(carried.output(gate=NVLINK, key="status", file="links.txt"))
    if refused:
        [problem] = carried.refused()
        assert problem.startswith(f"node01: {NVLINK} status, links.txt - Expected: {OWN} Actual: GPU-")
    else:
        assert {one.gate for one in carried.bring()} == {INVENTORY, NVLINK}


def test_uuids_alone_are_held_against_a_fingerprint_of_uuids_and_tell_nothing_beside_serials(carried: Carried) -> None:
    carried.put("links.txt", uuids("GPU-a"))
    carried.outputs = [carried.output(gate=NVLINK, key="status", file="links.txt")]
    carried.prints("print.json", gpus=[{"index": at, "id": f"GPU-c{at}", "vbios": "96.00"} for at in range(8)])
    expected = "the GPUs of its fingerprint (GPU-c0, GPU-c1 and 6 more)"
    [problem] = carried.refused()
    assert (
        problem == f"node01: {NVLINK} status, links.txt - Expected: {expected} Actual: GPU-a0, GPU-a1 and 6 more. "
        f"{STEP.format('node01')}"
    )
    carried.prints("print.json", gpus=[{"index": at, "id": f"GPU-a{at}", "vbios": "96.00"} for at in range(8)])
    assert [one.gate for one in carried.bring()] == [NVLINK]


def test_a_gpu_that_the_fingerprint_could_not_read_may_be_named(carried: Carried) -> None:
    gpus = [{"index": at, "id": f"165000000000{at}" if at != 2 else None, "vbios": "96.00"} for at in range(8)]
    carried.prints("print.json", gpus=gpus)
    assert [one.verdict.outcome for one in carried.bring()] == [Outcome.PASS]


# several nodes -----------------------------------------------------------------------------------------------------


def four(carried: Carried, **changed: Any) -> None:
    """One file for node01 to node04, each with its own fingerprint."""
    carried.outputs = []
    for number in range(1, 5):
        name = f"node{number:02}"
        carried.prints(f"{name}.json", name)
        carried.outputs.append(
            carried.output(node=name, fingerprint=f"{name}.json", fingerprint_after=f"{name}.json", **changed)
        )


def test_one_inventory_for_four_nodes_is_refused(carried: Carried) -> None:
    four(carried)
    assert carried.refused() == [
        f"{name}: {INVENTORY} inventory, inventory.json - Expected: the GPUs of its fingerprint ({name}-0, {name}-1 "
        "and 6 more) "
        f"Actual: 1650000000000, 1650000000001 and 6 more. {STEP.format(name)}"
        for name in ("node02", "node03", "node04")
    ]


def test_one_file_for_several_nodes_is_refused_whatever_it_says(carried: Carried) -> None:
    carried.put("topo.txt", text("topo/dgx_h100_healthy.txt"))
    four(carried, gate=AFFINITY, key="topo", file="topo.txt")
    said = (
        f"{AFFINITY} topo, topo.txt - Expected: a file of its own Actual: it is listed for node01, too. "
        "Import an output that was captured on"
    )
    assert carried.refused() == [f"{name}: {said} {name}." for name in ("node02", "node03", "node04")]


@pytest.mark.parametrize(
    ("gate", "key", "output", "first"),
    [
        (INVENTORY, "inventory", HEALTHY, "GPU serial 1650000000000 and 15 more"),
        (REDUCE, "launch0", text("nccl/dgx_h100_8_healthy.txt"), "NCCL launch node01 41000"),
    ],
    ids=["GPUs", "a launch"],
)
def test_what_only_one_node_can_have_is_refused_of_two(
    carried: Carried, gate: str, key: str, output: str, first: str
) -> None:
    none = {"fingerprint": None, "fingerprint_after": None}
    for name in ("a.txt", "b.txt"):
        carried.put(name, output)
    carried.outputs = [
        carried.output(node=node, gate=gate, key=key, file=name, **none)
        for node, name in (("node01", "a.txt"), ("node02", "b.txt"))
    ]
    assert carried.refused() == [
        (
            f"node02: {gate} {key}, b.txt - Expected: parts that no other node has "
            f"Actual: {first}, as a.txt of node01 has. Import an output that was captured on node02."
        )
    ]


def test_nodes_with_outputs_of_their_own_are_taken(carried: Carried) -> None:
    carried.put(
        "other.json", inventory({f"165000000000{at}": f"node02-{at}" for at in range(8)} | {"-8000-": "-8001-"})
    )
    carried.put("a.txt", launched(text("nccl/dgx_h100_8_healthy.txt"), 1))
    carried.put("b.txt", launched(text("nccl/dgx_h100_8_healthy.txt"), 2))
    carried.prints("node02.json", "node02")
    second = {"node": "node02", "fingerprint": "node02.json", "fingerprint_after": "node02.json"}
    carried.outputs += [carried.output(file="other.json", **second)]
    carried.outputs += [
        carried.output(gate=REDUCE, key="launch0", file="a.txt"),
        carried.output(gate=REDUCE, key="launch0", file="b.txt", **second),
    ]
    assert {(one.node, one.gate): one.lacks for one in carried.bring()} == {
        (node, gate): () for node in ("node01", "node02") for gate in (INVENTORY, REDUCE)
    }


MOVED = (
    "If parts were moved, run `rackready repair {} --reason '...'` and import outputs that were captured since. "
    "Otherwise one of the two is wrong."
)


def as_node02(carried: Carried) -> None:
    """Another inventory for node02, whose fingerprint has GPU 3 of node01."""
    gpus = [{"index": at, "id": f"node02-{at}" if at != 3 else "1650000000003", "vbios": "96.00"} for at in range(8)]
    carried.prints("node02.json", "node02", gpus=gpus)
    carried.put("topo.txt", text("topo/dgx_h100_healthy.txt"))
    one = {
        "gate": AFFINITY,
        "key": "topo",
        "file": "topo.txt",
        "fingerprint": "node02.json",
        "fingerprint_after": "node02.json",
    }
    carried.outputs.append(carried.output(node="node02", **one))


def test_a_gpu_in_the_fingerprints_of_two_nodes_is_refused(carried: Carried) -> None:
    as_node02(carried)
    said = (
        "node02: fingerprint - Expected: GPUs of its own Actual: 1 of 8 (first 1650000000003) are node01's in this "
        "import. "
    )
    assert carried.refused() == [said + MOVED.format("node01")]


def test_a_gpu_that_is_on_record_as_another_nodes_is_refused_until_that_node_is_repaired(carried: Carried) -> None:
    carried.bring()
    carried.outputs = []
    as_node02(carried)
    carried.manifest()
    with pytest.raises(CaptureRefusedError) as refusal:
        carried.bring()
    said = (
        "node02: fingerprint - Expected: GPUs of its own Actual: 1 of 8 (first 1650000000003) are node01's on record. "
    )
    assert [str(item) for item in refusal.value.messages] == [said + MOVED.format("node01")]
    carried.ledger.done(carried.ledger.change_begins("node01", "repair"), {})
    found: list[Imported] = carried.bring()
    assert [one.node for one in found] == ["node02"]
