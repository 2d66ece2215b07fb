"""A Redfish service from a hardware state, without a socket: the simulated BMC, read by the same code as real ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from rackready.design.site import load_site
from rackready.drivers.redfish_errors import BmcError
from rackready.drivers.redfish_read import ROOT, Walk
from rackready.drivers.remote import Answer
from rackready.gates.base import Gate, GateFacts, Outputs, Run
from rackready.model.outcome import Verdict
from rackready_sim import faults
from rackready_sim.hardware import build_state
from rackready_sim.redfish import parts, telemetry
from tests.gates.support import Said, outputs, rack

SYSTEM, CHASSIS, MANAGER = "/redfish/v1/Systems/DGX", "/redfish/v1/Chassis/DGX", "/redfish/v1/Managers/BMC"
World = dict[str, dict[str, Any]]


def healthy(node: str = "node01") -> dict[str, Any]:
    """The state of a healthy node of the simulated rack."""
    return build_state(load_site("sim"), node)


def broken(fault: str, **params: object) -> dict[str, Any]:
    """The state of a node with one fault."""
    state = healthy()
    faults.inject(state, fault, **params)
    return state


def world(state: dict[str, Any]) -> World:
    """Every resource of the BMC of a node in this state."""
    of_system, of_chassis, of_manager = telemetry.links(state, SYSTEM, CHASSIS, MANAGER)
    chassis = state["chassis"]
    tops = {
        SYSTEM: {
            "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
            "BiosVersion": chassis["bios"],
            "Links": {"ManagedBy": [_link(MANAGER)]},
            **of_system,
        },
        CHASSIS: {"@odata.type": "#Chassis.v1_22_0.Chassis", "ChassisType": "RackMount", **of_chassis},
        MANAGER: {"@odata.type": "#Manager.v1_17_0.Manager", "FirmwareVersion": chassis["bmc"], **of_manager},
    }
    found: World = {
        address: {"@odata.id": address, "Id": address.rsplit("/", 1)[-1], **document}
        for address, document in tops.items()
    }
    root: dict[str, Any] = {"@odata.id": ROOT}
    for address in tops:
        above, name = address.rsplit("/", 1)[0], address.split("/")[3]
        root[name] = _link(above)
        listed = [address, *(parts.boards(state) if address == SYSTEM else [])]
        found[above] = {"@odata.id": above, "Members": list(map(_link, listed)), "Members@odata.count": len(listed)}
    return {ROOT: root, **found, **telemetry.documents(state, SYSTEM, CHASSIS, MANAGER)}


def _link(address: str) -> dict[str, str]:
    return {"@odata.id": address}


def gathered(there: World, trails: Sequence[str]) -> str:
    """Return the answer of a BMC with these resources to a GET of these trails."""
    return json.dumps(Walk(getter(there)).all(trails).document())


def getter(there: World) -> Callable[[str], dict[str, Any]]:
    def get(address: str) -> dict[str, Any]:
        if address not in there:
            raise BmcError(f"node01 BMC: Redfish - Expected: success Actual: HTTP 404: {address}")
        return copy.deepcopy(there[address])

    return get


def said(gate: Gate, facts: GateFacts, there: World) -> tuple[Run, Outputs]:
    """Return the run of a gate of the BMC on node01, and its output.

    The server is of the site's model unless the test names another.
    """
    if SYSTEM in there:
        there[SYSTEM].setdefault("Model", facts.nodes["node01"].platform.product)
    run, texts = gate.plan(facts, ["node01"])[0], {}
    for stage in sorted({command.stage for command in run.commands}):
        here = [command for command in run.commands if command.stage == stage and command.argv[0] == "GET"]
        texts |= {command.key: Said(gathered(there, command.argv[1:])) for command in here}
        if run.chained and gate.ended(run, outputs(run, texts)):  # as the runner: no further stage is run
            break
    return run, outputs(run, texts)


def verdict(gate: Gate, there: World, facts: GateFacts | None = None) -> Verdict:
    """Return a gate's verdict on a BMC with these resources."""
    known = facts or rack()
    return gate.evaluate(known, *said(gate, known, there))


class FakeBmcs:
    """BMCs of healthy nodes of the simulated rack, asked as real ones are, without a socket.

    ``states``: nodes with another state.
    """

    def __init__(self, states: Mapping[str, dict[str, Any]] | None = None) -> None:
        self.states = dict(states or {})
        self.asked: list[tuple[str, str]] = []

    def run(self, node: str, argv: Sequence[str], *, timeout_s: float) -> Answer:
        """Answer a GET; power is not cycled here."""
        del timeout_s
        self.asked.append((node, argv[0]))
        if argv[0] != "GET":
            return Answer(None, "", "", 0.0, failure=f"{node}: no power is cycled in this test")
        state = self.states.get(node)
        return Answer(0, gathered(world(state), argv[1:]) if state else _of_a_healthy_node(tuple(argv[1:])), "", 0.1)


@cache
def _of_a_healthy_node(trails: tuple[str, ...]) -> str:
    return gathered(world(healthy()), trails)
