"""Reads a site's own profiles, ``profiles/<family>/<id>.yml``, and reports every problem at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rackready.design.shape_problems import shape_problem
from rackready.design.site_inputs import profile_files
from rackready.design.yaml import read_judged
from rackready.model.base import Model, ProfileId
from rackready.model.own_profile import OWN_FAMILIES, OwnFamily, OwnProfile
from rackready.model.parts import PartsProfile
from rackready.model.problems import Problem, SiteInvalidError
from rackready.model.profile import GpuProfile, PlatformProfile, SwitchProfile
from rackready.model.software import SoftwareProfile
from rackready.model.wanted import path_text
from rackready.paths import shown
from rackready.profiles import loader, scope

KINDS: dict[OwnFamily, type[Model]] = {
    "gpu": GpuProfile,
    "platform": PlatformProfile,
    "switch": SwitchProfile,
    "software": SoftwareProfile,
    "parts": PartsProfile,
}
_ID: TypeAdapter[str] = TypeAdapter(ProfileId)


@dataclass(frozen=True, slots=True)
class Own:
    """A site's own profiles. ``broken``: (family, id) of the unusable ones; ``problems`` lists why."""

    profiles: tuple[OwnProfile, ...] = ()
    problems: tuple[Problem, ...] = ()
    broken: frozenset[tuple[str, str]] = frozenset()

    def follows(self, problem: Problem) -> bool:
        """Return whether a problem of the site file is only a consequence of an unusable profile."""
        return problem.profile in self.broken


def use_own(folder: Path, base: Path) -> None:
    """Use the profiles in a folder from now on; for commands without a site file. Raises SiteInvalidError."""
    own = read_own(folder, base)
    if own.problems:
        raise SiteInvalidError(str(folder), list(own.problems))
    scope.use(own.profiles)


@dataclass(frozen=True, slots=True)
class _Judged:
    family: OwnFamily
    id: str
    file: str
    profile: OwnProfile | None
    document: Any = None
    problems: tuple[Problem, ...] = ()


def read_own(folder: Path, base: Path) -> Own:
    """Return the profiles in a folder. ``base``: messages name files relative to it. Raises PlugInError."""
    judged, problems = [], []
    for path in profile_files(folder):
        family = next((known for known in OWN_FAMILIES if path.parent == folder / known), None)
        if not path.is_file():
            problems.append(_no_file(path, base))
        elif family is None or path.suffix != ".yml":
            problems.append(_misplaced(path, base))
        else:
            judged.append(_judge(family, path, shown(path, base)))
    judged += (lost := list(_without_gpu(judged)))
    for one in judged:
        problems += one.problems
    broken = frozenset((one.family, one.id) for one in (*lost, *judged) if one.profile is None)
    usable = tuple(one.profile for one in judged if one.profile is not None and (one.family, one.id) not in broken)
    return Own(usable, tuple(problems), broken)


def _misplaced(path: Path, base: Path) -> Problem:
    expected = f"FAMILY/ID.yml, FAMILY one of {', '.join(OWN_FAMILIES)}"
    return Problem.of(
        shown(path, base),
        "file in the folder of profiles",
        "Move, rename or remove it.",
        expected=expected,
        actual=f"{path.parent.name}/{path.name}",
    )


def _no_file(path: Path, base: Path) -> Problem:
    """Return the problem of a link: one to a folder is not followed."""
    return Problem.of(
        shown(path, base),
        "link",
        "Correct the link, or put the files themselves there.",
        expected="one to a file",
        actual=f"{path.readlink()}, {'a folder' if path.is_dir() else 'which cannot be found'}",
    )


def _judge(family: OwnFamily, path: Path, file: str) -> _Judged:
    """Return one file's profile, with all its problems."""
    wanted = path.stem
    try:
        document, found = read_judged(path)
    except SiteInvalidError as error:
        return _Judged(family, wanted, file, None, None, tuple(_in(file, item) for item in error.problems))
    problems = [*found, *shape_problems(family, document), *_identity(wanted, document)]
    if problems:
        return _Judged(family, wanted, file, None, document, tuple(_in(file, item) for item in problems))
    text = path.read_text(encoding="utf-8")
    return _Judged(family, wanted, file, OwnProfile(family=family, id=wanted, file=file, text=text), document)


def _in(file: str, problem: Problem) -> Problem:
    return Problem(f"{file}: {problem.path}" if problem.path else file, problem.message, problem.hint)


def shape_problems(family: OwnFamily, document: Any) -> list[Problem]:  # noqa: ANN401 - a YAML document
    """Return what is wrong with a profile's shape."""
    try:
        KINDS[family].model_validate(document)
    except ValidationError as error:
        return [
            shape_problem(item, path_text(item["loc"]), f"`rackready schema --of {family}`")
            for item in error.errors(include_url=False)
        ]
    return []


def _identity(stem: str, document: Any) -> Iterator[Problem]:  # noqa: ANN401 - a YAML document
    """Yield the problems of a file's name."""
    try:
        _ID.validate_python(stem)
    except ValidationError:
        yield Problem.of(
            "", "name of the file", "Rename it.", expected="letters, digits, - _ . in lower case", actual=stem
        )
    given = document.get("id") if isinstance(document, dict) else None
    if isinstance(given, str) and given != stem:
        yield Problem.of("id", "", "Make the id equal to the stem of the file.", expected=stem, actual=given)


def _without_gpu(judged: list[_Judged]) -> Iterator[_Judged]:
    """Yield each server model without a GPU profile, with a problem unless that GPU's own file is broken."""
    own = {one.id: one for one in judged if one.family == "gpu"}
    packaged = loader.packaged("gpu")
    for one in judged:
        if one.family != "platform" or one.profile is None:
            continue
        gpu = str(one.document["gpu"])
        if gpu in own and own[gpu].profile is None:
            yield _Judged("platform", one.id, one.file, None)
        elif gpu not in own and gpu not in packaged:
            known = ", ".join(sorted(packaged | own.keys()))
            problem = Problem.of(
                f"{one.file}: gpu",
                f"gpu profile {gpu!r} does not exist",
                "Correct the id, or add profiles/gpu/<id>.yml beside it.",
                expected=f"one of {known}",
            )
            yield _Judged("platform", one.id, one.file, None, None, (problem,))
