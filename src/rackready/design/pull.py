"""What the release of a node is made for: its version of Python, and its processor."""

from __future__ import annotations

from rackready.design.software_of import software_site
from rackready.model.site import Site
from rackready.profiles import loader

SYSTEM_PYTHONS = {"debian12": "3.11", "ubuntu2404": "3.12"}
"""Python of systems whose python3 is new enough for ansible-core 2.19: packages.debian.org, packages.ubuntu.com."""


def node_python(site: Site, node: str) -> str:
    """Return the version of Python that runs plays on a node, such as 3.11; empty if the site has to say it."""
    if site.pull is not None and site.pull.python is not None:
        return site.pull.python
    return SYSTEM_PYTHONS.get(loader.software(software_site(site, node).software.set).os, "")


def node_processor(site: Site, node: str) -> str:
    """Return the architecture of a node's processors as wheels name it: superchips have Arm cores, the others x86."""
    gpu = loader.gpu(loader.platform(site.node(node).platform).gpu)
    return "aarch64" if gpu.form == "superchip" else "x86_64"
