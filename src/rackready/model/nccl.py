"""Settings of NCCL that a site may declare, as data, and the part of a site file that declares them.

Names, values and meanings: NVIDIA/nccl @0186f08, docs/userguide/source/env.rst. Left out: what only debugs, what turns
a transport off (the gates prove every transport), and what other keys of the site file say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import Field

from rackready.model.base import Model, ProfileId


@dataclass(frozen=True, slots=True)
class Values:
    """What a setting accepts: whole numbers of a range, or texts of a pattern. ``words``: the same for people."""

    words: str
    low: int | None = None
    high: int | None = None
    pattern: str = ""

    def accept(self, value: int | str) -> bool:
        """Return whether the setting accepts a value, as it is written in the site file."""
        text = str(value)
        if self.low is None or self.high is None:
            return re.fullmatch(self.pattern, text) is not None
        return re.fullmatch(r"0|[1-9]\d*", text) is not None and self.low <= int(text) <= self.high


def _number(low: int, high: int) -> Values:
    return Values(f"a whole number from {low} to {high}", low, high)


def _one_of(*texts: str) -> Values:
    return Values(f"one of {', '.join(texts)}", pattern="|".join(map(re.escape, texts)))


_MOST = 2**31 - 1
"""Of numbers without a published upper end: the largest of a signed 32-bit integer (judgement)."""
_SWITCH = _number(0, 1)
_BYTES = Values("bytes, a whole number", 1, _MOST)
_DEVICES = Values(r"= and names, separated by commas, such as =mlx5_0,mlx5_3", pattern=r"\^?=[\w.:-]+(,[\w.:-]+)*")
_INTERFACES = Values("names, separated by commas, such as =eno1", pattern=r"\^?=?[\w.-]+(,[\w.-]+)*")
_PLUGIN = Values("none, a suffix, or a path", pattern=r"[\w./-]+")
_DISTANCE = _one_of("PIX", "PXB", "PHB", "SYS")

SETTINGS = {
    "NCCL_SOCKET_IFNAME": _INTERFACES,
    "NCCL_SOCKET_FAMILY": _one_of("AF_INET", "AF_INET6"),
    "NCCL_SOCKET_RETRY_CNT": _number(1, _MOST),
    "NCCL_SOCKET_RETRY_SLEEP_MSEC": _number(1, _MOST),
    "NCCL_SOCKET_NTHREADS": _number(1, 16),
    "NCCL_NSOCKS_PERTHREAD": _number(1, 64),
    "NCCL_CROSS_NIC": _number(0, 2),
    "NCCL_IB_HCA": _DEVICES,
    "NCCL_IB_TIMEOUT": _number(1, 31),
    "NCCL_IB_RETRY_CNT": _number(0, 7),
    "NCCL_IB_GID_INDEX": _number(0, 255),
    "NCCL_IB_ADDR_FAMILY": _one_of("AF_INET", "AF_INET6"),
    "NCCL_IB_ADDR_RANGE": Values("a subnet, such as 192.168.0.0/16", pattern=r"[0-9a-fA-F.:]+/\d{1,3}"),
    "NCCL_IB_ROCE_VERSION_NUM": _number(2, 2),
    "NCCL_IB_SL": _number(0, 15),
    "NCCL_IB_FIFO_TC": _number(0, 255),
    "NCCL_IB_RETURN_ASYNC_EVENTS": _SWITCH,
    "NCCL_IB_EVENT_BASED_LB": _SWITCH,
    "NCCL_IB_AR_THRESHOLD": _BYTES,
    "NCCL_IB_OOO_RQ": _SWITCH,
    "NCCL_IB_QPS_PER_CONNECTION": _number(1, 128),
    "NCCL_IB_SPLIT_DATA_ON_QPS": _SWITCH,
    "NCCL_IB_PCI_RELAXED_ORDERING": _number(0, 2),
    "NCCL_IB_ADAPTIVE_ROUTING": _SWITCH,
    "NCCL_IB_ECE_ENABLE": _SWITCH,
    "NCCL_OOB_NET_ENABLE": _SWITCH,
    "NCCL_OOB_NET_IFNAME": _INTERFACES,
    "NCCL_UID_STAGGER_THRESHOLD": _number(1, _MOST),
    "NCCL_UID_STAGGER_RATE": _number(1, _MOST),
    "NCCL_TUNER_PLUGIN": _PLUGIN,
    "NCCL_PROFILER_PLUGIN": _PLUGIN,
    "NCCL_IGNORE_CPU_AFFINITY": _SWITCH,
    "NCCL_TOPO_FILE": Values("an absolute path", pattern=r"/[\w./-]+"),
    "NCCL_SET_THREAD_NAME": _SWITCH,
    "NCCL_BUFFSIZE": _BYTES,
    "NCCL_CUMEM_ENABLE": _SWITCH,
    "NCCL_CUMEM_HOST_ENABLE": _SWITCH,
    "NCCL_NET_GDR_LEVEL": _DISTANCE,
    "NCCL_NET_GDR_C2C": _SWITCH,
    "NCCL_NET_GDR_READ": _SWITCH,
    "NCCL_P2P_PXN_LEVEL": _number(0, 2),
    "NCCL_PXN_C2C": _SWITCH,
    "NCCL_P2P_NET_CHUNKSIZE": _BYTES,
    "NCCL_IGNORE_NET_MISMATCH": _SWITCH,
}
"""Name to accepted values. Service levels are four bits, GID tables have at most 256 entries here, and the traffic
class is one byte (InfiniBand specification); rackready's fabrics use RoCE v2 alone."""

ELSEWHERE = {
    "NCCL_IB_TC": "fabric.qos",
    "NCCL_NET": "fabric.nccl_net",
    "NCCL_NET_PLUGIN": "fabric.nccl_net",
}
"""Settings that follow from another key of the site file."""

Settings = dict[str, int | str]


class Nccl(Model):
    """Settings of NCCL on the nodes, for every program; the role host_roce writes them to /etc/nccl.conf."""

    settings: Settings = Field(
        default_factory=dict, description="variable -> value on every node, e.g. NCCL_IB_TIMEOUT: 22"
    )
    platforms: dict[ProfileId, Settings] = Field(
        default_factory=dict, description="platform -> variable -> value there; a value of `settings` gives way"
    )

    def of(self, platform: str) -> dict[str, str]:
        """Return the settings of a node of this platform, by name."""
        merged = {**self.settings, **self.platforms.get(platform, {})}
        return {name: str(value) for name, value in sorted(merged.items())}
