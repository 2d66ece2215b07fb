"""Commands that the documents show: fenced blocks, their mark, and the command lines in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MARK = re.compile(r"<!-- not run: (?P<why>.+?) -->")
_COMMENT = re.compile(r"\s+#\s.*$")
SHELL = {"sh", "bash", "console"}
"""Languages of blocks that hold commands: ``console`` shows them behind a ``$``, with their output."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One command line of a document. ``not_run``: why no test may run it, from the mark before its block, or empty."""

    document: Path
    line: int
    text: str
    not_run: str

    @property
    def call(self) -> str:
        """The command without its comment and without the folder of the virtual environment."""
        return self.text.removeprefix(".venv/bin/")


def shown(document: Path) -> Iterator[Shown]:
    """Yield every command line of a document's fenced blocks, lines that a backslash joins as one."""
    mark, language = "", ""
    joined, first = "", 0
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            language = "" if language else line.strip().removeprefix("```") or "text"
            mark = mark if language else ""
            continue
        if not language:
            found = _MARK.search(line)
            mark = found["why"] if found else mark if not line.strip() else ""
            continue
        text = _command(line, language) if not joined else line.strip()
        if not text:
            continue
        first = first if joined else number
        if text.endswith("\\"):
            joined += text.removesuffix("\\")
            continue
        yield Shown(document, first, _COMMENT.sub("", joined + text), mark)
        joined = ""


def _command(line: str, language: str) -> str:
    """Return the command of a line, empty where it is output, a comment or blank."""
    if language not in SHELL or line.lstrip().startswith("#"):
        return ""
    if language == "console":
        return line[2:].strip() if line.startswith("$ ") else ""
    return line.strip()
