"""Measure loading and checking a site file, and facts of every node. usage: scripts/bench/site.py [NODES ...].

Ends with one JSON line per case.
"""

from __future__ import annotations

import copy
import sys
import time
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.cases import Line, each, peak_mib  # noqa: E402 - run by path: the root is put on the path first

NODES_A_RACK = 4
CASES = (4, 16, 64)
"""Nodes per case. One leaf a rail without spines: its 64 ports are the limit."""


def document(count: int) -> dict[str, Any]:
    """Return a site of that many nodes in the shape of the example, in racks of four, with one leaf for each rail."""
    import yaml  # noqa: PLC0415 - only the measuring process needs it

    site: dict[str, Any] = yaml.safe_load((ROOT / "inventories/example/site.yml").read_text(encoding="utf-8"))
    pattern, leaf = site["racks"][0]["nodes"][0], site["switches"][0]
    rails = [item["rail"] for item in site["fabric"]["rails"]]
    site["switches"] = [{**leaf, "name": f"leaf{rail:02d}", "address": _address("10.20.2.0", rail)} for rail in rails]
    site["racks"] = [
        {"name": f"rack-{rack:03d}", "nodes": []} for rack in range((count + NODES_A_RACK - 1) // NODES_A_RACK)
    ]
    for index in range(count):
        site["racks"][index // NODES_A_RACK]["nodes"].append(_node(pattern, index))
    site["links"] = [_link(index, rail) for index in range(count) for rail in rails]
    return site


def _address(first: str, step: int) -> str:
    return str(IPv4Address(first) + step)


def _node(pattern: dict[str, Any], index: int) -> dict[str, Any]:
    node = copy.deepcopy(pattern)
    node.update(
        name=f"gpu-{index:05d}",
        index=index + 1,
        serial=f"SERIAL-{index:05d}",
        unit=1 + 8 * (index % NODES_A_RACK),
        address=_address("10.20.1.0", index),
    )
    node["bmc"]["address"] = _address("10.21.1.0", index)
    return node


def _link(index: int, rail: int) -> dict[str, str]:
    return {"node": f"gpu-{index:05d}", "rails": str(rail), "switch": f"leaf{rail:02d}", "ports": f"swp{index + 1}"}


def measure(count: int) -> Line:
    """Load a site of that many nodes and compute every node's facts; return seconds and peak memory in MiB."""
    from rackready.design.facts import node_facts  # noqa: PLC0415
    from rackready.design.site import parse_site  # noqa: PLC0415

    raw = document(count)
    began = time.perf_counter()
    site = parse_site(raw, source="bench", base=ROOT)
    loaded = time.perf_counter()
    for node in site.nodes():
        node_facts(site, node.name)
    done = time.perf_counter()
    return {
        "bench": "site",
        "n": count,
        "seconds": round(done - began, 3),
        "load_seconds": round(loaded - began, 3),
        "peak_mib": round(peak_mib()),
    }


if __name__ == "__main__":
    each(__file__, CASES, measure)
