"""Checks of version sets: they exist, they go with the GPUs of their nodes, and a node has one."""

from __future__ import annotations

from rackready.design.check_gates import today
from rackready.design.check_names import members, names_twice
from rackready.design.cuda_compat import no_gpu, no_pair
from rackready.design.names import listed
from rackready.design.repositories import kind_of, repositories_of
from rackready.design.site_flaws import Flaw, Loc, Subject
from rackready.design.software_of import SoftwareView, software_views
from rackready.model.near import among
from rackready.model.profile import GpuProfile
from rackready.model.site import Site
from rackready.model.software import SoftwareProfile
from rackready.profiles import loader


def check_software(subject: Subject) -> list[Flaw]:
    """Return problems with version sets, driver branches and groups of nodes."""
    site = subject.site
    out = _set(site.software.set, ("software", "set"))
    for place, group in enumerate(site.software.groups):
        out += _set(group.set, ("software", "groups", place, "set"))
    out += _sources(subject)
    return out + _groups(subject) + [found for view in software_views(site) for found in _driver(site, view)]


def _set(wanted: str, loc: Loc) -> list[Flaw]:
    known = loader.known("software")
    if wanted in known:
        return []
    why = loader.unpublished(wanted)
    if why is not None:
        return [
            Flaw.of(
                loc,
                f"version set {wanted}",
                why.instead,
                expected="published packages",
                actual=why.reason,
                profile=("software", wanted),
            )
        ]
    return [
        Flaw.of(
            loc,
            f"software profile {wanted!r} does not exist",
            "Correct the id or add the profile.",
            expected=f"one of {among(known, wanted)}",
            profile=("software", wanted),
        )
    ]


def _groups(subject: Subject) -> list[Flaw]:
    groups = subject.site.software.groups
    out = names_twice((group.name for group in groups), "software.groups", "software group")
    nodes = {node.name for node in subject.site.nodes()}
    owner: dict[str, str] = {}
    for place, group in enumerate(groups):
        here: Loc = ("software", "groups", place)
        named, missing = members(group.nodes, nodes, (*here, "nodes"), "node", subject.lost.of("nodes"))
        out += missing
        taken = [name for name in dict.fromkeys(named) if owner.setdefault(name, group.name) != group.name]
        if taken:
            text = f"{listed(taken)} of software group {group.name} already belongs to {owner[taken[0]]}."
            out.append(Flaw((*here, "nodes"), text, "Name each node in one group.", kind="taken"))
    return out


def _sources(subject: Subject) -> list[Flaw]:
    """Return problems with the package repositories of the nodes."""
    site, lost = subject.site, subject.lost
    given = site.software.repositories
    out = names_twice((item.name for item in given), "software.repositories", "repository")
    out += [
        Flaw.of(
            ("software", "repositories", place, "package_fingerprints"),
            "apt checks the index alone, and the index has the hash of every package",
            "Leave them out.",
            expected="none for kind apt",
        )
        for place, item in enumerate(given)
        if item.kind == "apt" and item.package_fingerprints
    ]
    sets = {view.site.software.set for view in software_views(site)}
    known = sets & set(loader.known("software"))
    systems = {loader.software(name).os for name in known}
    if known == sets and not lost.any("groups", "nodes", "racks"):
        out += _unused(site, systems)
    kinds = sorted({kind_of(system) for system in systems})
    if site.software.mirror is not None:
        if len(kinds) > 1:
            out.append(
                Flaw.of(
                    ("software", "mirror"),
                    "one mirror for nodes with apt and nodes with dnf",
                    "Declare software.repositories instead.",
                    expected="a repository of each kind",
                )
            )
        return out
    for system in sorted(systems) if not lost.any("repositories") else ():
        if not repositories_of(site, system):
            text = f"no repository for nodes with {system} - Expected: at least one of kind {kind_of(system)}."
            mirror = (("software", "mirror"),)
            out.append(Flaw(("software", "repositories"), text, "Declare it, or software.mirror.", mirror))
    return out


def _unused(site: Site, systems: set[str]) -> list[Flaw]:
    """Return the systems of repositories that no node has."""
    return [
        Flaw.of(
            ("software", "repositories", place, "systems"),
            f"no node has {listed(strange)}",
            "Correct the name, or leave it out.",
            expected=f"some of {listed(sorted(systems))}",
        )
        for place, item in enumerate(site.software.repositories)
        if systems and (strange := [name for name in item.systems if name not in systems])
    ]


def _driver(site: Site, view: SoftwareView) -> list[Flaw]:
    chosen = view.site.software
    if chosen.set not in loader.known("software"):
        return []
    software = loader.software(chosen.set)
    branch = chosen.driver_branch or software.default_branch
    loc, of_set = _places(site, view.group)
    out = _gpus(site, view, branch, (loc, of_set))
    if not out and branch not in software.driver:
        have = ", ".join(str(item) for item in sorted(software.driver))
        out.append(
            Flaw.of(
                loc,
                f"branch {branch} is not in software set {software.id}",
                "Choose one of these branches, or another set.",
                expected=f"one of {have}",
                reads=of_set,
            )
        )
    if not out and (end := software.driver[branch].end_of_life) < f"{today():%Y-%m}":
        out.append(
            Flaw.of(
                loc,
                f"branch {branch} is past its end of life",
                "Choose another branch or another set.",
                expected="a branch with support",
                actual=f"support ended {end}",
            )
        )
    if not out and (pair := no_pair(software, branch)):
        out.append(Flaw(loc, pair, "Choose another branch, or a set with an older CUDA.", of_set))
    return out


def _places(site: Site, group: str) -> tuple[Loc, tuple[Loc, ...]]:
    """Return the place of the driver branch, and of the set that decides it."""
    if not group:
        return ("software", "driver_branch"), (("software", "set"),)
    place = next(k for k, item in enumerate(site.software.groups) if item.name == group)
    here: Loc = ("software", "groups", place)
    return (*here, "driver_branch"), ((*here, "set"),)


def _gpus(site: Site, view: SoftwareView, branch: int, places: tuple[Loc, tuple[Loc, ...]]) -> list[Flaw]:
    """Return the GPUs of these nodes that the branch, or the flavour of its kernel modules, cannot drive."""
    loc, of_set = places
    names = set(view.nodes)
    platforms = {node.platform for node in site.nodes() if node.name in names} & set(loader.known("platform"))
    software = loader.software(view.site.software.set)
    out: list[Flaw] = []
    for gpu in sorted({loader.platform(platform).gpu for platform in platforms}):
        profile = loader.gpu(gpu)
        last = profile.max_driver_branch
        if branch < profile.min_driver_branch or (last is not None and branch > last):
            span = f"{profile.min_driver_branch} or newer" if last is None else f"{profile.min_driver_branch} to {last}"
            out.append(
                Flaw.of(
                    loc,
                    f"branch {branch} cannot drive {profile.product_name} ({gpu})",
                    f"Use another branch of {view.site.software.set}.",
                    expected=span,
                    reads=of_set,
                )
            )
        elif text := _no_modules(software, profile):
            hint = "Choose a set with the other flavour, or correct open_modules of your own (profiles/software/)."
            out.append(Flaw(of_set[0], text, hint, kind="modules"))
        elif text := no_gpu(software, branch, profile):
            out.append(Flaw(loc, text, "Choose another branch, or a set with an older CUDA.", of_set))
    return out


def _no_modules(software: SoftwareProfile, gpu: GpuProfile) -> str:
    """Return why the set's kernel modules do not drive a GPU, "" if they do or nothing is published."""
    flavour = "open" if software.open_modules else "proprietary"
    if gpu.kernel_modules is None or flavour in gpu.kernel_modules.flavours:
        return ""
    return (
        f"the {flavour} kernel modules of software set {software.id} cannot drive {gpu.product_name} ({gpu.id}) - "
        f"Expected: {' or '.join(gpu.kernel_modules.flavours)} modules Actual: "
        f"open_modules: {str(software.open_modules).lower()}."
    )
