"""Judgement without a site file: facts from profiles alone, for captured outputs and for this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from pydantic import ValidationError

from rackready.design.facts import NicFacts, NodeFacts
from rackready.gates.base import Gate, GateFacts, Output, Run, is_not_understood
from rackready.gates.engine.runner import evaluated
from rackready.model.base import SecretRef
from rackready.model.near import among
from rackready.model.outcome import Verdict
from rackready.model.problems import RackreadyError
from rackready.model.profile import PlatformProfile
from rackready.model.site import Bmc, Fabric, Node, Rail
from rackready.model.wanted import given, told
from rackready.profiles import loader

_BMCS = IPv4Address("198.18.0.0")
_HOSTS = IPv4Address("198.19.0.0")
_MOST = 240
"""Most nodes that fit into a rail's /24."""
_GIVE_WHOLE = (
    "Give the complete output of the gate's command (`rackready gate show` lists it); "
    "if that does not help, attach the file to a bug report."
)
"""Next step for a captured output that is not understood: it is not recorded, and nothing runs here."""
SOFTWARE = "hgx-r580-debian12"
"""Version set that is used if none is named."""


@dataclass(frozen=True, slots=True)
class Captured:
    """One captured output. ``exit_code``: None if the command did not end."""

    text: str
    exit_code: int | None = 0
    stderr: str = ""
    seconds: float = 0.0


def platform_of(profile: str, gpus: int | None = None) -> PlatformProfile:
    """Return the server model of a profile: for a GPU model, the server with the most published data.

    ``gpus``: only that many GPUs and their NICs, for machines that are a part of the server. Raise RackreadyError that
    lists the known profiles.
    """
    if profile in loader.known("platform"):
        found = loader.platform(profile)
    elif profile in loader.known("gpu"):
        found = _server_of(profile)
    else:
        known = " or ".join(
            f"a {kind} ({among(loader.known(family), profile)})"
            for kind, family in (("server", "platform"), ("GPU", "gpu"))
        )
        raise RackreadyError(f"profile {profile!r} does not exist", expected=known, next_step="Correct the id.")
    return found if gpus is None else _part(found, gpus)


def _server_of(gpu: str) -> PlatformProfile:
    """Return the server with this GPU and the most published data; then by number of GPUs and name."""
    servers = [server for name in loader.known("platform") if (server := loader.platform(name)).gpu == gpu]
    if not servers:
        raise RackreadyError(
            f"profile {gpu!r}",
            "no server profile has this GPU",
            expected="one",
            next_step="Add profiles/platform/<id>.yml, or name a server.",
        )
    return min(servers, key=lambda server: (len(server.unpublished()), not server.nics, -server.gpus, server.id))


def _part(whole: PlatformProfile, gpus: int) -> PlatformProfile:
    if not 1 <= gpus <= whole.gpus:
        raise RackreadyError(
            f"{gpus} GPUs of {whole.id}",
            expected=f"1 to {whole.gpus}",
            next_step="Correct --gpus, or name another profile.",
        )
    nics = [nic for nic in whole.nics if nic.gpu < gpus]
    return whole.model_copy(update={"gpus": gpus, "gpu_pci": whole.gpu_pci[:gpus], "nics": nics})


def rails(platform: PlatformProfile) -> list[Rail]:
    """Return the rails of a server's NICs, in a benchmarking network."""
    return [
        Rail(rail=rail, vlan=900 + rail, subnet=IPv4Network(f"192.168.{rail}.0/24"))
        for rail in sorted({nic.rail for nic in platform.nics})
    ]


def facts(platform: str | PlatformProfile, nodes: int | Sequence[str] = 1, software_id: str = SOFTWARE) -> GateFacts:
    """Return facts of nodes of a server model, at addresses of a benchmarking network.

    ``nodes``: their names, or a number of nodes named node01 and so on. Raise UnknownProfileError, or RackreadyError
    for too many nodes or an invalid name.
    """
    names = [f"node{index:02}" for index in range(1, nodes + 1)] if isinstance(nodes, int) else list(nodes)
    if len(names) > _MOST:
        raise RackreadyError(f"{len(names)} nodes", expected=f"at most {_MOST}", next_step="Judge fewer at a time.")
    server = loader.platform(platform) if isinstance(platform, str) else platform
    known = {name: _node(name, index, server, software_id) for index, name in enumerate(names, 1)}
    return GateFacts(nodes=known, fabric=Fabric(kind="roce", rails=rails(server)), fleet=len(names))


def _node(name: str, index: int, platform: PlatformProfile, software_id: str) -> NodeFacts:
    software = loader.software(software_id)
    bmc = Bmc(address=_BMCS + index, password=SecretRef(env="NONE"))
    try:
        node = Node(name=name, platform=platform.id, serial="offline", unit=1, address=_HOSTS + index, bmc=bmc)
    except ValidationError as error:
        first = error.errors()[0]
        words = told(first)
        raise RackreadyError(
            f"node {name}",
            words.what,
            expected=f"a host name, {words.expected}",
            actual=words.actual or given(first),
            next_step="Correct it.",
        ) from error
    nics = tuple(
        NicFacts(
            nic.rail,
            nic.rdma_device,
            nic.netdev,
            nic.pci,
            nic.gpu,
            nic.numa,
            nic.rate,
            f"192.168.{nic.rail}.{10 + index}",
            24,
            900 + nic.rail,
            "",
            "",
        )
        for nic in platform.nics
    )
    return NodeFacts(
        node,
        "rack",
        index,
        platform,
        loader.gpu(platform.gpu),
        software,
        software.driver[software.default_branch].version,
        nics,
        platform.baseline,
    )


def evaluate(gate: Gate, facts_: GateFacts, run: Run, captured: Mapping[str, Captured]) -> Verdict:
    """Return the verdict on captured outputs by command key, from the code that also judges rackready's own runs."""
    verdict = evaluated(gate, facts_, run, outputs(run, captured))
    findings = [
        item.model_copy(update={"next_step": _GIVE_WHOLE}) if is_not_understood(item) else item
        for item in verdict.findings
    ]
    return verdict.model_copy(update={"findings": findings})


def outputs(run: Run, captured: Mapping[str, Captured]) -> dict[str, Output]:
    """Return captured outputs in the runner's form. Missing outputs stay missing; the gate reports them."""
    by_key = {command.key: command for command in run.commands}
    return {
        key: Output(
            key=key,
            node=by_key[key].node if key in by_key else run.nodes[0],
            command=" ".join(by_key[key].argv) if key in by_key else "captured",
            exit_code=item.exit_code,
            stdout=item.text,
            stderr=item.stderr,
            seconds=item.seconds,
        )
        for key, item in captured.items()
    }
