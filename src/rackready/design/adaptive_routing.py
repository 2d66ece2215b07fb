"""Where switches can choose the path packet by packet (``networks.underlay.adaptive_routing``)."""

from __future__ import annotations

from rackready.design.switch_systems import system_of
from rackready.design.wiring import compute_rate, trunk_ends
from rackready.model.problems import Message
from rackready.model.site import Site
from rackready.profiles import loader

_KEY = "networks.underlay.adaptive_routing"


def wants_adaptive(site: Site) -> bool:
    """Return whether the site asks for adaptive routing."""
    return site.networks is not None and site.networks.underlay.adaptive_routing


def adaptive_problems(site: Site, switches: frozenset[str] | None = None) -> list[Message]:
    """Return why switches (all, or these) cannot route adaptively: one reason for each system and model.

    Every next hop of a route must do it, or packets take unexpected paths (NVIDIA's user guide, "Adaptive Routing").
    """
    if not wants_adaptive(site):
        return []
    names = {name for name, ends in trunk_ends(site).items() if ends and (switches is None or name in switches)}
    kinds = sorted({(switch.os, switch.model) for switch in site.switches if switch.name in names})
    return [message for os, model in kinds for message in _problem(os, model, compute_rate(site))]


def _problem(os: str, model: str, rate: int) -> list[Message]:
    system = system_of(os)
    known = system.adaptive if system is not None else frozenset()
    step = "Set it to false: the switches then choose a path for each flow (ECMP)."
    if not known:
        return [Message(_KEY, f"rackready does not configure it on {os}", next_step=step)]
    asic = loader.switch(model).asic
    chips = sorted({chip for chip, _ in known})
    if asic not in chips:
        return [
            Message(
                _KEY,
                f"{model} cannot route adaptively",
                expected=f"a switch with {' or '.join(chips)}",
                actual=asic or "the profile names no chip",
                next_step=step,
            )
        ]
    rates = sorted(speed for chip, speed in known if chip == asic)
    if rate in rates:
        return []
    speeds = " or ".join(str(one) for one in rates)
    return [
        Message(
            _KEY,
            f"{asic} does not route adaptively over links of this speed",
            expected=f"{speeds} Gb/s",
            actual=f"{rate} Gb/s",
            next_step=f"Split the ports between switches to {speeds} Gb/s, or set it to false.",
        )
    ]
