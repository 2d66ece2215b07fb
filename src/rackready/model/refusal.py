"""A refusal as plain data: what `--output json` prints instead of a result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import Field

from rackready.model.base import Model
from rackready.model.problems import Message, Problem, RackreadyError, SiteInvalidError


class Part(Model):
    """One problem in its fields. A field that it lacks is null."""

    where: str | None = Field(description="File, option, node or data path.")
    what: str | None = Field(description="What is wrong there.")
    expected: str | None = Field(description="What rackready expects.")
    actual: str | None = Field(description="What it found.")
    next_step: str | None = Field(description="What to do.")


class SiteProblem(Part):
    """One problem of a site file or profile; ``message`` and ``hint`` are the same in words."""

    path: str = Field(description="Data path in the site file, or `FILE: PATH` for an overlay or a profile.")
    message: str = Field(description="What is wrong.")
    hint: str = Field(description="What to do.")


class Refusal(Part):
    """The document of a refusal (exit code 2) or a stop (130). The fields beside ``error`` are the first problem's."""

    error: str = Field(description="The whole message, as on standard error.")
    code: str = Field(description="Kind of the refusal, such as site-invalid, controller-busy, usage or stopped.")
    problems: list[SiteProblem | Part] = Field(description="Every problem of the message.")


def refusal(error: RackreadyError) -> Refusal:
    """Return an error as a document."""
    source = error.source if isinstance(error, SiteInvalidError) else ""
    problems = [_of_site(item, source) if isinstance(item, Problem) else _part(item) for item in error.messages]
    first = problems[0] if problems else Part(**dict.fromkeys(Part.model_fields))
    return Refusal(error=str(error), code=error.code, problems=problems, **_fields(first))


def document(error: RackreadyError) -> dict[str, Any]:
    """Return an error as plain data, ``error`` and ``code`` first."""
    found = refusal(error)
    return {"error": found.error, "code": found.code} | found.model_dump()


def _part(message: Message) -> Part:
    return Part(**{name: str(getattr(message, name)) or None for name in Part.model_fields})


def _of_site(problem: Problem, source: str) -> SiteProblem:
    found = problem.values or Message(what=problem.message.removesuffix("."))
    whole = replace(found, where=problem.place or source, next_step=problem.hint or found.next_step)
    return SiteProblem(**_fields(_part(whole)), path=problem.place, message=problem.message, hint=problem.hint)


def _fields(found: Part) -> dict[str, str | None]:
    return {name: getattr(found, name) for name in Part.model_fields}
