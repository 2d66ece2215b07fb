"""Revisions of the switch's configuration: applied, pending per user, and waiting for confirmation."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import paths, store
from .schema import Setting

_FILE = "/etc/nvue.d/revisions.json"
_BOOTED = "/run/nvue-booted"


class Revision:
    """One state of the configuration."""

    def __init__(
        self, state: str, user: str, date: float, settings: set[Setting] | None = None, message: str = ""
    ) -> None:
        self.state, self.user, self.date, self.message = state, user, date, message
        self.settings = settings or set()


class Book:
    """All revisions."""

    def __init__(
        self,
        revisions: dict[str, Revision],
        applied: str,
        startup: str,
        attached: dict[str, str],
        confirm: dict[str, Any] | None = None,
    ) -> None:
        self.revisions, self.applied, self.startup, self.attached, self.confirm = (
            revisions,
            applied,
            startup,
            attached,
            confirm,
        )

    def running(self) -> Revision:
        """Return the applied revision."""
        return self.revisions[self.applied]

    def pending(self, user: str) -> Revision | None:
        """Return the user's candidate."""
        return self.revisions.get(self.attached.get(user, ""))

    def candidate(self, user: str) -> Revision:
        """Return the user's candidate, created from the applied revision if there is none."""
        found = self.pending(user)
        if found is None:
            name = str(max(int(key) for key in self.revisions) + 1)
            found = Revision("pending", user, time.time(), set(self.running().settings))
            self.revisions[name], self.attached[user] = found, name
        return found

    def detach(self, user: str) -> None:
        """Leave the user's candidate under its number.

        So says the user guide of Cumulus Linux 5 (NVUE CLI, `nv config detach`); the NVUE reference says that it is
        discarded.
        """
        self.attached.pop(user, None)

    def get(self, name: str, user: str) -> Revision | None:
        """Return a revision by number or by the names applied, pending and startup."""
        number = {"applied": self.applied, "startup": self.startup, "pending": self.attached.get(user, "")}.get(
            name, name
        )
        return self.revisions.get(number)


def read() -> Book:
    """Return the book; a new switch has one empty revision."""
    path = paths.at(_FILE)
    if not path.exists():
        return Book({"1": Revision("applied", "root", time.time())}, "1", "1", {})
    raw = json.loads(path.read_text())
    revisions = {
        key: Revision(
            item["state"], item["user"], item["date"], {tuple(words) for words in item["settings"]}, item["message"]
        )
        for key, item in raw["revisions"].items()
    }
    return Book(revisions, raw["applied"], raw["startup"], raw["attached"], raw["confirm"])


@contextmanager
def change() -> Iterator[Book]:
    """Yield the book for a change; one writer at a time."""
    path = paths.at(_FILE)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        book = read()
        yield book
        revisions = {
            key: {
                "state": item.state,
                "user": item.user,
                "date": item.date,
                "settings": sorted(item.settings),
                "message": item.message,
            }
            for key, item in book.revisions.items()
        }
        document = {
            "revisions": revisions,
            "applied": book.applied,
            "startup": book.startup,
            "attached": book.attached,
            "confirm": book.confirm,
        }
        store.write(path, json.dumps(document))


def boot() -> bool:
    """Load the start-up configuration once after power-on; return whether this call did."""
    marker = paths.at(_BOOTED)
    if marker.exists():
        return False
    with change() as book:
        if book.applied != book.startup:
            book.revisions[book.applied].state = "reverted"
            book.applied = book.startup
            book.running().state = "applied"
        book.confirm = None
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text("")
    return True


def revert(book: Book) -> None:
    """Return to the revision that was applied before the one that waits for confirmation."""
    if book.confirm is None:
        return
    book.running().state = "reverted"
    book.applied = book.confirm["previous"]
    book.running().state = "applied"
    book.confirm = None
