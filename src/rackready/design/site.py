"""Loads the site file: overlay merged over it, shape and meaning checked, every problem reported at once."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rackready.design import check
from rackready.design.assign import assign
from rackready.design.collector import without_gc
from rackready.design.expand import RACK_LISTS, Expanded, expand, is_secret
from rackready.design.found import Found, Lost, lost_between
from rackready.design.origin import Loc, path_text
from rackready.design.prune import Pruned, explicit, prune
from rackready.design.truth_values import truth_problems
from rackready.design.yaml import read_judged
from rackready.model.problems import Problem, RackreadyError, SiteInvalidError
from rackready.model.site import Site
from rackready.paths import EnvPaths, project_root

_PATH_KEYS = frozenset({"private_key", "key", "ca", "certificate", "file", "path"})


MACHINES = "machines.yml"
"""Beside the site file: what the vendor's manifest said of each machine, written by ``rackready import manifest``."""

_NESTING = frozenset({dict, list})
_loaded: OrderedDict[tuple[str, ...], Site] = OrderedDict()
_KEPT = 4


def load_site(env: str, *, site_file: Path | None = None, root: Path | None = None) -> Site:
    """Return the site of an environment (``inventories/<env>/site.yml``, or ``site_file``), written out, with manifest and overlay merged.

    Files that did not change are not read into a site again within one process. Raises SiteInvalidError that lists
    every problem with its data path.
    """
    try:
        base = root or project_root()
    except FileNotFoundError as error:
        raise RackreadyError(str(error)) from error
    paths = EnvPaths(base, env)
    source = site_file or paths.site_file
    over = [] if site_file is not None else overlay_files(paths)
    key = (str(base), *(f"{path}:{_digest(path)}" for path in (source, *over)))
    if key not in _loaded:
        document, problems = read_judged(source)
        site = parse_site(
            document, source=str(source), base=base, overlays=[read_overlay(path) for path in over], problems=problems
        )
        _loaded[key] = site
        while len(_loaded) > _KEPT:
            _loaded.popitem(last=False)
    return _loaded[key]


def overlay_files(paths: EnvPaths, *, with_machines: bool = False) -> list[Path]:
    """Return the files that are merged over the site file, in their order: the manifest's, then the machine's own overlay.

    ``with_machines``: name the manifest's also when it is not there yet.
    """
    machines = paths.inventory / MACHINES
    return [path for path in (machines, paths.overlay) if path.exists() or (with_machines and path == machines)]


def read_overlay(path: Path) -> Any:  # noqa: ANN401 - a YAML document
    """Return the document of an overlay. Raises SiteInvalidError when it could not be merged as it is written: none of it may be lost in silence."""
    document, doubtful = read_judged(path, written_by_us=True)
    if document is not None and not isinstance(document, dict):
        text = f"Expected: a mapping Actual: {_called(document)}."
        raise SiteInvalidError(str(path), [Problem("", text, "Write what differs from the site file, key by key.")])
    problems = [*doubtful, *truth_problems(document)]
    problems += [Problem(where, f"{name} is given twice.", "Write it once.") for where, name in _doubles(document, "")]
    if problems:
        raise SiteInvalidError(str(path), problems)
    return document


def _doubles(value: Any, where: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - a YAML document
    """Give (path of the list, name) of every name that several items of a list have: a merge by names would keep the last alone."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _doubles(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        if _named(value):
            yield from ((where, name) for name, count in Counter(item["name"] for item in value).items() if count > 1)
        for place, item in enumerate(value):
            yield from _doubles(item, f"{where}[{place}]")


def forget_sites() -> None:
    """Forget what was loaded: for tests that change what a site file alone does not say."""
    _loaded.clear()


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""  # reading it as YAML says what is wrong


def merge(below: Any, above: Any) -> Any:  # noqa: ANN401 - YAML documents
    """Merge an overlay over a document: mappings by key, lists of named mappings by ``name``, all else (and places of secrets) replaced."""
    if isinstance(below, dict) and isinstance(above, dict) and not is_secret(above):
        return {
            key: merge(below[key], above[key]) if key in below and key in above else above.get(key, below.get(key))
            for key in (*below, *(k for k in above if k not in below))
        }
    if _named(below) and _named(above):
        over = {item["name"]: item for item in above}
        known = {item["name"] for item in below}
        return [merge(item, over[item["name"]]) if item["name"] in over else item for item in below] + [
            item for item in above if item["name"] not in known
        ]
    return above


def _named(value: Any) -> bool:  # noqa: ANN401
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in value)
    )


def parse_site(
    raw: Any,  # noqa: ANN401
    *,
    source: str,
    base: Path,
    overlays: Sequence[Any] = (),
    problems: Sequence[Problem] = (),
) -> Site:
    """Return the site that a YAML document describes, compact or explicit; relative paths in it are taken from ``base``.

    It is written out, overlays are merged over it, addresses that nobody gave are derived. Shape is checked by the
    models. What offends is pruned, and meaning is checked on the rest, so that a misspelt key does not hide a duplicate
    address elsewhere. ``problems``: what is known to be wrong with it already.
    """
    if not isinstance(raw, dict):
        raise SiteInvalidError(
            source,
            [
                *problems,
                Problem(
                    "", "Expected: a mapping Actual: something else.", "Begin one from inventories/example/site.yml."
                ),
            ],
        )
    with without_gc():
        expanded = expand(raw)
        document = expanded.document
        for overlay in overlays:
            document = merge(document, overlay) if isinstance(overlay, dict) else document
        document = absolute(document, base)
        checked = _Checked(document, expanded, [*problems, *truth_problems(raw)])
        site = checked.site()
        if site is None or checked.problems:
            raise SiteInvalidError(source, gathered(checked.problems), site if checked.whole else None)
    return site


class _Checked:
    """One document on its way to a site, with all that is found to be wrong with it."""

    def __init__(self, document: dict[str, Any], expanded: Expanded, problems: list[Problem]) -> None:
        self.document, self.expanded = document, expanded
        self.before = document
        self.problems = [*problems, *expanded.problems]
        self.told = {problem.path for problem in problems}
        """Places of which enough is said: what follows from them is left out."""
        self.pruned = Pruned()
        self.without_address: set[Loc] = set()
        self.whole = False
        """Nothing was taken out on which fabric, loads and cables depend, but single keys."""

    def where(self, loc: Sequence[str | int]) -> str:
        """Return a place of the pruned document as people read it in their file."""
        return path_text(self.expanded.origins.written(explicit(loc, self.pruned.index_map)))

    def site(self) -> Site | None:
        """Return the site, without what offends; None when what offends cannot be spared."""
        self._assign()
        site = self._shaped()
        if site is not None:
            self._meant(site)
        return site

    def _assign(self) -> None:
        unassigned = assign(self.document)
        self.without_address |= {found.loc for found in unassigned}
        self._found(unassigned)

    def _found(self, found: Iterable[Found]) -> None:
        for item in found:
            if not self.pruned.doubtful(explicit(item.loc, self.pruned.index_map), f"{item.message} {item.hint}"):
                self.problems.append(Problem(self.where(item.loc), item.message, item.hint))

    def _shaped(self) -> Site | None:
        """Check the shape again and again, each time without what offended the time before."""
        for _ in range(_ROUNDS):
            try:
                return Site.model_validate(self.document)
            except ValidationError as error:
                errors = error.errors(include_url=False)
            in_networks = [item for item in errors if item["loc"][:1] == ("networks",)]
            for item in in_networks or errors:
                self._shape(item)
            pruned = prune(
                self.document,
                [item["loc"] for item in in_networks or errors],
                [item["type"] for item in in_networks or errors],
                self.pruned,
            )
            if pruned is None:
                return None
            self.document = pruned
            if in_networks:
                self._assign()  # addresses that derive from what is left of the networks
        return None

    def _shape(self, item: Any) -> None:  # noqa: ANN401 - pydantic's ErrorDetails
        path = self.where(item["loc"])
        place = explicit(item["loc"], self.pruned.index_map)
        known = (
            path in self.told
            or self.pruned.doubtful(place, item["msg"])
            or self._follows(item, place)
            or self._emptied(item)
        )
        if not known:
            self.problems.append(shape_problem(item, path))
        self.told.add(path)

    def _follows(self, item: Any, place: Loc) -> bool:  # noqa: ANN401 - pydantic's ErrorDetails
        """Say whether an address is missing only because what it derives from is wrong, or keys do not go together since one was taken out."""
        if item["type"] == "value_error" and any(key[:-1] == place for key in self.pruned.keys):
            return True
        if item["type"] != "missing" or item["loc"][-1] != "address":
            return False
        networks = any(key[:1] == ("networks",) for key in self.pruned.keys) or (
            self.before.get("networks") is not None and not self.document.get("networks")
        )
        return networks or any(place[: len(loc)] == loc for loc in self.without_address)

    def _emptied(self, item: Any) -> bool:  # noqa: ANN401 - pydantic's ErrorDetails
        """Say whether a list is too short only because all that stood in it was taken out."""
        written: Any = self.before
        for step in explicit(item["loc"], self.pruned.index_map) if item["type"] == "too_short" else ():
            written = (
                written[step]
                if isinstance(written, list) and isinstance(step, int)
                else written.get(step)
                if isinstance(written, dict)
                else None
            )
        return item["type"] == "too_short" and isinstance(written, list) and bool(written)

    def _meant(self, site: Site) -> None:
        inside = RACK_LISTS if "racks" in self.pruned.sections else frozenset[str]()
        lost = lost_between(self.before, self.document, self.expanded.skipped | inside) if self.problems else Lost()
        gone = (
            {family for family, names in lost.names.items() if names}
            | lost.nameless
            | self.pruned.sections
            | (self.before.keys() - self.document.keys())
        )
        self.whole = gone <= _BESIDE
        self._found(check.check(site, lost))


_BESIDE = frozenset(
    {
        "schema",
        "name",
        "access",
        "software",
        "gates",
        "handover",
        "campaign",
        "tenants",
        "deliveries",
        "maintenance",
        "outlets",
        "skip",
        "disabled",
        "also",
    }
)
"""Sections and lists on which nothing of a plan depends but its words."""

_ROUNDS = 50
"""Most times that a document is pruned: what offends is nested less deep than that."""


_SHOWN = 3


def gathered(problems: list[Problem]) -> list[Problem]:
    """Return problems with those of one written line drawn together: a template of 12,500 nodes is corrected in one place."""
    by_line: dict[tuple[str, str], list[Problem]] = {}
    for problem in dict.fromkeys(problems):
        by_line.setdefault((problem.path, _kind(problem)), []).append(problem)
    out = []
    for (path, _), same in by_line.items():
        out += same[:_SHOWN]
        if len(same) > _SHOWN:
            last = out.pop()
            out.append(Problem(path, f"{last.message} (and {len(same) - _SHOWN} more like this)", last.hint))
    return out


def _kind(problem: Problem) -> str:
    """Return a problem without what differs from item to item: names with numbers, numbers, addresses."""
    return re.sub(r"\S*\d\S*", "#", f"{problem.message} {problem.hint}")


def absolute(value: Any, base: Path, key: str = "") -> Any:  # noqa: ANN401
    """Return a YAML document whose relative paths are taken from ``base``."""
    kind = type(value)
    if kind is str:
        return str(base / value) if key in _PATH_KEYS and not value.startswith("/") else value
    if kind is dict:
        # Plain values are most of 12,500 nodes: only what may hold or be a path is looked into.
        return {
            name: absolute(item, base, str(name)) if type(item) in _NESTING or name in _PATH_KEYS else item
            for name, item in value.items()
        }
    if kind is list:
        return [absolute(item, base) if type(item) in _NESTING else item for item in value]
    return value


_WORDS = {
    "extra_forbidden": ("unknown key.", "Correct its spelling or remove it; {lists_keys} lists the keys."),
    "missing": ("is required and missing.", "Add it."),
}


_CREDENTIALS = re.compile(r"(?<=://)\S*@")
"""User and password of a URL: what is refused is shown, but no password."""

_ADDRESS_HINT = "Add it, or say under networks where addresses come from."


_MAPPINGS = frozenset({"model_type", "model_attributes_type", "dict_type"})
"""Kinds of pydantic's errors where a mapping is wanted: what stands in its place is not shown, it may be a secret itself instead of where it is kept."""


def shape_problem(item: Any, path: str, lists_keys: str = "`rackready schema`") -> Problem:  # noqa: ANN401 - pydantic's ErrorDetails
    """Return what pydantic found as people read it; ``lists_keys``: where they find the keys that there are."""
    if item["type"] == "missing" and item["loc"][-1] == "address":
        return Problem(path, "is required and missing.", _ADDRESS_HINT)
    words = _WORDS.get(item["type"])
    if words:
        return Problem(path, *(text.format(lists_keys=lists_keys) for text in words))
    shown, text = item.get("input"), item["msg"].removesuffix(".")
    if item["type"] in _MAPPINGS:
        return Problem(path, f"Expected: a mapping Actual: {_called(shown)}.", "Correct it.")
    actual = (
        _CREDENTIALS.sub("***@", repr(shown))
        if isinstance(shown, (str, int, float)) and not isinstance(shown, bool)
        else _called(shown)
    )
    said = isinstance(shown, dict) and item["type"] in _WHOLE
    return Problem(path, f"{text}." if said else f"{text} - Actual: {actual}.", "Correct it.")


_WHOLE = frozenset({"value_error", "union_tag_invalid"})
"""Kinds of pydantic's errors that say themselves what of a mapping is wrong."""


def _called(value: Any) -> str:  # noqa: ANN401 - what YAML holds
    """Return what people call a value of a YAML file: no type of Python, and nothing of what stands in it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    return (
        "a mapping"
        if isinstance(value, dict)
        else "a list"
        if isinstance(value, list)
        else "text"
        if isinstance(value, str)
        else "a number, day or time"
    )
