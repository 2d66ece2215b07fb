"""The parts of pulled phases as they really are: the release folder, its server, the agent's role and SSH."""

from __future__ import annotations

from rackready.campaign.pull.parts import Parts
from rackready.model.pull import Pull
from rackready.model.site import Site
from rackready.paths import EnvPaths


def parts_of(site: Site, pull: Pull, paths: EnvPaths, identity: str) -> Parts:
    raise NotImplementedError
