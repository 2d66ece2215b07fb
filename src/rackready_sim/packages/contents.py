"""Which packages each repository of a site has: one repository with all, or several that a site lists by name.

NVIDIA serves the Container Toolkit from a repository of its own (Container Toolkit install guide). Here a repository
whose name begins with ``toolkit`` has its four packages, and the others have the rest of the version set.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackready.design.facts import driver_version
from rackready.design.repositories import kind_of, repositories_of
from rackready.design.software_of import software_views
from rackready.model.operations import Repository
from rackready.model.site import Site
from rackready.profiles import loader
from rackready_sim.packages import monitoring, recipes
from rackready_sim.packages.deb import Deb

_TOOLKIT = "toolkit"


@dataclass(frozen=True, slots=True)
class Content:
    """One repository. ``name`` is its folder and the name of its key; empty for the one mirror of a site."""

    name: str
    rpm: bool
    sets: tuple[tuple[str, str], ...]
    """Version sets and their driver versions."""
    part: str = ""
    """``toolkit``: the Container Toolkit alone; ``rest``: all but that; empty: all."""

    def packages(self) -> list[Deb]:
        """Return the packages, each name and version once."""
        found: dict[str, Deb] = {}
        for name, driver in self.sets:
            software = loader.software(name)
            toolkit = {item.name for item in monitoring.container_packages(software.container_toolkit)}
            for package in recipes.packages(software, driver):
                if self.part in ("", _TOOLKIT if package.name in toolkit else "rest"):
                    found.setdefault(package.filename, package)
        return list(found.values())


def contents(site: Site) -> list[Content]:
    """Return every repository of the site's mirror."""
    sets = [(view.site.software.set, driver_version(view.site)) for view in software_views(site) if view.nodes]
    if not site.software.repositories:
        [one] = dict.fromkeys(sets)
        return [Content("", kind_of(_system(one[0])) == "rpm", (one,))]
    return [_content(site, item, sets) for item in site.software.repositories]


def _content(site: Site, item: Repository, sets: list[tuple[str, str]]) -> Content:
    mine = tuple(dict.fromkeys(pair for pair in sets if item in repositories_of(site, _system(pair[0]))))
    others = [other for name, _ in mine for other in repositories_of(site, _system(name))]
    if item.name.startswith(_TOOLKIT):
        part = _TOOLKIT
    else:
        part = "rest" if any(other.name.startswith(_TOOLKIT) for other in others) else ""
    return Content(item.name, item.kind == "rpm", mine, part)


def _system(name: str) -> str:
    return loader.software(name).os
