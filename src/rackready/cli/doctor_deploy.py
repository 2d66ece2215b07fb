"""The check of what `rackready deploy` refuses before it changes anything."""

from __future__ import annotations

from rackready.cli.doctor_scene import Answer, Scene
from rackready.design.deployable import refusals
from rackready.model.outcome import Outcome
from rackready.model.problems import Message


def deployable(scene: Scene) -> Answer:
    """Report what refuses a deploy of the site: server profiles to learn, serial numbers to import, and the like.

    Virtual nodes are checked for `rackready install`, since single phases bring them up.
    """
    site = scene.site
    if site is None:
        return Outcome.SKIP, "the site file cannot be used"
    virtual = [node.name for node in site.nodes() if node.kind == "virtual"]
    metal = [node.name for node in site.nodes() if node.kind != "virtual"]
    found = [
        message
        for nodes, command in ((metal, "deploy"), (virtual, "install"))
        for message in (refusals(site, nodes, command) if nodes else ())
    ]
    once: dict[object, Message] = {}
    for message in found:  # nodes of both kinds may need one profile, or lack one fabric
        once.setdefault((message.where, message.what), message)
    if once:
        return Outcome.FAIL, "\n".join(map(str, once.values()))
    return Outcome.PASS, f"{len(metal) + len(virtual)} nodes"
