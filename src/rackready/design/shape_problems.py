"""Converts pydantic's errors on the shape of a document to problems."""

from __future__ import annotations

from datetime import date
from typing import Any

from rackready.model.problems import Problem
from rackready.model.wanted import given, kind_of_value, said, tag_of, wanted

_MISSING = "is required and missing."

_ADDRESS_HINT = "Add it, or define under networks where addresses come from."


_MAPPINGS = frozenset({"model_type", "model_attributes_type", "dict_type"})
"""Pydantic's errors for a value that is not a mapping.

The value is not shown: it may be a secret written in the place of its reference.
"""


_REFERENCE = "Write its place, never the secret itself: {file: FILE}, {env: VARIABLE}, or one of docs/howto/secrets.md."


def shape_problem(
    item: Any,  # noqa: ANN401 - pydantic's ErrorDetails
    path: str,
    lists_keys: str = "`rackready schema`",
    near: str = "",
    *,
    secret: bool = False,
) -> Problem:
    """Return pydantic's error as a problem.

    ``lists_keys``: the command or page that lists the valid keys; ``near``: the key that an unknown one is most like;
    ``secret``: the value has to be a secret's reference.
    """
    if item["type"] == "extra_forbidden":
        step = f"Did you mean `{near}`? " if near else "Correct its spelling or remove it; "
        return Problem(path, "unknown key.", f"{step}{lists_keys} lists the keys.")
    if item["type"] == "missing":
        return Problem(path, _MISSING, _ADDRESS_HINT if item["loc"][-1] == "address" else "Add it.")
    if item["type"] in _TAGS:
        return _of_tag(item, path)
    if item["type"] in _MAPPINGS:
        return no_mapping(path, kind_of_value(item.get("input")), _REFERENCE if secret else "Correct it.")
    return _of_value(item, path)


def _of_value(item: Any, path: str) -> Problem:  # noqa: ANN401 - pydantic's ErrorDetails
    shown = item.get("input")
    actual = given(item)
    if words := wanted(item):
        quotes = item["type"] == "string_type" and isinstance(shown, _QUOTED)
        return Problem.of(path, "", _QUOTES if quotes else "Correct it.", expected=words, actual=actual)
    text = said(item)
    if "Expected: " not in text and not isinstance(shown, dict):
        return Problem.of(path, text, "Correct it.", expected="", actual=actual)
    whole = (isinstance(shown, dict) and item["type"] in _WHOLE) or " Actual: " in text
    mark = " Actual" if "Expected: " in text else " - Actual"
    return Problem(path, f"{text}." if whole else f"{text}{mark}: {actual}.", "Correct it.")


def _of_tag(item: Any, path: str) -> Problem:  # noqa: ANN401 - pydantic's ErrorDetails
    """Return the problem of the key that says what a mapping is, such as ``kind``: a wrong one, or none."""
    where = ".".join(filter(None, [path, tag_of(item)]))
    if item["type"] == "union_tag_not_found":
        return Problem(where, _MISSING, "Add it.")
    return Problem.of(where, "", "Correct it.", expected=wanted(item), actual=item["ctx"]["tag"])


def no_mapping(path: str, actual: str, hint: str) -> Problem:
    """Return the problem of a value that is not a mapping."""
    return Problem.of(path, "", hint, expected="a mapping", actual=actual)


def no_document(document: object, hint: str) -> Problem:
    """Return the problem of a file whose document is not a mapping."""
    return no_mapping("", "an empty file" if document is None else kind_of_value(document), hint)


_QUOTED, _QUOTES = (int, float, date), "Put it in quotes, so that YAML reads it as text."
_WHOLE = frozenset({"value_error", "assertion_error"})
"""Pydantic's errors whose message is one of ours, and already describes a mapping."""
_TAGS = frozenset({"union_tag_invalid", "union_tag_not_found"})
