"""Package repositories of a site: which nodes use which, and whether their keys are the declared ones."""

from __future__ import annotations

from collections.abc import Sequence
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
        "package_fingerprints": list(item.package_fingerprints),
        "signed_index": item.signed_index,
    }


def key_problems(site: Site, nodes: list[str]) -> list[Message]:
    """Return a refusal for each repository of these nodes whose key file has not exactly the declared keys."""
    systems = {loader.software(software_site(site, name).software.set).os for name in nodes}
    used = {item.name for system in systems for item in repositories_of(site, system)}
    found = [_key_problem(item) for item in site.software.repositories if item.name in used]
    return [problem for problem in found if problem is not None]


def _key_problem(item: Repository) -> Message | None:
    differs = wrong_keys(item.key, item.fingerprint, item.package_fingerprints)
    if differs is None:
        return None
    return Message(
        f"software.repositories {item.name}",
        item.key,
        expected=differs[0],
        actual=differs[1],
        next_step="Compare both with what the repository's owner publishes, then correct key or fingerprint.",
    )


def wrong_keys(key: Path, fingerprint: str, more: Sequence[str] = ()) -> tuple[str, str] | None:
    """Return the expected and the actual keys of a file; None if it has exactly the declared ones.

    ``more``: keys of an rpm repository that sign packages only. A mirror's packages keep their vendors' signatures.
    """
    found, actual = _read(key)
    declared = [fingerprint, *sorted(set(more) - {fingerprint})]
    if set(found) == set(declared):
        return None
    expected = f"the key {fingerprint} and no other" if len(declared) == 1 else f"the keys {', '.join(declared)} alone"
    return expected, actual


def keys_in(key: Path) -> str:
    """Return the fingerprints in a key file as text, or why there are none."""
    return _read(key)[1]


def _read(key: Path) -> tuple[list[str], str]:
    """Return the fingerprints in an armoured key file, and what to say of it."""
    try:
        data = key.read_bytes()
        found = fingerprints(data)
    except OSError as error:
        return [], f"no readable file ({error.strerror or error})"
    except ValueError as error:
        return [], str(error)
    text = ", ".join(found)
    return (found, text) if data.startswith(b"-----BEGIN PGP") else ([], f"{text}, not ASCII armoured")
