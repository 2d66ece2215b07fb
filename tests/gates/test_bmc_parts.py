"""The parts that a BMC lists beside the platform profile: small trees in the shapes of several vendors, exact words.

Shapes are those of NVIDIA/libredfish c094c9e6, tests/mockups.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from rackready.design.site import load_site
from rackready.drivers.redfish_read import sealed
from rackready.gates.base import GateFacts
from rackready.gates.bmc.parts import PCIE, PartsListed
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from rackready_sim.hardware import build_state
from tests.gates.redfish_world import CHASSIS, SYSTEM, World, gathered, healthy, verdict, world
from tests.gates.support import Said, outputs, rack, tells

GPU3 = "/redfish/v1/Systems/HGX_Baseboard_0/Processors/GPU_SXM_3"
FUNCTION = "/redfish/v1/Chassis/HGX_GPU_SXM_3/PCIeDevices/GPU_SXM_3/PCIeFunctions/0"
CPU1 = f"{SYSTEM}/Processors/DevType1_CPU1"
ALL = "8 GPUs, 8 NICs, 10 drives, 32 memory modules, 2048 GiB of memory, 2 processors as in profile dgx_h100"


def changed(change: Callable[[World], object], known: GateFacts | None = None) -> Verdict:
    there = copy.deepcopy(world(healthy()))
    change(there)
    return verdict(PartsListed(), there, known)


def without(there: World, collection: str, member: str) -> None:
    found = there[collection]
    found["Members"] = [item for item in found["Members"] if item["@odata.id"] != member]
    found["Members@odata.count"] = len(found["Members"])


def platform(**update: Any) -> GateFacts:
    """Return the facts of the simulated rack with a changed platform profile."""
    known = rack()
    one = known.nodes["node01"]
    node = dataclasses.replace(one, platform=one.platform.model_copy(update=update))
    return dataclasses.replace(known, nodes={**known.nodes, "node01": node})


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            lambda there: without(there, GPU3.rpartition("/")[0], GPU3),
            ("bmc-gpus-missing", "node01", "8 GPUs", "7, none at GPU_SXM_3"),
        ),
        (
            lambda there: there[GPU3].update(Status={"State": "Absent"}),
            ("bmc-gpus-missing", "node01", "8 GPUs", "7, none at GPU_SXM_3"),
        ),
        (
            lambda there: there[FUNCTION].update(DeviceId="0x20b2"),
            ("bmc-gpu-model", "node01 GPU_SXM_3", "PCI device 2330 (NVIDIA H100 80GB HBM3)", "PCI device 20b2"),
        ),
        (
            lambda there: without(there, f"{CHASSIS}/NetworkAdapters", f"{CHASSIS}/NetworkAdapters/DevType7_NIC6"),
            (
                "bmc-nic-not-in-its-slot",
                "node01 mlx5_10 (rail 7)",
                "a NIC at 00_CE_00 (PCI 0000:ce:00.0)",
                "none there",
            ),
        ),
        (
            lambda there: there[f"{SYSTEM}/Storage/NVMe"].update(Drives=there[f"{SYSTEM}/Storage/NVMe"]["Drives"][:2]),
            ("bmc-drives", "node01", "10 drives", "2 (NVMe0, NVMe1)"),
        ),
        (
            lambda there: there[CPU1].update(TotalCores=48),
            ("bmc-processor-cores", "node01 processor DevType1_CPU1", "56", "48"),
        ),
        (
            lambda there: there[CPU1].update(Model="Intel(R) Xeon(R) Platinum 8462Y+"),
            (
                "bmc-processor-model",
                "node01 processor DevType1_CPU1",
                "8480C",
                "Intel(R) Xeon(R) Platinum 8462Y+",
            ),
        ),
        (
            lambda there: there[CPU1].update(Status={"State": "Absent"}),
            ("bmc-processors", "node01", "2 processors", "1 (DevType1_CPU0)"),
        ),
        (
            lambda there: there[f"{SYSTEM}/Memory/DIMM7"].update(CapacityMiB=32768),
            ("bmc-memory-size", "node01", "at least 2048 GiB", "2016 GiB"),
        ),
    ],
    ids=["gpu", "absent", "model", "nic", "drives", "cores", "cpu", "socket", "memory"],
)
def test_a_part_that_is_not_as_in_the_profile_is_named(
    change: Callable[[World], object], found: tuple[str, ...]
) -> None:
    judged = changed(change)
    assert judged.outcome is Outcome.FAIL
    assert tells(judged) == [found]


def test_a_missing_module_is_counted_and_missed_in_the_size() -> None:
    judged = changed(lambda there: there[f"{SYSTEM}/Memory/DIMM7"].update(Status={"State": "Absent"}))
    assert [(row[0], row[3].split(" (")[0]) for row in tells(judged)] == [
        ("bmc-memory-modules", "31"),
        ("bmc-memory-size", "1984 GiB"),
    ]


def test_more_gpus_than_the_platform_has() -> None:
    judged = changed(lambda _there: None, platform(gpus=4, redfish=None))
    assert tells(judged)[0][:3] == ("bmc-gpus-too-many", "node01", "4 GPUs")


def test_gpus_whose_names_do_not_fit_the_profile_are_listed_and_not_missed_by_name() -> None:
    names = [f"GPU_{index}" for index in range(8)]
    known = platform(redfish=rack().nodes["node01"].platform.redfish.model_copy(update={"gpus": names}))  # type: ignore[union-attr]
    judged = changed(lambda there: without(there, GPU3.rpartition("/")[0], GPU3), known)
    assert tells(judged)[0][3] == ("7 (GPU_SXM_1, GPU_SXM_2, GPU_SXM_4, GPU_SXM_5, GPU_SXM_6, GPU_SXM_7, GPU_SXM_8)")


def test_a_supermicros_gpus_are_its_pcie_devices() -> None:
    known = facts("sys_821ge_h100")
    there = supermicro(8)
    judged = asked(there, known)
    assert (judged.outcome, judged.note) == (
        Outcome.PASS,
        (
            "8 GPUs as in profile sys_821ge_h100; not compared: model of 8 GPUs (the BMC reports no PCI device id of "
            "them), slots of NICs (profile sys_821ge_h100 does not name them as its BMC does), drives (profile "
            "sys_821ge_h100 says nothing about them), memory (profile sys_821ge_h100 says nothing about them), "
            "processors (profile sys_821ge_h100 says nothing about them)"
        ),
    )
    assert tells(asked(supermicro(7), known))[0][:4] == ("bmc-gpus-missing", "node01", "8 GPUs", "7, none at GPU8")


def supermicro(count: int) -> World:
    """Return a tree in the shape of the mockup: GPUs are only PCIe devices, and their functions have no ids."""
    state = build_state(load_site("sim"), "node01")
    state["chassis"]["manufacturer"] = "Supermicro"
    for index, gpu in enumerate(state["gpus"]):
        gpu.update(bmc_name=f"GPU{index + 1}", present=index < count)
    return world(state)


def asked(there: World, known: GateFacts) -> Verdict:
    """Return the verdict after the gate's own stages."""
    gate = PartsListed()
    there[SYSTEM].setdefault("Model", known.nodes["node01"].platform.product)
    run = gate.plan(known, ["node01"])[0]
    first, second = run.commands
    said = {first.key: Said(gathered(there, first.argv[1:]))}
    if not gate.ended(run, outputs(run, said)):
        said[second.key] = Said(gathered(there, second.argv[1:]))
    return gate.evaluate(known, run, outputs(run, said))


def test_pcie_devices_are_only_asked_where_no_processor_is_a_gpu() -> None:
    gate, known = PartsListed(), rack()
    run = gate.plan(known, ["node01"])[0]
    first, second = run.commands
    assert (second.key, second.stage, run.chained) == (PCIE, 1, True)
    assert gate.ended(run, outputs(run, {first.key: Said(gathered(world(healthy()), first.argv[1:]))}))
    assert not gate.ended(run, outputs(run, {first.key: Said(gathered(supermicro(8), first.argv[1:]))}))
    assert gate.ended(run, outputs(run, {first.key: Said("not json")})), "it is judged as it is"


def test_a_drive_on_usb_is_not_the_hosts() -> None:
    place = f"{SYSTEM}/Storage/NVMe/Drives/USB_Device2_PortA"

    def add(there: World) -> None:
        there[place] = {"@odata.id": place, "Id": "USB_Device2_PortA", "Status": {"State": "Enabled"}}
        there[f"{SYSTEM}/Storage/NVMe"]["Drives"].append({"@odata.id": place})

    assert changed(add).outcome is Outcome.PASS


def test_what_is_not_compared_is_in_the_note() -> None:
    judged = changed(lambda _there: None, platform(host=None, redfish=None))
    assert (judged.outcome, judged.note) == (
        Outcome.PASS,
        (
            "8 GPUs as in profile dgx_h100; not compared: slots of NICs (profile dgx_h100 does not name them as its "
            "BMC does), drives (profile dgx_h100 says nothing about them), memory (profile dgx_h100 says nothing about "
            "them), processors (profile dgx_h100 says nothing about them)"
        ),
    )
    left = changed(lambda there: there[f"{SYSTEM}/Storage/NVMe"].update(Drives=[]))
    assert left.outcome is Outcome.PASS
    assert left.note == (
        "8 GPUs, 8 NICs, 32 memory modules, 2048 GiB of memory, 2 processors as in profile dgx_h100; not compared: "
        "drives (the BMC lists none), model of the processors (the BMC does not report it)"
    )


def test_a_gate_that_compared_nothing_measures_nothing() -> None:
    known = platform(host=None, redfish=None)
    gate = PartsListed({"parts": ["drives", "memory"]})
    judged = verdict(gate, world(healthy()), known)
    assert (judged.outcome, judged.measured) == (Outcome.PASS, [])
    assert (judged.note or "").startswith("not compared: drives (profile dgx_h100 says nothing about them)")


def test_a_profile_names_every_part_once() -> None:
    wrong = {**rack().nodes["node01"].platform.model_dump(), "gpus": 4}
    with pytest.raises(ValueError, match=r"redfish.gpus - Expected: 4 different names, as many as it has Actual: 8"):
        rack().nodes["node01"].platform.__class__.model_validate(wrong)


def test_a_storage_collection_without_members_is_not_compared() -> None:
    # As a DGX H100 answers: nvidia_viking, Systems/DGX/Storage.
    def bare(there: World) -> None:
        found = there[f"{SYSTEM}/Storage"]
        del found["Members"], found["Members@odata.count"]

    found = changed(bare)
    assert found.outcome is Outcome.PASS
    assert "not compared: drives (the BMC lists none)" in str(found.note)


def test_another_collection_without_members_is_an_error() -> None:
    def bare(there: World) -> None:
        found = there[f"{SYSTEM}/Memory"]
        del found["Members"], found["Members@odata.count"]

    assert tells(changed(bare))[0][0] == "bmc-link-unread"


def answered(change: Callable[[dict[str, Any]], object]) -> Verdict:
    """Return the verdict on the stored answer of a storage collection without members, after a change."""
    there = copy.deepcopy(world(healthy()))
    found = there[f"{SYSTEM}/Storage"]
    del found["Members"], found["Members@odata.count"]
    gate, known = PartsListed(), rack()
    run = gate.plan(known, ["node01"])[0]
    told = json.loads(gathered(there, run.commands[0].argv[1:]))
    del told["digest"]
    change(told)
    return gate.evaluate(known, run, outputs(run, {"redfish": Said(json.dumps(sealed(told)))}))


def test_the_field_and_not_the_words_says_that_a_collection_has_no_members() -> None:
    judged = answered(lambda told: told["unread"].update({f"{SYSTEM}/Storage": "in the words of another release"}))
    assert (judged.outcome, judged.findings) == (Outcome.PASS, [])


def test_the_answer_of_an_earlier_release_does_not_say_why_a_collection_is_unread() -> None:
    judged = answered(lambda told: told.pop("no_members"))
    assert (judged.outcome, tells(judged)) == (
        Outcome.ERROR,
        [
            (
                "bmc-link-unread",
                "node01 BMC",
                "a document, since the BMC links to it",
                "no collection: it has no Members",
                "what=parts",
                f"address={SYSTEM}/Storage",
            )
        ],
    )
