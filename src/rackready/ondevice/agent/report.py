"""Reports to the boot service: one file each, in the order of their numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from .errors import ImagingError
from .host import say

SCHEMA = "rackready/imaging-report/v1"
ENDS = ("done", "refused", "failed")
_LAST_TRIES = 10


class Reporter:
    """Sends reports. One that does not get through waits for the next; the last one is tried for minutes."""

    def __init__(
        self, put: Callable[..., None], plan_url: str, boot: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._put = put
        self._base = plan_url.removesuffix("plan.json")
        self._boot = boot
        self._clock = clock
        self._began = clock()
        self._number = 0
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self.node = ""
        self.digest = ""
        self.disks: list[dict[str, Any]] = []

    def send(self, step: str, message: str = "", *, percent: int | None = None, code: str = "") -> None:
        """Send a report of a step. Never raises: a report that is lost must not end the work; it is on the console."""
        self._number += 1
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "node": self.node,
            "digest": self.digest,
            "boot": self._boot,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "step": step,
            "seconds": round(self._clock() - self._began, 1),
            "message": message,
            "disks": self.disks,
        }
        if percent is not None:
            document["percent"] = percent
        if code:
            document["code"] = code
        shown = " ".join(word for word in (step, "" if percent is None else f"{percent} %", code, message) if word)
        say(f"[{document['seconds']:.0f} s] {shown}")
        self._waiting.append((f"{self._base}reports/{self._boot}-{self._number:04d}.json", document))
        self._flush(_LAST_TRIES if step in ENDS else 1)

    def _flush(self, tries: int) -> None:
        while self._waiting:
            url, document = self._waiting[0]
            try:
                self._put(url, document, tries=tries)
            except ImagingError as error:
                say(f"report {document['step']} waits: {error.message}")
                return
            self._waiting.pop(0)


def disk_rows(disks: Sequence[Any], contents: dict[str, Any], roles: dict[str, str]) -> list[dict[str, Any]]:
    """Return the disks of a report: Disk and Contents by name, and what each was chosen for."""
    return [
        {
            "path": disk.path,
            "serial": disk.serial,
            "size": disk.size,
            "model": disk.model,
            "holds": list(contents[disk.name].holds) if disk.name in contents else [],
            "chosen": roles.get(disk.name, ""),
        }
        for disk in disks
    ]
