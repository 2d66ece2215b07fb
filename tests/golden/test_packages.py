"""Packages of every system and platform as the roles ask for them. `GOLDENS=rewrite pytest tests/golden` rewrites."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rackready.design.fabric_software import fabric_software
from rackready.design.facts import driver_set
from rackready.design.site import load_site
from rackready.drivers.role_packages import asked_for
from rackready.model.site import Site
from rackready.profiles import loader

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def packages(site: Site, name: str, platform: str) -> dict[str, list[str]]:
    """Return role -> its packages with their versions, without those that a node's own state decides."""
    asked = asked_for(site, ROOT, loader.platform(platform))
    out = {
        role: [f"{package} {version or 'any version'}" for package, version in found.items()]
        for role, found in asked.roles.items()
    }
    lacks = fabric_software(loader.software(name), driver_set(site), loader.platform(platform)).lacks
    return out | ({"refused": [f"the set has no {key}" for key in lacks]} if lacks else {})


@pytest.mark.parametrize("name", sorted(loader.known("software")))
def test_packages_are_as_reviewed(name: str) -> None:
    site = load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=Path("/checkout"))
    site = site.model_copy(update={"software": site.software.model_copy(update={"set": name})})
    lists: dict[str, tuple[list[str], dict[str, list[str]]]] = {}
    for platform in sorted(loader.known("platform")):
        found = packages(site, name, platform)
        lists.setdefault(str(found), ([], found))[0].append(platform)
    text = "\n".join(
        [f"{name}\n"]
        + [
            f"{', '.join(platforms)}:\n"
            + "".join(f"  {role}: {item}\n" for role, items in found.items() for item in items)
            for platforms, found in lists.values()
        ]
    )
    golden = HERE / f"packages/{name}.txt"
    if os.environ.get("GOLDENS") == "rewrite":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
