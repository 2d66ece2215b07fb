"""Desired digests of nodes change only on purpose: another one voids the evidence and certificate of each such node.

A change that means to void them rewrites the file (GOLDENS=rewrite), and CHANGELOG says so.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from rackready.design.facts import desired_digest, node_facts
from rackready.design.site import load_site

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_suffix(".json")
SITES = [
    "lab-4-nodes",
    "h100-1su-infiniband",
    "b200-4su-roce",
    "gb200-nvl72-8-racks",
    "mixed-metal-virtual",
    "slurm-and-kubernetes",
]


def digests(name: str) -> dict[str, str]:
    """Return the digest of the first node of each platform of an example site."""
    site = load_site("x", site_file=ROOT / f"inventories/examples/{name}.yml", root=ROOT)
    first = {facts.platform.id: facts.node.name for facts in (node_facts(site, one.name) for one in site.nodes()[::-1])}
    return {f"{name} {platform}": desired_digest(site, node) for platform, node in sorted(first.items())}


def test_digests_of_example_sites_are_kept() -> None:
    found = {key: value for name in SITES for key, value in digests(name).items()}
    if os.environ.get("GOLDENS") == "rewrite":
        GOLDEN.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    assert found == json.loads(GOLDEN.read_text(encoding="utf-8"))
