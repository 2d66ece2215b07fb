"""The partition file of opensm: written from tenants, checked as opensm reads it, and judged on every port.

opensm fails open. Any line that it cannot parse discards the whole file, and every port is then a full member of one
partition; a node GUID, an unknown flag or a wrong word of membership is ignored or means something else. Reading:
linux-rdma/opensm opensm/osm_prtn_config.c (osm_prtn_config_parse_file, partition_add_flag, partition_add_port). Its
buffer holds 4,095 characters of a line: a longer one is cut in the middle of a GUID, so each member has its own line.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rackready.design.infiniband import tenant_partitions
from rackready.design.tenants import FULL_MEMBER, port_key, tenants
from rackready.drivers.ib import findings as kinds
from rackready.drivers.ib.text import guid_text
from rackready.model.outcome import Finding
from rackready.model.place import Place
from rackready.model.problems import Message, RackreadyError
from rackready.model.site import Site

DEFAULT = 0x7FFF
"""Default partition: subnet management needs every port in it (InfiniBand Architecture Specification vol. 1, 10.9)."""
_LINE_MAX = 4094
"""Characters that opensm reads of one line, the line break included (osm_prtn_config.c: line[4096], fgets of 4095)."""
_KEYWORDS = frozenset({"ALL", "ALL_CAS", "ALL_SWITCHES", "ALL_ROUTERS", "SELF"})
_MEMBERSHIPS = frozenset({"full", "limited", "both"})
_FLAGS = {"ipoib": None, "defmember": _MEMBERSHIPS, "mtu": frozenset("12345"), "rate": None, "sl": None, "indx0": None}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}")
"""Names that cannot be read as a key; opensm keeps 31 characters."""
_KEY = re.compile(r"0x[0-9a-f]{1,4}")
_GUID = re.compile(r"0x[0-9a-f]{1,16}")


class PartitionError(RackreadyError):
    """Partitions cannot be written, or their file would not mean what it says."""


class Member(NamedTuple):
    """One member: a port GUID, or a keyword such as SELF."""

    name: str
    full: bool


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition with its key, without the membership bit. ``first``: its members hold the key at index 0."""

    name: str
    key: int
    members: tuple[Member, ...]
    first: bool = False


def partitions_of(site: Site, ports: Mapping[str, Collection[int]]) -> tuple[Partition, ...]:
    """Return the partitions of the site's tenants. ``ports``: node -> port GUIDs of its adapters.

    Raises PartitionError for tenants without a key, a key of several tenants, and nodes whose port GUIDs are not known.
    """
    if any(tenant.pkey is not None for tenant in site.tenants):
        _refuse(site, ports)
    return partitions_among(tenant_partitions(site), ports)


def partitions_among(
    declared: Collection[Mapping[str, Any]], ports: Mapping[str, Collection[int]]
) -> tuple[Partition, ...]:
    """Return partitions with those members whose port GUIDs are known. ``declared``: design.infiniband's list.

    Without tenants all are full members of the default partition. With tenants it carries only subnet management: hosts
    are limited members, and two of these exchange nothing. A tenant's key is at index 0 of its ports, which programs
    use unless they are told another one: perftest (--pkey_index), NCCL (NCCL_IB_PKEY), IPoIB's first interface. A
    partition without a known member is left out.
    """
    if not declared:
        return (Partition("Default", DEFAULT, (Member("ALL", full=True),)),)
    full = (Member("ALL_SWITCHES", full=True), Member("SELF", full=True))
    out = [Partition("Default", DEFAULT, (Member("ALL", full=False), *full))]
    for own in declared:
        guids = [guid_text(guid) for node in own["nodes"] for guid in sorted(ports.get(node, ()))]
        name = re.sub(r"[^A-Za-z0-9_]", "_", own["name"])
        members = tuple(Member(guid, full=own["full"]) for guid in guids)
        out += [Partition(name, int(own["key"], 16), members, first=True)] if members else []
    return tuple(out)


def keys_of_port(site: Site, node: str, guid: int, *, manager: bool = False) -> frozenset[int]:
    """Return the keys that a port of a node must hold. ``manager``: opensm runs at this port."""
    return wanted_keys(partitions_among(tenant_partitions(site), {node: [guid]}), guid, manager=manager)


def first_key(site: Site, node: str) -> int | None:
    """Return the key that a node's ports must hold at index 0, with the membership bit; None: any."""
    tenant = tenants(site).get(node)
    return int(port_key(tenant), 16) if tenant is not None and tenant.pkey is not None else None


def may_talk(site: Site, one: str, other: str) -> bool:
    """Return whether data of two nodes pass by the keys at index 0: two limited members exchange nothing."""
    key = first_key(site, one)
    if key != first_key(site, other):
        return False
    return bool(key & FULL_MEMBER) if key is not None else not any(tenant.pkey for tenant in site.tenants)


def _refuse(site: Site, ports: Mapping[str, Collection[int]]) -> None:
    messages = []
    keys: dict[int, str] = {}
    for tenant in site.tenants:
        where = f"tenant {tenant.name}"
        key = int(tenant.pkey, 16) if tenant.pkey is not None else 0
        if not key:
            messages.append(Message(where, "pkey", "a key: others have one", "none", "Give it a partition key."))
        elif keys.setdefault(key, tenant.name) != tenant.name:
            messages.append(Message(where, "pkey", "a key of its own", f"that of {keys[key]}", "Change one of them."))
    for node in tenants(site):
        if not ports.get(node):
            step = "Read them on the node: ibstat, Port GUID."
            messages.append(Message(node, "port GUIDs", "at least one", "none known", step))
    if messages:
        raise PartitionError.of(messages, head="partitions: nothing was written.")


def render(partitions: Collection[Partition]) -> str:
    """Return the text of the file. Raises PartitionError if opensm would ignore or misread a part of it."""
    lines = []
    for own in partitions:
        lines.append(f"{own.name}=0x{own.key:04x},ipoib{',indx0' if own.first else ''} :")
        members = [f"  {member.name}={'full' if member.full else 'limited'}" for member in own.members]
        lines += [f"{member}," for member in members[:-1]] + [f"{member} ;" for member in members[-1:]]
    text = "".join(f"{line}\n" for line in lines)
    known = {int(member.name, 16) for own in partitions for member in own.members if _GUID.fullmatch(member.name)}
    check(text, known)
    return text


def check(text: str, ports: Collection[int]) -> tuple[Partition, ...]:
    """Return the partitions that opensm reads from a text. ``ports``: every known port GUID.

    Raises PartitionError with every part that opensm would refuse, ignore or read otherwise.
    """
    messages = [
        Message(f"line {number}", expected=f"at most {_LINE_MAX} characters", actual=len(line))
        for number, line in enumerate(text.split("\n"), 1)
        if len(line) > _LINE_MAX
    ]
    plain = "".join(f"{line.partition('#')[0]}\n" for line in text.split("\n"))
    *parts, rest = plain.split(";")
    if rest.strip():
        messages.append(Message(_short(rest), expected="';' at its end", actual="none"))
    found = []
    for part in parts:
        own, wrong = _partition(part, ports)
        messages += wrong
        found += [own] if own is not None else []
    keys = [own.key for own in found]
    if not found or keys.count(DEFAULT) != 1 or len(set(keys)) != len(keys):
        told = ", ".join(f"0x{key:04x}" for key in keys) or "none"
        messages.append(Message("keys", expected=f"each once, 0x{DEFAULT:04x} among them", actual=told))
    if messages:
        raise PartitionError.of(messages, head="partition file: opensm would discard, ignore or misread parts of it.")
    return tuple(found)


def _partition(text: str, ports: Collection[int]) -> tuple[Partition | None, list[Message]]:
    head, colon, body = text.partition(":")
    (name, key), *flags = [_pair(word) for word in head.split(",")]
    if not colon or not _NAME.fullmatch(name) or not _KEY.fullmatch(key) or not 0 < int(key, 16) <= DEFAULT:
        return None, [Message(_short(text), expected="Name=0x0001 to 0x7fff, flags, ':' and members", actual="not so")]
    default, wrong, first = "limited", [], any(flag == "indx0" for flag, _ in flags)
    for flag, value in flags:
        allowed = _FLAGS.get(flag)
        if flag not in _FLAGS or (allowed is not None and value not in allowed):
            wrong.append(Message(f"{name}: flag {flag}={value}", expected=", ".join(sorted(_FLAGS)), actual="ignored"))
        default = value if flag == "defmember" else default
    members = []
    for word in body.split(","):
        member, membership = _pair(word)
        problem = _member_problem(member, membership, ports)
        if problem:
            wrong.append(Message(f"{name}: member {member or 'without name'}", expected=problem[0], actual=problem[1]))
        members.append(Member(member, full=(membership or default) != "limited"))
    return Partition(name, int(key, 16), tuple(members), first), wrong


def _member_problem(member: str, membership: str, ports: Collection[int]) -> tuple[str, str] | None:
    """Return (expected, actual) of a member that opensm would refuse or misread; None if it is right."""
    if membership not in _MEMBERSHIPS:
        return "full, limited or both", membership or "none: it depends on the partition's default"
    if member in _KEYWORDS:
        return None
    if not _GUID.fullmatch(member):
        return f"a port GUID or one of {', '.join(sorted(_KEYWORDS))}", "the whole file is discarded"
    if int(member, 16) not in ports:
        return "GUID of a port", "no known port: opensm ignores a node GUID without a word"
    return None


def _pair(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name.strip(), value.strip()


def _short(text: str) -> str:
    return " ".join(text.split())[:80]


def wanted_keys(partitions: Collection[Partition], guid: int, *, manager: bool = False) -> frozenset[int]:
    """Return the keys that a port must hold, with the membership bit. ``manager``: opensm runs at this port."""
    return frozenset(own.key | (FULL_MEMBER if full else 0) for own, full in _memberships(partitions, guid, manager))


def _memberships(partitions: Collection[Partition], guid: int, manager: bool) -> Iterator[tuple[Partition, bool]]:  # noqa: FBT001
    names = {guid_text(guid), "ALL", "ALL_CAS", *(["SELF"] if manager else [])}
    for own in partitions:
        held = [member.full for member in own.members if member.name in names]
        if held:
            yield own, any(held)


def judge_keys(
    where: Place, wanted: frozenset[int], held: frozenset[int] | None, why: str = "not read"
) -> list[Finding]:
    """Return a finding if a port holds other keys than planned, or if they were not read (None), and ``why``."""
    if held is None:
        return [kinds.PKEYS_UNREAD.found(where, _keys(wanted), why)]
    return [kinds.PKEYS.found(where, _keys(wanted), _keys(held))] if held != wanted else []


def judge_place(where: Place, wanted: int | None, first: str) -> list[Finding]:
    """Return a finding if another key is at index 0 than the tenant's. ``wanted``: see ``first_key``."""
    if wanted is None or int(first, 16) == wanted:
        return []
    return [kinds.PKEY_PLACE.found(where, f"0x{wanted:04x}", first)]


def _keys(keys: frozenset[int]) -> str:
    return ", ".join(f"0x{key:04x}" for key in sorted(keys)) or "none"
