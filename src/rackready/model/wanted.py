"""Says what a value has to be: pydantic's errors in the words of our messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_KINDS = {
    "text": ("string_type", "string_unicode"),
    "text as a key": ("invalid_key",),
    "a path": ("path_type",),
    "a whole number": ("int_type", "int_parsing", "int_parsing_size", "int_from_float"),
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
    "ip_v4_address": "an IPv4 address such as 192.0.2.1",
    "ip_v4_network": "an IPv4 network such as 192.0.2.0/24, with no bit of a host",
    "ip_v4_interface": "an IPv4 address with its network, such as 192.0.2.1/24",
    "ip_any_address": "an IP address such as 192.0.2.1",
    "ip_any_network": "an IP network such as 192.0.2.0/24, with no bit of a host",
}
_OURS = re.compile(r"^(?:Value error|Assertion failed), ")


def wanted(item: Mapping[str, Any]) -> str:
    """Return what a value has to be, from one of pydantic's ``ErrorDetails``: "at least 5", "text".

    "" for the message of a ValueError of ours, and for errors without words here: see ``said``.
    """
    error, context = item["type"], item.get("ctx", {})
    if words := {**_OF_KIND, **_ADDRESSES}.get(error):
        return words
    try:
        if error in _BOUNDS:
            return _BOUNDS[error].format(**{key: _plain(value) for key, value in context.items()})
        if error in _LENGTHS:
            bound, key, what = _LENGTHS[error]
            return f"{bound} {context[key]} {what}{'' if context[key] == 1 else 's'}"
    except KeyError:  # an error of somebody else's, under a name of pydantic's
        return ""
    if error in _DATES:
        return f"{_DATES[error]} ({context['error']})" if "error" in context else _DATES[error]
    return ""


def said(item: Mapping[str, Any]) -> str:
    """Return the message of an error for which there are no words here, without its full stop."""
    return _OURS.sub("", str(item["msg"])).removesuffix(".")


def values(item: Mapping[str, Any]) -> dict[str, str]:
    """Return the same as fields of a Message: ``expected``, or ``actual`` for a message."""
    words = wanted(item)
    return {"expected": words} if words else {"actual": said(item)}


def _plain(value: object) -> object:
    """Return a bound as people write it: 1 for 1.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
