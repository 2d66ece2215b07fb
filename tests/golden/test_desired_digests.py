"""Desired digests of nodes are those of the last release: another one voids the evidence and certificate of each node.

A change that means to void them rewrites the file (GOLDENS=rewrite), and CHANGELOG says so.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from rackready.design.facts import desired_digest
from rackready.design.site import load_site

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_suffix(".json")
SITES = ["lab-4-nodes", "h100-1su-infiniband", "b200-4su-roce", "gb200-nvl72-8-racks", "mixed-metal-virtual"]


def digest(name: str) -> str:
    """Return the digest of the first node of an example site."""
    site = load_site("x", site_file=ROOT / f"inventories/examples/{name}.yml", root=ROOT)
    return desired_digest(site, site.nodes()[0].name)


def test_digests_of_example_sites_are_those_of_the_last_release() -> None:
    found = {name: digest(name) for name in SITES}
    if os.environ.get("GOLDENS") == "rewrite":
        GOLDEN.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    assert found == json.loads(GOLDEN.read_text(encoding="utf-8"))
