"""The AWS stack against Pulumi's mocks: what it declares, that the policy pack passes it, and its refusals."""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.runtime import mocks as pulumi_mocks
from pydantic import ValidationError

from rackready.design.site import parse_site
from rackready.model.problems import RackreadyError, SiteInvalidError
from rackready.stacks.aws_args import AwsRackArgs
from rackready.stacks.policy import RULES, TAGGED
from tests.unit.boot_service.sites import document

ROOT = Path(__file__).resolve().parents[2]
RACK: dict[str, Any] = {
    "instance_type": "p5.48xlarge",
    "network_cards": 32,
    "ami": "ami-0a1b2c",
    "vpc": "vpc-01",
    "subnet": "subnet-02",
    "key_name": "rackready",
    "admin_networks": ["10.1.0.0/24"],
    "nodes": [{"node": "gpu01", "address": "10.2.0.11"}, {"node": "gpu02", "address": "10.2.0.12"}],
}
ARGS = {**RACK, "env": "cloud", "rack": "p5"}
needs_aws = pytest.mark.skipif(
    importlib.util.find_spec("pulumi_aws") is None, reason="needs pulumi-aws: `make setup-dev` installs it"
)


class Mocks(pulumi.runtime.Mocks):
    def __init__(self) -> None:
        self.made: list[pulumi_mocks.MockResourceArgs] = []
        self.state = "running"

    def new_resource(self, args: pulumi_mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.made.append(args)
        more = {"instanceState": self.state, "name": f"{args.name}-made"}
        return f"{args.name}-id", {**args.inputs, **more}

    def call(self, args: pulumi_mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        raise AssertionError(args)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the inputs of every resource whose type ends so, by name: the engine registers in any order."""
        found = [item for item in self.made if item.typ.endswith(f":{kind}")]
        return [dict(item.inputs) for item in sorted(found, key=lambda item: item.name)]


@pytest.fixture
def mocks() -> Iterator[Mocks]:
    made = Mocks()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    pulumi.runtime.set_mocks(made, project="rackready-aws", stack="cloud-p5", preview=False)
    yield made
    pulumi.runtime.settings.reset_options()
    asyncio.set_event_loop(None)
    loop.close()


def declared(mocks: Mocks, **changes: Any) -> dict[str, Any]:
    """Declare the rack, and return the stack's outputs."""
    aws = importlib.import_module("rackready.stacks.aws")
    seen: dict[str, Any] = {}
    exported: dict[str, Any] = {}

    @pulumi.runtime.test
    def program() -> pulumi.Output[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pulumi, "export", exported.__setitem__)
            aws.declare(AwsRackArgs.model_validate({**ARGS, **changes}))
        return pulumi.Output.from_input(exported).apply(seen.update)

    program()
    assert mocks.made
    return seen


@needs_aws
@pytest.mark.parametrize(("state", "power"), [("running", "On"), ("stopped", "Off"), ("pending", "Off")])
def test_the_outputs_are_those_of_the_other_stacks(mocks: Mocks, state: str, power: str) -> None:
    mocks.state = state
    nodes = {name: {"power": power, "made": True} for name in ("gpu01", "gpu02")}
    assert declared(mocks) == {"rack": "p5", "nodes": nodes}


@needs_aws
def test_instances_share_one_cluster_placement_group(mocks: Mocks) -> None:
    declared(mocks)
    assert [group["strategy"] for group in mocks.of("PlacementGroup")] == ["cluster"]
    templates = mocks.of("LaunchTemplate")
    assert [item["placement"] for item in templates] == [{"groupName": "cloud-p5-made"}] * 2
    assert [(item["instanceType"], item["imageId"], item["keyName"]) for item in templates] == [
        ("p5.48xlarge", "ami-0a1b2c", "rackready")
    ] * 2
    instances = mocks.of("Instance")
    assert [item["launchTemplate"] for item in instances] == [
        {"id": f"gpu0{number}-id", "version": "$Latest"} for number in (1, 2)
    ]


@needs_aws
@pytest.mark.parametrize(
    ("changes", "efa"),
    [
        ({}, [(0, 1), *((card, 0) for card in range(1, 32))]),
        ({"network_cards": 8, "efa_cards": 8}, [(0, 1), *((card, 0) for card in range(1, 8))]),
        ({"network_cards": 17, "efa_cards": 16}, [(card, 0) for card in range(1, 17)]),
        ({"network_cards": 1}, [(0, 1)]),
    ],
    ids=["p5", "all cards with EFA", "the first without EFA", "one card"],
)
def test_every_network_card_with_efa_has_an_efa_interface(
    mocks: Mocks, changes: dict[str, Any], efa: list[tuple[int, int]]
) -> None:
    """AWS, efa-acc-inst-types: ENA at 0/0, EFA alone at 0/1 where the first card has it, and at device 0 of others."""
    declared(mocks, **changes)
    first, *others = mocks.of("LaunchTemplate")[0]["networkInterfaces"]
    assert (first["networkCardIndex"], first["deviceIndex"], first["interfaceType"]) == (0, 0, "interface")
    assert [(card["networkCardIndex"], card["deviceIndex"]) for card in others] == efa
    assert {card["interfaceType"] for card in others} == {"efa-only"}
    assert [card.get("privateIpAddress") for card in (first, *others)] == ["10.2.0.11"] + [None] * len(others)
    assert {(card["subnetId"], *card["securityGroups"]) for card in (first, *others)} == {("subnet-02", "cloud-p5-id")}


@needs_aws
def test_a_changed_template_replaces_no_instance(mocks: Mocks, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is asked for goes first, since it has address and capacity, and comes back with the newest version."""
    aws = importlib.import_module("rackready.stacks.aws").aws
    seen: list[pulumi.ResourceOptions] = []
    make = aws.ec2.Instance
    monkeypatch.setattr(aws.ec2, "Instance", lambda *a, opts, **more: seen.append(opts) or make(*a, opts=opts, **more))
    declared(mocks)
    assert [(opts.ignore_changes, opts.protect, opts.delete_before_replace) for opts in seen] == [
        (["launchTemplate"], True, True)
    ] * 2
    assert {item["launchTemplate"]["version"] for item in mocks.of("Instance")} == {"$Latest"}


@needs_aws
@pytest.mark.parametrize(("block", "market"), [(False, None), (True, {"marketType": "capacity-block"})])
def test_instances_come_from_the_reservation(mocks: Mocks, *, block: bool, market: dict[str, str] | None) -> None:
    declared(mocks, capacity_reservation="cr-0a1b", capacity_block=block)
    for template in mocks.of("LaunchTemplate"):
        target = {"capacityReservationTarget": {"capacityReservationId": "cr-0a1b"}}
        assert template["capacityReservationSpecification"] == target
        assert template.get("instanceMarketOptions") == market
        assert "placement" not in template, "a group outside the reservation has other capacity"


@needs_aws
def test_the_group_lets_everything_pass_between_nodes_and_ssh_from_administrators(mocks: Mocks) -> None:
    declared(mocks)
    (group,) = mocks.of("SecurityGroup")
    ssh, between = group["ingress"]
    assert ssh == {"protocol": "tcp", "fromPort": 22, "toPort": 22, "cidrBlocks": ["10.1.0.0/24"]}
    assert between == {"protocol": "-1", "fromPort": 0, "toPort": 0, "self": True}
    assert between in group["egress"], "EFA needs it both ways"


@needs_aws
def test_disks_are_encrypted_and_metadata_wants_a_token(mocks: Mocks) -> None:
    declared(mocks, kms_key="alias/site", disk_gib=1024)
    disks = [item["rootBlockDevice"] for item in mocks.of("Instance")]
    disk = {"encrypted": True, "kmsKeyId": "alias/site", "volumeSize": 1024, "volumeType": "gp3"}
    assert disks == [disk] * 2
    assert [item["metadataOptions"] for item in mocks.of("LaunchTemplate")] == [{"httpTokens": "required"}] * 2


@needs_aws
def test_the_policy_pack_passes_all_that_is_declared(mocks: Mocks) -> None:
    declared(mocks)
    assert {item.typ for item in mocks.made} & TAGGED == TAGGED - {"aws:ebs/volume:Volume"}
    for item in mocks.made:
        assert [str(text) for rule in RULES for text in rule.judge(item.typ, item.inputs)] == []


@pytest.mark.parametrize(
    ("changes", "path", "text"),
    [
        ({"nodes": []}, "nodes", "List should have at least 1 item after validation, not 0"),
        ({"network_cards": 0}, "network_cards", "Input should be greater than or equal to 1"),
        ({"ami": "debian"}, "ami", "String should match pattern '^[a-z]+-[0-9a-f]+$'"),
        ({"admin_networks": ["10.0.0.0/8", "0.0.0.0/0"]}, "admin_networks",
         "0.0.0.0/0 lets everybody in. Name the networks of those who administer the nodes."),
        ({"nodes": [RACK["nodes"][0]] * 2}, "nodes", "node gpu01 is given twice. Give each node its own."),
        ({"nodes": [RACK["nodes"][0], {"node": "b", "address": "10.2.0.11"}]}, "nodes",
         "address 10.2.0.11 is given twice. Give each node its own."),
        ({"efa_cards": 16}, "efa_cards", "16 of 32 network cards. Give all, or all but the first."),
        ({"capacity_block": True}, "capacity_block",
         "a capacity block is a reservation. Give its id as capacity_reservation."),
        ({"colour": "red"}, "colour", "Extra inputs are not permitted"),
    ],
)  # fmt: skip
def test_malformed_arguments_are_refused(changes: dict[str, Any], path: str, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        AwsRackArgs.model_validate({**ARGS, **changes})
    (error,) = caught.value.errors()
    assert (".".join(map(str, error["loc"])), error["msg"].removeprefix("Value error, ")) == (path, text)


def refused(text: str | None) -> str:
    """Return the refusal of a stack with this configuration."""
    aws = importlib.import_module("rackready.stacks.aws")
    pulumi.runtime.set_all_config({} if text is None else {"rackready-aws:rack": text})
    try:
        with pytest.raises(RackreadyError) as caught:
            aws.declare_from_config("cloud", "p5")
    finally:
        pulumi.runtime.set_all_config({})
    return str(caught.value)


@needs_aws
def test_a_stack_without_configuration_is_refused() -> None:
    where = "stack cloud-p5: rackready-aws:rack"
    step = "Set it in the stack's settings file; docs/howto/aws.md shows an example."
    wanted = f"{where} - Expected: a mapping that describes the rack Actual: {{}}. {step}"
    assert refused(None) == wanted.format("not set")
    for text in ("{", "[]", "a: b"):
        assert refused(text) == wanted.format("something else")
    everybody = "0.0.0.0/0 lets everybody in. Name the networks of those who administer the nodes"
    bad = json.dumps({**RACK, "ami": "debian", "admin_networks": ["0.0.0.0/0"], "nodes": [{"node": "a"}]})
    step = "Correct it; docs/howto/aws.md shows an example."
    assert refused(bad).splitlines() == [
        f"{where}: ami - Expected: text that matches ^[a-z]+-[0-9a-f]+$. {step}",
        f"{where}: admin_networks - Actual: {everybody}. {step}",
        f"{where}: nodes[0].address - Expected: a value. {step}",
    ]


@needs_aws
def test_the_configuration_declares_the_rack(mocks: Mocks) -> None:
    aws = importlib.import_module("rackready.stacks.aws")
    pulumi.runtime.set_all_config({"rackready-aws:rack": json.dumps(RACK)})

    @pulumi.runtime.test
    def program() -> None:
        aws.declare_from_config("cloud", "p5")

    program()
    pulumi.runtime.set_all_config({})
    assert len(mocks.of("Instance")) == 2
    assert {item["tags"]["rackready:env"] for item in mocks.of("Instance")} == {"cloud"}


def test_a_site_file_with_an_aws_node_is_refused() -> None:
    site = document(None)
    site["racks"][0]["nodes"][1]["kind"] = "aws"
    with pytest.raises(SiteInvalidError) as caught:
        parse_site(site, source="site.yml", base=ROOT)
    text = "no command works on AWS instances: the stack stacks/aws makes them (docs/howto/aws.md)"
    wanted = f"racks[0].nodes[1].kind: {text} - Expected: metal or virtual Actual: aws. Correct it."
    assert wanted in str(caught.value)


def test_no_command_loads_the_large_package() -> None:
    """The provider, the worker and the command line must start as fast as without it."""
    modules = "rackready.cli.main, rackready.stacks.worker, rackready.stacks.provider, rackready.stacks.policy_server"
    code = f"import sys, {modules}; sys.exit(any(name.startswith('pulumi_aws') for name in sys.modules))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@needs_aws
def test_the_page_installs_the_plugin_where_the_engine_looks_for_it() -> None:
    """`env.sh` sets the engine's folder (PULUMI_HOME), so the plugin comes after it, in the version of the package."""
    lines = (ROOT / "docs/howto/aws.md").read_text(encoding="utf-8").splitlines()
    install = next(line for line in lines if line.startswith("pulumi plugin install resource aws "))
    sourced, asked = lines.index(". ../metal/env.sh cloud"), lines.index(install)
    assert sourced < asked < next(at for at, line in enumerate(lines) if line.startswith("pulumi preview"))
    python = install.split("$(")[1].split(" ")[0]
    command = install.split('aws "$(')[1].removesuffix(')"').replace(python, sys.executable)
    shown = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout.strip()
    package = Path(str(importlib.import_module("pulumi_aws").__file__)).with_name("pulumi-plugin.json")
    assert shown == json.loads(package.read_text(encoding="utf-8"))["version"]
