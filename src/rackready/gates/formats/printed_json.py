"""JSON as tools print it: the one place that says how it is damaged."""

from __future__ import annotations

import json
import math
from typing import Any

from rackready.gates.formats.error import FormatError


def load(text: str, *, after_words: bool = False) -> Any:  # noqa: ANN401 - JSON
    """Return the document that a tool printed. Raises FormatError: empty, cut off, damaged, nested beyond any tool's, or with NaN or Infinity.

    Python would take those two words for numbers, and 1e999 for the second; a bound that is held against them says nothing.

    ``after_words``: a tool may print words before its document (warnings); words without a document are its refusal, and the reason.
    """
    if not text.strip():
        raise FormatError("empty output")
    start = text.find("{") if after_words else 0
    if start < 0:
        raise FormatError(" ".join(text.split())[:160])
    try:
        return json.loads(text[start:], parse_constant=_no_number, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise FormatError(f"JSON cut off or damaged at line {error.lineno} column {error.colno}") from error
    except RecursionError as error:
        raise FormatError("JSON nested without end") from error


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        _no_number(digits)
    return value


def _no_number(word: str) -> float:
    raise FormatError(f"{word} where JSON has a number")
