"""Readings of LLDP from switches and nodes. Sessions stay open between readings."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Self, TypeVar

from rackready.design.facts import node_facts
from rackready.drivers.remote import Answer, Remote
from rackready.drivers.ssh.target import node_target
from rackready.drivers.switch.base import SwitchDriver
from rackready.drivers.switch.configure import open_driver
from rackready.drivers.switch.lldp_seen import Told
from rackready.drivers.switch.lldpd import neighbour
from rackready.drivers.switch.registry import driver_for
from rackready.drivers.switch.session import SwitchUnreachableError
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.ondevice.lldp import FORMAT
from rackready.paths import EnvPaths

_T = TypeVar("_T")
_READ = ("python3", "/usr/local/lib/rackready/lldp.py")
_TIMEOUT_S = 120.0
"""lldpcli answers at once; a busy node starts programs late."""
_AT_ONCE = 16
NOT_READ = "its driver does not read LLDP"


class Readers:
    """Sessions with switches and nodes."""

    def __init__(self, site: Site, paths: EnvPaths, switches: Sequence[str], nodes: Sequence[str]) -> None:
        self._site, self._paths, self._switches, self._nodes = site, paths, switches, nodes
        self._stack = ExitStack()
        self._drivers: dict[str, SwitchDriver] = {}
        self._silent: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Open all sessions; a switch that refuses one is told as not read."""
        self._pool = self._stack.enter_context(ThreadPoolExecutor(max_workers=_AT_ONCE))
        self._remote = Remote({node: node_target(self._site, node, self._paths.known_hosts) for node in self._nodes})
        self._stack.callback(self._remote.close)
        list(self._pool.map(self._open, self._switches))
        for driver in self._drivers.values():
            self._stack.callback(driver.close)
        return self

    def __exit__(self, *_: object) -> None:
        """Close them."""
        self._stack.close()

    def _open(self, switch: str) -> None:
        try:
            self._drivers[switch] = open_driver(self._site, self._paths, switch)[0]
        except RackreadyError as error:
            self._silent[switch] = str(error)

    def read(self) -> list[Told]:
        """Return what every device reports now."""
        hosts = self._pool.map(self._host, self._nodes)
        return [*self._pool.map(self._switch, self._switches), *hosts]

    def _switch(self, switch: str) -> Told:
        if switch in self._silent:
            return Told(switch, port_names=self._sends_names(switch), trouble=self._silent[switch])
        return told_by_switch(self._drivers[switch])

    def _sends_names(self, switch: str) -> bool:
        """Return whether a switch without a session sends the site's names of ports: its system tells."""
        os = next(item.os for item in self._site.switches if item.name == switch)
        try:
            return driver_for(switch, os).sends_port_names
        except RackreadyError:
            return False

    def _host(self, node: str) -> Told:
        netdevs = [nic.netdev for nic in node_facts(self._site, node).nics]
        return told_by(node, self._remote.run(node, (*_READ, *netdevs), timeout_s=_TIMEOUT_S))


def told_by_switch(driver: SwitchDriver) -> Told:
    """Return what a switch reports. One that does not tell its neighbours may tell its names, for those who hear it."""
    troubles: list[RackreadyError] = []
    ports = _ask(driver.neighbours, troubles)
    ids = _ask(driver.known_as, troubles)
    aliases = _ask(driver.known_ports, troubles)
    trouble = str(troubles[0]) if troubles else NOT_READ if ports is None else ""
    return Told(
        driver.name,
        {} if trouble or ports is None else ports,
        ids or (),
        aliases=aliases or {},
        port_names=driver.sends_port_names or aliases is not None,
        trouble=trouble,
    )


def _ask(read: Callable[[], _T], troubles: list[RackreadyError]) -> _T | None:
    """Return what a switch answers; nothing after the connection broke: each question would wait for its end."""
    if any(isinstance(one, SwitchUnreachableError) for one in troubles):
        return None
    try:
        return read()
    except RackreadyError as error:
        troubles.append(error)
        return None


def told_by(node: str, answer: Answer) -> Told:
    """Return what a node's lldp.py reports. An answer that is not whole is told as not read."""
    try:
        document = json.loads(answer.stdout)
    except ValueError:
        document = {}
    if document.get("format") != FORMAT or document.get("complete") is not True:
        late = f"no answer within {_TIMEOUT_S:.0f} s" if answer.timed_out else ""
        said = late or answer.failure or " ".join(answer.stderr.split())[-200:] or f"exit {answer.exit_code}"
        return Told(node, trouble=said)
    if document["problem"]:
        return Told(node, trouble=str(document["problem"]))
    own = document["interfaces"]
    return Told(
        node,
        {port: [neighbour(item) for item in items] for port, items in document["neighbours"].items()},
        document["known_as"],
        {item["address"]: item["netdev"] for item in own if item["address"]},
        rates={item["netdev"]: item["rate_gbps"] for item in own},
    )
