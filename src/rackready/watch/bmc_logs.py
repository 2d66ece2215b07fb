"""Event logs of BMCs, polled: entries that were not there at the look before."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain

from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_read import Gathered, read
from rackready.gates.bmc.eventlog import LEAK_ENTRY, LogEntry, grouped, logs
from rackready.gates.bmc.events import ENTRIES, SERVICES
from rackready.model.problems import Message, RackreadyError, quoted
from rackready.model.site import Site
from rackready.watch.sighting import Sighting, act_of
from rackready.watch.store import Seen, WatchStore

_AT_ONCE = 8
"""BMCs that are read at once. Our judgement: a look takes seconds, and a BMC of one rack slows no other."""
_LIMIT_S = 120.0
_KEPT = 2000
"""Entries of a BMC that are remembered: more than a log has that is read."""
Put = Callable[[str, list[Seen], str], None]
"""Takes a node, what its log shows, and why it could not be read."""


def gather(site: Site, node: str) -> Gathered:
    """Return the log services and entries of a node's BMC. Raises RackreadyError."""
    known = site.node(node).bmc.known()
    if known is None:
        raise RackreadyError(
            node, "event log of the BMC", expected="address and password in the site file", actual="not given"
        )
    end = time.monotonic() + _LIMIT_S

    def proceed() -> None:
        if time.monotonic() > end:
            raise RackreadyError(node, "event log of the BMC", expected=f"read within {_LIMIT_S:.0f} s", actual="late")

    with Bmc(node, known) as bmc:
        return read(bmc, (*SERVICES, *ENTRIES), proceed)


def critical(found: Gathered) -> dict[str, list[LogEntry]]:
    """Return log -> its entries about broken hardware."""
    documents = found.documents
    services = [documents[at] for trail in SERVICES for at in found.trails.get(trail, []) if at in documents]
    entries = [documents[at] for trail in ENTRIES for at in found.trails.get(trail, []) if at in documents]
    return {
        log.key: [entry for entry in log.entries if entry.severity == "Critical" or entry.belittled]
        for log in logs(services, entries)
    }


def _whole(log: str, found: Gathered) -> bool:
    """Return whether nothing of a log was left unread."""
    return not any(f"/{log}/" in f"{address}/" for address in found.unread)


def sightings(entries: Iterable[LogEntry]) -> list[Sighting]:
    """Return what entries show, one for each kind of event."""
    found: dict[tuple[str, str], Sighting] = {}
    for group in grouped(list(entries)):
        condition = "BmcLeak" if group.kind is LEAK_ENTRY else "BmcEventCritical"
        part = group.kind.code.removeprefix("bmc-log-")
        found.setdefault((condition, part), Sighting(condition, part, group.said[:160]))
    return list(found.values())


def name_of(entry: LogEntry) -> str:
    """Return the name under which an entry is remembered."""
    return hashlib.sha256(f"{entry.dated} {entry.severity} {entry.text}".encode()).hexdigest()[:16]


def _unread(found: Gathered) -> str:
    """Return which part of a BMC's logs could not be read, and why; "" when all was."""
    for address, why in found.unread.items():
        more = f", and {len(found.unread) - 1} more" if len(found.unread) > 1 else ""
        actual = f"{address}: {quoted(why).removesuffix('.')}{more}"
        step = "Logs that are read whole count. Update or restart the BMC."
        return str(Message("", "a part of its event logs", "every log that it links to", actual, step))
    return ""


def mark_of(node: str) -> str:
    """Return the name of the mark with the entries that a BMC's log had at the look before."""
    return f"bmc:{node}"


@dataclass
class BmcLogs:
    """Looks at the BMCs of watched nodes in turn, some at once."""

    site: Site
    store: WatchStore
    put: Put
    read: Callable[[Site, str], Gathered] = gather
    _due: dict[str, float] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_AT_ONCE, "watch BMC"))

    def look(self, nodes: Iterable[str], now: float) -> None:
        """Begin the looks that are due. ``now``: time.monotonic()."""
        for node in nodes:
            known = self.site.node(node).bmc.known() is not None
            if known and node not in self._busy and now >= self._due.get(node, 0.0):
                self._due[node] = now + self.site.watch.bmc_poll_s
                self._busy.add(node)
                self._pool.submit(self.one, node)

    def one(self, node: str) -> None:
        """Look at one BMC, and tell what is new. The first whole look at a log only remembers what is there."""
        try:
            found = self.read(self.site, node)
            entries = critical(found)
            mark = self.store.mark(mark_of(node))
            known: list[str] = mark.get("known", [])
            seen: list[str] = mark.get("logs", [*entries] if mark else [])  # a mark of an older version is of all
            new = [entry for log in entries if log in seen for entry in entries[log] if name_of(entry) not in known]
            act = self.site.watch
            self.put(
                node,
                [
                    Seen(node, one.condition, one.part, one.actual, act_of(one.condition, act).value, at=time.time())
                    for one in sightings(new)
                ],
                _unread(found),
            )
            names = dict.fromkeys([*(known if found.unread else []), *map(name_of, chain(*entries.values()))])
            whole = dict.fromkeys([*seen, *(log for log in entries if _whole(log, found))])
            self.store.put_mark(mark_of(node), {"known": list(names)[-_KEPT:], "logs": list(whole)})
        except RackreadyError as error:
            self.put(node, [], quoted(str(error)))
        except Exception as error:  # noqa: BLE001 - one bad BMC must not end the look at the others
            self.put(node, [], f"{type(error).__name__}: {error}")
        finally:
            self._busy.discard(node)

    def close(self) -> None:
        """Begin no further look."""
        self._pool.shutdown(wait=False, cancel_futures=True)
