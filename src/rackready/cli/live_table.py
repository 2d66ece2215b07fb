"""Live table of a campaign on a terminal: each node's phase, current step and elapsed time."""

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
from rackready.ledger.store import DETAIL, FAILED, EventRow
from rackready.model.printable import visible

_PER_SECOND = 2
_BESIDE_ROWS = 6
"""Lines of the table without a node: head, borders, counts and the line of detail."""
_NAMED = 8
"""Number of failed nodes that a grouped table names."""
_STEP_WIDTH = 24
"""Least columns for a node's step. If the terminal is narrower, one column shows the phase of each node."""
_SPAN_WIDTH = len("00:00:00")


class Mark(Enum):
    """Progress of a node in a phase."""

    WAITING = "·"
    RUNNING = "▸"
    DONE = "✓"
    FAILED = "✗"
    ERROR = "!"


_STYLES = {
    Mark.WAITING: "dim",
    Mark.RUNNING: "yellow",
    Mark.DONE: "green",
    Mark.FAILED: "bold red",
    Mark.ERROR: "bold magenta",
}
_ENDS = {"ok": Mark.DONE, FAILED: Mark.FAILED, "error": Mark.ERROR}
"""Level of an event that ends a phase -> progress of its node."""
_BAD = frozenset({Mark.FAILED, Mark.ERROR})
_WORDS = {
    Mark.WAITING: "waiting",
    Mark.RUNNING: "running",
    Mark.DONE: "passed",
    Mark.FAILED: "failed",
    Mark.ERROR: "error",
}
_LAST = "handover"
"""Phase after which a node is ready."""


@dataclass(slots=True)
class _Place:
    """One node's position: index of its phase in the campaign, progress there, newest step."""

    phase: int = -1
    mark: Mark = Mark.WAITING
    step: str = ""
    since: float = 0.0

    def take(self, phase: int | None, event: EventRow) -> None:
        """Apply an event of the node. ``phase``: index of its phase, None if it is not one of this campaign's."""
        if phase is not None and phase > self.phase:
            self.phase, self.mark, self.since = phase, Mark.RUNNING, event.at
        if phase == self.phase and event.level in _ENDS:
            self.mark = _ENDS[event.level]
        elif phase == self.phase and self.mark is not Mark.RUNNING and event.level == DETAIL:
            self.mark = Mark.RUNNING
        self.step = event.text


class Progress:
    """Positions of all nodes of a campaign, from its events."""

    def __init__(self, nodes: Sequence[str], phases: Sequence[str]) -> None:
        self.phases = tuple(phases)
        self.places = {node: _Place() for node in nodes}
        self.latest = ""

    def take(self, event: EventRow, nodes: Sequence[str]) -> None:
        """Apply an event that these nodes share."""
        phase = self.phases.index(event.phase) if event.phase in self.phases else None
        for node in nodes:
            if node in self.places:
                self.places[node].take(phase, event)
        self.latest = line_of(event, nodes)

    def alike(self) -> Counter[tuple[int, Mark]]:
        """Return (phase, progress in it) -> the number of nodes there: few keys, however many nodes."""
        return Counter((place.phase, place.mark) for place in self.places.values())

    def counts(self) -> Counter[Mark]:
        """Return the number of nodes that wait, run, passed their last phase, failed, or ended with an error."""
        last = len(self.phases) - 1
        whole: Counter[Mark] = Counter()
        for (phase, mark), number in self.alike().items():
            whole[mark if mark is not Mark.DONE or phase == last else Mark.RUNNING] += number
        return Counter({mark: whole[mark] for mark in Mark})


def mark_in(phase: int, at: int, mark: Mark) -> Mark:
    """Return the progress in a phase of a node that is at another one, with that mark."""
    if phase == at:
        return mark
    return Mark.DONE if phase < at else Mark.WAITING


class LiveTable:
    """Shows a campaign on a terminal while it runs. Events other than steps are printed above the table and stay."""

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
        """Start the display. The cursor stays visible: a killed process could not restore it."""
        self._live.start()
        self._console.show_cursor(show=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the table; the summary has its content."""
        self._live.stop()

    def __call__(self, event: EventRow, nodes: Sequence[str]) -> None:
        """Apply one event."""
        self._standing.take(event, nodes)
        if event.level in {"warn", "error", FAILED}:
            self._lines(event, nodes)

    def table(self) -> RenderableType:
        """Return the table: one row per node if they fit, else one row per phase."""
        fits = len(self._standing.places) + _BESIDE_ROWS <= self._console.height
        body = self._by_node() if fits else self._by_phase()
        return Group(
            body, self._counted(), Text(visible(self._standing.latest), style="dim", no_wrap=True, overflow="ellipsis")
        )

    def _by_node(self) -> Table:
        names = max((len(node) for node in self._standing.places), default=0)
        wide = names + sum(len(phase) + 1 for phase in self._standing.phases) + _SPAN_WIDTH + _STEP_WIDTH + 2
        phases = self._standing.phases if wide <= self._console.width else ("phase",)
        table = _headed("node", *phases, "for", "now")
        table.columns[0].min_width = names
        for node, place in self._standing.places.items():
            cells = self._cells(place) if len(phases) > 1 else [self._phase(place)]
            table.add_row(
                node,
                *cells,
                _span(time.time() - place.since) if place.since else "",
                Text(visible(place.step), no_wrap=True, overflow="ellipsis"),
            )
        return table

    def _cells(self, place: _Place) -> list[Text]:
        marks = [mark_in(phase, place.phase, place.mark) for phase in range(len(self._standing.phases))]
        return [Text(mark.value, style=_STYLES[mark], justify="center") for mark in marks]

    def _phase(self, place: _Place) -> Text:
        """Return a node's phase in one cell, such as "▸ validate 4/8"."""
        phases = self._standing.phases
        where = f" {phases[place.phase]} {place.phase + 1}/{len(phases)}" if place.phase >= 0 else ""
        return Text(f"{place.mark.value}{where}", style=_STYLES[place.mark])

    def _by_phase(self) -> RenderableType:
        table = _headed("phase", *(_WORDS[mark] for mark in Mark))
        alike = self._standing.alike()
        for number, phase in enumerate(self._standing.phases):
            found: Counter[Mark] = Counter()
            for (at, mark), count in alike.items():
                found[mark_in(number, at, mark)] += count
            table.add_row(phase, *(Text(str(found[mark] or ""), style=_STYLES[mark], justify="right") for mark in Mark))
        bad = [f"{node}: {place.step}" for node, place in self._standing.places.items() if place.mark in _BAD]
        more = [f"and {len(bad) - _NAMED} more"] if len(bad) > _NAMED else []
        return Group(
            table,
            *(Text(visible(line), style="red", no_wrap=True, overflow="ellipsis") for line in [*bad[:_NAMED], *more]),
        )

    def _counted(self) -> Text:
        found, all_ = self._standing.counts(), len(self._standing.places)
        words = _WORDS | ({Mark.DONE: "ready"} if self._standing.phases[-1:] == (_LAST,) else {})
        parts = [(f"{found[mark]} {words[mark]}", _STYLES[mark]) for mark in Mark if found[mark]]
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
    """Return a duration as minutes and seconds, with hours if needed."""
    whole = int(max(0.0, seconds))
    hours, rest = divmod(whole, 3600)
    return (f"{hours}:" if hours else "") + f"{rest // 60:02d}:{rest % 60:02d}"
