"""Documentation pages of an installation, as `rackready help` reads them."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rackready.model.problems import RackreadyError
from rackready.paths import shipped

CONCEPTS, GLOSSARY, GATES, RUNBOOKS = "concepts.md", "reference/glossary.md", "reference/gates/README.md", "runbooks"
FINDINGS, SITE_FILE, COMMANDS = "reference/findings.md", "reference/site-file.md", "reference/commands.md"
"""Folder of the documents in the wheel (pyproject.toml)."""

_TERM = re.compile(r"^- (?P<names>\*\*.+?\*\*(?:, \*\*.+?\*\*)*): (?P<text>.*(?:\n  .*)*)", re.MULTILINE)
_GATE = re.compile(r"^\| \[`(?P<id>[^`]+)`\]\([^)]*\) \| (?P<title>.*?) \| [^|]*\|$", re.MULTILINE)
_COMMAND = re.compile(r"^\| \[`rackready (?P<name>[a-z-]+)`\]\([^)]*\) \| (?P<line>.*?) \|$", re.MULTILINE)
_FINDING = re.compile(r"^## (?P<code>[a-z0-9-]+)\n\n(?P<text>.*?)(?=\n## |\Z)", re.MULTILINE | re.DOTALL)
_INPUT = re.compile(r"^\| `([a-z0-9_]+)` \|", re.MULTILINE)
_KEY = re.compile(r"^\| <a id=[^>]*></a>`([^`]+)` \|")
_LINK = re.compile(r"\[(?P<words>[^\]]+)\]\((?P<target>[^)]+)\)")
_ITEM = re.compile(r"^ *(?:[-*]|[0-9]+\.) ")
_OWN_LINE = re.compile(r"^(?:```|<!--|#|\||>|    | *(?:[-*]|[0-9]+\.) )")
_BLOCK_MARK = re.compile(r"^(?:```\w*|<!--.*-->)\n", re.MULTILINE)


class DocumentsMissingError(RackreadyError):
    """The installation has no documents."""


@dataclass(frozen=True, slots=True)
class Term:
    """One entry of the glossary; several names where it explains them together."""

    names: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """One page without mark-up that a terminal cannot show."""

    title: str
    text: str


def root() -> Path:
    """Return the folder of documents. Raises DocumentsMissingError."""
    folder = shipped() / "docs"
    if (folder / GLOSSARY).is_file():
        return folder
    raise DocumentsMissingError(
        "docs/",
        expected=f"in {shipped()}",
        actual="not there",
        next_step="Install rackready again.",
    )


@cache
def terms() -> list[Term]:
    """Return the glossary's entries, in its order."""
    return [
        Term(tuple(re.findall(r"\*\*(.+?)\*\*", found["names"])), " ".join(_plain(found["text"], GLOSSARY).split()))
        for found in _TERM.finditer(_read(GLOSSARY))
    ]


@cache
def gate_titles() -> dict[str, str]:
    """Return gate id -> meaning of its pass. Reading the page takes 1 ms; importing all gates takes 1 s."""
    return {found["id"]: found["title"].replace("\\", "") for found in _GATE.finditer(_read(GATES))}


@cache
def commands() -> dict[str, str]:
    """Return command -> the line that `--help` shows of it; groups of commands have none."""
    return {found["name"]: found["line"].replace("\\", "") for found in _COMMAND.finditer(_read(COMMANDS))}


@cache
def findings() -> dict[str, str]:
    """Return finding code -> title, meaning, gates, next step and runbook."""
    return {found["code"]: _plain(found["text"], FINDINGS).strip() for found in _FINDING.finditer(_read(FINDINGS))}


@cache
def gate_inputs() -> dict[str, list[str]]:
    """Return gate id -> names of its inputs."""
    out: dict[str, list[str]] = {}
    for file in sorted((root() / GATES).parent.glob("*.md")):
        for section in file.read_text(encoding="utf-8").split("\n## ")[1:]:
            table = section.partition("| input | default |")[2].partition("\n\n")[0]
            out[section.partition("\n")[0].strip()] = _INPUT.findall(table)
    return out


@cache
def site_keys() -> list[str]:
    """Return the keys of the site file, each with the keys above it: ``racks.nodes.bmc``."""
    keys, section = [], ""
    for line in _read(SITE_FILE).splitlines():
        if line.startswith("## "):
            section = re.sub(r"\[\]| \(.*\)|`", "", line.removeprefix("## ")).strip()
        elif found := _KEY.match(line):
            keys.append(found[1] if section == "the file" else f"{section}.{found[1]}")
    return list(dict.fromkeys(keys))


def runbooks() -> list[str]:
    """Return the names of the runbooks."""
    return sorted(path.stem for path in (root() / RUNBOOKS).glob("*.md") if path.stem != "README")


def page(name: str) -> Page:
    """Return a page by its path below docs/."""
    title, _, text = _read(name).partition("\n")
    return Page(title.removeprefix("# "), _BLOCK_MARK.sub("", _joined(_plain(text, name))).strip())


def _read(name: str) -> str:
    return (root() / name).read_text(encoding="utf-8")


def _joined(text: str) -> str:
    """Return a text with each paragraph and each item of a list on one line; code, tables and heads stay."""
    lines: list[str] = []
    code = goes_on = False
    for line in text.splitlines():
        code ^= line.startswith("```")
        plain = bool(line.strip()) and not code and not _OWN_LINE.match(line)
        if plain and goes_on:
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
        goes_on = plain or (not code and bool(_ITEM.match(line)))
    return "\n".join(lines) + "\n"


def _plain(text: str, name: str) -> str:
    """Return a page's text with each link as its words and its target: ``words (docs/howto/plan.md)``.

    A target on the same page, or one that the words are already, is left out.
    """

    def shown(found: re.Match[str]) -> str:
        words, target = found["words"], found["target"]
        if target.startswith("#"):
            return words
        if "://" not in target:
            file, mark, anchor = target.partition("#")
            target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(name), file)) + mark + anchor
        return words if words.strip("`") == target else f"{words} ({target})"

    return _LINK.sub(shown, text)
