"""A site whose nodes are installed by their distributions' own installers, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rackready.design.imaging import HostKey, Login
from rackready.design.installer import InstallerFacts, ReportTo, installer_facts
from rackready.design.yaml import read_yaml
from rackready.model.site import Site
from tests.unit.design.written import ROOT, parse

LOGINS = (
    Login("root", ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIRoot op's key",)),
    Login("deploy", ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOne one@site", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAITwo")),
)
HOST_KEYS = (
    HostKey("ed25519", "-----BEGIN TEST KEY-----\nbm90IGEga2V5\n-----END TEST KEY-----\n", "ssh-ed25519 AAAAHost"),
)
REPORT = ReportTo(
    "https://192.0.2.1:8443/nodes/node01/reports",
    "token-of-node01",
    "-----BEGIN CERTIFICATE-----\nbm90IGE=\n-----END CERTIFICATE-----\n",
    "5" * 64,
    "0a1b2c3d",
)
PAIR: dict[str, Any] = {
    "system": [{"serial": "S64GNE0R 1"}, {"serial": "S64GNE0R 2"}],
    "scratch": [{"path": f"/dev/disk/by-path/pci-0000:{n}:00.0-nvme-1"} for n in (41, 42)],
    "scratch_filesystem": "xfs",
}
SINGLE: dict[str, Any] = {
    "system": [{"path": "/dev/disk/by-path/pci-0000:01:00.0-ata-1"}],
    "scratch": [{"serial": "N1"}],
}
_SETS = {
    "ubuntu2404": "hgx-r580-ubuntu2404",
    "ubuntu2204": "hgx-r580-ubuntu2204",
    "debian12": "hgx-r580-debian12",
    "debian13": "hgx-r580-debian12",
    "el9": "hgx-r580-el9",
}


def document(system: str, disks: dict[str, Any], **installer: Any) -> dict[str, Any]:
    """Return a site file. ``installer``: changes of its section; None takes a key away."""
    found: dict[str, Any] = read_yaml(ROOT / "inventories/sim/site.yml")
    mirror: dict[str, Any] = {"system": system, "url": "http://192.0.2.2/os/"}
    if system.startswith("debian"):
        mirror |= {"security": "http://192.0.2.2/security"}
    section = {
        "mirrors": [mirror],
        "proxy": "http://192.0.2.3:3128",
        "time_servers": ["192.0.2.4", "ntp.site"],
        **installer,
    }
    found["software"] |= {"set": _SETS[system]}
    found["racks"][0]["nodes"][0] |= {"boot_mac": "02:00:00:00:00:01", "disks": disks}
    found["provisioning"] = {
        "method": "installer",
        "service": {
            "address": "192.0.2.1",
            "interface": "eno2",
            "network": "192.0.2.0/24",
            "gateway": "192.0.2.254",
            "dns": ["192.0.2.5"],
        },
        "kernel_options": ["iommu=pt", "console=ttyS0"],
        "installer": {key: value for key, value in section.items() if value is not None},
    }
    return found


def facts(system: str, disks: dict[str, Any], *, provisioned: bool = True, **installer: Any) -> InstallerFacts:
    """Return the facts of its first node; ``provisioned``: with host keys and a place to report to."""
    site = parse(document(system if system != "debian13" else "debian12", disks, **installer))
    found = facts_of(site, provisioned=provisioned)
    return replace(found, system="debian13", codename="trixie") if system == "debian13" else found


def facts_of(site: Site, *, provisioned: bool = False, erase: bool = False) -> InstallerFacts:
    return installer_facts(
        site,
        site.nodes()[0],
        LOGINS,
        host_keys=HOST_KEYS if provisioned else (),
        report=REPORT if provisioned else None,
        erase=erase,
    )
