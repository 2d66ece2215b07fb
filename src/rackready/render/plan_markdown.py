"""The summary of a plan as Markdown for a pull-request comment: short tables, folded details, limited length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rackready.render.plan_text import facts, nothing_before, problem_text

LIMIT = 65_000
"""Longest comment, characters. GitHub's limit is 65,536 ("body is too long (maximum is 65536 characters)");
the rest is room for text that a pipeline adds."""

Section = tuple[str, str, Sequence[str]]
"""(title, head of its table, rows)."""


def plan_markdown(document: Mapping[str, Any], limit: int = LIMIT) -> str:
    """Return the comment: the verdict, problems, figures, then lists.

    Long lists are cut and state the number of omitted rows, so that the whole has at most ``limit`` characters.
    """
    head = f"## Plan of {cell(document['site'])}\n\n{verdict(document)}\n\n"
    figures = "\n".join(
        ["| | |", "|---|---|", *(f"| {cell(name)} | {cell(text)} |" for name, text in facts(document)), "", ""]
    )
    sections = [section for section in _sections(document) if section[2]]
    room = limit - len(head) - len(figures) - sum(len(_folded(section, 0)) + len(_MORE) for section in sections)
    texts = _cut(sections, room)
    first = 1 if document["problems"] else 0
    return head + "".join([*texts[:first], figures, *texts[first:]])


_MORE = "\n1,000,000 more\n"


def _cut(sections: Sequence[Section], room: int) -> list[str]:
    """Return the sections; the first ones (problems, changes) get most of the room."""
    out = []
    for section in sections:
        count = 0
        for row in section[2]:
            if room < len(row) + 1:
                break
            room -= len(row) + 1
            count += 1
        out.append(_folded(section, count))
    return out


def verdict(document: Mapping[str, Any]) -> str:
    """Return the first line: the verdict."""
    if document["problems"]:
        return f"**Not valid: {len(document['problems']):,} problems.**"
    different = document["difference"]
    if different is None:
        return "**Valid.**"
    counts = {name: len(different[name]) for name in ("added", "changed", "removed")}
    if not any(counts.values()):
        return "**No change.**"
    since = f"since {different['against']}" if different["against"] else cell(nothing_before(different))
    return (
        f"**Changes: {counts['added']:,} added, {counts['changed']:,} changed, {counts['removed']:,} removed** "
        f"({since})."
    )


def _sections(document: Mapping[str, Any]) -> list[Section]:
    different = document["difference"] or {"added": [], "changed": {}, "removed": []}
    changed = [row for key, fields in different["changed"].items() for row in _changes(key, fields)]
    bom = [
        f"| {cell(line['part'])} | {cell(line['description'])} | {line['needed']:,} | {line['spare']:,} |"
        for line in document["bill_of_materials"]
    ]
    one: Callable[[str], str] = "| {} |".format
    return [
        ("Problems", "| what |\n|---|", [one(cell(problem_text(problem))) for problem in document["problems"]]),
        ("Removed", "| device |\n|---|", [one(cell(key)) for key in different["removed"]]),
        ("Changed", "| device | field | from | to |\n|---|---|---|---|", changed),
        ("Added", "| device |\n|---|", [one(cell(key)) for key in different["added"]]),
        (
            "Single points of failure",
            "| what |\n|---|",
            [one(cell(text)) for text in document["single_points_of_failure"]],
        ),
        ("Notes", "| what |\n|---|", [one(cell(text)) for text in document["notes"]]),
        ("Bill of materials", "| part | what | needed | spare |\n|---|---|---|---|", bom),
    ]


def _changes(key: str, fields: Sequence[Mapping[str, str]]) -> list[str]:
    return [
        f"| {cell(key)} | {cell(change['field'])} | {cell(change['before'] or '-')} | {cell(change['after'] or '-')} |"
        for change in fields
    ]


def _folded(section: Section, count: int) -> str:
    title, head, rows = section
    left = len(rows) - count
    more = f"\n{left:,} more\n" if left else ""
    shown = "".join(f"{row}\n" for row in rows[:count])
    opened = " open" if title == "Problems" else ""
    return f"<details{opened}><summary>{title} ({len(rows):,})</summary>\n\n{head}\n{shown}{more}\n</details>\n\n"


def cell(text: str) -> str:
    """Return text for a table cell, without markup, mentions or column separators."""
    out = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\\", "\\\\")
    for sign in "|`*_[]":
        out = out.replace(sign, f"\\{sign}")
    return out.replace("@", "&#64;").replace("\n", " ")
