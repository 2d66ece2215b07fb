"""Checks of NCCL's settings in a site: known names, their values, and the HCAs of the rails in their order."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from rackready.design.check_names import Loc, known_platforms
from rackready.design.site_flaws import Flaw, Subject
from rackready.model import nccl
from rackready.model.near import among
from rackready.model.profile import PlatformProfile
from rackready.profiles import loader


def check_nccl(subject: Subject) -> list[Flaw]:
    """Return problems with `fabric.nccl`."""
    site = subject.site
    declared, here = site.fabric.nccl, ("fabric", "nccl")
    out = list(_settings(declared.settings, (*here, "settings")))
    known = loader.known("platform")
    for platform, settings in declared.platforms.items():
        loc = (*here, "platforms", platform)
        if platform not in known:
            what, hint = f"platform profile {platform!r} does not exist", "Correct the id or add the profile."
            out.append(
                Flaw.of(loc, what, hint, expected=f"one of {among(known, platform)}", profile=("platform", platform))
            )
        out += _settings(settings, loc)
    if site.fabric.kind != "roce" and (declared.settings or declared.platforms):
        text = f"rackready writes NCCL's settings on RoCE fabrics only, and fabric.kind is {site.fabric.kind}."
        out.append(Flaw(here, text, "Remove it, and let the nodes' image bring /etc/nccl.conf."))
    return out + [flaw for name in known_platforms(site) for flaw in _hcas(declared, loader.platform(name))]


def _settings(settings: nccl.Settings, here: Loc) -> Iterator[Flaw]:
    """Return the flaws of one table of settings."""
    for name, value in settings.items():
        loc, values = (*here, name), nccl.SETTINGS.get(name)
        if name in nccl.ELSEWHERE:
            yield Flaw(loc, f"{name} follows from {nccl.ELSEWHERE[name]}.", f"Set {nccl.ELSEWHERE[name]} instead.")
        elif values is None:
            near = get_close_matches(name, nccl.SETTINGS, 1)
            what = f"{name} is no setting of NCCL that a site may declare"
            yield Flaw.of(
                loc, what, "docs/howto/nic-stack.md names them and says what is left out.", expected=_any(near)
            )
        elif not values.accept(value):
            yield Flaw.of(loc, f"{name} is {value}", "Correct the value.", expected=values.words)


def _any(near: list[str]) -> str:
    return f"a name such as {near[0]}" if near else "a name of docs/howto/nic-stack.md"


def _hcas(declared: nccl.Nccl, platform: PlatformProfile) -> Iterator[Flaw]:
    """Return a flaw where NCCL_IB_HCA does not name the platform's rails exactly, in their order.

    NCCL numbers its networks in the order of this list, so nodes with another order would cross rails.
    """
    name = "NCCL_IB_HCA"
    value = declared.of(platform.id).get(name)
    rails = [nic.rdma_device for nic in sorted(platform.nics, key=lambda nic: nic.rail) if nic.rdma_device]
    wanted = f"={','.join(rails)}"
    if value is None or value == wanted or not rails:
        return
    own = name in declared.platforms.get(platform.id, {})
    loc: Loc = ("fabric", "nccl", *(("platforms", platform.id) if own else ("settings",)), name)
    yield Flaw.of(
        loc,
        f"{name} is {value}, on {platform.id}",
        "Correct it, or set it for each platform under fabric.nccl.platforms.",
        expected=f"{wanted}, its rails in their order",
    )
