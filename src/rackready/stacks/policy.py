"""The rules of the policy pack, each a pure function of a resource's type and properties.

A property that is not known yet (a preview) is judged when it is: an `up` asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_network
from typing import Any

from rackready.design.address_space import foreign, span
from rackready.model.problems import Message

Props = Mapping[str, Any]
Found = Iterator[Message]
_SSH = 22
_NODES = frozenset({"rackready:metal:Node", "rackready:virtual:Domain"})
_SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
_INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
_INSTANCE = "aws:ec2/instance:Instance"
_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
_VOLUME = "aws:ebs/volume:Volume"
TAGS = ("rackready:env", "rackready:rack")
"""Tags that say what a resource belongs to: a person who finds it in the account can tell who pays, and who to ask."""
TAGGED = frozenset({_SECURITY_GROUP, _INSTANCE, _TEMPLATE, _VOLUME, "aws:ec2/placementGroup:PlacementGroup"})
"""Types of resources whose tags are asked for: those that cost money or open a way in."""
_PRIVATE = "private (10/8, 172.16/12, 192.168/16) or shared (100.64/10) space"


class _Unknown:
    """The value of a property that is not known yet."""

    def __repr__(self) -> str:
        return "not known yet"


UNKNOWN = _Unknown()


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the pack."""

    name: str
    description: str
    judge: Callable[[str, Props], Found]


def _no_public_bmc(kind: str, props: Props) -> Found:
    """Yield a BMC with a public address."""
    address = _at(props, "bmc", "address") if kind == "rackready:metal:Node" else None
    if _is_public(address):
        step = "Give it an address of the out-of-band network: a BMC on the internet is a way into its machine."
        yield Message("bmc.address", "public", _PRIVATE, address, step)


def _no_public_ssh(kind: str, props: Props) -> Found:
    """Yield SSH that anybody can reach: a public address of a node, a rule of a security group."""
    address = _at(props, "ssh", "address") if kind in _NODES else None
    if _is_public(address):
        yield Message(
            "ssh.address", "public", _PRIVATE, address, "Reach it through access.proxy_jump of the site file."
        )
    for where, value in _public_addresses(kind, props):
        step = "Remove it, and reach the node through access.proxy_jump of the site file."
        if str(value).lower() == "true":  # a launch template says it as text
            yield Message(where, "public address", "false", "true", step)
    for where, rule in _ingress(kind, props):
        sources = [text for text in _sources(rule) if _is_everybody(text)]
        if sources and _lets_ssh_in(rule):
            step = "Name the networks of those who administer the nodes."
            yield Message(where, "SSH is open to everybody", "networks of your own", ", ".join(sources), step)


def _encrypted_disks(kind: str, props: Props) -> Found:
    """Yield a disk that is not encrypted at rest."""
    step = "Set it: AWS encrypts with the account's key unless kmsKeyId names another."
    for where, disk in _disks(kind, props):
        value = disk.get("encrypted", False)
        if value is not UNKNOWN and str(value).lower() != "true":
            yield Message(f"{where}encrypted", "disk at rest", "true", str(value).lower(), step)


def _tags(kind: str, props: Props) -> Found:
    """Yield tags that a resource lacks."""
    given: Any = props.get("tags") if kind in TAGGED else UNKNOWN
    if given is UNKNOWN:
        return
    absent = [name for name in TAGS if not (given or {}).get(name)]
    if absent:
        yield Message("tags", "", ", ".join(TAGS), f"no {', no '.join(absent)}", "Add them.")


RULES = (
    Rule("no-public-bmc", "No BMC has a public address.", _no_public_bmc),
    Rule("no-public-ssh", "Nobody can reach SSH from the internet.", _no_public_ssh),
    Rule("encrypted-disks", "Every disk of a cloud node is encrypted at rest.", _encrypted_disks),
    Rule("tags", f"Every resource that costs money is tagged {' and '.join(TAGS)}.", _tags),
)


def _at(props: Props, *keys: str) -> Any:  # noqa: ANN401 - JSON
    found: Any = props
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _is_public(address: object) -> bool:
    if not isinstance(address, str):
        return False
    return foreign(span(IPv4Network(IPv4Address(address))), ())


def _is_everybody(network: object) -> bool:
    """Whether a source of a rule is public space: 0.0.0.0/0, or part of it that is no site's own."""
    if not isinstance(network, str):
        return False
    found = ip_network(network, strict=False)
    return foreign(span(found), ()) and found.prefixlen == 0 if isinstance(found, IPv4Network) else found.prefixlen == 0


def _public_addresses(kind: str, props: Props) -> Iterator[tuple[str, Any]]:
    """Yield each place that can ask for a public address, with its value."""
    name = "associatePublicIpAddress"
    if kind == _INSTANCE:
        yield name, props.get(name)
    elif kind == _TEMPLATE:
        cards = props.get("networkInterfaces")
        for number, card in enumerate(cards if isinstance(cards, list) else []):
            yield f"networkInterfaces[{number}].{name}", card.get(name)


def _ingress(kind: str, props: Props) -> Iterator[tuple[str, Props]]:
    if kind == _SECURITY_GROUP:
        rules = props.get("ingress")
        for number, rule in enumerate(rules if isinstance(rules, list) else []):
            yield f"ingress[{number}]", rule
    elif kind == _INGRESS or (kind == _RULE and props.get("type") == "ingress"):
        yield "rule", props


def _sources(rule: Props) -> Iterator[Any]:
    for key in ("cidrBlocks", "ipv6CidrBlocks"):
        found = rule.get(key)
        yield from found if isinstance(found, list) else []
    yield from (rule.get("cidrIpv4"), rule.get("cidrIpv6"))


def _lets_ssh_in(rule: Props) -> bool:
    """Whether a rule passes TCP port 22. EC2: protocol -1 is every protocol and port."""
    protocol = str(rule.get("protocol", rule.get("ipProtocol")))
    if protocol in {"-1", "all"}:
        return True
    first, last = rule.get("fromPort"), rule.get("toPort")
    if protocol not in {"tcp", "6"} or not isinstance(first, (int, float)) or not isinstance(last, (int, float)):
        return False
    return first <= _SSH <= last


def _disks(kind: str, props: Props) -> Iterator[tuple[str, Props]]:
    """Yield each disk of a resource. An instance without a root block device has that of its image."""
    if kind == _VOLUME:
        yield "", props
    elif kind == _INSTANCE:
        root = props.get("rootBlockDevice", {})
        if isinstance(root, Mapping):
            yield "rootBlockDevice.", root
        more = props.get("ebsBlockDevices")
        for number, disk in enumerate(more if isinstance(more, list) else []):
            yield f"ebsBlockDevices[{number}].", disk
    elif kind == _TEMPLATE:
        mappings = props.get("blockDeviceMappings")
        for number, mapping in enumerate(mappings if isinstance(mappings, list) else []):
            if isinstance(disk := mapping.get("ebs"), Mapping):
                yield f"blockDeviceMappings[{number}].ebs.", disk
