"""Markdown that GitHub and the site read alike."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """Return a text for one cell of a table: one line, no bar, no tag, no mark-up."""
    return re.sub(r"([\\|*_])", r"\\\1", re.sub(r"\s+", " ", text)).replace("<", "&lt;")


def words(text: str) -> str:
    """Return a text for a cell in which double backquotes, as docstrings have them, are code."""
    return "".join(code(part) if place % 2 else cell(part) for place, part in enumerate(re.split(r"``([^`]+)``", text)))


def bounds(text: str) -> str:
    """Return bounds for a cell, with patterns as code."""
    parts = [part for part in text.split("; ") if part]
    return "; ".join(
        f"matches {code(part.removeprefix('matches '))}" if part.startswith("matches ") else cell(part)
        for part in parts
    )


def code(text: str) -> str:
    """Return a text as code, also in a table cell; empty stays empty.

    GitHub and the site disagree on a bar in backquotes, but not on HTML.
    """
    line = " ".join(text.split())
    if "|" in line:
        return f"<code>{html.escape(line, quote=False).replace('|', '&#124;')}</code>"
    return f"`{line}`" if line else ""


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table whose cells are ready; none without rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(headers)} |", f"|{'---|' * len(headers)}", *lines, ""] if lines else []


def slug(heading: str) -> str:
    """Return the anchor of a heading, as the site's generator and GitHub make it where a heading has single blanks."""
    plain = unicodedata.normalize("NFKD", re.sub(r"[`*]", "", heading)).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
