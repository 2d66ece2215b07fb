"""Says what a value has to be: pydantic's errors in the words of our messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_KINDS = {
    "text": ("string_type", "string_unicode"),
    "a whole number": ("int_type", "int_parsing", "int_from_float"),
    "a number": ("float_type", "float_parsing"),
    "a finite number": ("finite_number",),
    "true or false": ("bool_type", "bool_parsing"),
    "a list": ("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"),
    "a mapping": ("dict_type", "mapping_type", "model_type", "model_attributes_type"),
    "a value": ("missing",),
    "no key of that name": ("extra_forbidden",),
}
_OF_KIND = {error: words for words, errors in _KINDS.items() for error in errors}

_BOUNDS = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "string_pattern_mismatch": "text that matches {pattern}",
    "literal_error": "{expected}",
    "enum": "{expected}",
}
_LENGTHS = {
    "too_short": ("at least", "min_length", "item"),
    "too_long": ("at most", "max_length", "item"),
    "string_too_short": ("at least", "min_length", "character"),
    "string_too_long": ("at most", "max_length", "character"),
}
_DAY, _TIME = "a day such as 2026-01-31", "a time such as 2026-01-31T12:00:00Z"
_DATES = dict.fromkeys(("date_type", "date_parsing", "date_from_datetime_parsing"), _DAY)
_DATES |= dict.fromkeys(("datetime_type", "datetime_parsing", "datetime_from_date_parsing"), _TIME)
_DATES |= {"date_from_datetime_inexact": "a day without a time", "timezone_aware": "a time with its zone, such as Z"}

_ADDRESSES = {
    "address": "such as 192.0.2.1",
    "network": "such as 192.0.2.0/24, with no bit of a host",
    "interface": "such as 192.0.2.1/24",
}
_FAMILIES = {"v4": "IPv4 ", "v6": "IPv6 ", "any": "IP "}
_OURS = frozenset({"value_error", "assertion_error"})

_PREFIX = re.compile(r"^(?:(?:Input|String|List) should (?:be )?|Value error, )")


def wanted(item: Mapping[str, Any]) -> str:
    """Return what a value has to be, from one of pydantic's ``ErrorDetails``: "at least 5", "text".

    The message of a ValueError of ours is returned as it is, without a full stop. So are pydantic's words where it
    checks something that no model of ours uses today.
    """
    error, context = item["type"], item.get("ctx", {})
    if error in _OF_KIND:
        return _OF_KIND[error]
    if error in _BOUNDS:
        return _BOUNDS[error].format(**{key: _plain(value) for key, value in context.items()})
    if error in _LENGTHS:
        bound, key, what = _LENGTHS[error]
        return f"{bound} {context[key]} {what}{'' if context[key] == 1 else 's'}"
    if error in _DATES:
        return f"{_DATES[error]} ({context['error']})" if "error" in context else _DATES[error]
    if error.startswith("ip_"):
        _, family, kind = error.split("_")
        return f"an {_FAMILIES[family]}{kind} {_ADDRESSES[kind]}"
    return _PREFIX.sub("", str(item["msg"])).removesuffix(".")


def values(item: Mapping[str, Any]) -> dict[str, str]:
    """Return the same as fields of a Message: ``expected``, or ``actual`` for the message of a ValueError of ours."""
    return {"actual" if item["type"] in _OURS else "expected": wanted(item)}


def _plain(value: object) -> object:
    """Return a bound as people write it: 1 for 1.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
