"""Parts of a report, a few nodes each, made in parallel: records and report of a whole site are never in memory."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any, Protocol

from rackready.design.collector import without_gc
from rackready.evidence import junit
from rackready.evidence.counting import Counting, Objection, marked
from rackready.evidence.node_page import NodePage, node_page
from rackready.evidence.node_report import JUDGING, Document, document
from rackready.evidence.overview import DETAILED
from rackready.evidence.store import EvidenceStore
from rackready.evidence.units import Units
from rackready.ledger.store import Ledger, NodeRow
from rackready.model.commands import in_document, outside
from rackready.model.evidence import EvidenceRecord
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.paths import EnvPaths

CHUNK = 16
"""Nodes of a part: a process has so many in memory. A site that is no larger is done in this process."""
_AHEAD = 3
"""Parts for each process that are being made or wait to be taken."""

Figure = tuple[Any, ...]
"""A node's data for the comparison with its fleet, in the form of the judging code."""


class ReportError(RackreadyError):
    """A report cannot be made."""


Judged = tuple[Document, Mapping[str, Objection]]
"""A node with its stored outputs judged again, and why its evidence does not count."""


class Judging(Protocol):
    """Judges stored outputs again: node by node in the workers, then figures against each other, then the documents."""

    def begin(self, site: Site, ledger: Ledger, store: EvidenceStore) -> None:
        """Prepare a worker."""

    def node(
        self, name: str, newest: Mapping[str, EvidenceRecord]
    ) -> tuple[Mapping[str, EvidenceRecord], Sequence[Figure]]:
        """Return the node's records with new verdicts, and its figures."""

    def compare(self, site: Site, figures: Iterable[Figure]) -> Mapping[str, Any]:
        """Return node -> the changes by its fleet."""

    def complete(self, found: Document, change: Any) -> Document:  # noqa: ANN401 - what compare returned of this node
        """Return the document with the changes by the fleet."""


@dataclass(frozen=True, slots=True)
class ReportPart:
    """The input of a worker when it begins."""

    site: Site
    paths: EnvPaths
    generated: str
    folder: Path
    judging: Judging | None = None
    counting: Counting | None = None
    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Node -> its last result in the campaign."""

    def result(self, node: str) -> Mapping[str, Any] | None:
        """Return a node's result in the campaign; none of a phase whose evidence is judged again."""
        found = self.results.get(node)
        return None if found is None or (self.judging is not None and found["phase"] in JUDGING) else found

    @property
    def small(self) -> bool:
        """Return whether the page shows the whole site."""
        return len(self.site.nodes()) <= DETAILED


@dataclass(frozen=True, slots=True)
class Part:
    """Some nodes of a report, in the site's order. Their JSON (one line per node) and XML are in files."""

    json: Path
    xml: Path
    totals: junit.Totals
    seen: list[NodePage]
    units: Units


@dataclass(frozen=True, slots=True)
class Task:
    """The nodes of one part. ``first``: place of the first in the site; ``changes``: node -> changes by its fleet."""

    first: int
    names: Sequence[str]
    spool: Path | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


class Worker:
    """Makes parts, in a process of its own or in this one."""

    def __init__(self, work: ReportPart) -> None:
        self._work = work
        self._ledger = Ledger.read_only(work.paths.database)
        self._store = EvidenceStore.read_only(self._ledger, work.paths.raw)
        self._states: dict[str, NodeRow] = {row.name: row for row in self._ledger.states()}
        if work.judging is not None:
            work.judging.begin(work.site, self._ledger, self._store)
        if work.counting is not None:
            work.counting.begin(work.site, self._ledger)

    def close(self) -> None:
        """Close the database."""
        self._ledger.close()

    def stored(self, name: str) -> Document:
        """Return a node as recorded."""
        newest = self._store.concluded(name)
        return marked(self._document(name, newest), self._objections(name, newest))

    def judged(self, name: str, judging: Judging) -> tuple[Judged, Sequence[Figure]]:
        """Return a node with its stored outputs judged again, and its figures."""
        stored = self._store.concluded(name)
        newest, figures = judging.node(name, stored)
        return (self._document(name, newest), self._objections(name, stored)), figures

    def _document(self, name: str, newest: Mapping[str, EvidenceRecord]) -> Document:
        return document(self._work.site.node(name), self._states.get(name), newest, self._work.result(name))

    def _objections(self, name: str, newest: Mapping[str, EvidenceRecord]) -> Mapping[str, Objection]:
        return {} if self._work.counting is None else self._work.counting.objections(name, newest)

    def spool(self, task: Task) -> tuple[Path, list[Figure]]:
        """Judge nodes and write their documents into a file. Return it with their figures."""
        if self._work.judging is None:
            raise ReportError("judging again", expected="a judge", actual="none", next_step="Report a bug.")
        path = self._work.folder / f"{task.first}.spool"
        figures: list[Figure] = []
        with path.open("wb") as file:
            for name in task.names:
                found, more = self.judged(name, self._work.judging)
                figures += more
                pickle.dump(found, file, pickle.HIGHEST_PROTOCOL)
        return path, figures

    def part(self, task: Task) -> Part:
        """Write the part of these nodes."""
        path, xml = self._work.folder / f"{task.first}.json", self._work.folder / f"{task.first}.xml"
        made = Part(path, xml, junit.Totals(), [], Units())
        with (
            path.open("w", encoding="utf-8") as json_file,
            xml.open("w", encoding="utf-8", errors="replace") as xml_file,
        ):
            for place, found in enumerate(self._documents(task), task.first):
                json_file.write(("    " if place == task.first else ",\n    ") + json.dumps(found))
                text, totals = junit.suite(found, self._work.generated)
                xml_file.write(text)
                made.totals.add(totals)
                made.seen.append(node_page(found, small=self._work.small))
                made.units.add(place, found["name"], found["gates"])
        return made

    def _documents(self, task: Task) -> Iterator[Document]:
        env = outside(self._work.paths.env)
        for found in self._recorded(task):
            yield in_document(found, env)

    def _recorded(self, task: Task) -> Iterator[Document]:
        if task.spool is None or self._work.judging is None:
            yield from (self.stored(name) for name in task.names)
            return
        with task.spool.open("rb") as file:
            for _ in task.names:
                found, objections = pickle.load(file)  # noqa: S301 - our own file in a private folder
                change = task.changes.get(found["name"])
                yield marked(found if change is None else self._work.judging.complete(found, change), objections)
        task.spool.unlink()


def parts(work: ReportPart) -> Iterator[Part]:
    """Yield the parts of all nodes of a site, in its order.

    Raises ReportError when a worker dies: without its part, nodes would be missing.
    """
    tasks = list(_tasks([node.name for node in work.site.nodes()]))
    with _workers(work) as ordered:
        if work.judging is not None:
            spools: list[Path] = []
            figures: list[Figure] = []
            for path, found in ordered("spool", tasks):
                spools.append(path)
                figures += found
            changes = work.judging.compare(work.site, figures)
            del figures
            tasks = [
                Task(task.first, task.names, spool, {name: changes[name] for name in task.names if name in changes})
                for task, spool in zip(tasks, spools, strict=True)
            ]
        yield from ordered("part", tasks)


def _tasks(names: Sequence[str]) -> Iterator[Task]:
    for first in range(0, len(names), CHUNK):
        yield Task(first, names[first : first + CHUNK])


Ordered = Callable[[str, Sequence[Task]], Iterator[Any]]


@contextmanager
def _workers(work: ReportPart) -> Iterator[Ordered]:
    """Yield a function that runs tasks in order: for a small site here, for a large one in a process per core."""
    if len(work.site.nodes()) <= CHUNK:
        here = Worker(work)
        try:
            yield lambda name, tasks: (getattr(here, name)(task) for task in tasks)
        finally:
            here.close()
        return
    count = os.cpu_count() or 1
    # spawn: the caller has threads, and a fork would inherit their locks in any state.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=(work,)) as pool:
        yield lambda name, tasks: _ordered(pool, count * _AHEAD, name, tasks)


def _ordered(pool: ProcessPoolExecutor, most: int, name: str, tasks: Sequence[Task]) -> Iterator[Any]:
    """Yield results in the order of tasks. At most ``most`` run at a time, so that results do not pile up."""
    waiting: deque[Future[Any]] = deque()
    try:
        for task in tasks:
            if len(waiting) >= most:
                yield waiting.popleft().result()
            waiting.append(pool.submit(_do, name, task))
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise ReportError(
            "the report was not written",
            expected="every part of it",
            actual="a process that made parts was killed",
            next_step="Look for an out-of-memory kill (`journalctl -k -g oom`), then run `rackready report`.",
        ) from error
    finally:
        for future in waiting:
            future.cancel()


_worker: Worker | None = None
"""The worker of a process of the pool."""


def _begin(work: ReportPart) -> None:
    global _worker  # noqa: PLW0603 - how a process of a pool keeps its input
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the caller ends the pool
    threading.Thread(target=_end_with_caller, daemon=True).start()
    _worker = Worker(work)


def _end_with_caller() -> None:
    """End this process when its caller is gone: a killed caller ends no pool, and a worker would wait for ever."""
    caller = multiprocessing.parent_process()
    if caller is not None:
        connection.wait([caller.sentinel])
        os._exit(1)


def _do(name: str, task: Task) -> Any:  # noqa: ANN401 - the result of that method
    with without_gc():
        return getattr(_worker, name)(task)
