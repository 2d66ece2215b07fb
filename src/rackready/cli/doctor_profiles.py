"""The check of a site's own profiles."""

from __future__ import annotations

from rackready.design.own_profiles import FOLDER
from rackready.model.outcome import Outcome
from rackready.model.site import Site
from rackready.profiles.loader import packaged


def site_profiles(site: Site | None) -> tuple[Outcome, str]:
    """List the site's own profiles, and those that replace packaged ones."""
    if site is None:
        return Outcome.SKIP, "the site file cannot be used"
    own = sorted(f"{one.family}/{one.id}" for one in site.own_profiles)
    if not own:
        return Outcome.PASS, "none: all profiles are packaged"
    hidden = sorted(f"{one.family}/{one.id}" for one in site.own_profiles if one.id in packaged(one.family))
    text = f"{len(own)} in {FOLDER}/: {', '.join(own)}"
    return Outcome.PASS, f"{text}; they replace packaged profiles: {', '.join(hidden)}" if hidden else text
