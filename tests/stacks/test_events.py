"""From the engine's events to results: silence is an error, and messages are ours alone."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi.automation import EngineEvent

from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult
from rackready.stacks.events import Recorder, clean
from rackready.stacks.kinds import METAL
from rackready.stacks.metal import NODE_TYPE

COMPONENT, NODE = METAL.urns("sim-rack01", ["node01"])


def step(op: str, urn: str = NODE, **state: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "op": op,
            "urn": urn,
            "type": urn.split("::")[2].rsplit("$", maxsplit=1)[-1],
            "provider": "p",
            **state,
        }
    }


def results(*events: dict[str, Any], check: bool = False) -> NodeResult:
    recorder = Recorder()
    for number, event in enumerate(events):
        recorder.take(EngineEvent.from_json({"sequence": number, "timestamp": 0, **event}))
    return recorder.results(["node01"], check=check)["node01"]


def test_of_a_created_node_the_outputs_are_kept() -> None:
    outputs = {"power": "On", "made": True, "boot_id": "b", "serial": "s", "host_key": "k"}
    found = results(
        {"resourcePreEvent": step("create")},
        {"resOutputsEvent": step("create", new={"type": NODE_TYPE, "outputs": outputs})},
    )
    assert (found.outcome, found.changed, found.message) == (Outcome.PASS, True, "powered on, SSH answers")
    assert found.data == {"power": "On", "made": True, "boot_id": "b", "serial": "s"}


def test_an_unchanged_node_is_a_pass_without_a_change() -> None:
    found = results(
        {"resOutputsEvent": step("refresh")},
        {"resOutputsEvent": step("same", new={"outputs": {"power": "On", "made": False}})},
    )
    assert (found.outcome, found.changed, found.message) == (Outcome.PASS, False, "as it should be")


IMAGE = "write image debian12 to serial S1 (UEFI PXE boot)"


@pytest.mark.parametrize(
    ("event", "imaging", "message"),
    [
        ({"op": "create"}, "", "would create: power on, wait for SSH, pin its host key"),
        (
            {"op": "create"},
            IMAGE,
            f"would create: if it is off, {IMAGE}; wait for SSH with the host key that rackready made",
        ),
        (
            {"op": "update", "diffs": ["erase"]},
            IMAGE,
            f"would update: power off, erase its disks, {IMAGE}, wait for SSH",
        ),
        ({"op": "update", "diffs": ["power"]}, IMAGE, "would update: bring back power"),
    ],
)
def test_a_dry_run_tells_what_would_be_written(event: dict[str, Any], imaging: str, message: str) -> None:
    recorder = Recorder()
    recorder.imaging = {"node01": imaging} if imaging else {}
    recorder.take(EngineEvent.from_json({"sequence": 0, "timestamp": 0, "resourcePreEvent": step(**event)}))
    assert recorder.results(["node01"], check=True)["node01"].message == message


def test_silence_about_a_node_is_an_error() -> None:
    found = results()
    assert found.outcome is Outcome.ERROR
    assert found.message.startswith(
        "node01: not provisioned - Expected: a result Actual: the engine reported nothing about it."
    )


def test_a_refresh_alone_is_not_a_result() -> None:
    assert results({"resourcePreEvent": step("refresh")}).outcome is Outcome.ERROR


def test_what_stopped_the_stack_is_said_of_each_silent_node() -> None:
    found = results(
        {
            "diagnosticEvent": {
                "message": "error: no space left on device",
                "color": "never",
                "severity": "error",
                "urn": "urn:pulumi:s::p::pulumi:pulumi:Stack::x",
            }
        }
    )
    assert (found.outcome, "no space left on device" in found.message) == (Outcome.ERROR, True)


@pytest.mark.parametrize("urn", [NODE, COMPONENT])
def test_an_error_of_the_node_is_its_message(urn: str) -> None:
    found = results(
        {"resourcePreEvent": step("create")},
        {
            "diagnosticEvent": {
                "message": "node01 BMC 192.0.2.1:443: refused",
                "color": "never",
                "severity": "error",
                "urn": urn,
            }
        },
        {"resOpFailedEvent": {**step("create"), "status": 0, "steps": 0}},
    )
    assert (found.outcome, found.message) == (Outcome.ERROR, "node01 BMC 192.0.2.1:443: refused")


def test_a_failure_without_a_word_is_still_an_error() -> None:
    found = results(
        {"resourcePreEvent": step("create")}, {"resOpFailedEvent": {**step("create"), "status": 0, "steps": 0}}
    )
    assert found.outcome is Outcome.ERROR


def test_warnings_are_no_errors() -> None:
    found = results(
        {"resOutputsEvent": step("same", new={"outputs": {}})},
        {"diagnosticEvent": {"message": "m", "color": "never", "severity": "warning", "urn": NODE}},
    )
    assert found.outcome is Outcome.PASS


def test_a_preview_says_what_would_be_brought_back() -> None:
    found = results({"resourcePreEvent": step("update", diffs=["power"], old={"outputs": {"problem": ""}})}, check=True)
    assert (found.message, found.changed, found.data) == ("would update: bring back power", True, {})


def test_a_preview_of_a_node_whose_bmc_cannot_tell_is_an_error() -> None:
    found = results(
        {"resourcePreEvent": step("update", diffs=["power"], old={"outputs": {"problem": "node01 BMC: refused"}})},
        check=True,
    )
    assert (found.outcome, found.message) == (Outcome.ERROR, "node01 BMC: refused")


@pytest.mark.parametrize(("made", "words"), [(True, "powered off"), (False, "was on before us, left on")])
def test_a_deleted_node(made: bool, words: str) -> None:  # noqa: FBT001 - a parameter of the table
    found = results(
        {"resourcePreEvent": step("delete")}, {"resOutputsEvent": step("delete", new={"outputs": {"made": made}})}
    )
    assert (found.message, found.changed, found.data) == (words, True, {})


@pytest.mark.parametrize(
    ("wrapped", "bare"),
    [
        ("Preview failed: rpc error: code = Unknown desc = no", "no"),
        ("1 error occurred:\n\t* rpc error: code = Unknown desc = Unexpected <class 'ValueError'>: bad\n\n", "bad"),
        ("<{%reset%}>plain\n  words<{%reset%}>", "plain words"),
    ],
)
def test_the_engines_wrapping_is_taken_off(wrapped: str, bare: str) -> None:
    assert clean(wrapped) == bare


def test_only_nodes_have_a_node() -> None:
    assert METAL.node_of(NODE) == METAL.node_of(COMPONENT) == "node01"
    assert METAL.node_of("urn:pulumi:s::p::pulumi:pulumi:Stack::x") == METAL.node_of("") == ""


def test_the_engine_has_started_when_it_works_on_a_node() -> None:
    recorder, told = Recorder(), list[str]()
    recorder.begun = lambda: told.append("begun")
    stack = NODE.split("::")[0] + "::rackready-metal::pulumi:pulumi:Stack::rackready-metal-sim-rack01"
    for urn, seen in ((stack, []), (COMPONENT, []), (NODE, ["begun"])):
        event = {"sequence": 1, "timestamp": 0, "resourcePreEvent": step("create", urn)}
        recorder.take(EngineEvent.from_json(event))
        assert told == seen
