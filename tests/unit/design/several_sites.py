"""Sites whose nodes are handed over to several schedulers. The four nodes are those of environment sim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from rackready.design.site import parse_site
from rackready.model.site import Site

SITE = Path(__file__).resolve().parents[3] / "inventories/sim/site.yml"
SLURM = {"kind": "slurm", "controller": "192.0.2.5", "private_key": "/keys/slurm"}
KUBERNETES = {"kind": "kubernetes", "kubeconfig": "/kube/config", "context": "gpu"}
FILE = {"kind": "file", "path": "/lists/ready.txt"}


def part(nodes: str, handover: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a part of a site."""
    return {"nodes": [nodes] if nodes else [], "handover": handover, **more}


BOTH = (part("node[01-02]", SLURM), part("node[03-04]", KUBERNETES))


def document(*parts: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    """Return the site file with these parts. ``sections``: keys to add to sections."""
    found: dict[str, Any] = yaml.safe_load(SITE.read_text(encoding="utf-8"))
    found["handover"] = {"kind": "several", "parts": [dict(item) for item in parts]}
    for name, keys in sections.items():
        found[name] = found.get(name, {}) | keys
    return found


def several(*parts: dict[str, Any], **sections: dict[str, Any]) -> Site:
    """Return the site with these parts. Raises SiteInvalidError."""
    return parse_site(document(*parts, **sections), source="site.yml", base=Path("/base"))
