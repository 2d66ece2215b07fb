"""What a site's mirror must contain: packages of its platforms, and the container images of its gates."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from rackready.design.fabric_software import fabric_software
from rackready.design.facts import driver_set
from rackready.design.handover_of import handover_views
from rackready.drivers.mirror.parts import Need, Wanted
from rackready.drivers.mirror.tools import MirrorError
from rackready.drivers.role_packages import Asked, asked_for
from rackready.model.operations import Upstream
from rackready.model.problems import Message
from rackready.model.site import Site, SlurmHandover
from rackready.paths import EnvPaths, shipped
from rackready.profiles import loader

_DIGEST = re.compile(r"@(sha256:[0-9a-f]{64})$")
_ARM = "Grace"


@dataclass(frozen=True, slots=True)
class Image:
    """A container image that a gate runs. ``digest`` is empty where the gate set names it by a tag only."""

    gate: str
    image: str
    digest: str


def plan(
    site: Site, paths: EnvPaths, kernels: tuple[str, ...] = (), installed: Path | None = None, *, build: bool = True
) -> Wanted:
    """Return what the mirror of a site is made for. Raises MirrorError that names all that is missing.

    ``build``: the mirror is to be built, which takes upstreams.
    """
    _check(site, installed, build=build)
    by_platform = {
        name: _asked(site, name, paths.inventory / "group_vars")
        for name in dict.fromkeys(node.platform for rack in site.racks for node in rack.nodes)
    }
    lists: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, asked in by_platform.items():
        lists.setdefault(tuple(sorted(_packages(site, asked, kernels).items())), []).append(name)
    some = next(iter(by_platform.values()))
    needs = tuple(Need(tuple(sorted(platforms)), dict(packages)) for packages, platforms in lists.items())
    system = loader.software(site.software.set).os
    return Wanted(system, needs, tuple(_upstreams(site, system)), some.pins, some.streams, installed)


def _upstreams(site: Site, system: str) -> list[Upstream]:
    """Return the repositories that the mirror of a system copies from."""
    return [item for item in site.software.upstreams if not item.systems or system in item.systems]


def _asked(site: Site, name: str, group_vars: Path) -> Asked:
    """Return what the roles ask for on the nodes of a platform, whichever scheduler they have.

    The site alone has no variables of a scheduler where there are several (``hostvars.site_vars``): a role whose
    packages depend on it, as monitoring, would ask for less than its nodes do.
    """
    platform = loader.platform(name)
    views = [view.site for view in handover_views(site) if any(site.node(node).platform == name for node in view.nodes)]
    found = [asked_for(view, shipped(), platform, group_vars) for view in views or [site]]
    roles: dict[str, dict[str, str]] = {}
    for asked in found:
        for role, packages in asked.roles.items():
            roles[role] = roles.get(role, {}) | packages
    return replace(found[0], roles=roles)  # the driver, and so all else, is of the version set


def _packages(site: Site, asked: Asked, kernels: tuple[str, ...]) -> dict[str, str]:
    """Return the packages of the roles that run on the site's nodes."""
    slurm = any(isinstance(view.site.handover, SlurmHandover) for view in handover_views(site))
    idle = [] if slurm else ["slurm_node", "enroot_pyxis"]
    roles = {role: packages for role, packages in asked.roles.items() if role not in idle}
    return Asked(roles, asked.build, asked.headers).packages(kernels)


def _check(site: Site, installed: Path | None, *, build: bool) -> None:
    problems: list[Message] = []
    software = loader.software(site.software.set)
    if build and not _upstreams(site, software.os):
        problems.append(
            Message(
                "software.upstreams",
                expected="the repositories to copy from",
                actual=f"none for {software.os}" if site.software.upstreams else "none",
                next_step="Declare each with name, url, suite, key and fingerprint.",
            )
        )
    for name in sorted({node.platform for rack in site.racks for node in rack.nodes}):
        platform = loader.platform(name)
        problems += [
            Message(
                f"software.set {software.id}",
                expected=f"{key}, for platform {name}",
                actual="none",
                next_step="Choose a set with it.",
            )
            for key in fabric_software(software, driver_set(site), platform).lacks
        ]
        if platform.host is not None and _ARM in platform.host.cpu_model:
            problems.append(
                Message(
                    f"platform {name}",
                    expected="an x86-64 server",
                    actual="one with Arm",
                    next_step="Mirror it by hand.",
                )
            )
    if not any(rack.nodes for rack in site.racks):
        problems.append(
            Message(
                "racks", expected="nodes", actual="none", next_step="Add the site's nodes: they decide the packages."
            )
        )
    if installed is not None and not installed.is_file():
        problems.append(
            Message(
                f"--installed {installed}",
                expected="dpkg's status file of a node",
                actual="no file",
                next_step="Copy it.",
            )
        )
    if problems:
        raise MirrorError.of(problems)


def images(site: Site) -> list[Image]:
    """Return the container images of the site's gates, by gate."""
    found = []
    for entry in loader.gates_of(site.gates):
        image = str(entry.inputs.get("image") or "")
        if image:
            match = _DIGEST.search(image)
            found.append(Image(entry.id, image, match[1] if match else ""))
    return found
