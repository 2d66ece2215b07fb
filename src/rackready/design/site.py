"""Loads the site file: overlay merged over it, shape and meaning checked, every problem reported at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rackready.design import check
from rackready.design.prune import IndexMap, data_path, prune
from rackready.design.yaml import read_yaml
from rackready.model.problems import Problem, RackreadyError, SiteInvalidError
from rackready.model.site import Site
from rackready.paths import EnvPaths, project_root

_PATH_KEYS = frozenset({"private_key", "key", "ca", "file", "path"})


def load_site(env: str, *, site_file: Path | None = None, root: Path | None = None) -> Site:
    """Return the site of an environment (``inventories/<env>/site.yml``, or ``site_file``), overlay merged.

    Raises SiteInvalidError that lists every problem with its data path.
    """
    try:
        base = root or project_root()
    except FileNotFoundError as error:
        raise RackreadyError(str(error)) from error
    paths = EnvPaths(base, env)
    source = site_file or paths.site_file
    raw = read_yaml(source)
    if site_file is None and paths.overlay.exists():
        raw = merge(raw, read_yaml(paths.overlay))
    return parse_site(raw, source=str(source), base=base)


def merge(below: Any, above: Any) -> Any:  # noqa: ANN401 - YAML documents
    """Merge an overlay over a document: mappings by key, lists of named mappings by ``name``, all else replaced."""
    if isinstance(below, dict) and isinstance(above, dict):
        return {
            key: merge(below[key], above[key]) if key in below and key in above else above.get(key, below.get(key))
            for key in (*below, *(k for k in above if k not in below))
        }
    if _named(below) and _named(above):
        over = {item["name"]: item for item in above}
        known = {item["name"] for item in below}
        return [merge(item, over[item["name"]]) if item["name"] in over else item for item in below] + [item for item in above if item["name"] not in known]
    return above


def _named(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in value)


def parse_site(raw: Any, *, source: str, base: Path) -> Site:  # noqa: ANN401
    """Return the site that a YAML document describes; relative paths in it are taken from ``base``.

    Shape is checked by the models. What offends is pruned, and meaning is checked on the rest, so that a misspelt key
    does not hide a duplicate address elsewhere.
    """
    if not isinstance(raw, dict):
        raise SiteInvalidError(source, [Problem("", "Expected: a mapping Actual: something else.", "Begin one from inventories/example/site.yml.")])
    document = _absolute(raw, base)
    problems: list[Problem] = []
    index_map: IndexMap = {}
    site: Site | None = None
    taken_out: set[str] = set()
    for _ in range(50):
        try:
            site = Site.model_validate(document)
            break
        except ValidationError as error:
            errors = error.errors()
            problems += [_shape_problem(item, index_map) for item in errors if data_path(item["loc"], index_map) not in taken_out]
            taken_out |= {data_path(item["loc"], index_map) for item in errors}
            pruned = prune(document, [item["loc"] for item in errors], [item["type"] for item in errors], index_map)
            if pruned is None:
                break
            document, index_map = pruned
    if site is not None:
        problems += [Problem(data_path(found.loc, index_map), found.message, found.hint) for found in check.check(site, pruned=bool(problems))]
    if problems or site is None:
        raise SiteInvalidError(source, problems)
    return site


def _absolute(value: Any, base: Path, key: str = "") -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {name: _absolute(item, base, str(name)) for name, item in value.items()}
    if isinstance(value, list):
        return [_absolute(item, base) for item in value]
    if isinstance(value, str) and key in _PATH_KEYS and not value.startswith("/"):
        return str(base / value)
    return value


_WORDS = {
    "extra_forbidden": ("unknown key.", "Correct its spelling or remove it; `rackready schema` lists the keys."),
    "missing": ("is required and missing.", "Add it."),
}


def _shape_problem(item: Any, index_map: IndexMap) -> Problem:  # noqa: ANN401 - pydantic's ErrorDetails
    words = _WORDS.get(item["type"])
    if words:
        return Problem(data_path(item["loc"], index_map), *words)
    shown = item.get("input")
    actual = repr(shown) if isinstance(shown, (str, int, float, bool)) or shown is None else type(shown).__name__
    return Problem(data_path(item["loc"], index_map), f"{item['msg'].removesuffix('.')} - Actual: {actual}.", "Correct it.")
