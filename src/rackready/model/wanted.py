"""Says what a value has to be: pydantic's errors in the words of our messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, time
from typing import Any, NamedTuple

from rackready.model.problems import Message, quoted

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
    "a value": ("missing", "union_tag_not_found"),
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
    "union_tag_invalid": "one of {expected_tags}",
}
_LIMITS = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})
"""Bounds of numbers: "not more than 0" reads as one of the other side."""
_LENGTHS = {
    "too_short": ("at least", "min_length", "item"),
    "too_long": ("at most", "max_length", "item"),
    "string_too_short": ("at least", "min_length", "character"),
    "string_too_long": ("at most", "max_length", "character"),
}
_DAY, _TIME = "a day such as 2026-01-31", "a time such as 2026-01-31T12:00:00Z"
_DETAILED = {"json_invalid": "JSON"} | dict.fromkeys(("date_type", "date_parsing", "date_from_datetime_parsing"), _DAY)
_DETAILED |= dict.fromkeys(("datetime_type", "datetime_parsing", "datetime_from_date_parsing"), _TIME)
_DETAILED |= {"date_from_datetime_inexact": "a day without a time", "timezone_aware": "a time with its zone, such as Z"}

_ADDRESSES = {
    "ip_v4_address": "an IPv4 address such as 192.0.2.1",
    "ip_v4_network": "an IPv4 network such as 192.0.2.0/24, with no bit of a host",
    "ip_v4_interface": "an IPv4 address with its network, such as 192.0.2.1/24",
    "ip_any_address": "an IP address such as 192.0.2.1",
    "ip_any_network": "an IP network such as 192.0.2.0/24, with no bit of a host",
}
_FAULTS = {"missing": "missing", "union_tag_not_found": "missing", "extra_forbidden": "unknown key"}
_MISSING = frozenset({"missing", "union_tag_not_found"})
_TAGS = frozenset({"union_tag_invalid", "union_tag_not_found"})
_COUNTED = frozenset({"too_short", "too_long"})
"""Errors about the number of items."""
_LISTS = (list, tuple, set, frozenset)
"""Types of a list: models turn it into others before they refuse it."""
_KINDS_OF_VALUE: tuple[tuple[tuple[type, ...], str], ...] = (
    ((dict,), "a mapping"),
    (_LISTS, "a list"),
    ((str,), "text"),
    ((int, float, date, time), "a number, day or time"),
)
_DIGEST = re.compile(r"@sha\d+:[^@]*$")
"""Digest at the end of an image's name."""
_BRANCH = re.compile(
    r"(?:literal|list|tuple|set|frozenset|dict|nullable|constrained-\w+|function-[\w-]+)\[.*\]", re.DOTALL
)
"""Step of a path that names a branch of a union, and no key: "list[str]"."""
_BRANCHES = {"float": "float_", "int": "int_", "str": "string_", "bool": "bool_", "none": "none_required"}
"""The same without brackets -> how the type of its errors starts."""
_SHOWN = 120
"""Most characters of a refused value that are shown."""
_OURS = re.compile(r"^(?:Value error|Assertion failed), ")
_PARTS = re.compile(
    r"(?:(?P<what>.*?)(?: - |: ))?Expected: (?P<expected>.*?)(?: Actual: (?P<actual>.*))?",
    re.DOTALL,
)
"""Parts of a validator's message in the form of ours."""


def wanted(item: Mapping[str, Any]) -> str:
    """Return what a value has to be, from one of pydantic's ``ErrorDetails``: "at least 5", "text".

    "" for the message of a ValueError of ours, and for errors without words here: see ``said``.
    """
    error, context = item["type"], item.get("ctx", {})
    if words := {**_OF_KIND, **_ADDRESSES}.get(error):
        return words
    try:
        if error in _BOUNDS:
            words = _BOUNDS[error].format(**{key: _plain(value) for key, value in context.items()})
            return words.replace("'", "") if error in _TAGS else words
        if error in _LENGTHS:
            bound, key, what = _LENGTHS[error]
            return f"{bound} {context[key]} {what}{'' if context[key] == 1 else 's'}"
    except KeyError:  # an error of somebody else's, under a name of pydantic's
        return ""
    if error in _DETAILED:
        return f"{_DETAILED[error]} ({context['error']})" if "error" in context else _DETAILED[error]
    return ""


def said(item: Mapping[str, Any]) -> str:
    """Return the message of an error for which there are no words here, without its full stop."""
    return _OURS.sub("", str(item["msg"])).removesuffix(".") or "not accepted"


class Told(NamedTuple):
    """An error as fields of a Message; ``what`` and ``actual`` are from the message of a validator of ours."""

    what: str
    expected: str
    actual: str

    def at(self, path: str) -> str:
        """Return the place of the value and ``what``, for a Message."""
        return ": ".join(filter(None, [path, self.what]))


def told(item: Mapping[str, Any]) -> Told:
    """Return ``wanted``, or the parts of ``said``: "psus - Expected: 2 Actual: 1".

    A message without an Expected says itself what the value has to be.
    """
    return _parts(item) or Told("", said(item), "")


def _parts(item: Mapping[str, Any]) -> Told | None:
    """Return the parts of an error; None for a message without an Expected."""
    if words := wanted(item):
        return Told("", words, "")
    found = _PARTS.fullmatch(said(item))
    return Told(found["what"] or "", found["expected"], found["actual"] or "") if found else None


def values(item: Mapping[str, Any]) -> dict[str, str]:
    """Return the same as fields of a Message: ``expected``, or ``actual`` for a message about more than the value."""
    words = _parts(item)
    if words is None or words.what:
        return {"actual": quoted(said(item))}
    return {"expected": words.expected} | ({"actual": words.actual} if words.actual else {})


def refusals(items: Iterable[Mapping[str, Any]], where: str, expected: str, next_step: str) -> Iterator[Message]:
    """Yield a message for each wrong value of a file.

    ``items``: pydantic's ``ErrorDetails``; ``expected``: what the file holds, for an error about more than one value.
    """
    for item in items:
        fields = {"expected": expected, "actual": given(item)} | values(item)
        yield Message(where, path_text(steps(item)), **fields, next_step=next_step)


def fault(item: Mapping[str, Any]) -> str:
    """Return the place of a value and what is wrong with it: "gpus[3].index: not a whole number".

    The value is not shown, as it may be a secret: only the message of a validator of ours, where there is one, can name
    it. A validator of a secret must not.
    """
    text = _FAULTS.get(item["type"]) or _wrong(item)
    place = path_text(steps(item))
    return f"{place}: {text}" if place else text


def _wrong(item: Mapping[str, Any]) -> str:
    """Return what is wrong with a value: "not text", or the message of a validator as another message quotes it."""
    words = _parts(item)
    if words is None or words.what or words.actual:
        return quoted(said(item))
    return f"{'has to be' if item['type'] in _LIMITS else 'not'} {words.expected}"


def given(item: Mapping[str, Any]) -> str:
    """Return the refused value as an Actual: text or a number as it is, another value by its kind.

    Of too many or too few items, it is their number. A URL has no user and no password. A long value is cut.
    """
    value = item.get("input")
    if item["type"] in _MISSING:
        return "none"
    if item["type"] == "union_tag_invalid":
        value = item["ctx"]["tag"]
    if item["type"] in _COUNTED and isinstance(value, (dict, *_LISTS)):
        return str(len(value) or "none")
    plain = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    if plain and item["type"] not in _KINDS["a mapping"]:  # the text may be a secret in the place of its reference
        text = repr(_without_credentials(value) if isinstance(value, str) else value)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
    return kind_of_value(value)


def _without_credentials(text: str) -> str:
    """Return a text without what may be the user and the password of a URL, also of one without ``//``."""
    digest = _DIGEST.search(text)
    rest = text[: digest.start()] if digest else text
    head, at, tail = rest.rpartition("@")
    if not at or ":" not in head:
        return text
    scheme, slashes, _ = head.partition("://")
    return f"{scheme if slashes else ''}{slashes}***@{tail}{text[len(rest) :]}"


def kind_of_value(value: Any) -> str:  # noqa: ANN401 - what YAML holds
    """Return the kind of a YAML value in words, without Python types and without its content."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    return next((words for kinds, words in _KINDS_OF_VALUE if isinstance(value, kinds)), "another value")


def tag_of(item: Mapping[str, Any]) -> str:
    """Return the key that says what a mapping is, such as ``kind``, where the error is about it; else ""."""
    key = str(item["ctx"]["discriminator"]).strip("'") if item["type"] in _TAGS else ""
    return "" if key.endswith("()") else key  # a function tells, and no key


def steps(item: Mapping[str, Any]) -> list[str | int]:
    """Return the place of an error in the document: without branches of unions, with the key of ``tag_of``."""
    found = [step for step in item["loc"] if isinstance(step, int) or not _BRANCH.fullmatch(step)]
    if len(found) > 1 and item["type"].startswith(_BRANCHES.get(str(found[-1]), ("?",))):
        found.pop()
    return [*found, *filter(None, [tag_of(item)])]


def path_text(steps: Sequence[str | int]) -> str:
    """Return a path as text: ``racks[2].nodes[7].bmc.address``."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text and not step.startswith("[") else step
    return text


def _plain(value: object) -> object:
    """Return a bound as people write it: 1 for 1.0, and true for the only value of a flag."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return str(value).lower() if value in ("True", "False") else value
