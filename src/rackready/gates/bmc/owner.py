"""Identity of a BMC: one of the systems behind it must be the server that the profile describes.

Several systems may stand behind one BMC: the host, its GPU board (HGX_Baseboard_0), its DPUs (HPE's iLO lists them).
One match is enough. The BMC of a DPU answers like a server's: a BlueField's has systems, chassis, sensors and a power
limit of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rackready.design.facts import NodeFacts
from rackready.gates.base import Command, Outputs, Run
from rackready.gates.bmc import documents
from rackready.gates.bmc.documents import BmcAnswer, Document, name, parts, read_answer
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.judging.judge import Judge
from rackready.model.place import Place
from rackready.model.profile import PlatformProfile

SYSTEMS = "Systems/*"
_BOARD = "hgx_"
"""Start of the name of a GPU board's system, which is a part of the server (NVIDIA's HGX and DGX: HGX_Baseboard_0)."""
_DPU = "bluefield"
"""Start of the system's name in a BlueField's own BMC (NVIDIA/bare-metal-manager-core 7778162, bmc-mock's
nvidia_dpu.tar.gz; its SystemType is Physical)."""
_LINKS = ("ComputerSystems", "ManagerForServers")


OTHER_MACHINE = ErrorKind(
    "bmc-other-machine",
    "another machine answers",
    meaning="The BMC at this address belongs to another machine, so its answers are not about this node.",
    next_step=(
        "Set bmc.address to the server's own BMC, or correct the platform of {node} in the site file; a "
        "server model without a profile needs one of its own."
    ),
)

FINDINGS = (*documents.READING, OTHER_MACHINE)


def ask(node: str, *trails: str, timeout_s: float = documents.TIMEOUT_S) -> Command:
    """Return the command that gathers these trails, and the systems behind the BMC, from a server's BMC."""
    return documents.ask(node, *dict.fromkeys((SYSTEMS, *trails)), timeout_s=timeout_s)


def server(  # noqa: PLR0913
    judge: Judge,
    facts: NodeFacts,
    what: str,
    run: Run,
    outputs: Outputs,
    *,
    systems: bool = False,
    bare: tuple[str, ...] = (),
) -> BmcAnswer | None:
    """Return a server BMC's answer, or None with an error when it cannot be judged or another machine answered.

    ``systems``: the gate itself judges the systems, so an answer without them is incomplete. Otherwise such an answer
    comes from an earlier version of rackready, and is judged by the names of systems in it. ``bare``: see
    ``documents.read_answer``.
    """
    found = read_answer(judge, facts.node.name, what, run, outputs, spared=() if systems else (SYSTEMS,), bare=bare)
    return found if found is not None and _is_of(judge, facts, found) else None


def _is_of(judge: Judge, facts: NodeFacts, found: BmcAnswer) -> bool:
    """Return whether one of the systems that answer is a server of the profile's model; report an error where none is.

    A server without a model, or with null, cannot be told from another: a GH200's BMC reports none.
    """
    known, asked = _systems(found), SYSTEMS in found.trails
    servers = [
        system
        for called, system in known.items()
        if not called.lower().startswith(_BOARD) and not _is_dpu(called, system)
    ]
    cards = _cards(found)
    if cards or (not servers and (known or asked)):
        seen = [*(f"system {called}" for called in known), *(f"chassis {card}" for card in cards)]
        return _stranger(judge, facts, ", ".join(seen) or "no system")
    models = sorted({str(system["Model"]).strip() for system in servers if system.get("Model") is not None})
    if models and not any(_is_model(str(system.get("Model")), facts.platform) for system in known.values()):
        return _stranger(judge, facts, ", ".join(model or "a model without a name" for model in models))
    if not models:
        judge.remark("its BMC does not report the server's model" if asked else "the server's model was not asked")
    return True


def _stranger(judge: Judge, facts: NodeFacts, actual: str) -> bool:
    node, platform = facts.node.name, facts.platform
    judge.error(Place(node, "BMC"), OTHER_MACHINE, f"a {platform.product} ({platform.id})", actual, node=node)
    return False


def _systems(found: BmcAnswer) -> dict[str, Document]:
    """Return the systems behind a BMC by the last part of their address; systems that are only named are empty."""
    if SYSTEMS in found.trails:
        return {_last(address): found.documents.get(address, {}) for address in found.trails[SYSTEMS]}
    return {called: {} for called in _named(found) if called}


def _named(found: BmcAnswer) -> Iterator[str]:
    """Yield the names of systems in the addresses and links of an answer."""
    for address, document in found.documents.items():
        words = address.strip("/").split("/")
        if "Systems" in words[:-1]:
            yield words[words.index("Systems") + 1]
        links: Document = document.get("Links") or {}
        for key in _LINKS:
            yield from (_last(str(item.get("@odata.id", ""))) for item in parts(links, key))


def _last(address: str) -> str:
    return address.rstrip("/").rsplit("/", 1)[-1]


def _is_dpu(called: str, system: Document) -> bool:
    """Return whether a system is a DPU (DSP0268, ComputerSystem.SystemType)."""
    return system.get("SystemType") == "DPU" or called.lower().startswith(_DPU)


def _cards(found: BmcAnswer) -> Collection[str]:
    """Return the outermost chassis where all of them are cards: then there is no server.

    DSP0268, ChassisType: a card is meant to be put into a system.
    """
    outer = [
        item
        for item in found.at("Chassis/*")
        if item.get("ChassisType") and not (item.get("Links") or {}).get("ContainedBy")
    ]
    return [name(item) for item in outer] if all(item["ChassisType"] == "Card" for item in outer) else []


def _is_model(told_model: str, platform: PlatformProfile) -> bool:
    """Return whether a model is the profile's product.

    A BMC may add a number to it: GB200 NVL72, DGXA100 920-23687-2530-000.
    """
    model, product = (" ".join(word.split()).casefold() for word in (told_model, platform.product))
    return model.startswith(product) and not model[len(product) :][:1].isalpha()
