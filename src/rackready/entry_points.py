"""Plug-ins of other packages, found by entry points.

An entry point is a line of a package's metadata: group, name, and what is imported (Python Packaging User Guide, "Entry
points specification"). Listing them imports nothing. A plug-in is imported when it is needed; an import
error names it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn, TypeVar

from rackready.model.problems import RackreadyError

COMMANDS = "rackready.commands"
GATES = "rackready.gates"
PROFILES = "rackready.profiles"
SWITCHES = "rackready.switches"
SCHEDULERS = "rackready.schedulers"

_T = TypeVar("_T")


class PlugInError(RackreadyError):
    """A plug-in cannot be used, or two parts have one name."""


@dataclass(frozen=True, slots=True)
class PlugIn:
    """One entry point of an installed package."""

    point: EntryPoint

    @property
    def name(self) -> str:
        """Name of the part: a command, a switch system, a scheduler."""
        return self.point.name

    @property
    def package(self) -> str:
        """The distribution that has it, as pip names it."""
        return self.point.dist.name if self.point.dist is not None else "an unknown package"

    @property
    def version(self) -> str:
        """The version of that distribution; empty when it is unknown."""
        return self.point.dist.version if self.point.dist is not None else ""

    def __str__(self) -> str:
        package = f"{self.package} {self.version}".rstrip()
        return f"plug-in {self.name} of {package} ({self.point.group}: {self.point.value})"

    def has(self, kind: type) -> bool:
        """Whether a class is in the package that it names."""
        return kind.__module__.partition(".")[0] == self.point.module.partition(".")[0]

    def load(self, kind: type[_T]) -> _T:
        """Import it and return the named object. Raises PlugInError, which names it, for any error in its code."""
        try:
            found = self.point.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others: whatever it raises must not look like ours, nor end us
            said = str(error) if isinstance(error, RackreadyError) else f"{type(error).__name__}: {error}"
            self.refuse("it can be imported", said, error)
        if not isinstance(found, kind):
            self.refuse(f"{self.point.value} is a {kind.__name__}", f"a {type(found).__name__}")
        return found

    def refuse(self, expected: str, actual: str, cause: BaseException | None = None) -> NoReturn:
        """Raise PlugInError: what is wrong with it, and what to do."""
        step = (
            f"Repair it (`python -c 'import {self.point.module}'` shows where it fails), or uninstall {self.package}."
        )
        raise PlugInError(self, expected=expected, actual=actual.rstrip("."), next_step=step) from cause


def plug_ins(group: str) -> tuple[PlugIn, ...]:
    """Return every plug-in of a group, by name. Nothing is imported."""
    return _listed(group, tuple(sys.path))


def named(group: str, name: str, ours: bool = False) -> PlugIn | None:  # noqa: FBT001, FBT002
    """Return the plug-in of that name, or None. ``ours``: rackready itself has a part of that name.

    Raises PlugInError if two plug-ins have the name.
    """
    found = [plug_in for plug_in in plug_ins(group) if plug_in.name == name]
    if len(found) + ours > 1:
        refuse_twice(f"{group}: {name}", [*(["rackready itself"] if ours else []), *map(str, found)], found)
    return found[0] if found else None


def refuse_twice(what: str, owners: list[str], found: list[PlugIn]) -> NoReturn:
    """Raise PlugInError for a name that several plug-ins have. ``found``: these plug-ins."""
    packages = " or ".join(sorted({plug_in.package for plug_in in found}))
    raise PlugInError(
        what, expected="one", actual=f"{len(owners)}: {'; '.join(owners)}", next_step=f"Uninstall {packages}."
    )


def names(group: str) -> list[str]:
    """Return the names of a group's plug-ins, each once."""
    return sorted({plug_in.name for plug_in in plug_ins(group)})


@cache
def _listed(group: str, path: tuple[str, ...]) -> tuple[PlugIn, ...]:
    """Return the plug-ins of a group, sorted. Cached per search path."""
    found = (PlugIn(point) for point in _every(path).select(group=group))
    return tuple(sorted(found, key=lambda plug_in: (plug_in.name, plug_in.package)))


@cache
def _every(path: tuple[str, ...]) -> Any:  # noqa: ANN401 - its type differs between releases of Python
    """Return the entry points of all groups: reading the metadata of some hundred packages takes milliseconds."""
    del path
    return entry_points()
