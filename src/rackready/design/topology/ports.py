"""Ports of switches: their number at the rate of the links, and their names, including sub-ports of a breakout."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from rackready.design.switch_systems import system_of
from rackready.model.base import expand_range
from rackready.model.problems import Problem
from rackready.model.profile import SwitchProfile
from rackready.model.topology import TierSwitches
from rackready.profiles import loader

_SUB_PORT_BY_PLACE = "{port}/{place}"
"""Name of a sub-port on labels if rackready does not know the switch's operating system: its place, from 1."""

_LAYER = {"roce": "ethernet", "infiniband": "infiniband"}

_QSFP56_RATE, _QSFP56_LANES = 200, 4
"""Gb/s of a QSFP56 port over its four lanes of 50 Gb/s."""


def port_name(profile: SwitchProfile, index: int, breakout: int) -> str:
    """Return the name of a port, counted from 1 over all ports after a breakout; raises ValueError if out of range."""
    names = port_names(profile, breakout)
    if not 1 <= index <= len(names):
        message = (
            f"{profile.id}: port {index} at breakout {breakout} - Expected: 1 to {len(names)} Actual: {index}. "
            "Use a larger switch model."
        )
        raise ValueError(message)
    return names[index - 1]


def port_names(profile: SwitchProfile, breakout: int, os: str = "") -> tuple[str, ...]:
    """Return the names of all ports after a breakout, in order, as that operating system has them.

    Default of ``os``: the first system of the profile.
    """
    system = system_of(os or (profile.os[0] if profile.os else ""))
    whole, sub = (system.port, system.sub_port) if system is not None else (None, _SUB_PORT_BY_PLACE)
    return _names(profile.ports, profile.port_pattern, profile.ports_per_cage, profile.lanes or 1, whole, sub, breakout)


@cache
def _names(  # noqa: PLR0913, PLR0917 - the cache needs plain values
    ports: str, pattern: str | None, per_cage: int, lanes: int, whole: str | None, sub_port: str, breakout: int
) -> tuple[str, ...]:
    known = expand_range(ports)
    if pattern is not None:
        known = [pattern.format(c=place // per_cage + 1, t=place % per_cage + 1) for place in range(len(known))]
    if breakout == 1 and whole is None:
        return tuple(known)
    form = (whole or "") if breakout == 1 else sub_port
    return tuple(
        form.format(
            port=port,
            cage=number + 1,
            sub=sub,
            place=sub + 1,
            lane=number * lanes + sub * lanes // breakout,
            within=sub * lanes // breakout + 1,
        )
        for number, port in enumerate(known)
        for sub in range(breakout)
    )


def port_ranges(names: Iterable[str], profile: SwitchProfile, breakout: int) -> str:
    """Return port names as ranges in the switch's own order: ``swp1s0-swp4s1, swp9s0``; raises KeyError if unknown."""
    order = {name: place for place, name in enumerate(port_names(profile, breakout))}
    every = port_names(profile, breakout)
    runs: list[list[int]] = []
    for place in sorted({order[name] for name in names}):
        if runs and runs[-1][1] == place - 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    return ", ".join(every[first] if first == last else f"{every[first]}-{every[last]}" for first, last in runs)


def breakout_of(profile: SwitchProfile, rate: int) -> int | None:
    """Return the breakout for links of that rate (Gb/s); None if the model does not support it."""
    if rate > profile.rate or profile.rate % rate:
        return None
    ways = profile.rate // rate
    return ways if ways == 1 or ways in profile.breakout else None


def lanes_short(profile: SwitchProfile, rate: int, cage: str | None) -> tuple[int, int] | None:
    """Return (lanes of the NIC, fewer lanes of the switch) if a link of that rate cannot join them; else None.

    A QSFP56 port runs 200 Gb/s over four lanes of 50 Gb/s. A switch with lanes of 100 Gb/s gives it half of a cage of
    eight lanes, and the lanes run at 50 (docs.nvidia.com/networking/display/MCP7Y60HXXX400pub: one twin-port OSFP of
    2 x 200 Gb/s to two QSFP56). A breakout into links of two lanes would count twice the ports that there are.
    """
    ways = breakout_of(profile, rate)
    if cage != "qsfp56" or rate != _QSFP56_RATE or ways is None or profile.lanes is None:
        return None
    lanes = profile.lanes // ways
    return (_QSFP56_LANES, lanes) if lanes < _QSFP56_LANES else None


def radix_of(where: str, tier: TierSwitches, rate: int, link: str) -> tuple[int, Problem | None]:
    """Return (ports of one switch at that rate in Gb/s, problem or None)."""
    known = loader.known("switch")
    if tier.model not in known:
        return 0, Problem.of(
            f"{where}.model",
            tier.model,
            expected=f"one of {', '.join(known)}",
            actual=tier.model,
            next_step=f"Add profiles/switch/{tier.model}.yml or correct the id.",
        )
    profile = loader.switch(tier.model)
    if profile.layer != _LAYER[link]:
        return 0, Problem.of(
            f"{where}.model",
            tier.model,
            expected=f"an {_LAYER[link]} switch",
            actual=profile.layer,
            next_step="Correct the model or topology.link.",
        )
    ways = breakout_of(profile, rate)
    if ways is None:
        can = ", ".join(str(profile.rate // split) for split in sorted({1, *profile.breakout}))
        return 0, Problem.of(
            f"{where}.model",
            f"{tier.model}: links of {rate} Gb/s",
            expected=f"one of {can} Gb/s",
            actual=rate,
            next_step="Use another model, or NICs of its rate.",
        )
    have = len(port_names(profile, ways))
    if tier.radix is not None and tier.radix > have:
        return 0, Problem.of(
            f"{where}.radix",
            f"ports of {tier.model} at {rate} Gb/s",
            expected=f"at most {have}",
            actual=tier.radix,
            next_step="Remove radix, or use a larger model.",
        )
    return tier.radix or have, None
