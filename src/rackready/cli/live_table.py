"""The live table of a campaign on a terminal: where every node stands, what it does now, and for how long."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rackready.cli.progress_lines import line_of
from rackready.ledger.store import DETAIL, EventRow
from rackready.model.printable import visible

_PER_SECOND = 2
_BESIDE_ROWS = 6
"""Lines of the table that are no node: its head, its borders, the counts and the line of detail."""
_NAMED = 8
"""So many nodes that did not pass are named where nodes are grouped."""


class Mark(Enum):
    """How far a node is in a phase."""

    WAITING = "·"
    RUNNING = "▸"
    DONE = "✓"
    BAD = "✗"


_STYLES = {Mark.WAITING: "dim", Mark.RUNNING: "yellow", Mark.DONE: "green", Mark.BAD: "bold red"}


@dataclass(slots=True)
class _Place:
    """Where one node is: the place of its phase in the campaign, how far it is there, its newest step."""

    phase: int = -1
    mark: Mark = Mark.WAITING
    step: str = ""
    since: float = 0.0

    def take(self, phase: int | None, event: EventRow) -> None:
        """Take an event of the node. ``phase``: place of its phase, None where it is of none of this campaign's."""
        if phase is not None and phase > self.phase:
            self.phase, self.mark, self.since = phase, Mark.RUNNING, event.at
        if phase == self.phase and event.level in {"ok", "error"}:
            self.mark = Mark.DONE if event.level == "ok" else Mark.BAD
        elif phase == self.phase and self.mark is not Mark.RUNNING and event.level == DETAIL:
            self.mark = Mark.RUNNING
        self.step = event.text


class Progress:
    """Where all nodes of a campaign are, as its events tell it."""

    def __init__(self, nodes: Sequence[str], phases: Sequence[str]) -> None:
        self.phases = tuple(phases)
        self.places = {node: _Place() for node in nodes}
        self.latest = ""

    def take(self, event: EventRow, nodes: Sequence[str]) -> None:
        """Take what these nodes said in the same words."""
        phase = self.phases.index(event.phase) if event.phase in self.phases else None
        for node in nodes:
            if node in self.places:
                self.places[node].take(phase, event)
        self.latest = line_of(event, nodes)

    def mark(self, place: _Place, phase: int) -> Mark:
        """Return how far a node is in a phase."""
        if phase == place.phase:
            return place.mark
        return Mark.DONE if phase < place.phase else Mark.WAITING

    def counts(self) -> Counter[Mark]:
        """Return how many nodes wait, run, passed their last phase, or did not."""
        last = len(self.phases) - 1
        whole = Counter(
            place.mark if place.mark is not Mark.DONE or place.phase == last else Mark.RUNNING
            for place in self.places.values()
        )
        return Counter({mark: whole[mark] for mark in Mark})


class LiveTable:
    """Shows a campaign on a terminal while it runs; what is no mere step is printed above the table, and stays."""

    def __init__(
        self,
        console: Console,
        nodes: Sequence[str],
        phases: Sequence[str],
        lines: Callable[[EventRow, Sequence[str]], None],
    ) -> None:
        self._standing, self._console, self._lines = Progress(nodes, phases), console, lines
        self._begun = time.time()
        self._live = Live(console=console, get_renderable=self.table, refresh_per_second=_PER_SECOND, transient=True)

    def __enter__(self) -> Self:
        """Begin to show it. The cursor stays: a process that is killed must not take it along."""
        self._live.start()
        self._console.show_cursor(show=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Take it away: what it showed stands in the summary."""
        self._live.stop()

    def __call__(self, event: EventRow, nodes: Sequence[str]) -> None:
        """Take one event."""
        self._standing.take(event, nodes)
        if event.level in {"warn", "error"}:
            self._lines(event, nodes)

    def table(self) -> RenderableType:
        """Return what is shown now: a row a node where that fits, else a row a phase."""
        fits = len(self._standing.places) + _BESIDE_ROWS <= self._console.height
        body = self._by_node() if fits else self._by_phase()
        return Group(
            body, self._counted(), Text(visible(self._standing.latest), style="dim", no_wrap=True, overflow="ellipsis")
        )

    def _by_node(self) -> Table:
        table = _headed("node", *self._standing.phases, "for", "now")
        for node, place in self._standing.places.items():
            marks = [self._standing.mark(place, phase) for phase in range(len(self._standing.phases))]
            cells = [Text(mark.value, style=_STYLES[mark], justify="center") for mark in marks]
            table.add_row(
                node,
                *cells,
                _span(time.time() - place.since) if place.since else "",
                Text(visible(place.step), no_wrap=True, overflow="ellipsis"),
            )
        return table

    def _by_phase(self) -> RenderableType:
        table = _headed("phase", "waiting", "running", "passed", "not passed")
        for number, phase in enumerate(self._standing.phases):
            found = Counter(self._standing.mark(place, number) for place in self._standing.places.values())
            table.add_row(phase, *(Text(str(found[mark] or ""), style=_STYLES[mark], justify="right") for mark in Mark))
        bad = [f"{node}: {place.step}" for node, place in self._standing.places.items() if place.mark is Mark.BAD]
        more = [f"and {len(bad) - _NAMED} more"] if len(bad) > _NAMED else []
        return Group(
            table,
            *(Text(visible(line), style="red", no_wrap=True, overflow="ellipsis") for line in [*bad[:_NAMED], *more]),
        )

    def _counted(self) -> Text:
        found, all_ = self._standing.counts(), len(self._standing.places)
        words = {Mark.RUNNING: "under way", Mark.WAITING: "waiting", Mark.DONE: "through", Mark.BAD: "not passed"}
        parts = [(f"{found[mark]} {text}", _STYLES[mark]) for mark, text in words.items() if found[mark]]
        line = Text(f"{all_} nodes, {_span(time.time() - self._begun)}: ")
        for place, (text, style) in enumerate(parts):
            line.append(", " if place else "").append(text, style=style)
        return line


def _headed(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=1 if name == "now" else None)
    table.expand = "now" in names
    return table


def _span(seconds: float) -> str:
    """Return a time as minutes and seconds, with hours where there are any."""
    whole = int(max(0.0, seconds))
    hours, rest = divmod(whole, 3600)
    return (f"{hours}:" if hours else "") + f"{rest // 60:02d}:{rest % 60:02d}"
