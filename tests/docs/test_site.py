"""The documentation site, unbuilt: all pages are in the navigation, all links and anchors exist, nothing is remote."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.reference.markdown import slug

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
ADDRESS = {"ids": lambda path: path.relative_to(DOCS).as_posix()}
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
NAVIGATION = {
    "First rack",
    "Concepts",
    "How-to",
    "Runbooks",
    "Gates",
    "Commands",
    "Site file",
    "Glossary",
    "Decisions",
    "Benchmarks",
}


def leaves(entry: Any) -> list[str]:  # noqa: ANN401 - lists, mappings and names
    """Return the pages of a part of the navigation."""
    if isinstance(entry, str):
        return [entry]
    inner = entry.values() if isinstance(entry, dict) else entry
    return [page for item in inner for page in leaves(item)]


def prose(text: str) -> str:
    """Return a page without its blocks and code: what looks like a link there is none."""
    return re.sub(r"`[^`\n]*`", "code", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text(encoding="utf-8")))


@cache
def anchors(page: Path) -> list[str]:
    """Return the anchors of a page: those of its headings, and those that are written out."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [
        *(slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)),
        *re.findall(r'<a id="([^"]+)">', text),
    ]


def broken(page: Path, link: str) -> str:
    """Return what is wrong with a link of a page, "" when it leads somewhere inside the documents."""
    if "://" in link:
        return ""
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.is_file() or not target.is_relative_to(DOCS):
        return f"{link}: no file of docs/"
    return f"{link}: no such heading" if anchor and anchor not in anchors(target) else ""


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(leaves(CONFIG["nav"])) == [page.relative_to(DOCS).as_posix() for page in PAGES]


def test_navigation_has_its_parts() -> None:
    assert {next(iter(entry)) for entry in CONFIG["nav"]} >= NAVIGATION


@pytest.mark.parametrize("page", PAGES, **ADDRESS)
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    assert [text for link in links(page) if (text := broken(page, link))] == []


@pytest.mark.parametrize("page", PAGES, **ADDRESS)
def test_anchors_are_unique(page: Path) -> None:
    found = anchors(page)
    assert sorted({name for name in found if found.count(name) > 1}) == []


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("nowhere.md", "no file"),
        ("../mkdocs.yml", "no file"),
        ("../runbooks/", "no file"),
        ("gates.md#no", "no such heading"),
    ],
)
def test_a_broken_link_is_found(link: str, said: str) -> None:
    assert said in broken(DOCS / "howto/README.md", link)


def test_the_site_loads_nothing_from_elsewhere() -> None:
    assert CONFIG["theme"]["font"] is False
    assert CONFIG["plugins"] == ["search"]
    assert not {"extra_css", "extra_javascript", "repo_url", "site_url"} & set(CONFIG)


def test_a_broken_link_fails_the_build() -> None:
    """``--quiet`` would turn strict off: mkdocs counts only the warnings that it prints."""
    build = [
        line for line in (ROOT / "scripts/docs").read_text(encoding="utf-8").splitlines() if "mkdocs build" in line
    ]
    assert [line.split("mkdocs ")[1] for line in build] == ["build --strict"]
    assert CONFIG["strict"] is True
    assert {level for part in CONFIG["validation"].values() for level in part.values()} == {"warn"}
    assert set(CONFIG["validation"]["links"]) >= {"not_found", "anchors", "unrecognized_links"}


LIST = re.compile(r"^( *)(?:[-*]|\d+\.) ")


@pytest.mark.parametrize("page", PAGES, **ADDRESS)
def test_lists_look_alike_on_the_site_and_elsewhere(page: Path) -> None:
    """The site's parser begins a list only behind an empty line, and nests one only by four blanks."""
    lines = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL).splitlines()
    wrong = []
    for before, line in zip(["", *lines], lines, strict=False):
        found = LIST.match(line)
        if found and (
            len(found[1]) % 4
            or (not found[1] and before.strip() and not LIST.match(before) and not before.startswith(" "))
        ):
            wrong.append(line)
    assert wrong == []


@pytest.mark.parametrize("folder", ["howto", "runbooks", "adr"])
def test_the_first_page_of_a_folder_lists_the_others(folder: str) -> None:
    listed = {link for link in links(DOCS / folder / "README.md") if "/" not in link}
    assert {path.name for path in (DOCS / folder).glob("*.md")} - {"README.md"} == listed


UNSEEN = re.compile(r"\]\[|^ {0,3}\[[^]^]+\]: |<a [^>]*href|<img |!\[", re.MULTILINE)
"""Links by reference, links and images in HTML, and images."""


@pytest.mark.parametrize("page", PAGES, **ADDRESS)
def test_links_have_the_one_form_that_these_tests_follow(page: Path) -> None:
    assert UNSEEN.findall(prose(page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("text", ["[a][b]", "[b]: gates.md", '<a href="gates.md">a</a>', "![a](b.png)"])
def test_a_link_of_another_form_is_found(text: str) -> None:
    assert UNSEEN.search(text)


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="make docs installs mkdocs")
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
