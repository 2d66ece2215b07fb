"""Checks that nodes which pull have a Python for it."""

from __future__ import annotations

from rackready.design.pull import SYSTEM_PYTHONS
from rackready.design.site_flaws import Flaw, Subject
from rackready.design.software_of import software_views
from rackready.profiles import loader


def check_pull(subject: Subject) -> list[Flaw]:
    """Return a flaw for each system of the nodes whose own Python is too old, unless the site names another."""
    pull = subject.site.pull
    if pull is None or pull.python is not None:
        return []
    known = loader.known("software")
    sets = {view.site.software.set for view in software_views(subject.site) if view.nodes}
    systems = {loader.software(name).os for name in sets if name in known} - SYSTEM_PYTHONS.keys()
    return [
        Flaw.of(
            ("pull", "python"),
            f"{system} has no Python for ansible-core 2.19",
            "Install python3.11 or newer beside it (docs/howto/pull.md), and name it here.",
            expected='e.g. "3.11"',
            actual="none",
            kind=system,
        )
        for system in sorted(systems)
    ]
