"""Answer of a program of ours on another machine: one JSON document with its format and a mark of completeness."""

from __future__ import annotations

from typing import Any

from rackready import printed_json
from rackready.drivers.remote import Answer
from rackready.format_error import FormatError


def document(answer: Answer, wanted: str) -> tuple[dict[str, Any], str]:
    """Return the document of that format and "", or an empty one and why there is none."""
    if answer.failure or answer.timed_out:
        return {}, answer.failure or f"no answer within {answer.seconds:.0f} s"
    if answer.exit_code != 0:
        return {}, f"exit code {answer.exit_code}: {answer.stderr.strip()[-300:]}"
    try:
        found = printed_json.load(answer.stdout)
    except FormatError as error:
        return {}, str(error)
    if isinstance(found, dict) and found.get("format") == wanted and found.get("complete") is True:
        return found, ""
    return {}, "an incomplete answer"
