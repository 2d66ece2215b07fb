"""The places of secrets that a site names: each value of a model, and which places are the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rackready.model.base import Model, SecretRef


def fields(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - any part of a model
    """Yield each value in a model, with the name of its field; a secret's place as a whole."""
    yield name, value
    if isinstance(value, Model) and not isinstance(value, SecretRef):
        for key in type(value).model_fields:
            yield from fields(getattr(value, key), key)
    elif isinstance(value, list):
        for item in value:
            yield from fields(item, name)


def place_of(ref: SecretRef) -> object:
    """Return the place of a secret, equal however its path is written."""
    if ref.file is not None:
        return ref.file.resolve()
    if ref.encrypted is None:
        return str(ref)
    file, keys = ref.encrypted
    return (file.resolve(), *keys)


def uses(site: Model) -> dict[object, int]:
    """Return how often a site names each place."""
    found: dict[object, int] = {}
    for _, value in fields(site):
        if isinstance(value, SecretRef):
            found[place_of(value)] = found.get(place_of(value), 0) + 1
    return found
