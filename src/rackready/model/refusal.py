"""A refusal as plain data: what `--output json` prints instead of a result."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field

from rackready.model.base import Model
from rackready.model.problems import Problem, RackreadyError, SiteInvalidError

_EXPECTED, _ACTUAL = "Expected: ", " Actual: "
_NEXT = re.compile(r"\.\s+(?=[A-Z`])")
"""End of the sentence before the next step, which begins with a capital letter or with a command."""


class Part(Model):
    """One problem, split into its fields. A field that the message lacks is null."""

    where: str | None = Field(description="File, option, node or data path.")
    what: str | None = Field(description="What is wrong there.")
    expected: str | None = Field(description="What rackready expects.")
    actual: str | None = Field(description="What it found.")
    next_step: str | None = Field(description="What to do.")


class SiteProblem(Part):
    """One problem of a site file or profile; ``message`` and ``hint`` are the same in words."""

    path: str = Field(description="Data path in the file.")
    message: str = Field(description="What is wrong.")
    hint: str = Field(description="What to do.")


class Refusal(Part):
    """The document of a refusal (exit code 2) or a stop (130). The fields beside ``error`` are the first problem's."""

    error: str = Field(description="The whole message, as on standard error.")
    code: str = Field(description="Kind of the refusal, such as site-invalid, controller-busy, usage or stopped.")
    problems: list[SiteProblem | Part] = Field(description="Every problem of the message.")


def refusal(error: RackreadyError) -> Refusal:
    """Return an error as a document."""
    text = str(error)
    problems: list[SiteProblem | Part]
    if isinstance(error, SiteInvalidError):
        problems = [_of_site(item, error.source) for item in error.problems]
        first = problems[0] if problems else part(text)
    else:
        lines = [line for line in text.splitlines() if _EXPECTED in line]
        problems = [part(line) for line in lines] if len(lines) > 1 else [part(text)]
        first = problems[0]
    return Refusal(error=text, code=error.code, problems=problems, **_fields(first))


def document(error: RackreadyError) -> dict[str, Any]:
    """Return an error as plain data, ``error`` and ``code`` first."""
    found = refusal(error)
    return {"error": found.error, "code": found.code} | found.model_dump()


def part(text: str) -> Part:
    """Return the fields of a message of the form ``where: what - Expected: x Actual: y. Next step.``."""
    head, mark, rest = text.strip().partition(_EXPECTED)
    if not mark:
        what, step = _sentence(head)
        return Part(where=None, what=what, expected=None, actual=None, next_step=step)
    where, _, what = head.strip().removesuffix("-").strip().removesuffix(":").partition(": ")
    expected, found, after = rest.partition(_ACTUAL)
    value, step = _sentence(after if found else expected)
    return Part(
        where=where or None,
        what=what or None,
        expected=expected.strip() if found else value,
        actual=value if found else None,
        next_step=step,
    )


def _of_site(problem: Problem, source: str) -> SiteProblem:
    found = part(f"{problem.message} {problem.hint}".strip())
    what = ": ".join(words for words in (found.where, found.what) if words) or None
    fields = _fields(found) | {"where": problem.path or source, "what": what}
    return SiteProblem(**fields, path=problem.path, message=problem.message, hint=problem.hint)


def _fields(found: Part) -> dict[str, str | None]:
    return {name: getattr(found, name) for name in Part.model_fields}


def _sentence(text: str) -> tuple[str | None, str | None]:
    """Return the first sentence without its full stop, and the rest."""
    end = _NEXT.search(text)
    first, rest = (text[: end.start()], text[end.end() :]) if end else (text, "")
    return first.strip().removesuffix(".") or None, rest.strip() or None
