"""The policy pack: each rule on resources that pass and on resources that do not, and the pack in the real engine."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import struct_pb2
from pulumi import automation as auto
from pulumi.runtime.proto import analyzer_pb2
from pulumi.runtime.rpc import UNKNOWN as UNKNOWN_TEXT

from rackready.design.site import parse_site
from rackready.drivers import pulumi as engine
from rackready.paths import EnvPaths
from rackready.stacks import metal
from rackready.stacks.args import rack_args
from rackready.stacks.policy import RULES, TAGGED, UNKNOWN
from rackready.stacks.policy_server import PACK, Analyzer, plain
from tests.unit.boot_service.sites import document

ROOT = Path(__file__).resolve().parents[2]
NODE, DOMAIN = "rackready:metal:Node", "rackready:virtual:Domain"
GROUP, INSTANCE = "aws:ec2/securityGroup:SecurityGroup", "aws:ec2/instance:Instance"
TEMPLATE, VOLUME = "aws:ec2/launchTemplate:LaunchTemplate", "aws:ebs/volume:Volume"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
PRIVATE = "private (10/8, 172.16/12, 192.168/16) or shared (100.64/10) space"
ENCRYPT = "Set it: AWS encrypts with the account's key unless kmsKeyId names another."
OPEN = "Name the networks of those who administer the nodes."
TAGS = {"rackready:env": "prod", "rackready:rack": "aws"}
TCP = {"protocol": "tcp", "fromPort": 22, "toPort": 22}


def found(rule: str, kind: str, **props: Any) -> list[str]:
    (chosen,) = (item for item in RULES if item.name == rule)
    return [str(message) for message in chosen.judge(kind, props)]


@pytest.mark.parametrize("address", ["10.1.2.3", "172.16.0.9", "100.64.1.1", "127.77.1.1", UNKNOWN, None])
def test_a_bmc_out_of_band_passes(address: object) -> None:
    assert found("no-public-bmc", NODE, bmc={"address": address}) == []


@pytest.mark.parametrize("address", ["8.8.8.8", "172.32.0.1", "100.128.0.1"])
def test_a_public_bmc_is_refused(address: str) -> None:
    step = "Give it an address of the out-of-band network: a BMC on the internet is a way into its machine."
    text = f"bmc.address: public - Expected: {PRIVATE} Actual: {address}. {step}"
    assert found("no-public-bmc", NODE, bmc={"address": address}) == [text]
    assert found("no-public-bmc", DOMAIN, bmc={"address": address}) == [], "a domain has none"


@pytest.mark.parametrize("kind", [NODE, DOMAIN])
def test_a_public_address_of_ssh_is_refused(kind: str) -> None:
    assert found("no-public-ssh", kind, ssh={"address": "10.0.0.1"}) == []
    assert found("no-public-ssh", kind, ssh=None) == []
    step = "Reach it through access.proxy_jump of the site file."
    text = f"ssh.address: public - Expected: {PRIVATE} Actual: 8.8.8.8. {step}"
    assert found("no-public-ssh", kind, ssh={"address": "8.8.8.8"}) == [text]


def test_a_public_address_of_an_instance_is_refused() -> None:
    for value in (False, None, UNKNOWN):
        assert found("no-public-ssh", INSTANCE, associatePublicIpAddress=value) == []
    step = "Remove it, and reach the node through access.proxy_jump of the site file."
    text = f"associatePublicIpAddress: public address - Expected: false Actual: true. {step}"
    assert found("no-public-ssh", INSTANCE, associatePublicIpAddress=True) == [text]
    for asked in (True, "true"):
        cards = [{}, {"associatePublicIpAddress": "false"}, {"associatePublicIpAddress": asked}]
        template = "aws:ec2/launchTemplate:LaunchTemplate"
        assert found("no-public-ssh", template, networkInterfaces=cards) == [f"networkInterfaces[2].{text}"]


@pytest.mark.parametrize(
    "rule",
    [
        {**TCP, "cidrBlocks": ["10.0.0.0/8", "203.0.113.0/24"]},
        {**TCP, "fromPort": 443, "toPort": 443, "cidrBlocks": ["0.0.0.0/0"]},
        {"protocol": "udp", "fromPort": 0, "toPort": 65535, "cidrBlocks": ["0.0.0.0/0"]},
        {**TCP, "self": True},
        {**TCP, "cidrBlocks": [UNKNOWN]},
        {**TCP, "cidrBlocks": UNKNOWN},
        {**TCP, "fromPort": UNKNOWN, "cidrBlocks": ["0.0.0.0/0"]},
    ],
)
def test_a_group_that_lets_some_in_passes(rule: Mapping[str, Any]) -> None:
    assert found("no-public-ssh", GROUP, ingress=[rule]) == []


@pytest.mark.parametrize(
    ("kind", "props", "where", "source"),
    [
        (GROUP, {"ingress": [{**TCP, "self": True}, {**TCP, "cidrBlocks": ["0.0.0.0/0"]}]}, "ingress[1]", "0.0.0.0/0"),
        (GROUP, {"ingress": [{**TCP, "ipv6CidrBlocks": ["::/0"]}]}, "ingress[0]", "::/0"),
        (GROUP, {"ingress": [{"protocol": "-1", "fromPort": 0, "toPort": 0, "cidrBlocks": ["0.0.0.0/0"]}]},
         "ingress[0]", "0.0.0.0/0"),
        (GROUP, {"ingress": [{**TCP, "fromPort": 0, "toPort": 1024, "cidrBlocks": ["0.0.0.0/0"]}]},
         "ingress[0]", "0.0.0.0/0"),
        (INGRESS, {"ipProtocol": "tcp", "fromPort": 22, "toPort": 22, "cidrIpv4": "0.0.0.0/0"}, "rule", "0.0.0.0/0"),
        (INGRESS, {"ipProtocol": "-1", "cidrIpv6": "::/0"}, "rule", "::/0"),
        (RULE, {**TCP, "type": "ingress", "cidrBlocks": ["0.0.0.0/0"]}, "rule", "0.0.0.0/0"),
    ],
)  # fmt: skip
def test_ssh_that_is_open_to_everybody_is_refused(kind: str, props: dict[str, Any], where: str, source: str) -> None:
    text = f"{where}: SSH is open to everybody - Expected: networks of your own Actual: {source}. {OPEN}"
    assert found("no-public-ssh", kind, **props) == [text]


def test_a_way_out_is_no_way_in() -> None:
    assert found("no-public-ssh", RULE, **TCP, type="egress", cidrBlocks=["0.0.0.0/0"]) == []


@pytest.mark.parametrize(
    ("kind", "props"),
    [
        (VOLUME, {"encrypted": True}),
        (VOLUME, {"encrypted": UNKNOWN}),
        (INSTANCE, {"rootBlockDevice": {"encrypted": True}, "ebsBlockDevices": [{"encrypted": True}]}),
        (INSTANCE, {"rootBlockDevice": UNKNOWN}),
        (TEMPLATE, {"blockDeviceMappings": [{"ebs": {"encrypted": "true"}}, {"noDevice": "x"}]}),
        (NODE, {"bmc": {}}),
    ],
)
def test_encrypted_disks_pass(kind: str, props: dict[str, Any]) -> None:
    assert found("encrypted-disks", kind, **props) == []


@pytest.mark.parametrize(
    ("kind", "props", "where"),
    [
        (VOLUME, {}, "encrypted"),
        (VOLUME, {"encrypted": False}, "encrypted"),
        (INSTANCE, {}, "rootBlockDevice.encrypted"),
        (INSTANCE, {"rootBlockDevice": {"volumeSize": 100}}, "rootBlockDevice.encrypted"),
        (INSTANCE, {"rootBlockDevice": {"encrypted": True}, "ebsBlockDevices": [{"encrypted": True}, {}]},
         "ebsBlockDevices[1].encrypted"),
        (TEMPLATE, {"blockDeviceMappings": [{"ebs": {"encrypted": "false"}}]}, "blockDeviceMappings[0].ebs.encrypted"),
    ],
)  # fmt: skip
def test_a_disk_that_is_not_encrypted_is_refused(kind: str, props: dict[str, Any], where: str) -> None:
    text = f"{where}: disk at rest - Expected: true Actual: false. {ENCRYPT}"
    assert found("encrypted-disks", kind, **props) == [text]


@pytest.mark.parametrize("kind", sorted(TAGGED))
def test_tags_are_asked_for(kind: str) -> None:
    assert found("tags", kind, tags=TAGS) == []
    assert found("tags", kind, tags=UNKNOWN) == []
    both = "rackready:env, rackready:rack"
    assert found("tags", kind) == [f"tags - Expected: {both} Actual: no rackready:env, no rackready:rack. Add them."]
    one = found("tags", kind, tags={"rackready:env": "prod", "rackready:rack": ""})
    assert one == [f"tags - Expected: {both} Actual: no rackready:rack. Add them."]


def test_our_own_resources_need_no_tags() -> None:
    assert found("tags", NODE) == []


# --- the plugin ------------------------------------------------------------------------------------------------------


def analyze(analyzer: Analyzer, kind: str, props: dict[str, Any]) -> list[tuple[str, str, int]]:
    properties = struct_pb2.Struct()
    properties.update(props)
    request = analyzer_pb2.AnalyzeRequest(type=kind, urn=f"urn:pulumi:s::p::{kind}::x", name="x", properties=properties)
    answer = analyzer.Analyze(request, None)
    assert {item.policyPackName for item in answer.diagnostics} <= {PACK}
    return [(item.policyName, item.message, item.enforcementLevel) for item in answer.diagnostics]


def test_the_plugin_judges_by_every_rule_and_stops_the_update() -> None:
    level = analyzer_pb2.MANDATORY
    names = [(name, at) for name, _, at in analyze(Analyzer(), INSTANCE, {"associatePublicIpAddress": True})]
    assert names == [("no-public-ssh", level), ("encrypted-disks", level), ("tags", level)]
    info = Analyzer().GetAnalyzerInfo(None, None)
    assert [policy.name for policy in info.policies] == [rule.name for rule in RULES]


@pytest.mark.parametrize(("level", "count"), [(analyzer_pb2.ADVISORY, 1), (analyzer_pb2.DISABLED, 0)])
def test_a_configuration_changes_the_level_of_a_rule(level: int, count: int) -> None:
    analyzer = Analyzer()
    config = {"no-public-bmc": analyzer_pb2.PolicyConfig(enforcementLevel=level)}
    analyzer.Configure(analyzer_pb2.ConfigureAnalyzerRequest(policyConfig=config), None)
    judged = analyze(analyzer, NODE, {"bmc": {"address": "8.8.8.8"}})
    assert [at for _, _, at in judged] == [level] * count


def test_values_of_the_wire_become_plain() -> None:
    secret = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "value": {"a": "s"}}
    assert plain({"x": [1.0, secret], "y": UNKNOWN_TEXT, "z": None}) == {
        "x": [1.0, {"a": "s"}],
        "y": UNKNOWN,
        "z": None,
    }


# --- the real engine -------------------------------------------------------------------------------------------------


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvPaths:
    """A checkout with the engine, and with the plugins of this code on the PATH."""
    made = EnvPaths(tmp_path, "sim")
    if not (ROOT / ".rackready/tools/bin/pulumi").exists() and shutil.which("pulumi") is None:
        pytest.skip("no Pulumi engine is installed: run `make setup`")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, module in (("analyzer-policy", "policy_server"), ("resource", "provider")):
        path = programs / f"pulumi-{name}-rackready"
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -m rackready.stacks.{module} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{ROOT}/.rackready/tools/bin:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}")
    return made


def preview(paths: EnvPaths, address: str, **options: Any) -> str:
    """Return the errors of a preview of one node whose BMC has this address, "" for none."""
    site = document(None)
    site["racks"][0]["nodes"] = site["racks"][0]["nodes"][:1]
    site["links"] = site["links"][:2]
    site["racks"][0]["nodes"][0]["bmc"]["address"] = address
    site["public_space"] = ["8.8.8.0/24"]
    args = rack_args(parse_site(site, source="site.yml", base=paths.root), "sim", "rack01")
    stack = engine.open_stack(paths, "rack01", lambda: metal.declare(args))
    try:
        stack.preview(policy_packs=[str(ROOT / "stacks/policy")], color="never", **options)
    except auto.CommandError as error:
        return str(error)
    return ""


def test_the_engine_runs_the_pack(paths: EnvPaths, tmp_path: Path) -> None:
    assert preview(paths, "192.0.2.111") == ""
    refused = preview(paths, "8.8.8.8")
    text = f"bmc.address: public - Expected: {PRIVATE} Actual: 8.8.8.8."
    assert text in " ".join(refused.split())
    assert "[mandatory]" in refused
    config = tmp_path / "levels.json"
    config.write_text(json.dumps({"no-public-bmc": "advisory"}), encoding="utf-8")
    assert preview(paths, "8.8.8.8", policy_pack_configs=[str(config)]) == ""
