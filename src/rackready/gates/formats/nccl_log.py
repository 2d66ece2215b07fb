"""Reader of the paths in NCCL's log (NCCL_DEBUG=INFO, subsystems INIT, NET, P2P, GRAPH).

The log does not show how much each rail carried; counters do.

Lines as NCCL 2.18 to 2.30 writes them: src/transport/net.cc and p2p.cc (channels), src/transport/nvls.cc (multicast),
src/mnnvl.cc (domain over several nodes), src/graph/search.cc (the kind of path between GPUs), src/transport/net_ib
(HCAs), and aws-ofi-nccl's own (NET/OFI).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

_LINE = re.compile(
    r"^(?:\[[^\]\n]*\] )?(?P<host>[\w.-]+):(?P<pid>\d+):\d+ \[(?P<gpu>\d+)\] NCCL INFO (?P<text>.*)$", re.MULTILINE
)
_DEVICES = re.compile(r"NET/IB : Using (?P<list>.*?)(?:;|$)")
_ENTRY = re.compile(r"\[\d+\](?:=\{[^}]*\}|\S+)")
"""One HCA of the list, or several as one: [0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB} (NCCL 2.21 to 2.23)."""
_DEVICE = re.compile(r"\[(?P<index>\d+)\] ?(?P<name>[\w.-]+):(?P<port>\d+)(?::\d*(?::\d+)?)?/(?P<link>\w+)")
"""After the port, NCCL 2.30 prints rail and plane, as far as NCCL_IB_HCA gives them."""
_FUSED = re.compile(r"NET/IB : Made virtual device \[(?P<index>\d+)\] name=(?P<names>[\w.+-]+) ")
"""The ports of one NIC are one device to channels, with an index of its own (NCCL from 2.24, ncclTopoAutoMerge)."""
_DATA_DIRECT = "_dma"
"""NCCL names a NIC's Data Direct function so, and lists it in place of the NIC (from 2.27.3, ncclIbInitDevices)."""
_NETWORK = re.compile(r"Using network (?P<name>.+)$")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is (?P<name>[\w;-]+)")
_NET = re.compile(
    r"Channel \d+(?:/\d+)? : \S+ -> \S+ \[(?:send|receive)\] via "
    r"NET/(?P<net>[^/]+)/(?P<device>\d+)(?:\(\d+\))?(?P<rest>\S*)",
)
_INSIDE = re.compile(r"Channel \d+(?:/\d+)? : (?P<sender>\d+)\S* -> \S+ via (?P<way>(?:P2P|SHM)/.+?)(?: comm .*)?$")
_OTHER = re.compile(r"Channel \d+(?:/\d+)? : \S+ -> \S+ .*?(?P<way>\bvia .+?)(?: comm .*)?$")
_NVLS = re.compile(r"NVLS multicast support is (?P<no>not )?available on dev (?P<device>\d+)")
_MNNVL = re.compile(r"MNNVL (?P<on>\d+) cliqueId \S+ cliqueSize (?P<size>\d+)")
_COMMUNICATOR = re.compile(r"\bcommId (?P<id>0x[0-9a-f]+)\b")
_PATTERN = re.compile(
    r"Pattern \d+, crossNic \d+, nChannels \d+, bw [\d.]+/[\d.]+, type (?P<inside>\w+)/(?P<outside>\w+)"
)


@dataclass(slots=True)
class HostLog:
    """Log of one host's processes. Fields are empty if nothing was logged; the gate judges that."""

    devices: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Index in NCCL's list -> (HCA, link layer)."""
    fused: dict[int, frozenset[str]] = field(default_factory=dict)
    """Index that channels use -> its HCAs, where NCCL says so."""
    networks: set[str] = field(default_factory=set)
    """Networks chosen: IB, Socket, AWS Libfabric, ..."""
    sought_rdma: bool = False
    """NCCL's own RDMA network (NET/IB) logged something, whether it found devices or not.

    It logs nothing if NCCL_NET names another network (ncclNetInit of src/plugin/net.cc, 2.30, initialises only that
    one), or with NCCL_IB_DISABLE (src/transport/net_ib).
    """
    providers: set[str] = field(default_factory=set)
    """libfabric's providers, only with aws-ofi-nccl."""
    channels: list[tuple[str, int, bool]] = field(default_factory=list)
    """(network, device index, GPUDirect RDMA) of every channel over the network."""
    inside: set[str] = field(default_factory=set)
    """Paths between GPUs without the network: P2P/CUMEM, P2P/MNNVL, SHM/direct/direct, ..."""
    senders: set[int] = field(default_factory=set)
    """Ranks that send over such a path; the sender logs it (p2pSendSetup of src/transport/p2p.cc)."""
    multicast: set[int] = field(default_factory=set)
    """GPUs for which the switches reduce (NVLS)."""
    no_multicast: set[int] = field(default_factory=set)
    clique: int = 0
    """GPUs of the multi-node NVLink domain that it joined; 0: none."""
    paths: set[str] = field(default_factory=set)
    """Kinds of path between GPUs that its rings and trees use: NVL, PIX, PHB, SYS, ..."""
    unread: set[str] = field(default_factory=set)
    """Paths of channels of any other kind, as NCCL prints them."""

    def used(self) -> frozenset[str]:
        """Return the HCAs that its channels use, as far as the log names them."""
        return frozenset(name for _, index, _ in self.channels for name in self._names(index))

    def unnamed(self) -> frozenset[str]:
        """Return the channels' devices whose HCAs the log does not name, as NCCL writes them: IB/9."""
        return frozenset(f"{net}/{index}" for net, index, _ in self.channels if not self._names(index))

    def _names(self, index: int) -> frozenset[str]:
        alone = frozenset({self.devices[index][0]}) if index in self.devices else frozenset[str]()
        return self.fused.get(index, alone)


def parse(text: str) -> dict[str, HostLog]:
    """Return the log by host name."""
    hosts: dict[str, HostLog] = defaultdict(HostLog)
    for host, line in _lines(text):
        _read(hosts[host], line)
    return dict(hosts)


def speakers(text: str) -> set[tuple[str, int]]:
    """Return the processes that logged anything, as (host, process id)."""
    return {(match["host"].split(".")[0], int(match["pid"])) for match in _LINE.finditer(text)}


def communicators(text: str) -> frozenset[str]:
    """Return the ids of the communicators (commId, INIT), which are new in every launch; 0 means none.

    src/init.cc hashes its unique id.
    """
    return frozenset(
        found["id"] for _, line in _lines(text) if (found := _COMMUNICATOR.search(line)) and int(found["id"], 16)
    )


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for match in _LINE.finditer(text):
        yield match["host"], match["text"].rstrip()


def _read(host: HostLog, line: str) -> None:
    host.sought_rdma |= line.startswith("NET/IB : ")
    if line.startswith("Channel "):
        _channel(host, line)
    elif found := _PATTERN.match(line):
        host.paths.add(found["inside"])
    elif found := _NVLS.match(line):
        (host.no_multicast if found["no"] else host.multicast).add(int(found["device"]))
    elif found := _MNNVL.match(line):
        host.clique = max(host.clique, int(found["size"]) if int(found["on"]) else 0)
    elif found := _NETWORK.match(line):
        host.networks.add(found["name"])
    elif found := _PROVIDER.match(line):
        host.providers.add(found["name"])
    elif found := _DEVICES.match(line):
        _listed(host, found["list"])
    elif found := _FUSED.match(line):
        host.fused[int(found["index"])] = frozenset(map(_hca, found["names"].split("+")))


def _listed(host: HostLog, text: str) -> None:
    """Add NCCL's list of HCAs. Where it fuses some there, channels count entries: the index of others is their own."""
    entries = [list(_DEVICE.finditer(entry)) for entry in _ENTRY.findall(text)]
    for item in (item for entry in entries for item in entry):
        host.devices[int(item["index"])] = (_hca(item["name"]), item["link"])
    if any(len(entry) > 1 for entry in entries):
        host.fused.update({at: frozenset(_hca(item["name"]) for item in entry) for at, entry in enumerate(entries)})


def _hca(name: str) -> str:
    return name.removesuffix(_DATA_DIRECT)


def _channel(host: HostLog, line: str) -> None:
    """Add the path of a channel; an unknown one is kept as printed. Lists of ranks have no path."""
    if found := _NET.match(line):
        host.channels.append((found["net"], int(found["device"]), "GDRDMA" in found["rest"]))
    elif found := _INSIDE.match(line):
        host.inside.add(found["way"])
        host.senders.add(int(found["sender"]))
    elif found := _OTHER.match(line):
        host.unread.add(found["way"])
