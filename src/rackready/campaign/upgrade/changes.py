"""What an upgrade changes on a node: the packages that the roles ask for, before and after."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rackready.design.node_sets import choice_of, regrouped
from rackready.design.software_of import software_site
from rackready.drivers.role_packages import asked_for
from rackready.model.site import Site
from rackready.model.upgrade import SetChoice
from rackready.profiles import loader

_DRIVER, _NIC = "nvidia_driver", "nic_stack"


@dataclass(frozen=True, slots=True)
class PackageChange:
    """One package: ``before`` or ``after`` is empty where the set does not have it."""

    role: str
    package: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class NodeChanges:
    """The changes of one node, whether it reboots, and why."""

    packages: tuple[PackageChange, ...]
    reboot: bool
    why: str
    wanted: tuple[str, ...]
    """``name=version`` of all packages of the new set with an exact version."""
    former: tuple[str, ...]
    lower: str = ""
    """The driver's versions, where the new one is lower."""


class Changes:
    """Changes by platform and sets: a fleet has few of these pairs."""

    def __init__(self, site: Site, root: Path, group_vars: Path) -> None:
        self._site, self._root, self._vars = site, root, group_vars
        self._asked: dict[tuple[str, SetChoice], dict[str, dict[str, str]]] = {}
        self._found: dict[tuple[str, SetChoice, SetChoice], NodeChanges] = {}

    def of(self, node: str, to: SetChoice) -> NodeChanges:
        """Return what changes on a node. Raises RackreadyError."""
        platform, before = self._site.node(node).platform, choice_of(self._site, node)
        key = (platform, before, to)
        if key not in self._found:
            old, new = self._roles(node, before), self._roles(node, to)
            found = tuple(_changes(old, new))
            reboot, why = self._reboot(found)
            self._found[key] = NodeChanges(found, reboot, why, _exact(new), _exact(old), self._lower(node, to))
        return self._found[key]

    def _roles(self, node: str, choice: SetChoice) -> dict[str, dict[str, str]]:
        platform = self._site.node(node).platform
        if (platform, choice) not in self._asked:
            own = software_site(regrouped(self._site, {node: choice}), node)
            self._asked[platform, choice] = asked_for(own, self._root, loader.platform(platform), self._vars).roles
        return self._asked[platform, choice]

    def _reboot(self, found: tuple[PackageChange, ...]) -> tuple[bool, str]:
        """Return whether a reboot is to be expected. The node decides: install looks for reasons before and after."""
        roles = {change.role for change in found}
        if _NIC in roles and self._site.software.nic_stack == "doca":
            return True, "the network cards' modules in use are of another build until a boot"
        if _DRIVER in roles:
            return False, "the driver's module is replaced without a boot; install reboots if the node then asks for it"
        return False, "no change asks for one; install reboots if the node then asks for it"

    def _lower(self, node: str, to: SetChoice) -> str:
        before = _driver(choice_of(self._site, node))
        after = _driver(to)
        return f"{before} -> {after}" if _numbers(after) < _numbers(before) else ""


def _driver(choice: SetChoice) -> str:
    profile = loader.software(choice.set)
    return profile.driver[choice.branch or profile.default_branch].version


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _changes(old: dict[str, dict[str, str]], new: dict[str, dict[str, str]]) -> list[PackageChange]:
    out = []
    for role in sorted({*old, *new}):
        before, after = old.get(role, {}), new.get(role, {})
        out += [
            PackageChange(role, name, before.get(name, ""), after.get(name, ""))
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        ]
    return out


def _exact(roles: dict[str, dict[str, str]]) -> tuple[str, ...]:
    found = {f"{name}={version}" for packages in roles.values() for name, version in packages.items() if version}
    return tuple(sorted(found))
