"""Everything that the fabric phase reads from UFM, or why it could not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rackready.drivers.ib.discover import IbFabric
from rackready.drivers.ufm.client import UfmClient
from rackready.drivers.ufm.errors import UfmAnswerError
from rackready.drivers.ufm.fabric import fabric_of
from rackready.drivers.ufm.partitions import is_open, read
from rackready.drivers.ufm.read import Alarm, UfmPort, read_alarms, read_links, read_ports, read_version
from rackready.model.infiniband import Ufm
from rackready.model.problems import RackreadyError

_CRITICAL = "Critical"
"""The highest severity (page "Alarms REST API"). Lower ones are UFM's own thresholds: they are not judged here."""


@dataclass(slots=True)
class UfmReading:
    """The fabric as UFM sees it; ``trouble``: why it could not be read.

    ``alarms``: GUID of an adapter's port -> critical alarms about it or about the switch port at its cable.
    ``default_open``: whether every port is a full member of the default partition.
    """

    fabric: IbFabric | None = None
    trouble: str = ""
    version: str = ""
    alarms: Mapping[int, list[Alarm]] = field(default_factory=dict)
    default_open: bool = False


def read_ufm(ufm: Ufm) -> UfmReading:
    """Return what UFM tells, in requests that change nothing."""
    out = UfmReading()
    try:
        with UfmClient(ufm) as client:
            out.version = read_version(client.get("app/ufm_version"))
            ports, links, out.fabric = _fabric(client)
            out.alarms = alarms_by_port(read_alarms(client.get("app/alarms")), ports, links)
            out.default_open = is_open(read(client))
    except RackreadyError as error:
        out.fabric, out.trouble = None, str(error)
    return out


def _fabric(client: UfmClient) -> tuple[Mapping[str, UfmPort], Sequence[tuple[str, str]], IbFabric]:
    """Return UFM's ports, its links, and both as one fabric. Raises UfmError.

    They come one after the other: where a link changed in between, both are read once more.
    """
    for last in (False, True):
        ports, links = read_ports(client.get("resources/ports")), read_links(client.get("resources/links"))
        try:
            return ports, links, fabric_of(ports, links)
        except UfmAnswerError:
            if last:
                raise
    raise AssertionError


def alarms_by_port(
    alarms: Sequence[Alarm], ports: Mapping[str, UfmPort], links: Sequence[tuple[str, str]]
) -> dict[int, list[Alarm]]:
    """Return the critical alarms about cables of adapters. Alarms about systems, such as a fan, are of no port."""
    far = {end: other for link in links for end, other in (link, link[::-1])}
    out: dict[int, list[Alarm]] = {}
    for alarm in alarms:
        if alarm.severity == _CRITICAL:
            for name in (alarm.object, far.get(alarm.object, "")):
                if name in ports and ports[name].kind == "ca":
                    out.setdefault(ports[name].guid, []).append(alarm)
    return out
