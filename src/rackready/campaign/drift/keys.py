"""Compares the SSH host keys of nodes with the pinned ones, without a login."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from rackready.campaign.drift.found import DriftReading
from rackready.drivers.ssh import errors
from rackready.drivers.ssh.first_contact import shown_key
from rackready.drivers.ssh.pins import fingerprint, pinned
from rackready.drivers.ssh.target import SshTarget, node_target
from rackready.model.drift import DriftItem, DriftKind
from rackready.model.site import Site
from rackready.paths import EnvPaths

_WORKERS = 16


def compare_keys(site: Site, paths: EnvPaths, found: Mapping[str, DriftReading]) -> list[str]:
    """Add a changed host key to what was found, and return the nodes that can be logged in to."""
    targets = [node_target(site, node, paths.known_hosts) for node in found]
    with ThreadPoolExecutor(max_workers=max(1, min(len(targets), _WORKERS))) as pool:
        good = list(pool.map(lambda target: compare_key(target, found[target.name]), targets))
    return [target.name for target, same in zip(targets, good, strict=True) if same]


def compare_key(target: SshTarget, found: DriftReading) -> bool:
    """Add a host key that is not the pinned one to what was found; return whether the host shows the pinned key."""
    wanted = pinned(target.known_hosts, target.host)
    if not wanted:
        found.not_asked.append(str(errors.not_pinned(target.where, target.known_hosts, target.accept_name)))
        return False
    try:
        shown = shown_key(target, expected=wanted)
    except errors.SshError as error:
        found.not_asked.append(str(error))
        return False
    if shown == wanted:
        return True
    found.items.append(
        DriftItem(
            kind=DriftKind.HOST_KEY,
            name="SSH host key",
            expected=fingerprint(wanted),
            actual=fingerprint(shown),
            source="pins",
            phase="",
            next_step=errors.way_out(target.accept_name),
        )
    )
    found.not_asked.append(f"{target.where}: its host key changed, no login was tried: nothing else was compared")
    return False
