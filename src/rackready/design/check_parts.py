"""Checks of a handover to several schedulers: each node in exactly one part, and no scheduler in two."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rackready.design.check_groups import domain_nodes
from rackready.design.check_names import Loc, members
from rackready.design.handover_of import place_of
from rackready.design.names import listed
from rackready.design.site_flaws import Flaw, Subject
from rackready.model.several import HandoverPart, SeveralHandover
from rackready.model.site import PlugInHandover, Site, SlurmHandover

_HERE: Loc = ("handover", "parts")
_LEAST = 2
_LAUNCHED_BY = {"srun": "slurm", "mpijob": "kubernetes"}
"""Launcher of gates on several nodes -> the kind of scheduler that it needs."""


def check_parts(subject: Subject) -> list[Flaw]:
    """Return nodes in no part or in two, parts with one scheduler, and launchers that a part does not have."""
    handover = subject.site.handover
    if not isinstance(handover, SeveralHandover):
        return []
    parts = list(enumerate(handover.parts))
    out = [*_names(parts), *_same_scheduler(subject.site, parts), *_launchers(subject.site, parts)]
    if len(parts) < _LEAST and not subject.lost.any("parts"):
        out.append(
            Flaw.of(
                _HERE,
                "parts of the handover",
                "Write the part's handover as that of the site: a site with one scheduler has no parts.",
                expected=f"{_LEAST} or more",
                actual=len(parts),
                kind="few",
            )
        )
    return out + _nodes(subject, parts) + list(_domains(subject.site, parts))


def _nodes(subject: Subject, parts: list[tuple[int, HandoverPart]]) -> list[Flaw]:
    """Return nodes that no part names, that two parts name, and names that are no node."""
    known = [node.name for node in subject.site.nodes()]
    owner: dict[str, str] = {}
    out: list[Flaw] = []
    for at, part in parts:
        here: Loc = (*_HERE, at, "nodes")
        named, missing = members(part.nodes, frozenset(known), here, "node", subject.lost.of("nodes"))
        out += missing
        taken: dict[str, list[str]] = {}
        for name in dict.fromkeys(named):
            if (before := owner.setdefault(name, _label(at, part))) != _label(at, part):
                taken.setdefault(before, []).append(name)
        for before, names in taken.items():
            out.append(
                Flaw.of(
                    here,
                    f"part of {listed(names)}",
                    "Name each node in the part of its scheduler only.",
                    expected="one",
                    actual=f"{before} and {_label(at, part)}",
                    kind="two",
                )
            )
    lone = [name for name in known if name not in owner]
    if lone and not subject.lost.any("parts"):
        out.append(
            Flaw.of(
                _HERE,
                f"part of {listed(lone)}",
                "Name each node in the part of its scheduler.",
                expected="one",
                actual="none",
                kind="none",
            )
        )
    return out


def _names(parts: list[tuple[int, HandoverPart]]) -> Iterator[Flaw]:
    first: dict[str, int] = {}
    for at, part in parts:
        before = first.setdefault(part.called, at)
        if before != at:
            yield Flaw.of(
                (*_HERE, at, "name"),
                f"name {part.called}",
                "Give each part a name of its own.",
                expected="one part of that name; without a name, a part is called by the kind of its scheduler",
                actual=f"parts[{before}] and parts[{at}]",
            )


def _same_scheduler(site: Site, parts: list[tuple[int, HandoverPart]]) -> Iterator[Flaw]:
    """Yield parts with the scheduler of another: it would be one part."""
    first: dict[str, tuple[int, HandoverPart]] = {}
    for at, part in parts:
        before, other = first.setdefault(_identity(site, part), (at, part))
        if before != at:
            yield Flaw.of(
                (*_HERE, at, "handover"),
                f"scheduler of {_label(at, part)}",
                "Join the two parts, or correct the address.",
                expected="another one in each part",
                actual=f"{place_of(site.seen_by(part))}, as in {_label(before, other)}",
            )


def _identity(site: Site, part: HandoverPart) -> str:
    """Return what tells schedulers apart. A Slurm controller is one, whatever port its SSH has."""
    handover = part.handover
    if isinstance(handover, SlurmHandover):
        return f"slurm {handover.controller}"
    if isinstance(handover, PlugInHandover):
        return f"plugin {handover.scheduler} {json.dumps(handover.settings, sort_keys=True)}"
    return place_of(site.seen_by(part))


def _launchers(site: Site, parts: list[tuple[int, HandoverPart]]) -> Iterator[Flaw]:
    for at, part in parts:
        launcher = part.launcher or site.gates.launcher
        wanted = _LAUNCHED_BY.get(launcher, part.handover.kind)
        if part.handover.kind != wanted:
            yield Flaw.of(
                (*_HERE, at, "launcher"),
                f"launcher of {_label(at, part)}",
                "Set the launcher of this part, e.g. openmpi.",
                expected=f"one that works with {part.handover.kind}",
                actual=launcher if part.launcher is not None else f"{launcher}, of gates.launcher",
                reads=(("gates", "launcher"),),
            )


def _domains(site: Site, parts: list[tuple[int, HandoverPart]]) -> Iterator[Flaw]:
    """Yield NVLink domains in two parts: its gates measure a domain as a whole, and never nodes of two schedulers."""
    for k, domain in enumerate(site.nvlink_domains):
        inside = domain_nodes(site, domain)
        held = {_label(at, part): [node for node in inside if node in part.names] for at, part in parts}
        held = {label: nodes for label, nodes in held.items() if nodes}
        if len(held) > 1:
            yield Flaw.of(
                ("nvlink_domains", k),
                f"scheduler of NVLink domain {domain.name}",
                "Give all its nodes to one part: gates measure a domain as a whole, and never nodes of two schedulers "
                "together.",
                expected="one",
                actual="; ".join(f"{label}: {listed(nodes)}" for label, nodes in held.items()),
                reads=(_HERE,),
            )


def _label(at: int, part: HandoverPart) -> str:
    return f"parts[{at}] ({part.called})"
