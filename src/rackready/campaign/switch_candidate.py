"""The configuration of one switch as the site wants it, and what of it the switch has: read, never loaded."""

from __future__ import annotations

from rackready.design.switches import switch_config
from rackready.drivers.switch.apply import CandidateLine, candidate
from rackready.drivers.switch.configure import open_driver
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.paths import EnvPaths


class UnknownSwitchError(RackreadyError):
    """The site has no switch of that name."""


def switch_candidate(site: Site, paths: EnvPaths, name: str) -> tuple[list[CandidateLine], str]:
    """Return the commands of a switch, and a note about its host key (empty when it was pinned before).

    Raises UnknownSwitchError, and SwitchError when the switch cannot be read.
    """
    names = [switch.name for switch in site.switches]
    if name not in names:
        raise UnknownSwitchError(
            f"--show {name}", expected=f"one of {', '.join(names) or 'none: the site has no switches'}"
        )
    driver, note = open_driver(site, paths, name)
    try:
        with Ledger.open(paths.database) as ledger:
            return candidate(driver, switch_config(site, name), ledger), note
    finally:
        driver.close()
