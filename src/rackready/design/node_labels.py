"""Facts about a node that schedulers select and group nodes by, as short words that a Kubernetes label may hold."""

from __future__ import annotations

import hashlib
import re

from rackready.design.check_groups import domains_of_nodes
from rackready.design.endpoints import unit_of
from rackready.design.wiring import cables
from rackready.model.kubernetes import Fact
from rackready.model.site import Site
from rackready.profiles import loader

_LONGEST = 63
"""Characters of a label's value (kubernetes.io/docs/concepts/overview/working-with-objects/labels)."""
_DIGEST = 12
"""Hexadecimal digits that tell long values apart."""


def node_labels(site: Site, name: str) -> dict[Fact, str]:
    """Return fact -> value for a node: where it stands, what it is cabled to, and its GPUs. No value is empty.

    ``leafs``: nodes with the same value share their leaf switches. ``clique``: nodes with the same value share NVLink.
    """
    node, rack = site.node(name), site.rack_of(name)
    platform = loader.platform(node.platform)
    switches = _switches(site).get(name, [])
    found: dict[Fact, str] = {
        "site": site.name,
        "rack": rack.name,
        "unit": str(unit_of(site, rack)),
        "leafs": "_".join(sorted(set(switches))),
        "platform": platform.id,
        "gpu": platform.gpu,
        "gpus": str(platform.gpus),
        "rails": str(len(switches) or ""),
        "clique": domain.name if (domain := domains_of_nodes(site).get(name)) is not None else "",
    }
    return {fact: label_value(value) for fact, value in found.items() if value}


def label_value(text: str) -> str:
    """Return a text as a label's value. A longer one keeps its beginning and gets a digest, so that it stays unique."""
    word = re.sub(r"[^A-Za-z0-9_.-]", "-", text).strip("_.-")
    if word == text and len(word) <= _LONGEST:
        return word
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
    return f"{word[: _LONGEST - _DIGEST - 1]}-{digest}".lstrip("-")


def _switches(site: Site) -> dict[str, list[str]]:
    """Return node -> the leaf switch of each rail. It is computed once: 12,500 nodes have 100,000 cables."""

    def by_node() -> dict[str, list[str]]:
        out: dict[str, list[str]] = {}
        for (node, _), (switch, _) in cables(site).items():
            out.setdefault(node, []).append(switch)
        return out

    return site.remember("leafs of nodes", by_node)
