"""A case: one node, one visit to its vendor. A folder with the results of its collectors, each whole or not there.

A killed run is repeated by the same command. A collector writes into a fresh folder, which gets its name only when it
is complete; its result follows. So one that ended is not run again, and of one that was cut nothing is left.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rackready import files
from rackready.handover.returned import RMA
from rackready.ledger.store import Ledger
from rackready.paths import EnvPaths, private_dir

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class CaseFile:
    """One gathered file. ``path``: in the archive; ``sha256``: as stored, after secrets were removed."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Gathered:
    """The result of one collector. ``reason``: why it gathered nothing; empty when it did. ``note``: what it adds."""

    name: str
    reason: str = ""
    note: str = ""
    seconds: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    files: list[CaseFile] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Case:
    """One case. ``begun``: s since 1970."""

    id: str
    node: str
    begun: float
    reason: str
    base: Path

    @classmethod
    def open_of(cls, ledger: Ledger, paths: EnvPaths, node: str) -> Case | None:
        """Return the case of a node that is not closed, None when there is none."""
        last = ledger.latest(node, RMA, every_epoch=True)
        if last is None or last.status != "intent":
            return None
        return cls(last.desired, node, last.begun, str(last.observed.get("reason", "")), paths.rma)

    @classmethod
    def begin(cls, ledger: Ledger, paths: EnvPaths, node: str, reason: str) -> Case:
        """Return the node's open case, else a new one."""
        found = cls.open_of(ledger, paths, node)
        if found is not None:
            return found
        name = f"{node}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
        entry = ledger.begin(node, RMA, name, {"reason": reason})
        return cls(name, node, entry.begun, reason, paths.rma)

    @property
    def folder(self) -> Path:
        """Return the folder of what was gathered."""
        return self.base / self.id

    @property
    def archive(self) -> Path:
        """Return the archive for the vendor."""
        return self.base / f"{self.id}.tar.gz"

    def results(self) -> dict[str, Gathered]:
        """Return collector -> its result, of those that ended."""
        found = {}
        for path in sorted(self.folder.glob("*.json")):
            raw = json.loads(path.read_text(encoding="utf-8"))
            raw["files"] = [CaseFile(**item) for item in raw["files"]]
            found[raw["name"]] = Gathered(**raw)
        return found

    def fresh(self, name: str) -> Path:
        """Return an empty folder for a collector: what a killed run left of it is removed."""
        private_dir(self.folder)
        for path in (self.folder / name, self._unfinished(name)):
            shutil.rmtree(path, ignore_errors=True)
        return private_dir(self._unfinished(name))

    def finish(self, result: Gathered) -> Gathered:
        """Keep what a collector gathered, and then its result. Returns the result with its files."""
        unfinished, whole = self._unfinished(result.name), self.folder / result.name
        if result.reason:
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            unfinished.rename(whole)
        kept = [CaseFile(str(path.relative_to(self.folder)), path.stat().st_size, digest(path)) for path in _in(whole)]
        done = Gathered(result.name, result.reason, result.note, round(result.seconds, 1), result.facts, kept)
        text = json.dumps(asdict(done), sort_keys=True, indent=1)
        files.replace(self.folder / f"{result.name}.json", text.encode())
        return done

    def _unfinished(self, name: str) -> Path:
        return self.folder / f".{name}.unfinished"

    def read(self, name: str, file: str) -> str:
        """Return a gathered text file, "" when it was not gathered."""
        path = self.folder / name / file
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""

    def document(self, name: str, file: str) -> dict[str, Any]:
        """Return a gathered JSON document, an empty one when it was not gathered or is none."""
        try:
            found = json.loads(self.read(name, file) or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    total = hashlib.sha256()
    with path.open("rb") as data:
        while block := data.read(_BLOCK):
            total.update(block)
    return total.hexdigest()


def _in(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder in a fixed order. A link is no file of ours."""
    if folder.is_dir():
        yield from sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
