"""YAML as people write it, read strictly: a key given twice is an error, never the last one silently."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from rackready.model.problems import Problem, SiteInvalidError

MOST_VALUES = 5_000_000
"""Values of a document, aliases expanded: 12,500 nodes with 200 values each, all written out, are half of that. Judgement."""


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses duplicate keys."""


def _mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
        seen.add(key)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


def _read(kind: str) -> Callable[[_StrictLoader, yaml.ScalarNode], Any]:
    """Return what reads scalars of that kind; what only looks like one (the 30th of February) is an error at its place, not a ValueError without one."""
    build = yaml.SafeLoader.yaml_constructors[f"tag:yaml.org,2002:{kind}"]

    def scalar(loader: _StrictLoader, node: yaml.ScalarNode) -> Any:  # noqa: ANN401 - a number, a day or a time
        try:
            return build(loader, node)
        except (ValueError, OverflowError) as error:
            raise yaml.constructor.ConstructorError(None, None, f"no {kind}: {error}", node.start_mark) from error

    return scalar


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
for _kind in ("timestamp", "int", "float"):
    _StrictLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _read(_kind))


def read_yaml(path: Path) -> Any:  # noqa: ANN401 - what YAML holds is for the caller to check
    """Return the document of a YAML file. Raises SiteInvalidError when it is absent, unreadable or no YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SiteInvalidError(str(path), [Problem("", "no such file.", "Begin one from inventories/example/site.yml.")]) from error
    except (OSError, UnicodeDecodeError) as error:
        raise SiteInvalidError(str(path), [Problem("", f"cannot be read: {error}.", "Correct its permissions or encoding (UTF-8).")]) from error
    try:
        document = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a subclass of SafeLoader
        size = _size(document, {})
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = getattr(error, "problem", None) or str(error)
        raise SiteInvalidError(str(path), [Problem(where, f"not valid YAML: {what}.", "Correct the file.")]) from error
    except RecursionError as error:
        raise SiteInvalidError(str(path), [Problem("", "not valid YAML: nested too deep to be read.", "Correct the file.")]) from error
    if size > MOST_VALUES:
        what = f"{size:.0e} values by its aliases (&name, *name) - Expected: at most {MOST_VALUES:,}."
        raise SiteInvalidError(str(path), [Problem("", f"expands to {what}", "Write it with host lists, templates and series: docs/howto/site-file.md.")])
    return document


def read_value(text: str) -> Any:  # noqa: ANN401 - what YAML holds is for the caller to check
    """Return a value as YAML has it: `8G` is a word, `3` a number, `[a, b]` a list. Raises ValueError, with what is wrong, for no YAML."""
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a subclass of SafeLoader
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(getattr(error, "problem", None) or "nested too deep to be read") from error


def _size(value: Any, known: dict[int, int]) -> int:  # noqa: ANN401 - what YAML holds
    """Return how many values a document comes to. What aliases share is walked once and counted every time."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = 1  # a list that holds itself
        known[id(value)] = 1 + sum(_size(item, known) for item in (value.values() if isinstance(value, dict) else value))
    return known[id(value)]
