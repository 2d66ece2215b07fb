"""Judging without a site: facts from profiles alone, for outputs that somebody else captured and for the machine where rackready itself is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from pydantic import ValidationError

from rackready.design.facts import NicFacts, NodeFacts
from rackready.gates.base import Gate, GateFacts, Output, Run, not_understood
from rackready.gates.engine.runner import evaluated
from rackready.model.base import SecretRef
from rackready.model.outcome import Verdict
from rackready.model.problems import RackreadyError
from rackready.model.profile import PlatformProfile
from rackready.model.site import Bmc, Fabric, Node, Rail
from rackready.profiles import loader

_BMCS = IPv4Address("198.18.0.0")
_HOSTS = IPv4Address("198.19.0.0")
_MOST = 240
"""Nodes that fit a rail's /24."""
_GIVE_WHOLE = (
    "Give the whole output of the gate's command (`rackready gate show` lists it); "
    "if it stays so, attach the file to a bug report."
)
"""Next step where an output that was handed in is not understood: nothing of it is recorded, and nothing is run here."""
SOFTWARE = "hgx-r580-debian12"
"""Version set that is taken where none is named."""


@dataclass(frozen=True, slots=True)
class Captured:
    """One output that was captured elsewhere. ``exit_code``: None when the command never ended."""

    text: str
    exit_code: int | None = 0
    stderr: str = ""
    seconds: float = 0.0


def platform_of(profile: str, gpus: int | None = None) -> PlatformProfile:
    """Return the server model that a profile stands for: itself, or for a GPU model the server that is known best.

    ``gpus``: as many of its GPUs, with their NICs; for machines that hold a part of the server. Raises RackreadyError
    that lists what there is.
    """
    if profile in loader.known("platform"):
        found = loader.platform(profile)
    elif profile in loader.known("gpu"):
        found = _server_of(profile)
    else:
        known = f"a server ({', '.join(loader.known('platform'))}) or a GPU ({', '.join(loader.known('gpu'))})"
        raise RackreadyError(f"profile {profile!r} does not exist - Expected: {known}. Correct the id.")
    return found if gpus is None else _part(found, gpus)


def _server_of(gpu: str) -> PlatformProfile:
    """Return the server with this GPU of which most is published; among equals the one with most GPUs, then by name."""
    servers = [server for name in loader.known("platform") if (server := loader.platform(name)).gpu == gpu]
    if not servers:
        raise RackreadyError(
            f"profile {gpu!r}: no server profile has this GPU - Expected: one. "
            "Add profiles/platform/<id>.yml, or name a server."
        )
    return min(servers, key=lambda server: (len(server.unpublished()), not server.nics, -server.gpus, server.id))


def _part(whole: PlatformProfile, gpus: int) -> PlatformProfile:
    if not 1 <= gpus <= whole.gpus:
        raise RackreadyError(
            f"{gpus} GPUs of {whole.id} - Expected: 1 to {whole.gpus}. Correct --gpus, or name another profile."
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
    """Return facts of nodes of a server model, at addresses of a benchmarking network: named as given, or as many named node01 and so on.

    Raises UnknownProfileError, and RackreadyError for too many nodes or a name that is none.
    """
    names = [f"node{index:02}" for index in range(1, nodes + 1)] if isinstance(nodes, int) else list(nodes)
    if len(names) > _MOST:
        raise RackreadyError(f"{len(names)} nodes - Expected: at most {_MOST}. Judge a part of them.")
    server = loader.platform(platform) if isinstance(platform, str) else platform
    known = {name: _node(name, index, server, software_id) for index, name in enumerate(names, 1)}
    return GateFacts(nodes=known, fabric=Fabric(kind="roce", rails=rails(server)), fleet=len(names))


def _node(name: str, index: int, platform: PlatformProfile, software_id: str) -> NodeFacts:
    software = loader.software(software_id)
    bmc = Bmc(address=_BMCS + index, password=SecretRef(env="NONE"))
    try:
        node = Node(name=name, platform=platform.id, serial="unknown", unit=1, address=_HOSTS + index, bmc=bmc)
    except ValidationError as error:
        raise RackreadyError(
            f"node {name} - Expected: a host name, as a site file has it Actual: {error.errors()[0]['msg']}. "
            "Correct it."
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
    """Judge captured outputs by command key, with the code that judges what rackready measures itself; what that code cannot take is an error."""
    verdict = evaluated(gate, facts_, run, outputs(run, captured))
    findings = [
        item.model_copy(update={"next_step": _GIVE_WHOLE}) if not_understood(item) else item
        for item in verdict.findings
    ]
    return verdict.model_copy(update={"findings": findings})


def outputs(run: Run, captured: Mapping[str, Captured]) -> dict[str, Output]:
    """Return captured outputs as the runner would have left them. What is missing stays missing: the gate says so."""
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
