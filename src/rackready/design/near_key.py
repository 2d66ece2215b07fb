"""What the models say about a place of a document: the key that a misspelt one is most like, a secret's reference."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from rackready.model.base import Model, SecretRef

_CUTOFF = 0.75
"""Likeness by difflib's ratio: `private_kye` is 0.91 of `private_key`, `softwear` 0.75 of `software`."""


def near_key(model: type[Model], loc: Sequence[str | int]) -> str:
    """Return the key of the model at that place that is most like the last part of ``loc``, "" if none is.

    ``loc``: the place as pydantic's errors have it. The tag of a union in it is no key: it says which model it is.
    """
    found = {found.alias or name for one in _at(model, loc[:-1]) for name, found in one.model_fields.items()}
    keys = sorted(found - {str(loc[-1])})
    return next(iter(difflib.get_close_matches(str(loc[-1]), keys, 1, _CUTOFF)), "")


def wants_secret(model: type[Model], loc: Sequence[str | int]) -> bool:
    """Return whether the value at that place is the reference of a secret."""
    return SecretRef in _at(model, loc)


def _at(model: type[Model], loc: Sequence[str | int]) -> list[type[Model]]:
    """Return the models of the value at a place, or of the innermost part of it that has any."""
    models = [model]
    for part in loc:
        if isinstance(part, str) and (inner := _inside(models, part) or _tagged(models, part)):
            models = inner
    return models


def _inside(models: Sequence[type[Model]], key: str) -> list[type[Model]]:
    """Return the models of a key's value, also those of the items of a list."""
    fields = (found for one in models for name, found in one.model_fields.items() if key in {name, found.alias})
    return list(dict.fromkeys(inner for found in fields for inner in _models(found.annotation)))


def _tagged(models: Sequence[type[Model]], tag: str) -> list[type[Model]]:
    """Return the models of a union that have this tag (``kind: Literal[...]``)."""
    return [
        one for one in models if "kind" in one.model_fields and tag in get_args(one.model_fields["kind"].annotation)
    ]


def _models(annotation: Any) -> Iterator[type[Model]]:  # noqa: ANN401 - any type
    """Yield the models in an annotation: itself, or those of its arguments (a union, a list, a mapping)."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
