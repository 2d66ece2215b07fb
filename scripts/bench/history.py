"""A ledger in the middle of a deploy, for benchmarks: rows as the campaign's own code writes them, put in by thousands.

Every node has its states, lines of progress and effects; one in fifty is in quarantine, one in a hundred is not on
record yet. Five deploys before it are finished, each with its result. The last one runs: its lock is held.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import sqlalchemy as sa

from rackready.campaign.abi import CAMPAIGN_ABI
from rackready.campaign.phase_table import PHASES
from rackready.campaign.request import DEPLOY, CampaignRequest
from rackready.ledger import schema
from rackready.ledger.store import CHANGE, DETAIL, Ledger
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

_Item = TypeVar("_Item")

GATES = 40
"""Lines of gates for each of two phases that measure."""
BEFORE = 5
"""Finished campaigns."""
BAD, NEW = 50, 100
"""One node in so many is in quarantine, and not on record yet."""
_MEASURES = frozenset({"validate", "revalidate"})
_BEGUN = 1_790_000_000.0
_ROWS = 5_000
_BATCH, _WAVE = 32, 512
_REASON = (
    "node/gpu/validation/dcgm-r3: GPU 3 (serial 1650000000003) failed PCIe bandwidth - Expected: at least 22 GB/s "
    "Actual: 11.4 GB/s. Reseat the GPU, then run `rackready repair node01 --reason '...'`."
)


def fill(paths: EnvPaths, nodes: Sequence[str]) -> dict[str, object]:
    """Write the history of these nodes; return what was written."""
    campaign = f"{paths.env}-20260101T000000Z-{secrets.token_hex(3)}"
    with Ledger.open(paths.database) as ledger:
        for number in range(BEFORE):
            _campaign(ledger, paths, f"{paths.env}-2025120{number + 1}T000000Z-000000", nodes, number - BEFORE)
        _campaign(ledger, paths, campaign, nodes, 0)
        known = [node for place, node in enumerate(nodes) if place % NEW != NEW - 1]
        counts = {
            "states": _put(ledger, schema.nodes, (_node(node, campaign) for node in enumerate(known))),
            "transitions": _put(ledger, schema.transitions, _transitions(known, campaign)),
            "events": _put(ledger, schema.events, _events(known, campaign)),
            "operations": _put(ledger, schema.operations, _operations(known)),
        }
    return {"campaign": campaign, **counts}


def _put(ledger: Ledger, table: sa.Table, rows: Iterator[dict[str, Any]]) -> int:
    count = 0
    for some in _batched(rows, _ROWS):
        with ledger.write() as connection:
            connection.execute(sa.insert(table), list(some))
        count += len(some)
    return count


def _batched(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    left = iter(items)
    while some := list(islice(left, size)):
        yield some


def _bad(place: int) -> bool:
    return place % BAD == BAD // 2


def _campaign(ledger: Ledger, paths: EnvPaths, campaign: str, nodes: Sequence[str], day: int) -> None:
    waves = tuple(len(some) for some in _batched(nodes, _WAVE))
    request = CampaignRequest(
        campaign, paths.env, str(paths.root), "deploy", DEPLOY, tuple(nodes), _BATCH, waves, 5, site_digest="0" * 64
    )
    result = {"outcome": "pass", "message": "", "changed": False, "phase": DEPLOY[-1]}
    running = day == 0
    begun = _BEGUN + day * 86_400
    ledger.put_campaign(
        campaign,
        env=paths.env,
        kind="deploy",
        nodes=list(nodes),
        site_digest=request.site_digest,
        abi=CAMPAIGN_ABI,
        status="running" if running else "finished",
        begun=begun,
        ended=None if running else begun + 3_600,
        summary={"request": request.plain(), "check": False}
        | ({} if running else {"results": dict.fromkeys(nodes, result)}),
    )


def _node(item: tuple[int, str], campaign: str) -> dict[str, Any]:
    place, name = item
    row = {"name": name, "campaign": campaign, "epoch": 1, "since": _BEGUN + 3_000 + place % 600}
    if _bad(place):
        return row | {"state": NodeState.QUARANTINED.value, "reason": _REASON, "phase": "validate"}
    return row | {"state": NodeState.OPTIMIZED.value, "reason": "", "phase": "revalidate"}


def _transitions(nodes: Sequence[str], campaign: str) -> Iterator[dict[str, Any]]:
    for number, phase in enumerate(DEPLOY[:6]):
        for place, node in enumerate(nodes):
            bad = _bad(place)
            if bad and number > DEPLOY.index("validate"):
                continue
            states = ("quarantined",) if bad and phase == "validate" else PHASES[phase].reaches
            for state in states:
                reason = _REASON if bad and phase == "validate" else ""
                yield {"node": node, "state": str(state), "reason": reason, "campaign": campaign, "at": _BEGUN + number}


def _events(nodes: Sequence[str], campaign: str) -> Iterator[dict[str, Any]]:
    """Yield the progress in order of time: phase by phase, batch by batch."""
    for number, phase in enumerate(DEPLOY[:6]):
        for batch in _batched(enumerate(nodes), _BATCH):
            own = [(place, node) for place, node in batch if not (_bad(place) and number > DEPLOY.index("validate"))]
            common = {"campaign": campaign, "phase": phase, "at": _BEGUN + number * 600}
            for _, node in own:
                yield {**common, "node": node, "level": "info", "text": "begins"}
            for gate in range(GATES if phase in _MEASURES else 10):
                for _, node in own:
                    yield {
                        **common,
                        "node": node,
                        "level": DETAIL,
                        "text": f"node/gpu/validation/gate-{gate:02d}: pass",
                    }
            if phase == DEPLOY[5]:
                continue  # it works on them
            for place, node in own:
                bad = _bad(place) and phase == "validate"
                yield {**common, "node": node, "level": "fail" if bad else "ok", "text": _REASON if bad else "changed"}


def _operations(nodes: Sequence[str]) -> Iterator[dict[str, Any]]:
    common = {"epoch": 1, "status": "done", "desired": "0" * 64, "begun": _BEGUN, "ended": _BEGUN + 60}
    for number, operation in enumerate(("power-on", CHANGE, CHANGE, "boot", "firmware", CHANGE)):
        for node in nodes:
            observed = {"boot_id": f"00000000-0000-4000-8000-{number:012d}", "power": "off", "at": _BEGUN}
            yield {**common, "node": node, "operation": operation, "observed": observed, "result": {"outcome": "pass"}}
