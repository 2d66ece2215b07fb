"""A node comes back from its vendor: its parts compared with those that left, its peers' gates void, and reachable.

A part that was accused and is there again has returned. One that returns for the third time is retired: the node stays
out for repair until it is replaced by another.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rackready.campaign.repaired import begin_anew
from rackready.campaign.rma import on_bmc, on_node
from rackready.campaign.rma.case import Case
from rackready.campaign.rma.gathering import run
from rackready.campaign.rma.leave import RmaRefusedError, connected, end, require_node
from rackready.campaign.rma.parts import NodePart, parts_of
from rackready.campaign.rma.peers import Peer, peers, voids
from rackready.design.facts import node_facts
from rackready.design.pinned import site_of
from rackready.evidence.store import EvidenceStore
from rackready.handover.returned import retired_message
from rackready.ledger.part_history import (
    ACCUSED,
    LISTED,
    RETIRED,
    RETURNED,
    SENT,
    PartEvent,
    append,
    events_of,
    retired_serials,
)
from rackready.ledger.store import Ledger
from rackready.model.commands import repair
from rackready.model.phase import PhaseContext
from rackready.model.problems import Message
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

OFTEN = 3
"""Returns after which a part is retired. Judgement: one that passed at the vendor twice, and failed here each time,
does so again."""


@dataclass(slots=True)
class BeforeAndAfter:
    """The parts of a node before and after. ``same``: accused parts that are there again; lines are for people."""

    replaced: list[dict[str, str]] = field(default_factory=list)
    gone: list[dict[str, str]] = field(default_factory=list)
    new: list[dict[str, str]] = field(default_factory=list)
    same: list[dict[str, Any]] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the comparison, a line for each part."""
        out = [
            f"{item['kind']} {item['place']}: {item['before']} was replaced by {item['after']}"
            for item in self.replaced
        ]
        out += [f"{item['kind']} {item['place']}: {item['serial']} is gone" for item in self.gone]
        out += [f"{item['kind']} {item['place']}: {item['serial']} is new" for item in self.new]
        out += [
            f"{item['kind']} {item['place']}: accused, and the same part is there again: {item['serial']}, "
            f"return {item['returns']} of {OFTEN}"
            for item in self.same
        ]
        return [*out, *(f"not compared: {words}" for words in self.not_compared)] or ["no part was replaced"]


@dataclass(frozen=True, slots=True)
class CameBack:
    """The result. ``refused``: retired parts: the node is not back; ``epoch``: its new one, 0 when refused."""

    case: str
    comparison: BeforeAndAfter
    peers: list[Peer]
    in_production: list[str]
    refused: list[Message]
    epoch: int = 0


def come_back(ctx: PhaseContext, node: str, reason: str, tell: Callable[[str], None]) -> CameBack:
    """Compare, void, and return the node to reachable. Call it under the controller lock.

    Raises RmaRefusedError when no case is open, or its parts cannot be read. Repeated after a kill, it counts nothing
    twice.
    """
    site, paths = site_of(ctx), EnvPaths(ctx.root, ctx.env)
    require_node(site, node)
    with Ledger.open(paths.database) as ledger:
        case = Case.open_of(ledger, paths, node)
        if case is None:
            raise RmaRefusedError(
                node,
                expected="an open case",
                actual="none",
                next_step=f"If it was repaired in its place, run {repair(node)}.",
            )
        parts, not_read = _parts_now(ctx, ledger, paths, case)
        events = compared(ledger, case, parts, time.time())
        found = comparison(ledger, case, parts, not_read, events)
        beside = peers(site, EvidenceStore.read_only(ledger, paths.raw), node)
        append(ledger, events)
        bad = retired_serials(ledger, [part.serial for part in parts if part.serial])
        if bad:
            refused = [retired_message(node, serial, told) for serial, told in sorted(bad.items())]
            words = f"rma: retired part {', '.join(sorted(bad))} ({case.id})"
            ledger.set_state(node, NodeState.REPAIR, words, phase="rma")
            return CameBack(case.id, found, [], [], refused)
        append(ledger, [], voids(beside, node, time.time()))
        epoch = begin_anew(ctx, ledger, node, f"back from its vendor: {reason} ({case.id})", tell)
        end(ledger, node, {"outcome": "returned", "comparison": asdict(found)})
        ready = {row.name for row in ledger.states() if row.state is NodeState.READY}
        return CameBack(case.id, found, beside, [peer.node for peer in beside if peer.node in ready], [], epoch)


def _parts_now(ctx: PhaseContext, ledger: Ledger, paths: EnvPaths, case: Case) -> tuple[list[NodePart], list[str]]:
    """Return the parts that are in the node now, and what could not be read. The BMC must answer for the node."""
    site = site_of(ctx)
    now = Case("returned", case.node, time.time(), case.reason, case.folder)
    shutil.rmtree(now.folder, ignore_errors=True)
    asked = [item for item in (*on_bmc.COLLECTORS, *on_node.COLLECTORS) if item.name in {on_bmc.PARTS, on_node.PARTS}]
    with connected(ctx, site, paths, ledger, now) as desk:
        results = {item.name: item.reason for item in run(desk, asked, [])}
    if results[on_bmc.PARTS] and (site.node(case.node).kind == "metal" or results[on_node.PARTS]):
        raise RmaRefusedError(
            case.node,
            "parts after its return",
            expected="a list from its BMC",
            actual=results[on_bmc.PARTS],
            next_step="Rack it, cable its BMC, correct serial and bmc in the site file, then run again.",
        )
    failed = [f"{name}: {why}" for name, why in results.items() if why]
    return parts_of(now, node_facts(site, case.node)), failed


def compared(ledger: Ledger, case: Case, parts: Sequence[NodePart], at: float) -> list[PartEvent]:
    """Return the events of the parts that are there now, without those that are on record for this case.

    A part returns when it was accused in this case, or came with this return after it was accused before, in any node.
    Of a kind that could not be read before it left, only a part that was in another node last came with the return.
    """
    past = events_of(ledger, serials=[part.serial for part in parts if part.serial])
    here = {(event.event, event.kind, event.serial) for event in past if event.case == case.id}
    gone = [event for event in events_of(ledger, node=case.node) if (event.case, event.event) == (case.id, SENT)]
    read_before = {event.kind for event in gone}
    out = []
    for part in (part for part in parts if part.serial):
        base = PartEvent(at, case.id, case.node, LISTED, part.kind, part.serial, part.place, part.number)
        mine = [event for event in past if (event.kind, event.serial) == (part.kind, part.serial)]
        returns = {event.case for event in mine if event.event == RETURNED}
        accused = any(event.event == ACCUSED for event in mine)
        left = {event for event, kind, number in here if (kind, number) == (part.kind, part.serial)}
        wanted = [LISTED]
        last = next((event.node for event in reversed(mine) if event.event in {SENT, LISTED}), "")
        came = SENT not in left and (part.kind in read_before or last != case.node)
        if accused and (ACCUSED in left or came):
            wanted.append(RETURNED)
            returns.add(case.id)
        if len(returns) >= OFTEN:
            wanted.append(RETIRED)
        out += [replace(base, event=event) for event in wanted if event == LISTED or event not in left]
    return out


def comparison(
    ledger: Ledger, case: Case, parts: Sequence[NodePart], not_read: Sequence[str], events: Sequence[PartEvent]
) -> BeforeAndAfter:
    """Return what is there now against what left. A kind of part that was read only once is not compared."""
    past = [event for event in events_of(ledger, node=case.node) if event.case == case.id and event.event == SENT]
    before = {(event.kind, event.serial): event for event in past}
    after = {(part.kind, part.serial): part for part in parts if part.serial}
    out = BeforeAndAfter(not_compared=list(not_read))
    then, now = {kind for kind, _ in before}, {kind for kind, _ in after}
    out.not_compared += [f"{kind}: its serials were read only before" for kind in sorted(then - now)]
    out.not_compared += [f"{kind}: its serials were read only now" for kind in sorted(now - then)]
    gone = [event for key, event in before.items() if key not in after and event.kind in now]
    new = {key: part for key, part in after.items() if key not in before and part.kind in then}
    for event in sorted(gone, key=lambda item: (item.kind, item.place)):
        other = _in_its_place(event, gone, list(new.values()))
        base = {"kind": event.kind, "place": event.place}
        if other is None:
            out.gone.append({**base, "serial": event.serial})
        else:
            out.replaced.append({**base, "before": event.serial, "after": other.serial})
            del new[other.kind, other.serial]
    out.new += [{"kind": part.kind, "place": part.place, "serial": part.serial} for part in new.values()]
    returned = [event for event in events if event.event == RETURNED]
    returned += [
        event for event in events_of(ledger, node=case.node) if (event.case, event.event) == (case.id, RETURNED)
    ]
    for event in {item.serial: item for item in returned}.values():
        cases = {item.case for item in events_of(ledger, serials=[event.serial]) if item.event == RETURNED} | {case.id}
        words = {"kind": event.kind, "place": event.place, "serial": event.serial}
        out.same.append({**words, "returns": len(cases)})
    return out


def _in_its_place(event: PartEvent, gone: Sequence[PartEvent], new: Sequence[NodePart]) -> NodePart | None:
    """Return the part that took the place of one that is gone, None when that is not known.

    BMC and driver name places differently, and one of them may be silent: a kind of which one part went and one came
    needs no name.
    """
    of_kind = [part for part in new if part.kind == event.kind]
    there = next((part for part in of_kind if part.place == event.place), None)
    alone = len(of_kind) == 1 and sum(item.kind == event.kind for item in gone) == 1
    return there or (of_kind[0] if alone else None)
