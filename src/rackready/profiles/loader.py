"""Reads profiles. A profile's id is the stem of its file; a file that says otherwise is refused."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TypeVar

import yaml
from pydantic import BaseModel

from rackready.model.operations import Gates
from rackready.model.parts import PartsProfile
from rackready.model.problems import RackreadyError
from rackready.model.profile import GateSet, GateSetEntry, GpuProfile, PlatformProfile, SoftwareProfile, SwitchProfile
from rackready.model.xid import XidCatalogue

_P = TypeVar("_P", bound=BaseModel)


class UnknownProfileError(RackreadyError):
    """No profile of that family has that id."""

    def __init__(self, family: str, wanted: str, known: list[str]) -> None:
        self.known = known
        super().__init__(
            f"{family} profile {wanted!r} does not exist - Expected: one of {', '.join(known)}. Add profiles/{family}/{wanted}.yml or correct the id."
        )


def known(family: str) -> list[str]:
    """Return the ids of all profiles of a family (``gpu``, ``platform``, ``switch``, ``software``, ``gate_sets``, ``parts``)."""
    folder = resources.files(__package__).joinpath(family)
    return sorted(entry.name.removesuffix(".yml") for entry in folder.iterdir() if entry.name.endswith(".yml"))


def _load(family: str, wanted: str, kind: type[_P]) -> _P:
    if wanted not in known(family):
        raise UnknownProfileError(family, wanted, known(family))
    text = resources.files(__package__).joinpath(family, f"{wanted}.yml").read_text(encoding="utf-8")
    profile = kind.model_validate(yaml.safe_load(text))
    stem = getattr(profile, "id", None)
    if stem != wanted:
        message = f"profiles/{family}/{wanted}.yml: id - Expected: {wanted} Actual: {stem}. Make the id equal to the file's stem."
        raise RackreadyError(message)
    return profile


@cache
def gpu(wanted: str) -> GpuProfile:
    """Return a GPU profile; raises UnknownProfileError."""
    return _load("gpu", wanted, GpuProfile)


@cache
def platform(wanted: str) -> PlatformProfile:
    """Return a server profile; raises UnknownProfileError."""
    return _load("platform", wanted, PlatformProfile)


@cache
def switch(wanted: str) -> SwitchProfile:
    """Return a switch profile; raises UnknownProfileError."""
    return _load("switch", wanted, SwitchProfile)


@cache
def software(wanted: str) -> SoftwareProfile:
    """Return a version set; raises UnknownProfileError."""
    return _load("software", wanted, SoftwareProfile)


@cache
def gate_set(wanted: str) -> GateSet:
    """Return a gate set; raises UnknownProfileError."""
    return _load("gate_sets", wanted, GateSet)


def set_of(gates: Gates, wanted: str) -> GateSet:
    """Return a gate set as a site runs it: where the site says otherwise of one of its gates (gates.also), that. Raises UnknownProfileError."""
    own = {entry.id: entry for entry in gates.also}
    found = gate_set(wanted)
    return found.model_copy(update={"gates": [own.get(entry.id, entry) for entry in found.gates]})


def gates_of(gates: Gates) -> list[GateSetEntry]:
    """Return the gates that a site wants: its set's, as far as it does not say otherwise of them, then those that it adds. Raises UnknownProfileError."""
    of_set = set_of(gates, gates.set).gates
    own = {entry.id: entry for entry in gates.also}
    return [*of_set, *(entry for entry in own.values() if entry.id not in {item.id for item in of_set})]


@cache
def parts(wanted: str) -> PartsProfile:
    """Return the cables, fibres and modules of a supplier; raises UnknownProfileError."""
    return _load("parts", wanted, PartsProfile)


@cache
def xids(wanted: str = "nvidia") -> XidCatalogue:
    """Return a vendor's catalogue of Xids and SXids; raises UnknownProfileError."""
    return _load("xid", wanted, XidCatalogue)
