"""A password that first contact sets needs a place of its own; all other passwords may share one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.design.written import example, parse, refusals

STEP = (
    "Name a place for each BMC, e.g. with {name} in it: first contact writes a new password there. If all of them have "
    "that password already, remove factory_password."
)
FACTORY = {"env": "FACTORY"}


def with_bmcs(**keys: Any) -> dict[str, Any]:
    """Return an example whose four BMCs have these keys."""
    document = example("lab-4-nodes")
    document["templates"]["nodes"]["h100"]["bmc"] = {"username": "admin", **keys}
    return document


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"file": "secrets/x/../bmc"}, "file /base/secrets/x/../bmc"),
        ({"sops": "s.sops.yml#bmc"}, "sops file /base/s.sops.yml#bmc"),
    ],
)
def test_a_shared_place_is_refused_where_first_contact_writes_it(place: dict[str, str], words: str) -> None:
    found = refusals(with_bmcs(password=place, factory_password=FACTORY))
    assert found[0] == (
        f"templates.nodes.h100.bmc.password: password of the BMC of node01 in {words} - Expected: a place of its own, "
        f"as factory_password is set Actual: the site file names it 4 times. {STEP}"
    )
    switch = with_bmcs(password={"file": "secrets/{name}"}, factory_password=FACTORY)
    switch["switches"][0]["password"] = {"file": "secrets/node02"}
    assert [text.partition(" - ")[0] for text in refusals(switch)] == [
        "templates.nodes.h100.bmc.password: password of the BMC of node02 in file /base/secrets/node02"
    ]


def test_other_passwords_share_a_place_and_so_do_factory_passwords() -> None:
    parse(with_bmcs(password={"file": "secrets/bmc"}))
    parse(with_bmcs(password={"file": "secrets/{name}"}, factory_password=FACTORY))
    parse(with_bmcs(password={"sops": "s.yml#bmc.{name}"}, factory_password={"file": "secrets/factory"}))
