"""Checks of the places of secrets: a password that rackready sets by itself has a place of its own."""

from __future__ import annotations

from rackready.design.secret_places import place_of, uses
from rackready.design.site_flaws import Flaw, Subject


def check_secrets(subject: Subject) -> list[Flaw]:
    """Return BMCs whose factory password would be replaced in a place that something else uses, too.

    First contact sets a random password and writes it there. The other device would be left without its password.
    """
    due = [
        (("racks", r, "nodes", n, "bmc"), node.name, node.bmc.password)
        for r, rack in enumerate(subject.site.racks)
        for n, node in enumerate(rack.nodes)
        if node.bmc.factory_password is not None and node.bmc.password is not None and node.bmc.password.env is None
    ]
    used = uses(subject.site) if due else {}
    return [
        Flaw.of(
            (*here, "password"),
            f"password of the BMC of {name} in {ref}",
            "Name a place for each BMC, e.g. with {name} in it: first contact writes a new password there. If all of "
            "them have that password already, remove factory_password.",
            expected="a place of its own, as factory_password is set",
            actual=f"the site file names it {used[place_of(ref)]} times",
            reads=((*here, "factory_password"),),
        )
        for here, name, ref in due
        if used[place_of(ref)] > 1
    ]
