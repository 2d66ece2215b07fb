"""Entries of apt's package sources, and those that apt refuses beside rackready's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from .command import NodeProblem

SOURCE = "sources.list.d/rackready.sources"
_LINE = re.compile(
    r"^\s*(?P<type>deb(?:-src)?)\s+(?:\[(?P<options>[^\]]*)\]\s*)?(?P<uri>\S+)(?:\s+(?P<suite>[^\s#]+))?"
)
_FIELD = re.compile(r"^(?P<key>[A-Za-z-]+):[ \t]*(?P<value>.*(?:\n[ \t]+\S.*)*)$", re.MULTILINE)
_OFF = ("no", "false", "0", "off", "without")
_UNSIGNED_UP_TO = (2, 7, 14)
"""The last apt that refuses a source without Signed-By behind one that has it."""
_INLINE_KEY = "-----BEGIN"


@dataclass(frozen=True)
class Entry:
    """One source: file, line, type, address, suite, and what signs it (empty: any key that apt trusts)."""

    path: Path
    line: int
    type: str
    uri: str
    suite: str
    signed_by: str

    @property
    def name(self) -> str:
        """Return how apt compares sources: address and suite, without scheme, login and last slash.

        Source: Debian/apt 2.6.1, GetDebReleaseIndexBy in apt-pkg/deb/debmetaindex.cc, and URItoFileName.
        """
        return f"{in_file_name(self.uri)}{self.suite}"


def files(root: Path) -> list[Path]:
    """Return apt's files of sources in the order in which it reads them; rackready's is one of them."""
    etc = root / "etc/apt"
    every = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    return [path for path in every if path.suffix in {".list", ".sources"} and path.is_file()]


def entries(path: Path) -> Iterator[Entry]:
    """Yield a file's enabled sources (sources.list(5): one line each, or deb822)."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return _stanzas(path, text) if path.suffix == ".sources" else _lines(path, text)


def refuse_conflicts(wanted: Iterable[Mapping[str, str]], root: Path = Path("/")) -> None:
    """Raise NodeProblem if another file has a source of rackready's (url, suite, keyring) with another Signed-By.

    apt then ends every command with an error (Debian/apt 2.6.1 and 3.0.3, debReleaseIndex::SetSignedBy). A source
    without Signed-By does so, too, if apt reads it after rackready's: up to apt 2.7.14.
    """
    own = root / "etc/apt" / SOURCE
    others = [entry for path in files(root) if path != own for entry in entries(path)]
    found = [
        (wish, entry)
        for wish in wanted
        for entry in others
        if entry.name == f"{in_file_name(wish['url'])}{wish['suite']}"
        and entry.signed_by != wish["keyring"]
        and (entry.signed_by or (entry.path > own and _refuses_unsigned(root)))
    ]
    if found:
        wish, entry = found[0]
        at = ", ".join(f"/{entry.path.relative_to(root)} line {entry.line}" for _, entry in found)
        step = (
            f"Remove it from there, or the package that brings the file (`dpkg -S /{entry.path.relative_to(root)}`): "
            "rackready writes this source itself. Then run again."
        )
        raise NodeProblem(
            f"the source {_shown(wish['url'])} {wish['suite']} in /etc/apt/{SOURCE} alone: apt refuses two values of "
            "Signed-By",
            f"also in {at}, with {_key(entry)}",
            step,
        )


def _refuses_unsigned(root: Path) -> bool:
    """Return whether the node's apt takes a later source without Signed-By for another value. Unknown counts as yes."""
    try:
        status = (root / "var/lib/dpkg/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    found = re.search(r"^Package: apt\n(?:\S.*\n| .*\n)*?Version: (\d+)\.(\d+)\.(\d+)", status, re.MULTILINE)
    return found is None or tuple(int(part) for part in found.groups()) <= _UNSIGNED_UP_TO


def in_file_name(uri: str) -> str:
    """Return how the name of a source's list begins: apt leaves out scheme and login, and writes _ for /."""
    place = re.sub(r"^[a-z+]+:(?://)?(?:[^/@]*@)?", "", uri).rstrip("/")
    return place.replace("_", "%5f").replace("/", "_") + "_"


def _lines(path: Path, text: str) -> Iterator[Entry]:
    for number, line in enumerate(text.splitlines(), 1):
        if match := _LINE.match(line):
            options = dict(word.partition("=")[::2] for word in (match["options"] or "").split())
            signed = options.get("signed-by", "")
            yield Entry(path, number, match["type"], match["uri"], match["suite"] or "", signed)


def _stanzas(path: Path, text: str) -> Iterator[Entry]:
    text = re.sub(r"^#.*$", "#", text, flags=re.MULTILINE)
    first = 1
    for stanza in re.split(r"(?<=\n)[ \t]*\n", text):
        plain = re.sub(r"^#\n?", "", stanza, flags=re.MULTILINE)
        fields = {match["key"].lower(): match["value"].split() for match in _FIELD.finditer(plain)}
        if fields.get("enabled", ["yes"])[:1] not in [[word] for word in _OFF]:
            line = first + next((at for at, row in enumerate(stanza.split("\n")) if row.lower().startswith("uris:")), 0)
            signed = " ".join(fields.get("signed-by", []))
            lists = fields.get("types", []), fields.get("uris", []), fields.get("suites", [""])
            for kind, uri, suite in product(*lists):
                yield Entry(path, line, kind, uri, suite, signed)
        first += stanza.count("\n") + 1


def _key(entry: Entry) -> str:
    if not entry.signed_by:
        return "no Signed-By"
    return f"Signed-By {'a key in the file' if entry.signed_by.startswith(_INLINE_KEY) else entry.signed_by}"


def _shown(uri: str) -> str:
    """Return an address without what could be a password."""
    return re.sub("://[^/ ]*@", "://", uri)
