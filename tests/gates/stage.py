"""A stage over nodes that answer from a table, for tests of what it does with gates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rackready.design.site import load_site
from rackready.drivers.remote import Answer
from rackready.evidence.store import EvidenceStore
from rackready.gates.engine.validate import Stage
from rackready.ledger.store import Ledger
from rackready.model.site import Site
from rackready.paths import EnvPaths
from tests.gates.fake import FakeConnection, Reply, answered

ROOT = Path(__file__).resolve().parents[2]


def fingerprint_of(node: str, _: Sequence[str], **changed: Any) -> Answer:
    gpus = [{"index": index, "id": f"{node}-{index}", "vbios": "96.00"} for index in range(8)]
    found = {
        "format": "rackready/fingerprint/v1",
        "kernel": "6.1.0",
        "boot_id": "b1",
        "driver": "580.173.02",
        "gpus": gpus,
        "gpu_error": None,
    }
    found |= {
        "chassis_serial": None,
        "nics": [{"device": "mlx5_0", "guid": "1", "firmware": "28.43"}],
        "complete": True,
    }
    return answered(json.dumps({**found, **changed}))


def site_with(nodes: int = 4, **gates: Any) -> Site:
    """The simulated rack's site with as many nodes as wanted, and other ``gates``."""
    site = load_site("sim", site_file=ROOT / "inventories/sim/site.yml", root=ROOT)
    first = site.racks[0].nodes[0]
    more = [
        first.model_copy(update={"name": f"node{number:02}", "serial": f"S{number}", "index": number})
        for number in range(1, nodes + 1)
    ]
    racks = [site.racks[0].model_copy(update={"nodes": more})]
    return site.model_copy(update={"racks": racks, "gates": site.gates.model_copy(update=gates)})


def stage_of(
    tmp_path: Path, replies: Mapping[str, Reply], nodes: Sequence[str], site: Site | None = None, campaign: str = "c1"
) -> Stage:
    paths = EnvPaths(tmp_path, "sim")
    ledger = Ledger.open(paths.database)
    ledger.put_campaign(
        campaign, env="sim", kind="validate", nodes=list(nodes), site_digest="", abi="1", status="running"
    )
    store = EvidenceStore.open(ledger, paths.raw)
    return Stage.begin(site or site_with(), FakeConnection(replies), None, store, ledger, campaign, nodes)
