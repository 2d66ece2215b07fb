"""Topics of `rackready help`, from the same sources as the documentation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from rackready.cli import documents
from rackready.cli.exit_codes import EXIT_CODES, OTHER_MEANINGS
from rackready.model.keys import site_sections
from rackready.model.problems import RackreadyError

_NEAR = 4
"""Number of similar topics that an error lists."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. ``short``: a second name, e.g. the last part of a gate's id."""

    kind: str
    name: str
    text: Callable[[], str]
    short: str = ""


@cache
def topics() -> list[Topic]:
    """Return every topic, explanations first."""
    found = [
        Topic("page", "concepts", lambda: documents.page(documents.CONCEPTS).text),
        Topic("page", "exit-codes", _exit_codes),
    ]
    found += [Topic("term", name, _constant(term.text)) for term in documents.terms() for name in term.names]
    found += [Topic("runbook", name, _runbook(name)) for name in documents.runbooks()]
    found += [
        Topic("gate", gate_id, _gate(gate_id, title), gate_id.rpartition("/")[2])
        for gate_id, title in documents.gate_titles().items()
    ]
    found += [Topic("finding", code, _constant(text)) for code, text in documents.findings().items()]
    return [*found, *_keys()]


def find(wanted: str) -> list[Topic]:
    """Return the topics with that name, or else those with that short name.

    Raises RackreadyError, which lists similar ones.
    """
    name = plain(wanted)
    called = [topic for topic in topics() if plain(topic.name) == name]
    found = called or [topic for topic in topics() if plain(topic.short) == name]
    if found:
        return found
    names = {plain(word): word for topic in topics() for word in (topic.short, topic.name) if word}
    near = [names[match] for match in get_close_matches(name, names, n=_NEAR, cutoff=0.5)]
    said = f"Near it: {', '.join(near)}. " if near else ""
    raise RackreadyError(
        f"help {wanted}",
        expected="a topic",
        actual=f"{wanted!r}",
        next_step=f"{said}`rackready help` lists all topics.",
    )


def plain(name: str) -> str:
    """Return a name for comparison: lower case, without brackets, blanks as dashes."""
    return re.sub(r"\[\]|\(.*\)", "", name).strip().lower().replace(" ", "-")


def _constant(text: str) -> Callable[[], str]:
    return lambda: text


def _exit_codes() -> str:
    return "\n".join([*(f"{code:>3}  {text}" for code, text in EXIT_CODES.items()), OTHER_MEANINGS])


def _yaml(value: object) -> object:
    """Return a value as it is written in a site file."""
    return {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else value


def _runbook(name: str) -> Callable[[], str]:
    def text() -> str:
        page = documents.page(f"{documents.RUNBOOKS}/{name}.md")
        return f"{page.title}\n\n{page.text}"

    return text


def _gate(gate_id: str, title: str) -> Callable[[], str]:
    def text() -> str:
        from rackready.gates.engine.registry import gate  # noqa: PLC0415 - only who asks for a gate waits for all of them

        found = gate(gate_id)
        fields: dict[str, Any] = type(found.inputs).model_fields
        lines = [title, f"measures: {', '.join(sorted(found.covers)) or 'nothing that coverage counts'}"]
        lines += [
            f"input {name} = {_yaml(getattr(found.inputs, name))}: {field.description}"
            for name, field in fields.items()
        ]
        return "\n".join(
            [
                *lines,
                (
                    f"`rackready gate explain {gate_id}` explains how it judges, `rackready gate show {gate_id}` what "
                    "it runs."
                ),
            ]
        )

    return text


def _keys() -> Iterator[Topic]:
    sections = {section.title: section for section in site_sections()}
    for section in sections.values():
        for key in section.keys:
            bounds = f"; {key.bounds}" if key.bounds else ""
            inner = [
                f"  {item.name}: {item.kind}; default: {item.default}"
                for title in key.inside
                for item in sections[title].keys
            ]
            lines = [f"{key.kind}{bounds}; default: {key.default}", key.text, *inner]
            yield Topic("key", key.path, _constant("\n".join(line for line in lines if line)), key.name)
