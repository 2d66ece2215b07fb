"""The gate on names: the node resolves its own and other names to the right addresses, and a name server answers."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Gate, GateFacts, Outputs, Run, trouble
from rackready.gates.engine.shipped_script import command, document, sealed
from rackready.gates.formats import printed
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.model.place import Place
from rackready.ondevice import names as script

_KEY = "names"
_HOSTS = (
    "Correct /etc/hosts on the node. If the site maps the name to another address on purpose, declare it in the gate "
    "set (inputs of node/host/sanity/names: `hosts`)."
)
_SERVER = "Correct /etc/resolv.conf on the node, or fix the name server: every lookup waits for it."
_WORKS = frozenset({"NOERROR", "NXDOMAIN", "SERVFAIL"})
"""Answers of a working name server. Without the internet it answers SERVFAIL for names outside its own zones."""


NAMES_UNREADABLE = ErrorKind(
    "names-unreadable",
    "resolution of names unreadable",
    meaning="The document with the names and their addresses is not complete.",
    next_step="Run the gate again.",
)
NAME_IN_HOSTS = FailKind(
    "name-in-hosts-file",
    "name {name}",
    meaning="The node's hosts file has another address for a name than the site.",
    next_step=_HOSTS,
)
NAME_UNRESOLVED = FailKind(
    "name-not-resolved",
    "name {name} does not resolve",
    meaning="The node cannot resolve a name that it needs.",
    next_step=_SERVER,
)
NAME_ADDRESS = FailKind(
    "name-other-address",
    "name {name}",
    meaning="The node resolves a name to another address than the site's.",
    next_step=_HOSTS,
)
OWN_NAME_UNRESOLVED = FailKind(
    "own-name-not-resolved",
    "own name {hostname} does not resolve",
    meaning="The node cannot resolve its own name: MPI and Slurm fail on it.",
    next_step="Give {hostname} the address {address} in DNS or in /etc/hosts on the node.",
)
OWN_NAME_ELSEWHERE = FailKind(
    "own-name-other-machine",
    "own name {hostname} resolves to another machine",
    meaning="The node's own name resolves to the address of another machine.",
    next_step="Give {hostname} the address {address} in DNS or in /etc/hosts on the node.",
)
NO_NAME_SERVER = FailKind(
    "no-name-server",
    "no name server answers",
    meaning="None of the node's name servers answers.",
    next_step=_SERVER,
)

FINDINGS = (
    NAMES_UNREADABLE,
    NAME_IN_HOSTS,
    NAME_UNRESOLVED,
    NAME_ADDRESS,
    OWN_NAME_UNRESOLVED,
    OWN_NAME_ELSEWHERE,
    NO_NAME_SERVER,
)


class Names(Gate):
    """The node resolves its own name, the site's nodes and all needed names correctly, and a name server answers."""

    id = "node/host/sanity/names"
    findings = FINDINGS
    looks = True
    covers = frozenset({"node"})

    class Inputs(base.Inputs):
        """Further names of the site."""

        resolve: tuple[str, ...] = Field(
            (), description="further names that every node must resolve, e.g. those of file and license servers"
        )
        hosts: dict[str, str] = Field(
            {},
            description="name -> its right address on every node, if the site file has another or none",
        )

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Return one script per node."""
        wanted = json.dumps({"resolve": sorted({*facts.needed, *self.inputs.resolve, *self.inputs.hosts})})
        return [Run.of_node(node, command(_KEY, node, script, wanted)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Compare the addresses of names with the site file."""
        node = run.nodes[0]
        judge = Judge()
        output = outputs.get(_KEY)
        if judge.trouble(trouble(output, node, "resolution of names")) or output is None:
            return judge.verdict(node)
        try:
            found = sealed(document(output, script.FORMAT, printed.Names), script.digest)
        except FormatError as error:
            judge.error(node, NAMES_UNREADABLE, "a complete document", error)
            return judge.verdict(node)
        _own_name(judge, node, facts.names.get(node) or str(facts.nodes[node].node.address), found)
        self._hosts(judge, node, facts, found)
        self._needed(judge, node, facts, found)
        _servers(judge, node, found["servers"])
        if not judge.errors and not judge.fails:
            judge.measured.add(node)
        return judge.verdict(node)

    def _hosts(self, judge: Judge, node: str, facts: GateFacts, found: Mapping[str, Any]) -> None:
        """Fail for entries of /etc/hosts with another address than the site file's: they win over DNS."""
        judge.judged += 1
        right = {**facts.names, **self.inputs.hosts}
        for name, address in found["hosts"]:
            known = right.get(name.lower())
            own = name.lower() in {node, found["hostname"].lower()} and _loopback(address)
            if known and address != known and not own:
                judge.fail(Place(node, "/etc/hosts"), NAME_IN_HOSTS, known, address, name=name)

    def _needed(self, judge: Judge, node: str, facts: GateFacts, found: Mapping[str, Any]) -> None:
        for name in sorted({*facts.needed, *self.inputs.resolve, *self.inputs.hosts}):
            judge.judged += 1
            there, known = found["resolved"].get(name, []), self.inputs.hosts.get(name)
            if not there:
                judge.fail(node, NAME_UNRESOLVED, known or "an address", "none", name=name)
            elif known and known not in there:
                judge.fail(node, NAME_ADDRESS, known, ", ".join(there), name=name)


def _own_name(judge: Judge, node: str, address: str, found: Mapping[str, Any]) -> None:
    """Fail unless the node's own name resolves to the node: launchers and the scheduler's daemon look themselves up."""
    judge.judged += 1
    hostname = found["hostname"]
    there = found["resolved"].get(hostname, [])
    strange = [other for other in there if other not in {address, *found["addresses"]} and not _loopback(other)]
    if not there:
        judge.fail(node, OWN_NAME_UNRESOLVED, address, "no address", hostname=hostname, address=address)
    elif strange:
        judge.fail(node, OWN_NAME_ELSEWHERE, address, ", ".join(strange), hostname=hostname, address=address)


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.split("%", maxsplit=1)[0]).is_loopback
    except ValueError:
        return False


def _servers(judge: Judge, node: str, servers: Sequence[Mapping[str, Any]]) -> None:
    """Fail if no name server answers; note silent ones. A node without name servers resolves by its own files."""
    if not servers:
        judge.remark("no name server in /etc/resolv.conf: names are resolved only by files")
        return
    judge.judged += 1
    bad = [
        f"{server['address']}: {server['answer'] or 'no answer'}"
        for server in servers
        if server["answer"] not in _WORKS
    ]
    if len(bad) == len(servers):
        judge.fail(node, NO_NAME_SERVER, "an answer of one of them", "; ".join(bad))
    elif bad:
        judge.remark(f"silent name servers: {'; '.join(bad)}")
