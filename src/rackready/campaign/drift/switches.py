"""Compares the configuration of switches with the site: the driver's own comparison, and no change."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from rackready.campaign.drift.applied import switch_applied
from rackready.campaign.drift.found import DriftReading
from rackready.campaign.drift.keys import compare_key
from rackready.design.switches import switch_config
from rackready.drivers.ssh.target import switch_target
from rackready.drivers.switch.apply import differences
from rackready.drivers.switch.configure import open_driver
from rackready.ledger.store import Ledger
from rackready.model.drift import DriftItem, DriftKind
from rackready.model.problems import RackreadyError
from rackready.model.site import Site, Switch
from rackready.paths import EnvPaths

_WORKERS = 8


def compare_switches(site: Site, paths: EnvPaths, ledger: Ledger, found: Mapping[str, DriftReading]) -> None:
    """Add what differs on each switch from its declared configuration. One never configured is not asked."""
    switches = [switch for switch in site.switches if switch.name in found]
    with ThreadPoolExecutor(max_workers=max(1, min(len(switches), _WORKERS))) as pool:
        list(pool.map(lambda switch: _compare(site, paths, ledger, switch, found[switch.name]), switches))


def _compare(site: Site, paths: EnvPaths, ledger: Ledger, switch: Switch, found: DriftReading) -> None:
    if switch_applied(ledger, switch.name) is None:
        found.not_asked.append(f"{switch.name}: rackready did not configure it yet. Run `rackready fabric`.")
        return
    try:
        if compare_key(switch_target(switch, paths.known_hosts), found):
            found.items += _differences(site, paths, ledger, switch.name)
    except RackreadyError as error:
        found.not_asked.append(str(error))


def _differences(site: Site, paths: EnvPaths, ledger: Ledger, name: str) -> list[DriftItem]:
    driver, _ = open_driver(site, paths, name)
    try:
        return [
            DriftItem(
                kind=DriftKind.SWITCH,
                name=item.command,
                expected="absent" if item.removes else item.wanted or "applied",
                actual=item.actual or ("present" if item.removes else "not applied"),
                source="switch driver",
                phase="fabric",
            )
            for item in differences(driver, switch_config(site, name), ledger)
        ]
    finally:
        driver.close()
