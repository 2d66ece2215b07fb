"""Reads which transport NCCL says it chose (NCCL_DEBUG=INFO). What each rail carried it does not say: counters do."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

_DEVICES = re.compile(r"^(?P<host>[^\s:]+):\d+:\d+ \[\d+\] NCCL INFO NET/IB : Using (?P<list>.*?)(?:;|$)", re.MULTILINE)
_DEVICE = re.compile(r"\[(?P<index>\d+)\](?P<name>[\w.-]+):(?P<port>\d+)/(?P<link>\w+)")
_NETWORK = re.compile(r"^(?P<host>[^\s:]+):\d+:\d+ \[\d+\] NCCL INFO Using network (?P<name>\S+)", re.MULTILINE)
_CHANNEL = re.compile(
    r"^(?P<host>[^\s:]+):\d+:\d+ \[\d+\] "
    r"NCCL INFO Channel \d+(?:/\d+)? : \S+ -> \S+ \[(?:send|receive)\] via (?P<net>NET/[^/\s]+)/(?P<device>\d+)(?:\(\d+\))?(?P<rest>\S*)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Transport:
    """Per host: devices offered (index, name, link), network named, and channels between hosts."""

    devices: dict[str, dict[int, tuple[str, str]]]
    networks: dict[str, frozenset[str]]
    channels: dict[str, tuple[tuple[str, int, bool], ...]]
    """(network, device index, whether GPUDirect RDMA) of every channel that leaves or enters the host."""

    def used(self, host: str) -> frozenset[str]:
        """Names of the devices that the host's channels use."""
        known = self.devices.get(host, {})
        return frozenset(known[index][0] for net, index, _ in self.channels.get(host, ()) if net == "NET/IB" and index in known)


def parse(text: str) -> Transport:
    """Return what the log says; what it does not say is empty, and judging that is the gate's part."""
    devices: dict[str, dict[int, tuple[str, str]]] = defaultdict(dict)
    for match in _DEVICES.finditer(text):
        for found in _DEVICE.finditer(match["list"]):
            devices[match["host"]][int(found["index"])] = (found["name"], found["link"])
    networks: dict[str, set[str]] = defaultdict(set)
    for match in _NETWORK.finditer(text):
        networks[match["host"]].add(match["name"])
    channels: dict[str, list[tuple[str, int, bool]]] = defaultdict(list)
    for match in _CHANNEL.finditer(text):
        channels[match["host"]].append((match["net"], int(match["device"]), "GDRDMA" in match["rest"]))
    return Transport(dict(devices), {host: frozenset(names) for host, names in networks.items()}, {host: tuple(items) for host, items in channels.items()})
