"""Stand-ins: what the simulated rack does not have, and what the operator lets take its place (--stand-in)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rackready.design.software_of import software_site
from rackready.design.switch_systems import known_systems
from rackready.model.problems import Message, RackreadyError
from rackready.model.site import Site
from rackready.profiles import loader
from rackready_sim.image import DEBIAN
from rackready_sim.rehearse.notes import Note
from rackready_sim.systems import SYSTEMS, System

SWITCHES = "switches"
"""Left side of a stand-in for switches whose system the site does not say."""
ROUTED = "cumulus_nvue"
"""The switch system with which the simulated rack routes between leafs and spines."""
SIMULATED = (ROUTED, "sonic")
"""Switch systems of the simulated rack; sonic has leafs only."""
_GPUS = ("h100_sxm",)
"""GPUs whose programs, links and limits the simulated rack plays: those of its own environments (inventories/sim*)."""
_STEP = "Give --stand-in PLATFORM=PLATFORM, --stand-in SYSTEM=cumulus_nvue or --stand-in switches=cumulus_nvue."


def read(given: Sequence[str]) -> dict[str, str]:
    """Return the stand-ins of the command line. Raises RackreadyError for one that is not usable."""
    out = {}
    for text in given:
        here, sign, there = text.partition("=")
        problem = "" if sign and here and there else "no name=name"
        problem = problem or _unusable(here, there)
        if problem:
            raise RackreadyError(
                f"--stand-in {text}", expected="a part that can be rehearsed", actual=problem, next_step=_STEP
            )
        out[here] = there
    return out


def _unusable(here: str, there: str) -> str:
    if here == SWITCHES or here in known_systems():
        return "" if there == ROUTED else f"{there}; only {ROUTED} stands in for switches"
    if there not in loader.packaged("platform"):
        return f"{there}, which is no packaged platform"
    return platform_problem(there)


def platform_problem(platform: str) -> str:
    """Return why the simulated rack cannot be such a server; empty if it can."""
    profile = loader.platform(platform)
    lacks = [*profile.unpublished(), *(["its compute NICs"] if not profile.nics else [])]
    if lacks:
        return f"not published: {', '.join(lacks)}"
    return "" if profile.gpu in _GPUS else f"the simulated rack has no {profile.gpu}, only {', '.join(_GPUS)}"


def platforms(site: Site, names: Sequence[str], stand_ins: Mapping[str, str]) -> dict[str, str]:
    """Return platform -> platform in the rehearsal, for those that have one."""
    used = dict.fromkeys(site.node(name).platform for name in names)
    chosen = {here: stand_ins.get(here, here) for here in used}
    return {here: there for here, there in chosen.items() if not platform_problem(there)}


def platform_notes(site: Site, names: Sequence[str], found: Mapping[str, str]) -> list[Note]:
    """Return the notes of platforms that are left out or stood in for."""
    out = []
    for here in dict.fromkeys(site.node(name).platform for name in names):
        if here not in found:
            reason = f"{platform_problem(here)}; --stand-in {here}=dgx_h100 rehearses with that in its place"
            out.append(Note(f"platform {here}", here, "not rehearsed", reason))
        elif found[here] != here:
            reason = f"--stand-in: nothing of {here} itself is shown, neither its limits nor its firmware baseline"
            out.append(Note(f"platform {here}", here, found[here], reason))
    return out


def switch_system(os: str, stand_ins: Mapping[str, str], *, routed: bool) -> str:
    """Return the system that a switch has in the rehearsal; empty if there is none."""
    chosen = stand_ins.get(os or SWITCHES, os)
    return chosen if chosen == ROUTED or (chosen in SIMULATED and not routed) else ""


def system_refused(os: str, *, routed: bool) -> Message:
    """Return the refusal of a switch system that the simulated rack does not have."""
    name = os or SWITCHES
    return Message(
        "switches",
        "switch system",
        expected=ROUTED if routed else " or ".join(SIMULATED),
        actual=os or "none named: the site file has no access to its switches",
        next_step=f"Give --stand-in {name}={ROUTED} to rehearse with that system in its place.",
    )


def software_refused(site: Site, names: Sequence[str]) -> list[Message]:
    """Return the refusals of version sets whose operating system no simulated node can be."""
    out = []
    for set_ in dict.fromkeys(software_site(site, name).software.set for name in names):
        os = loader.software(set_).os
        known = sorted(name for name, system in SYSTEMS.items() if _at_switches(site, system))
        if os not in known:
            place, step = f"version set {set_}", "Choose other nodes with --limit."
            what = f"operating system at {site.fabric.kind} switches"
            out.append(Message(place, what, expected=f"one of {', '.join(known)}", actual=os, next_step=step))
    return out


def _at_switches(site: Site, system: System) -> bool:
    """Return whether nodes of a system can be cabled to the switches: those of InfiniBand have one image, Debian's."""
    return site.fabric.kind != "infiniband" or system.image is DEBIAN
