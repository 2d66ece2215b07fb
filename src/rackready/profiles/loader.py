"""Profile loader. A profile's id is the stem of its file name; a file with another id is refused.

Profiles of the site in use (``scope``) come first, then packaged ones. Profiles of plug-ins are in the package of an
entry point of group ``rackready.profiles``, in folders with the same names.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from types import ModuleType
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from rackready.entry_points import PROFILES, PlugIn, plug_ins, refuse_twice
from rackready.model.bmc_quirk import BmcQuirk, BmcQuirks
from rackready.model.near import among
from rackready.model.operations import Gates
from rackready.model.parts import PartsProfile
from rackready.model.problems import RackreadyError
from rackready.model.profile import GateSet, GateSetEntry, GpuProfile, PlatformProfile, SwitchProfile
from rackready.model.software import ForwardCompat, SoftwareProfile, Unpublished
from rackready.model.wanted import refusals
from rackready.model.xid import XidCatalogue
from rackready.profiles.scope import Scoped, current

_P = TypeVar("_P", bound=BaseModel)


class UnknownProfileError(RackreadyError):
    """No profile of that family has that id."""

    def __init__(self, family: str, wanted: str, known: list[str]) -> None:
        self.known = known
        super().__init__(
            f"{family} profile {wanted!r} does not exist",
            expected=f"one of {among(known, wanted)}",
            next_step=f"Add profiles/{family}/{wanted}.yml or correct the id.",
        )


FAMILIES = ("gpu", "platform", "switch", "software", "gate_sets", "parts", "xid")
"""Folder names, here and in packages of plug-ins."""


_NAMES: dict[type[BaseModel], str] = {
    GpuProfile: "a GPU profile",
    PlatformProfile: "a platform profile",
    SwitchProfile: "a switch profile",
    SoftwareProfile: "a software profile",
    GateSet: "a gate set",
    PartsProfile: "a parts profile",
    XidCatalogue: "a catalogue of Xids",
    BmcQuirks: "a list of what BMCs do differently",
}
"""What a file holds, for messages."""


class ProfileInvalidError(RackreadyError):
    """A profile's file is invalid."""


def known(family: str) -> list[str]:
    """Return the ids of all profiles of a family (one of ``FAMILIES``), plug-ins and the site included.

    Raises PlugInError.
    """
    return sorted(current().ids(family) | packaged(family))


def packaged(family: str) -> set[str]:
    """Return the ids of the profiles of a family that rackready and plug-ins bring. Raises PlugInError."""
    return set(_files(family))


def own(family: str) -> list[str]:
    """Return the ids of the profiles of a family that the site brings."""
    return sorted(current().ids(family))


def place(family: str, wanted: str) -> str:
    """Return the file of a profile, for messages: the site's own, or the packaged one."""
    found = current().find(family, wanted)
    return found.file if found is not None else f"profiles/{family}/{wanted}.yml"


def owner(family: str, wanted: str) -> PlugIn | None:
    """Return a profile's plug-in, or None for a packaged profile."""
    return _files(family)[wanted][1]


def _files(family: str) -> dict[str, tuple[Traversable, PlugIn | None]]:
    """Return id -> file and plug-in. Raises PlugInError if two plug-ins have one id."""
    found: dict[str, tuple[Traversable, PlugIn | None]] = {}
    for folder, plug_in in [(resources.files(__package__), None), *_folders(plug_ins(PROFILES))]:
        for name, file in _yaml(folder.joinpath(family)):
            if name in found:
                owners = [found[name][1], plug_in]
                refuse_twice(
                    f"{family} profile {name}",
                    [str(one or "rackready itself") for one in owners],
                    [one for one in owners if one is not None],
                )
            found[name] = (file, plug_in)
    return found


def _yaml(folder: Traversable) -> list[tuple[str, Traversable]]:
    if not folder.is_dir():
        return []
    return [(entry.name.removesuffix(".yml"), entry) for entry in folder.iterdir() if entry.name.endswith(".yml")]


@cache
def _folders(found: tuple[PlugIn, ...]) -> list[tuple[Traversable, PlugIn | None]]:
    """Return the folders of plug-ins. Raises PlugInError for one without profiles or with files in unknown folders."""
    folders: list[tuple[Traversable, PlugIn | None]] = []
    for plug_in in found:
        module = plug_in.load(ModuleType)
        if not hasattr(module, "__path__"):
            plug_in.refuse(f"{module.__name__} is a package: a folder", "a single module")
        folder = resources.files(module)
        families = [entry.name for entry in folder.iterdir() if _yaml(entry)]
        if not families or set(families) - set(FAMILIES):
            wanted = f"profiles as FAMILY/ID.yml, FAMILY one of {', '.join(FAMILIES)}"
            plug_in.refuse(wanted, f"files in {', '.join(sorted(families))}" if families else "none")
        folders.append((folder, plug_in))
    return folders


def _load(family: str, wanted: str, kind: type[_P]) -> _P:
    own = current().find(family, wanted)
    if own is not None:
        where, profile = own.file, _parse(own.file, own.text, kind)
    else:
        files = _files(family)
        if wanted not in files:
            raise UnknownProfileError(family, wanted, known(family))
        file, plug_in = files[wanted]
        where = f"profiles/{family}/{wanted}.yml" + (f" ({plug_in})" if plug_in is not None else "")
        profile = _read(where, file, kind)
    stem = getattr(profile, "id", None)
    if stem != wanted:
        raise RackreadyError(
            where, "id", expected=wanted, actual=stem, next_step="Make the id equal to the file's stem."
        )
    return profile


def _read(where: str, file: Traversable, kind: type[_P]) -> _P:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # text that is not UTF-8 is a ValueError
        said = " ".join(str(error).split())
        raise ProfileInvalidError(
            where, expected=_NAMES.get(kind, "a profile"), actual=said, next_step="Correct the file."
        ) from error
    return _parse(where, text, kind, _PackagedLoader)


class _Strict(yaml.constructor.SafeConstructor):
    """Part of a loader that refuses a key that is given twice: PyYAML keeps the last one without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's
        """Return a mapping. Raises ConstructorError with both lines of a duplicate key."""
        lines: dict[str, int] = {}
        for key, _ in node.value if node.id == "mapping" else ():  # `!!map [1]` is a sequence: refused below
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and lines.setdefault(key.value, line) != line:
                text = f"key {key.value!r} is given twice, in lines {lines[key.value]} and {line}"
                raise yaml.constructor.ConstructorError(None, None, text)
        return super().construct_mapping(node, deep)


class _OwnLoader(_Strict, yaml.SafeLoader):
    """Reads the profiles of a site."""


class _PackagedLoader(_Strict, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads profiles of installed packages with the parser in C, where PyYAML has it: each load of a site reads some.

    A site's own files are not read with it: brackets that are nested 100,000 deep end the process there.
    """


def _parse(where: str, text: str, kind: type[_P], parser: type[yaml.SafeLoader] = _OwnLoader) -> _P:
    try:
        return kind.model_validate(yaml.load(text, Loader=parser))  # noqa: S506 - a subclass of SafeLoader
    except ValidationError as error:
        expected = _NAMES.get(kind, "a profile")
        raise ProfileInvalidError.of(refusals(error.errors(), where, expected, "Correct the file.")) from error
    except (ValueError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise ProfileInvalidError(
            where, expected=_NAMES.get(kind, "a profile"), actual=said, next_step="Correct the file."
        ) from error


@Scoped
def gpu(wanted: str) -> GpuProfile:
    """Return a GPU profile; raises UnknownProfileError."""
    return _load("gpu", wanted, GpuProfile)


@Scoped
def platform(wanted: str) -> PlatformProfile:
    """Return a server profile; raises UnknownProfileError."""
    return _load("platform", wanted, PlatformProfile)


@Scoped
def switch(wanted: str) -> SwitchProfile:
    """Return a switch profile; raises UnknownProfileError."""
    return _load("switch", wanted, SwitchProfile)


@Scoped
def software(wanted: str) -> SoftwareProfile:
    """Return a version set; raises UnknownProfileError."""
    return _load("software", wanted, SoftwareProfile)


@cache
def unpublished(wanted: str) -> Unpublished | None:
    """Return why a version set cannot exist, or None if nothing is known of it."""
    files = dict(_yaml(resources.files(__package__).joinpath("unpublished")))
    return _read(f"profiles/unpublished/{wanted}.yml", files[wanted], Unpublished) if wanted in files else None


@cache
def forward_compat() -> ForwardCompat:
    """Return what NVIDIA supports of CUDA forward compatibility."""
    files = dict(_yaml(resources.files(__package__).joinpath("cuda")))
    return _read("profiles/cuda/nvidia.yml", files["nvidia"], ForwardCompat)


@cache
def bmc_quirks() -> tuple[BmcQuirk, ...]:
    """Return what BMCs do differently from Redfish."""
    files = dict(_yaml(resources.files(__package__).joinpath("bmc")))
    return tuple(_read("profiles/bmc/quirks.yml", files["quirks"], BmcQuirks).quirks)


@cache
def gate_set(wanted: str) -> GateSet:
    """Return a gate set; raises UnknownProfileError."""
    return _load("gate_sets", wanted, GateSet)


def set_of(gates: Gates, wanted: str) -> GateSet:
    """Return a gate set with the site's own values (gates.also) applied. Raises UnknownProfileError."""
    own = {entry.id: entry for entry in gates.also}
    found = gate_set(wanted)
    return found.model_copy(update={"gates": [own.get(entry.id, entry) for entry in found.gates]})


def gates_of(gates: Gates) -> list[GateSetEntry]:
    """Return the site's gates: its set's, with the site's own values, then added ones. Raises UnknownProfileError."""
    of_set = set_of(gates, gates.set).gates
    own = {entry.id: entry for entry in gates.also}
    return [*of_set, *(entry for entry in own.values() if entry.id not in {item.id for item in of_set})]


@Scoped
def parts(wanted: str) -> PartsProfile:
    """Return the cables, fibres and modules of a supplier; raises UnknownProfileError."""
    return _load("parts", wanted, PartsProfile)


@cache
def xids(wanted: str = "nvidia") -> XidCatalogue:
    """Return a vendor's catalogue of Xids and SXids; raises UnknownProfileError."""
    return _load("xid", wanted, XidCatalogue)
