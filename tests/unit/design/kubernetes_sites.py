"""Sites with a handover to Kubernetes, and what is exported for them: unit tests, goldens, the real API server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rackready.design.kube_export import kube_export
from rackready.design.site import parse_site
from rackready.design.yaml import read_judged
from rackready.model.exported import Export, ExportedFile
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.site import Site
from rackready.render.exported import text_of

INVENTORIES = Path(__file__).resolve().parents[3] / "inventories"
CASES: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "roce": ("sim-k8s/site.yml", {}, {}),
    "infiniband": ("examples/h100-1su-infiniband.yml", {"labels": {"unit": "example.com/block"}}, {}),
    "nvl72": ("examples/gb200-nvl72-8-racks.yml", {}, {}),
    "dra": ("examples/gb200-nvl72-8-racks.yml", {"devices": "dra", "taint": "example.com/wait=yes:NoSchedule"}, {}),
    "mixed": ("examples/mixed-metal-virtual.yml", {}, {"group_vars/nodes.yml": "small"}),
}
"""Name -> site file, settings of handover, MIG layouts."""


def site_with(name: str, software: Mapping[str, Any] | None = None, **settings: Any) -> Site:
    """Return a site of this repository with another handover, and with other settings of its software."""
    document, _ = read_judged(INVENTORIES / name)
    document["handover"] = {"kind": "kubernetes", "kubeconfig": "k8s/prod", "context": "prod", **settings}
    document["software"] |= software or {}
    return parse_site(document, source=name, base=Path("/base"))


def exported(site: Site, layouts: Mapping[str, str] | None = None) -> Export:
    """Return the export of a site."""
    assert isinstance(site.handover, KubernetesHandover)
    return kube_export(site, site.handover, layouts or {})


def case(name: str) -> Export:
    """Return the export of a case."""
    file, settings, layouts = CASES[name]
    return exported(site_with(file, **settings), layouts)


def text(file: ExportedFile) -> str:
    """Return a file as it is written."""
    return text_of(file, "kubernetes --env prod")
