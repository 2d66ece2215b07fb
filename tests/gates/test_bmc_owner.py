"""Identity of a BMC: it must be a server's, of the model in the site file.

Answers of a card in it, or of another server, are never a server's pass.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from rackready.drivers.redfish_read import sealed
from rackready.gates.bmc.events import Events
from rackready.gates.bmc.rack import RackPower
from rackready.gates.bmc.rollup import Rollup
from rackready.gates.engine.registry import all_gates, gate
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from tests.gates.redfish_world import CHASSIS, MANAGER, SYSTEM, World, gathered, healthy, said, verdict, world
from tests.gates.support import Said, outputs, rack, tells
from tests.gates.test_bmc_rack import PDU, SHELF

SANITY = sorted(gate_id for gate_id in all_gates() if gate_id.startswith("bmc/") and "/sanity/" in gate_id)
BOARD, DPU = "/redfish/v1/Systems/HGX_Baseboard_0", "/redfish/v1/Systems/DPU1"
CARD = "/redfish/v1/Chassis/Card1"


def link(address: str) -> dict[str, str]:
    return {"@odata.id": address}


def bluefield(**system: Any) -> World:
    """A BlueField's own BMC, in the shape of a BF3's, healthy.

    NVIDIA/bare-metal-manager-core 7778162, bmc-mock, nvidia_dpu.tar.gz.
    """
    text = (
        json.dumps(world(healthy()))
        .replace(SYSTEM, "/redfish/v1/Systems/Bluefield")
        .replace(CHASSIS, CARD)
        .replace(MANAGER, f"{MANAGER}_BF")
    )
    there: World = json.loads(text)
    systems = there["/redfish/v1/Systems"]
    systems["Members"] = [item for item in systems["Members"] if "HGX_" not in item["@odata.id"]]
    systems["Members@odata.count"] = len(systems["Members"])
    there["/redfish/v1/Systems/Bluefield"] |= {"Id": "Bluefield", "SystemType": "Physical", **system}
    there[CARD] |= {
        "Id": "Card1",
        "ChassisType": "Card",
        "Links": {"ComputerSystems": [link("/redfish/v1/Systems/Bluefield")]},
    }
    return there


def of_server(**changed: Any) -> World:
    there = world(healthy())
    there[SYSTEM] |= changed
    return there


def beside(there: World, address: str, **fields: Any) -> World:
    """Return it with a further system, as healthy as the first one."""
    there["/redfish/v1/Systems"]["Members"].append(link(address))
    there["/redfish/v1/Systems"]["Members@odata.count"] += 1
    there[address] = {
        "@odata.id": address,
        "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
        "Id": address.rsplit("/", 1)[-1],
        **fields,
    }
    return there


def without_host(there: World) -> World:
    there["/redfish/v1/Systems"].update(
        {"Members": there["/redfish/v1/Systems"]["Members"][1:], "Members@odata.count": 1}
    )
    del there[SYSTEM]
    return there


@pytest.mark.parametrize("gate_id", SANITY)
@pytest.mark.parametrize("model", [None, "BlueField-3 DPU"])
def test_the_bmc_of_a_card_is_no_servers(gate_id: str, model: str | None) -> None:
    found = verdict(gate(gate_id), bluefield(Model=model))
    assert found.outcome is Outcome.ERROR
    cards = ", chassis Card1" if "Chassis/*" in gate(gate_id).plan(rack(), ["node01"])[0].commands[0].argv else ""
    assert tells(found) == [
        ("bmc-other-machine", "node01 BMC", "a DGXH100 (dgx_h100)", f"system Bluefield{cards}", "node=node01")
    ]


@pytest.mark.parametrize("gate_id", SANITY)
def test_the_bmc_of_another_model_is_not_this_servers(gate_id: str) -> None:
    found = verdict(gate(gate_id), of_server(Model="PowerEdge R750"))
    assert found.outcome is Outcome.ERROR
    assert tells(found) == [
        ("bmc-other-machine", "node01 BMC", "a DGXH100 (dgx_h100)", "PowerEdge R750", "node=node01")
    ]


@pytest.mark.parametrize(
    ("there", "actual"),
    [
        (of_server(Model="DGXH100a"), "DGXH100a"),
        (of_server(Model=" "), "a model without a name"),
        (without_host(beside(world(healthy()), BOARD, Model="HGX H100 8-GPU")), "system HGX_Baseboard_0"),
        (
            without_host(beside(world(healthy()), DPU, SystemType="DPU", Model="DSC25v2")),
            "system HGX_Baseboard_0, system DPU1",
        ),
        (beside(of_server(Model="ProLiant XL675d"), DPU, SystemType="DPU", Model="DSC25v2"), "ProLiant XL675d"),
    ],
    ids=["letters more", "empty", "only the board of its GPUs", "only a DPU", "a DPU beside another server"],
)
def test_none_of_the_systems_is_the_server(there: World, actual: str) -> None:
    found = verdict(Rollup(), there)
    assert (found.outcome, tells(found)) == (
        Outcome.ERROR,
        [("bmc-other-machine", "node01 BMC", "a DGXH100 (dgx_h100)", actual, "node=node01")],
    )


@pytest.mark.parametrize(
    "there",
    [
        of_server(Model="DGXH100"),
        of_server(Model="dgxh100  "),
        of_server(Model="DGXH100 920-23687-2530-000"),
        beside(of_server(Model="DGXH100"), BOARD, Model=""),
        beside(of_server(Model="S8056"), BOARD, Model="DGXH100"),
        beside(of_server(Model="DGXH100"), DPU, SystemType="DPU", Model="DSC25v2"),
    ],
    ids=["product", "blanks and case", "with its part number", "host and board", "the board tells it", "host and DPU"],
)
def test_one_of_the_systems_is_the_server(there: World) -> None:
    found = verdict(Rollup(), there)
    assert (found.outcome, tells(found), found.note) == (Outcome.PASS, [], None)


def test_a_server_that_tells_no_model_is_judged_and_that_is_said() -> None:
    """As a GH200's BMC: its system has neither a manufacturer nor a model."""
    found = verdict(Rollup(), of_server(Model=None))
    assert (found.outcome, found.note) == (Outcome.PASS, "its BMC does not report the server's model")


def of_earlier_version(there: World, change: Callable[[dict[str, Any]], object] = lambda _: None) -> Verdict:
    """Return the verdict of the gate of event logs on an answer without systems."""
    known = rack()
    run = Events().plan(known, ["node01"])[0]
    command = run.commands[0]
    found = json.loads(gathered(there, [trail for trail in command.argv[1:] if trail != "Systems/*"]))
    change(found)
    return Events().evaluate(known, run, outputs(run, {command.key: Said(json.dumps(sealed(found)))}))


def test_an_answer_of_an_earlier_version_is_judged_by_the_names_in_it() -> None:
    good = of_earlier_version(world(healthy()))
    assert (good.outcome, good.note) == (
        Outcome.PASS,
        "the server's model was not asked; no earlier pass: every entry of the logs was judged",
    )
    bad = of_earlier_version(bluefield())
    assert tells(bad) == [
        ("bmc-other-machine", "node01 BMC", "a DGXH100 (dgx_h100)", "system Bluefield", "node=node01")
    ]


def test_an_answer_without_the_systems_that_a_gate_judges_is_not_whole() -> None:
    run, told = said(Rollup(), rack(), world(healthy()))
    output = told["redfish"]
    found = json.loads(output.stdout)
    del found["trails"]["Systems/*"]
    judged = Rollup().evaluate(rack(), run, {"redfish": dataclasses.replace(output, stdout=json.dumps(sealed(found)))})
    ((code, where, _, _, *values),) = tells(judged)
    assert (code, where, values) == ("bmc-not-all-asked", "node01 BMC", ["what=health"])


def test_a_model_is_compared_with_the_nodes_own_profile() -> None:
    there = of_server(Model="GB200 NVL72")
    assert verdict(Rollup(), copy.deepcopy(there), facts("gb200_nvl72")).outcome is Outcome.PASS
    assert verdict(Rollup(), there, facts("gb300_nvl72")).outcome is Outcome.ERROR


@pytest.mark.parametrize(
    ("device", "there", "actual"),
    [
        (SHELF, of_server(ProcessorSummary={"Count": 2}), "system DGX, which has processors"),
        (PDU, of_server(), "6 power supplies alone"),
    ],
)
def test_a_servers_bmc_is_no_power_shelf_and_no_pdu(device: Any, there: World, actual: str) -> None:  # noqa: ANN401 - a device of the site
    known = dataclasses.replace(rack(), devices=(device,))
    run = RackPower().plan(known, ["node01"])[0]
    found = RackPower().evaluate(
        known, run, outputs(run, {command.key: Said(gathered(there, command.argv[1:])) for command in run.commands})
    )
    said = ("rack-no-power-equipment", device.name, "a PDU or power shelf in its Redfish service", actual)
    assert (found.outcome, tells(found)) == (
        Outcome.ERROR,
        [said],
    )
