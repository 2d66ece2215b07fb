"""Finds true and false in place of a number: Python counts them as 1 and 0, and number fields would accept them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel

from rackready.design.origin import Loc
from rackready.model.problems import Problem
from rackready.model.site import Site
from rackready.model.wanted import path_text


def truth_problems(document: Any) -> list[Problem]:  # noqa: ANN401 - a YAML document as it is written
    """Return one problem for each number field that has true or false."""
    return list(_walk(document, ()))


def _walk(value: Any, loc: Loc) -> Iterator[Problem]:  # noqa: ANN401 - a YAML document
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, (*loc, str(key)))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _walk(item, (*loc, place))
    elif isinstance(value, bool) and _FREE.isdisjoint(loc) and any(step in _numbers() for step in loc[-2:]):
        text = str(value).lower()
        yield Problem.of(path_text(loc), "", "Write the number.", expected="a number", actual=text)


_FREE = frozenset({"inputs", "baselines"})
"""Keys below which names and values are those of gates and of firmware."""


@cache
def _numbers() -> frozenset[str]:
    """Return the keys of the site model that are always numbers, and those of a series."""
    kinds: dict[str, set[bool]] = {}
    _keys(Site, kinds, set())
    return frozenset(
        {key for key, numbers in kinds.items() if numbers == {True}}
        | {"first", "offset", "step", "every", "cycle", "start"}
    )


def _keys(model: type[BaseModel], kinds: dict[str, set[bool]], seen: set[type]) -> None:
    if model in seen:
        return
    seen.add(model)
    for name, info in model.model_fields.items():
        leaves = set(_leaves(info.annotation))
        kinds.setdefault(info.alias or name, set()).add(bool(leaves & {int, float}) and bool not in leaves)
        for leaf in leaves:
            if isinstance(leaf, type) and issubclass(leaf, BaseModel):
                _keys(leaf, kinds, seen)


def _leaves(annotation: Any) -> Iterator[Any]:  # noqa: ANN401 - a type
    """Yield the plain types of an annotation, except those of mappings, whose keys are names."""
    inner = get_args(annotation)
    if not inner:
        yield annotation
    for kind in inner:
        yield from _leaves(kind)
