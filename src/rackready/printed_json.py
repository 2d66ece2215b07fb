"""Reader of JSON that tools print, with one set of messages about damage."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from rackready.format_error import TWICE, FormatError

_XML = re.compile(r"<(?:[?!][^>]*>\s*<)*(?P<root>[A-Za-z_][\w.-]*)?")
_MORE = "Extra data"
"""Message of Python's decoder if something follows a document."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def load(text: str, *, after_words: bool = False) -> Any:  # noqa: ANN401 - JSON
    """Return the document that a tool printed.

    Raise FormatError: empty, not JSON, two documents, cut off, damaged, nested too deeply, NaN, Infinity, half a
    character, a duplicate key.

    Python would accept NaN and Infinity as numbers, and 1e999 as Infinity; no bound can judge these. Of a duplicate key
    it would keep only the second value, although either may be right (RFC 8259, 4: unpredictable). fio repeats options
    that it was given several times under "job options" (axboe/fio issue 1571); no command line of a gate does that.

    Half of a surrogate pair (RFC 8259, 8.2: unpredictable) is not a character, and text with one cannot be stored.

    ``after_words``: a tool may print text before its document (warnings); text without a document is its refusal.
    """
    if not text.strip():
        raise FormatError("empty output")
    start = text.find("{") if after_words else 0
    if start < 0:
        raise FormatError(_xml(text) or " ".join(text.split())[:160])
    try:
        document = json.loads(
            text[start:], parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_unique_keys
        )
    except json.JSONDecodeError as error:
        raise FormatError(_damage(text[start:], error)) from error
    except FormatError:
        raise
    except ValueError as error:
        raise FormatError("JSON with a number of more digits than Python reads") from error
    except RecursionError as error:
        raise FormatError("JSON nested without end") from error
    if _SURROGATE.search(text):
        _whole_characters(document)
    return document


def _damage(text: str, error: json.JSONDecodeError) -> str:
    """Return a description of what was printed instead of one document."""
    begin = text.lstrip()
    if xml := _xml(text):
        return xml
    if begin[:1].isalpha():
        return f"no JSON, but {begin.splitlines()[0].strip()[:80]!r}"
    if error.msg == _MORE and text[error.pos] in "{[":
        return f"two JSON documents, the second at line {error.lineno}: {TWICE}"
    return f"JSON cut off or damaged at line {error.lineno} column {error.colno}"


def _xml(text: str) -> str:
    """Return a description of an XML document that was given instead of JSON; empty for anything else."""
    found = _XML.match(text.lstrip())
    return f"XML ({found['root'] or 'without a root element'}), not JSON" if found else ""


def _whole_characters(document: Any) -> None:  # noqa: ANN401 - JSON
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise FormatError(
            f"half a character (\\u{ord(error.object[error.start]):04x} alone) in a JSON string"
        ) from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise FormatError(f"key {twice[:80]!r} twice in one JSON object")
    return found


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        _no_number(digits)
    return value


def _no_number(word: str) -> float:
    raise FormatError(f"{word} where JSON has a number")
