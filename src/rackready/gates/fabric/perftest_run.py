"""Running perftest between two NICs: its command lines, and how its programs ended."""

from __future__ import annotations

import re
from ipaddress import IPv4Address

from rackready.design.facts import NicFacts
from rackready.design.qos import qos_facts
from rackready.gates.base import GateFacts, Output, trouble
from rackready.gates.fabric import ib_write_bw_findings as kinds
from rackready.gates.formats import perftest
from rackready.gates.judging.judge import Judge

PORT = 18515
CLASS = r"""
[ -e "/sys/class/infiniband/$device/tc/1/traffic_class" ] || set -- "--tclass=$tclass" "$@"
"""
"""OFED's driver gives all programs of a port its traffic class; with the kernel's own driver each program says it."""
_BESIDE_NIC = r"""
near=$(cat "/sys/class/infiniband/$device/device/local_cpulist" 2>/dev/null)
taskset -c "$near" true 2>/dev/null || near=
exec ${near:+taskset -c "$near"} "$0" -d "$device" "$@"
"""
"""Starts perftest on the processors beside its NIC, where they are known and allowed: from another socket, host
memory is late and slower than the port (Mellanox community DOC-2491, "Understanding NUMA Node for Performance
Benchmarks"; azurehpc-health-checks starts it under numactl)."""
_WITH_LID = f"device=$1; shift{_BESIDE_NIC}"
WITH_GID = (
    r"""
device=$1 want=$2 tclass=$3; shift 3
base=/sys/class/infiniband/$device/ports/1
gid= old=
for file in "$base"/gid_attrs/types/*; do
  index=${file##*/}
  [ "$(cat "$base/gids/$index")" = "$want" ] || continue
  if [ "$(cat "$file" 2>/dev/null)" = "RoCE v2" ]; then gid=$index; else old=yes; fi
done
if [ -z "$gid" ]; then
  echo "rackready: no RoCE v2 GID $want on $device${old:+, RoCE v1 only}" >&2
  [ -z "$old" ] && exit 66 || exit 67
fi
set -- -x "$gid" "$@"
"""
    + CLASS
    + _BESIDE_NIC
)
_PAIR = re.compile(r" address:.* QPN (0x[0-9a-f]+) PSN (0x[0-9a-f]+)", re.IGNORECASE)
_NO_GID, _ROCE_V1_ONLY = 66, 67
"""Exit codes of ``WITH_GID``: perftest's own are 0 and 1, those of a shell begin at 126."""
_UNREACHABLE = re.compile(
    r"Couldn't connect to|Unable to (?:open|init) the socket|No route to host|Connection (?:refused|timed "
    r"out)|Failed to exchange",
    re.IGNORECASE,
)
_NO_GPUDIRECT = re.compile(
    r"(?:Couldn't register MR|Failed to create MR|ibv_reg_dmabuf_mr failed)[^\n]*", re.IGNORECASE
)
_REFUSED_OPTION = re.compile(r"(unrecognized option|invalid option)[^\n]*", re.IGNORECASE)
ENV = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def gid_text(address: str) -> str:
    """Return an IPv4 address as sysfs prints its GID."""
    number = int(IPv4Address(address)) if address else 0
    return f"0000:0000:0000:0000:0000:ffff:{number >> 16:04x}:{number & 0xFFFF:04x}"


def program_argv(facts: GateFacts, name: str, nic: NicFacts) -> tuple[str, ...]:
    """Return the command of a perftest program on a NIC and the processors beside it.

    RoCE needs the index of the GID with the NIC's address; InfiniBand uses its LID.
    """
    if facts.fabric.kind == "infiniband":
        return ("bash", "-c", _WITH_LID, name, nic.rdma_device)
    return roce_argv(facts, name, nic)


def roce_argv(facts: GateFacts, name: str, nic: NicFacts) -> tuple[str, ...]:
    """Return the command of a perftest program on a NIC of a RoCE fabric, in the fabric's traffic class."""
    tclass = str(qos_facts(facts.fabric.qos).tos)
    return ("bash", "-c", WITH_GID, name, nic.rdma_device, gid_text(nic.address), tclass)


def server_address(facts: GateFacts, node: str, nic: NicFacts) -> str:
    """Return the address of a perftest server for the first contact: the rail's own on RoCE, or the node's."""
    return str(facts.nodes[node].node.address) if facts.fabric.kind == "infiniband" else nic.address


def nic_of(facts: GateFacts, node: str, rail: int) -> NicFacts:
    """Return the NIC of a node on a rail. Raises StopIteration when it has none."""
    return next(nic for nic in facts.nodes[node].nics if nic.rail == rail)


def rails_of(facts: GateFacts, first: str, second: str) -> list[int]:
    """Return the rails that both nodes have."""
    return sorted({nic.rail for nic in facts.nodes[first].nics} & {nic.rail for nic in facts.nodes[second].nics})


def require_two_outputs(gathered: Judge, where: str, program: str, ways: tuple[Output | None, Output | None]) -> None:
    """Report an error where one output is given for both directions: it shows only one of them.

    A connection is known by its queue pairs' numbers and the numbers of their first packets, which perftest draws from
    2^24 (perftest_communication.c).
    """
    forth, back = ways
    if (
        forth is not None
        and back is not None
        and (
            forth.stdout.strip() == back.stdout.strip()
            or set(_PAIR.findall(forth.stdout)) & set(_PAIR.findall(back.stdout))
        )
    ):
        gathered.error(where, kinds.ONE_OUTPUT_BOTH_WAYS, "one of each", "the same output", program=program)


def client_output(
    gathered: Judge,
    where: str,
    ends: tuple[Output | None, Output | None],
    sender: tuple[str, NicFacts],
    receiver: tuple[str, NicFacts],
    program: str = "ib_write_bw",
) -> Output | None:
    """Return the client's output when server and client ended well and report no failure; report any problem."""
    server, client = ends
    if server is not None and server.failure and gathered.trouble(trouble(server, where, f"{program} server")):
        return None
    if gathered.trouble(trouble(client, where, program)) or client is None:
        return None
    if client.exit_code != 0:
        _client_failed(gathered, where, sender, receiver, client, program)
        return None
    if said := perftest.failure(
        *(text for end in (client, server) if end is not None for text in (end.stderr, end.stdout))
    ):
        gathered.error(where, kinds.TOOL_CONTRADICTS, "exit code 0 and no message of a failure", said, program=program)
        return None
    return client


def _client_failed(
    gathered: Judge,
    where: str,
    sender: tuple[str, NicFacts],
    receiver: tuple[str, NicFacts],
    client: Output,
    program: str,
) -> None:
    """Report why a client ended badly.

    Its output tells a fault of the node from one of the rail, and from a missing tool.
    """
    said = client.stderr + client.stdout
    option = _REFUSED_OPTION.search(said)
    if option:
        gathered.error(
            where, kinds.TOOL_LACKS_OPTION, "a perftest built with CUDA and dma-buf", option[0].strip(), program=program
        )
    elif client.exit_code == _ROCE_V1_ONLY:
        expected = f"a RoCE v2 GID for {sender[1].address}"
        gathered.fail(where, kinds.ROCE_VERSION, expected, "RoCE v1 only", device=sender[1].rdma_device)
        gathered.blamed.add(sender[0])
    elif client.exit_code == _NO_GID:
        text = f"no RoCE v2 GID for {sender[1].address}"
        gathered.fail(where, kinds.RAIL_ADDRESS_MISSING, f"{sender[1].address} on {sender[1].netdev}", text)
        gathered.blamed.add(sender[0])
    elif refused := _NO_GPUDIRECT.search(said):
        gathered.judged += 1
        gathered.fail(where, kinds.GPUDIRECT_REFUSED, "GPU memory registered with the NIC", refused[0].strip())
    elif _UNREACHABLE.search(said):
        actual = next((line.strip() for line in said.splitlines() if _UNREACHABLE.search(line)), "no connection")
        gathered.judged += 1
        gathered.fail(
            where,
            kinds.RAIL_NOT_REACHABLE,
            f"{receiver[1].address} answers on port {PORT + sender[1].rail}",
            actual,
            vlan=sender[1].vlan,
            switch=sender[1].switch,
            port=sender[1].port,
            far_switch=receiver[1].switch,
            far_port=receiver[1].port,
        )
    else:
        last = said.strip().splitlines()[-1].strip() if said.strip() else "no output"
        gathered.error(
            where, kinds.TOOL_FAILED, "exit code 0", f"exit code {client.exit_code}: {last}", program=program
        )
