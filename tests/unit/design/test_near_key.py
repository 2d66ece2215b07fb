"""A misspelt key is answered with the key that it was meant to be, at every depth of the site file."""

from __future__ import annotations

import pytest

from rackready.design.near_key import near_key, wants_secret
from rackready.model.site import Site


@pytest.mark.parametrize(
    ("loc", "near"),
    [
        (("softwear",), "software"),
        (("schemas",), "schema"),
        (("access", "private_kye"), "private_key"),
        (("racks", 0, "nodes", 1, "seriel"), "serial"),
        (("racks", 0, "nodes", 1, "bmc", "adress"), "address"),
        (("handover", "slurm", "partitionn"), "partition"),
        (("handover", "kubernetes", "taints"), "taint"),
        (("fabric", "rails", 0, "vlans"), "vlan"),
        (("campaign", "wavesize"), "wave_size"),
        (("racks", 0, "nodes", 1, "colour"), ""),
        (("access", "x"), ""),
    ],
    ids=str,
)
def test_the_key_that_is_most_like_is_of_that_place(loc: tuple[str | int, ...], near: str) -> None:
    assert near_key(Site, loc) == near


def test_a_key_of_another_place_is_not_offered() -> None:
    assert near_key(Site, ("software", "wavesize")) == ""


def test_keys_of_another_kind_are_not_offered_and_never_the_key_itself() -> None:
    assert near_key(Site, ("handover", "kubernetes", "controller")) == ""
    assert near_key(Site, ("handover", "slurm", "controler")) == "controller"
    assert near_key(Site, ("handover", "controller")) != "controller"


def test_only_the_reference_of_a_secret_wants_one() -> None:
    assert wants_secret(Site, ("switches", 0, "password"))
    assert wants_secret(Site, ("racks", 0, "nodes", 3, "bmc", "password"))
    assert not wants_secret(Site, ("racks", 0, "nodes", 3, "bmc"))
    assert not wants_secret(Site, ("access",))
