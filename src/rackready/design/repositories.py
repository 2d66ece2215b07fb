"""Package repositories of a site: which nodes use which, and whether their keys are the declared ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rackready.design.openpgp import fingerprints
from rackready.design.software_of import software_site
from rackready.model.operations import Repository
from rackready.model.problems import Message
from rackready.model.site import Site
from rackready.profiles import loader

_SUITE_IS_PATH = "/"
"""The suite of a flat apt repository ends in a slash and has no components."""


def kind_of(system: str) -> str:
    """Return the kind of repository that a system of a version set reads: apt or rpm."""
    return "rpm" if system.startswith("el") else "apt"


def repositories_of(site: Site, system: str) -> list[Repository]:
    """Return the declared repositories that nodes of a system use, in the order of the site file."""
    return [
        item
        for item in site.software.repositories
        if item.kind == kind_of(system) and (not item.systems or system in item.systems)
    ]


def repository_vars(site: Site, system: str) -> dict[str, Any]:
    """Return the variables of role base about package sources of a system."""
    mirror = site.software.mirror
    single = {"base_mirror_url": "", "base_mirror_suite": "./", "base_mirror_components": [], "base_mirror_key": ""}
    if mirror is not None:
        single = {
            "base_mirror_url": mirror.url,
            "base_mirror_suite": mirror.suite,
            "base_mirror_components": components(mirror.suite, mirror.components),
            "base_mirror_key": str(mirror.key),
        }
    return single | {"base_repositories": [_repository(item) for item in repositories_of(site, system)]}


def components(suite: str, given: list[str]) -> list[str]:
    """Return the components of an apt source; a flat repository has none."""
    return [] if suite.endswith(_SUITE_IS_PATH) else list(given)


def _repository(item: Repository) -> dict[str, Any]:
    return {
        "name": item.name,
        "url": item.url,
        "suite": item.suite,
        "components": components(item.suite, item.components),
        "key": str(item.key),
        "fingerprint": item.fingerprint,
        "signed_index": item.signed_index,
    }


def key_problems(site: Site, nodes: list[str]) -> list[Message]:
    """Return a refusal for each repository of these nodes whose key file has not the declared key alone."""
    systems = {loader.software(software_site(site, name).software.set).os for name in nodes}
    used = {item.name for system in systems for item in repositories_of(site, system)}
    found = [_key_problem(item) for item in site.software.repositories if item.name in used]
    return [problem for problem in found if problem is not None]


def _key_problem(item: Repository) -> Message | None:
    found = keys_in(item.key)
    if found == item.fingerprint:
        return None
    return Message(
        f"software.repositories {item.name}",
        item.key,
        expected=f"the key {item.fingerprint} and no other",
        actual=found,
        next_step="Compare both with what the repository's owner publishes, then correct key or fingerprint.",
    )


def keys_in(key: Path) -> str:
    """Return the fingerprints in a key file as text, or why there are none."""
    try:
        data = key.read_bytes()
        found = ", ".join(fingerprints(data))
    except OSError as error:
        return f"no readable file ({error.strerror or error})"
    except ValueError as error:
        return str(error)
    return found if data.startswith(b"-----BEGIN PGP") else f"{found}, not ASCII armoured"
