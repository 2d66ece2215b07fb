"""Packages of every system and platform as the roles ask for them. `GOLDENS=rewrite pytest tests/golden` rewrites."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleUndefinedVariable
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from rackready.design import hostvars
from rackready.design.fabric_software import fabric_software
from rackready.design.facts import driver_set
from rackready.design.site import load_site
from rackready.model.site import Site
from rackready.profiles import loader

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SYSTEMS = {
    "debian12": ("Debian", "12", "Debian"),
    "ubuntu2204": ("Ubuntu", "22", "Debian"),
    "ubuntu2404": ("Ubuntu", "24", "Debian"),
    "el9": ("Rocky", "9", "RedHat"),
}
"""System of a version set to the facts that the roles read: distribution, major version, family."""
ROLES = [
    role["role"] for name in ("install", "fabric", "handover") for play in yaml.safe_load(
        (ROOT / f"playbooks/{name}.yml").read_text(encoding="utf-8")
    ) for role in play.get("roles", [])
]  # fmt: skip


def trusted(value: Any) -> Any:  # noqa: ANN401 - what YAML has
    if isinstance(value, dict):
        return {key: trusted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [trusted(item) for item in value]
    return trust_as_template(value) if isinstance(value, str) else value


def read(path: Path) -> Any:  # noqa: ANN401 - what YAML has
    return trusted(yaml.safe_load(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def asked(role: str) -> Iterator[Any]:
    """Every ``packages`` argument in a role's tasks, in the order of their files."""
    for path in sorted((ROOT / "roles" / role / "tasks").glob("*.yml")):
        yield from (
            task["rackready_packages"]["packages"]
            for task in read(path)
            if "packages" in task.get("rackready_packages", {})
        )


def packages(site: Site, name: str, platform: str) -> dict[str, list[str]]:
    """Return role -> its packages with their versions, without those that a node's own state decides."""
    system = loader.software(name).os
    distribution, major, family = SYSTEMS[system]
    facts = {"distribution": distribution, "distribution_major_version": major, "os_family": family}
    known = (
        hostvars.site_vars(site) | hostvars.platform_vars(site, loader.platform(platform)) | {"ansible_facts": facts}
    )
    out = {}
    for role in ROLES:
        place = ROOT / "roles" / role
        system_vars = next((f for f in (place / f"vars/{distribution}_{major}.yml",) if f.is_file()), Path("/none"))
        variables = read(place / "defaults/main.yml") | known | read(place / "vars/main.yml") | read(system_vars)
        found = {}
        for argument in asked(role):
            try:
                found |= Templar(loader=DataLoader(), variables=variables).template(argument)
            except AnsibleUndefinedVariable:
                continue
        if found:
            out[role] = [
                f"{package} {version or 'any version'}" for package, version in sorted(found.items()) if package
            ]
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
