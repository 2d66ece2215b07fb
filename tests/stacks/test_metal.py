"""The metal stack's program, run against Pulumi's mocks: what it declares."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.runtime import mocks as pulumi_mocks
from pydantic import ValidationError

from rackready.design.site import load_site
from rackready.stacks import metal
from rackready.stacks.args import NodeArgs, RackArgs, rack_args
from rackready.stacks.kinds import METAL
from tests.unit.drivers.site_access import site_with

ROOT = Path(__file__).resolve().parents[2]


class Mocks(pulumi.runtime.Mocks):
    def __init__(self) -> None:
        self.made: list[pulumi_mocks.MockResourceArgs] = []

    def new_resource(self, args: pulumi_mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.made.append(args)
        return args.name, {**args.inputs, "power": "On", "made": True}

    def call(self, args: pulumi_mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        raise AssertionError(args)


@pytest.fixture
def declared() -> Iterator[Mocks]:
    mocks = Mocks()
    loop = (
        asyncio.new_event_loop()
    )  # Pulumi takes the thread's own, and a test that called asyncio.run before leaves none
    asyncio.set_event_loop(loop)
    pulumi.runtime.set_mocks(mocks, project="rackready-metal", stack="sim-rack01", preview=False)
    yield mocks
    pulumi.runtime.settings.reset_options()
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture
def args() -> RackArgs:
    return rack_args(load_site("sim", site_file=ROOT / "inventories/sim/site.yml", root=ROOT), "sim", "rack01")


def test_every_node_of_the_rack_is_declared(declared: Mocks, args: RackArgs) -> None:
    seen: dict[str, Any] = {}

    @pulumi.runtime.test
    def program() -> pulumi.Output[None]:
        components = [metal.MetalNode(node) for node in args.nodes]
        return pulumi.Output.all(*[component.made for component in components]).apply(
            lambda made: seen.update(made=made)
        )

    program()
    nodes = [item for item in declared.made if item.typ == metal.NODE_TYPE]
    assert sorted(item.name for item in nodes) == ["node01", "node02", "node03", "node04"]
    assert sum(item.typ == metal.COMPONENT_TYPE for item in declared.made) == 4
    assert seen["made"] == [True] * 4


def test_no_secret_enters_the_stack(declared: Mocks, args: RackArgs, tmp_path: Path) -> None:
    secret = tmp_path / "bmc"
    secret.write_text("do-not-leak")
    node = args.nodes[0].model_copy(
        update={
            "bmc": args.nodes[0].bmc.model_copy(
                update={"password": args.nodes[0].bmc.password.model_copy(update={"file": secret})}
            )
        }
    )

    @pulumi.runtime.test
    def program() -> pulumi.Output[bool]:
        return metal.MetalNode(node).made

    program()
    inputs = next(item.inputs for item in declared.made if item.typ == metal.NODE_TYPE)
    assert inputs["bmc"]["password"] == {"file": str(secret)}
    assert "do-not-leak" not in str(inputs)


def test_inputs_are_what_the_site_file_says(args: RackArgs) -> None:
    node = args.nodes[2]
    assert (node.env, node.node, node.serial, str(node.bmc.address), str(node.ssh.address)) == (
        "sim",
        "node03",
        "SIM-DGXH100-0003",
        "192.0.2.113",
        "192.0.2.13",
    )
    assert node.timeout_s == 900
    assert NodeArgs.model_validate(node.model_dump(mode="json", exclude_none=True)) == node


def test_the_jump_host_is_an_input_where_the_site_has_one(args: RackArgs) -> None:
    assert "jump" not in args.nodes[0].model_dump(mode="json", exclude_none=True)["ssh"]
    hop = {"host": "bastion.example.com", "port": 2222, "user": "hop"}
    site = site_with(proxy_jump=hop)
    given = rack_args(site, "sim", "rack01").nodes[0].ssh.jump
    assert given is not None
    assert given.model_dump(mode="json") == {**hop, "private_key": str(site.access.private_key)}
    own = rack_args(site_with(proxy_jump={**hop, "private_key": "keys/hop"}), "sim", "rack01").nodes[0].ssh.jump
    assert own is not None
    assert str(own.private_key) == "/checkout/keys/hop"


def test_an_unknown_rack_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="rack99"):
        rack_args(load_site("sim", site_file=ROOT / "inventories/sim/site.yml", root=ROOT), "sim", "rack99")


@pytest.mark.parametrize("change", [{"serial": ""}, {"timeout_s": 0}, {"boot": "Floppy"}, {"password": "clear"}])
def test_malformed_arguments_are_refused_before_any_resource_exists(args: RackArgs, change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(change))):
        NodeArgs.model_validate({**args.nodes[0].model_dump(mode="json"), **change})


def test_targets_name_each_node_with_its_component() -> None:
    assert METAL.urns("sim-rack01", ["node02"]) == [
        "urn:pulumi:sim-rack01::rackready-metal::rackready:stacks:MetalNode::node02",
        "urn:pulumi:sim-rack01::rackready-metal::rackready:stacks:MetalNode$rackready:metal:Node::node02",
    ]
