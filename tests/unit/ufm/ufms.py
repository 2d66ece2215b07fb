"""A site with one leaf under UFM, and a simulated UFM of its fabric, for these tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rackready.design.own_profiles import read_own
from rackready.design.site import parse_site
from rackready.design.yaml import read_yaml
from rackready.model.base import SecretRef
from rackready.model.infiniband import Ufm as UfmSite
from rackready.model.site import Site
from rackready_sim.ib_hardware import build_state
from rackready_sim.tls import ensure_certificates
from rackready_sim.ufm.fabric import Fabric, port_guid
from rackready_sim.ufm.server import TOKEN, Ufm, serving

ROOT = Path(__file__).resolve().parents[3]
TENANTS = [
    {"name": "red", "nodes": ["node[01-02]"], "pkey": "0x0011"},
    {"name": "blue", "nodes": ["node[03-04]"], "pkey": "0x0012", "full_member": False},
]


def document_of(url: str = "https://127.0.0.1", *, tenants: bool = False, **access: Any) -> dict[str, Any]:
    """Return inventories/sim-ib with every cable at leaf01, so that it is one subnet, under UFM."""
    document: dict[str, Any] = read_yaml(ROOT / "inventories/sim-ib/site.yml")
    document["fabric"]["infiniband"] = {"subnet_manager": "ufm", "ufm": {"url": url, **(access or login())}}
    document["switches"] = document["switches"][:1]
    document["links"] = [
        {"node": f"node{node:02}", "rails": "1-8", "switch": "leaf01", "ports": f"{8 * node - 7}-{8 * node}"}
        for node in range(1, 5)
    ]
    if tenants:
        document["tenants"] = TENANTS
    return document


def site_of(url: str = "https://127.0.0.1", *, tenants: bool = False, **access: Any) -> Site:
    """Return the site of ``document_of``."""
    own = read_own(ROOT / "inventories/sim-ib/profiles", ROOT)
    return parse_site(document_of(url, tenants=tenants, **access), source="ufm", base=ROOT, own=own)


def login() -> dict[str, Any]:
    """Return the login of tests that ask no UFM."""
    return {"token": {"env": "UFM_TOKEN"}}


def simulated(site: Site) -> Ufm:
    """Return a UFM of the site's fabric, as it is planned."""
    return Ufm(Fabric(build_state(site)))


def guids_of(ufm: Ufm) -> dict[str, list[str]]:
    """Return node -> GUIDs of its ports, as the nodes tell them."""
    out: dict[str, list[str]] = {}
    for hca in ufm.fabric.state["hcas"]:
        out.setdefault(hca["node"], []).append(port_guid(hca))
    return out


@contextmanager
def up(ufm: Ufm, folder: Path, certificate: Path | None = None, **access: Any) -> Iterator[UfmSite]:
    """Serve a UFM and return the way to it; ``access`` replaces parts of it."""
    ensure_certificates(folder, {"ufm": "127.0.0.1"})
    token = folder / "token"
    token.write_text(TOKEN, encoding="utf-8")
    with serving(ufm, certificate or folder / "ufm.pem") as url:
        own = {"url": url, "token": SecretRef(file=token), "ca": folder / "ca.pem"} | access
        yield UfmSite.model_validate({name: value for name, value in own.items() if value is not None})
