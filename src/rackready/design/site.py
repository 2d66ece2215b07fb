"""Loads the site file: merges overlays, checks shape and meaning, and reports every problem at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rackready.design import check, node_sets
from rackready.design.assign import assign
from rackready.design.bmc_pins import pins, with_pins
from rackready.design.collector import without_gc
from rackready.design.expand import RACK_LISTS, Expanded, expand
from rackready.design.near_key import near_key, wants_secret
from rackready.design.no_site_file import require_site_file
from rackready.design.origin import Loc
from rackready.design.overlays import Layers, Overlay, read_overlay
from rackready.design.own_profiles import Own, read_own
from rackready.design.prune import Pruned, explicit, prune
from rackready.design.shape_problems import no_document, shape_problem
from rackready.design.site_flaws import Flaw, Lost, lost_between
from rackready.design.site_inputs import FOLDER, digest_of, overlay_files, profile_files
from rackready.design.state_owner import require_own
from rackready.design.truth_values import truth_problems
from rackready.design.yaml import read_judged
from rackready.model.problems import Problem, RackreadyError, SiteInvalidError
from rackready.model.site import Site
from rackready.model.wanted import path_text, tag_of
from rackready.paths import EnvPaths, placed, project_root
from rackready.profiles import scope

_PATH_KEYS = {"private_key", "key", "ca", "certificate", "file", "path", "kubeconfig", "sops", "vault", "raw_outputs"}

_NESTING = frozenset({dict, list})
_loaded: OrderedDict[tuple[str, ...], Site] = OrderedDict()
_KEPT = 4
_NO_PROFILES = Own()


def load_site(env: str, *, site_file: Path | None = None, root: Path | None = None, written: bool = False) -> Site:
    """Return the site of an environment: expanded, with manifest and overlay merged.

    Reads ``inventories/<env>/site.yml``, or ``site_file``. Nodes that an upgrade moved have their own version set
    (``node_sets``), with ``written`` the file's. The site's own profiles (``profiles/`` beside it) are used from now on
    wherever a profile is loaded.

    Unchanged files are not parsed again within one process. Raises SiteInvalidError that lists every problem with its
    data path; RackreadyError if the state is another site's.
    """
    try:
        base = root or project_root()
    except FileNotFoundError as error:
        raise RackreadyError(error) from error
    paths = EnvPaths(base, env)
    source = site_file or paths.site_file
    if site_file is None:
        require_site_file(paths)
    over = [] if site_file is not None else overlay_files(paths)
    folder = source.parent / FOLDER
    # the pins are this environment's own: another file with --site has none
    pinned = pins(paths.bmc_pins) if site_file is None else {}
    moved = node_sets.read(paths.node_sets) if site_file is None and not written else {}
    read = (source, *over, *profile_files(folder), *([paths.bmc_pins] if pinned else []))
    read += (paths.node_sets,) if moved else ()
    key = (str(base), *(f"{path}:{digest_of(path)}" for path in read))
    if key not in _loaded:
        document, problems = read_judged(source)
        site = parse_site(
            document,
            source=str(source),
            base=base,
            overlays=[read_overlay(path, base) for path in over],
            problems=problems,
            own=read_own(folder, base),
            pinned=pinned,
        )
        _loaded[key] = node_sets.with_sets(site, moved) if moved else site
        while len(_loaded) > _KEPT:
            _loaded.popitem(last=False)
    if site_file is None:
        require_own(paths, _loaded[key].name)
    scope.use(_loaded[key].own_profiles)
    return _loaded[key]


def forget_sites() -> None:
    """Forget loaded sites: for tests that change inputs other than the site file."""
    _loaded.clear()


def parse_site(  # noqa: PLR0913 - what a site is made of
    raw: Any,  # noqa: ANN401
    *,
    source: str,
    base: Path,
    overlays: Sequence[Overlay] = (),
    problems: Sequence[Problem] = (),
    own: Own = _NO_PROFILES,
    pinned: dict[str, str] | None = None,
) -> Site:
    """Return the site that a YAML document describes, compact or explicit.

    Relative paths in it are taken from ``base``.

    The document is expanded, overlays are merged over it, and missing addresses are derived. Shape is checked by the
    models. Invalid parts are pruned and meaning is checked on the rest, so that a misspelt key does not hide a
    duplicate address elsewhere. ``problems``: problems of the document that are already known. ``own``: the site's own
    profiles, which are used from now on. ``pinned``: node -> certificate that `bmc trust` pinned.
    """
    scope.use(own.profiles)
    if not isinstance(raw, dict):
        raise SiteInvalidError(
            source,
            [
                *problems,
                *own.problems,
                no_document(raw, "Start one from inventories/example/site.yml."),
            ],
            unread=True,
        )
    with without_gc():
        expanded = expand(raw)
        document, layers = expanded.document, Layers(overlays)
        for overlay in overlays:
            document = layers.merge(document, overlay)
        document = with_pins(absolute(document, base), pinned or {})
        checked = _Checked(
            document, expanded, [*problems, *own.problems, *truth_problems(raw), *layers.problems], layers
        )
        site = checked.site()
        if site is None or checked.problems:
            found = [problem for problem in checked.problems if not own.follows(problem)]
            raise SiteInvalidError(source, gathered(found), site if checked.whole and not own.problems else None)
    return site.with_own_profiles(own.profiles) if own.profiles else site


def _of_site(item: Any, path: str) -> Problem:  # noqa: ANN401 - pydantic's ErrorDetails
    near = near_key(Site, item["loc"]) if item["type"] == "extra_forbidden" else ""
    return shape_problem(item, path, near=near, secret=wants_secret(Site, item["loc"]))


class _Checked:
    """One document on its way to a site, with all problems found in it."""

    def __init__(self, document: dict[str, Any], expanded: Expanded, problems: list[Problem], layers: Layers) -> None:
        self.document, self.expanded, self.layers = document, expanded, layers
        self.before = document
        self.problems = [*problems, *expanded.problems]
        self.reported = {problem.path for problem in problems}
        """Places with a reported problem; problems that follow from it are left out."""
        self.pruned = Pruned()
        self.without_address: set[Loc] = set()
        self.whole = False
        """No part on which fabric, loads and cables depend was removed, except single keys."""

    def where(self, loc: Sequence[str | int]) -> str:
        """Return a place of the pruned document as a path in the file."""
        return path_text(self.expanded.origins.written(explicit(loc, self.pruned.index_map)))

    def site(self) -> Site | None:
        """Return the site without invalid parts; None if one of them is indispensable."""
        self._assign()
        site = self._check_shape()
        if site is not None:
            self._check_meaning(site)
        return site

    def _assign(self) -> None:
        unassigned = assign(self.document)
        self.without_address |= {found.loc for found in unassigned}
        self._report(unassigned)

    def _report(self, found: Iterable[Flaw]) -> None:
        for item in found:
            place, *reads = (explicit(loc, self.pruned.index_map) for loc in (item.loc, *item.reads))
            if not self.pruned.doubtful(place, reads):
                where, name = self.where(item.loc), self._item(place)
                problem = Problem(
                    where, item.message, item.hint, item.about, name, item.sort, item.profile, item.values
                )
                self.problems.append(replace(problem, overlay=self.layers.place(place)))

    def _check_shape(self) -> Site | None:
        """Check the shape repeatedly, each time without the parts that were invalid the time before."""
        for _ in range(_ROUNDS):
            try:
                return Site.model_validate(self.document)
            except ValidationError as error:
                errors = error.errors(include_url=False)
            in_networks = [item for item in errors if item["loc"][:1] == ("networks",)]
            for item in in_networks or errors:
                self._report_shape(item)
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
                self._assign()  # addresses that derive from the rest of the networks
        return None

    def _report_shape(self, item: Any) -> None:  # noqa: ANN401 - pydantic's ErrorDetails
        path = self.where(item["loc"])
        place = explicit(item["loc"], self.pruned.index_map)
        tag = tag_of(item)
        overlay = self.layers.place((*place, tag) if tag else place)
        known = (
            (overlay or path) in self.reported
            or self.pruned.doubtful(place)
            or self._follows(item, place)
            or self._is_emptied(item)
        )
        if not known:
            sort = f"shape {item['type']}"
            self.problems.append(replace(_of_site(item, path), item=self._item(place), sort=sort, overlay=overlay))
        self.reported.add(overlay or path)

    def _item(self, place: Loc) -> str:
        """Return the name of the innermost item of a list at a place; "" if it has none."""
        here: Any = self.before
        name = ""
        for step in place:
            try:
                here = here[step]
            except (KeyError, IndexError, TypeError):
                break
            if isinstance(step, int):
                given = here.get("name") if isinstance(here, dict) else None
                name = given if isinstance(given, str) else ""
        return name

    def _follows(self, item: Any, place: Loc) -> bool:  # noqa: ANN401 - pydantic's ErrorDetails
        """Return whether a problem only follows from another one.

        An address may be missing because its source is wrong; keys may not go together because one was removed.
        """
        if item["type"] == "value_error" and any(key[:-1] == place for key in self.pruned.keys):
            return True
        if item["type"] != "missing" or item["loc"][-1] != "address":
            return False
        networks = any(key[:1] == ("networks",) for key in self.pruned.keys) or (
            self.before.get("networks") is not None and not self.document.get("networks")
        )
        return networks or any(place[: len(loc)] == loc for loc in self.without_address)

    def _is_emptied(self, item: Any) -> bool:  # noqa: ANN401 - pydantic's ErrorDetails
        """Return whether a list is too short only because all its items were removed."""
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

    def _check_meaning(self, site: Site) -> None:
        inside = RACK_LISTS if "racks" in self.pruned.sections else frozenset[str]()
        lost = lost_between(self.before, self.document, self.expanded.skipped | inside) if self.problems else Lost()
        gone = (
            {family for family, names in lost.names.items() if names}
            | lost.nameless
            | self.pruned.sections
            | (self.before.keys() - self.document.keys())
        )
        self.whole = gone <= _BESIDE
        self._report(check.check(site, lost))


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
"""Sections and lists that affect only the words of a plan."""

_ROUNDS = 50
"""Most rounds of pruning; invalid parts are nested less deep."""


_SHOWN = 3


def gathered(problems: list[Problem]) -> list[Problem]:
    """Return problems with those of one line of the file combined.

    A template of 12,500 nodes is corrected in one place.
    """
    by_line: dict[tuple[str, str], list[Problem]] = {}
    for problem in dict.fromkeys(problems):
        by_line.setdefault((problem.place, problem.sort), []).append(problem)
    out = []
    for same in by_line.values():
        out += same[:_SHOWN]
        if len(same) > _SHOWN:
            last = out.pop()
            out.append(replace(last, message=f"{last.message} (and {len(same) - _SHOWN} more like this)"))
    return out


def absolute(value: Any, base: Path, key: str = "") -> Any:  # noqa: ANN401
    """Return a YAML document with paths made absolute: from ``base``, or from the folder of state."""
    kind = type(value)
    if kind is str:
        return str(placed(base, value)) if key in _PATH_KEYS else value
    if kind is dict:
        # Plain values are most of 12,500 nodes: skip those that cannot hold or be a path.
        return {
            name: absolute(item, base, str(name)) if type(item) in _NESTING or name in _PATH_KEYS else item
            for name, item in value.items()
        }
    if kind is list:
        return [absolute(item, base) if type(item) in _NESTING else item for item in value]
    return value
