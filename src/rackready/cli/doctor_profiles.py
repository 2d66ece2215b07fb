"""The check of a site's own profiles."""

from __future__ import annotations

from rackready.cli.doctor_scene import Answer, Scene
from rackready.design.own_profiles import read_own
from rackready.design.site_inputs import FOLDER
from rackready.model.outcome import Outcome
from rackready.model.problems import folded
from rackready.profiles.loader import packaged


def site_profiles(scene: Scene) -> Answer:
    """List the site's own profiles and those that replace packaged ones, or every problem of the profiles.

    Reads the files itself: an invalid profile or site file must not hide the other ones.
    """
    found = read_own(scene.paths.inventory / FOLDER, scene.paths.root)
    if found.problems:
        return Outcome.FAIL, "\n".join(folded(sorted(set(found.problems))))
    own = sorted(f"{one.family}/{one.id}" for one in found.profiles)
    if not own:
        return Outcome.PASS, "none: all profiles are packaged"
    hidden = sorted(f"{one.family}/{one.id}" for one in found.profiles if one.id in packaged(one.family))
    text = f"{len(own)} in {FOLDER}/: {', '.join(own)}"
    return Outcome.PASS, f"{text}; they replace packaged profiles: {', '.join(hidden)}" if hidden else text
