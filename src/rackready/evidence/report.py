"""The report of a campaign, with the same content as JSON, HTML (one self-contained file) and JUnit XML.

All three are written node by node: a site of 12,500 nodes has gigabytes of records, which are never in memory at once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import jinja2

from rackready.design.collector import without_gc
from rackready.design.site import load_site
from rackready.evidence import bounds, junit, overview_tables
from rackready.evidence.attempts import Attempts, counting_runs
from rackready.evidence.counting import Counting
from rackready.evidence.node_page import node_page
from rackready.evidence.overview import Overview
from rackready.evidence.parts import Judging, Part, ReportError, ReportPart, parts
from rackready.evidence.report_files import blocks, joined, json_object, line, lines, listed, replaced, scratch
from rackready.evidence.report_source import ReportSource, unfinished
from rackready.model.commands import in_document, outside
from rackready.model.outcome import CONTINUES
from rackready.model.printable import visible
from rackready.model.site import Site
from rackready.paths import EnvPaths, private_dir

__all__ = ["ReportError", "Written", "build", "render", "write", "write_reports"]

_log = logging.getLogger(__name__)
_SAFE = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class Written:
    """The files of a report, and the number of nodes by outcome.

    ``aside``: nodes that are set aside, whatever their gates report; ``ended``: whether the campaign has an end.
    """

    html: Path
    json: Path
    junit: Path
    outcomes: Mapping[str, int]
    aside: int
    ended: bool

    @property
    def good(self) -> bool:
        """Return whether every node is in order and the campaign has an end."""
        return self.ended and not self.aside and set(self.outcomes) <= CONTINUES


@dataclass(frozen=True, slots=True)
class _Pieces:
    """A piece of JSON and XML, in files."""

    json: Path
    xml: Path
    totals: junit.Totals


def write_reports(
    root: Path, env: str, campaign: str, judging: Judging | None = None, counting: Counting | None = None
) -> Written:
    """Write the report of a campaign as HTML, JSON and JUnit XML. Only their owner can read them.

    A node that the campaign found in order shows its newest evidence, with the campaign that measured it. ``judging``
    judges the stored outputs again; that report is a file beside the report of the records, which do not change.
    ``counting``: says which evidence counts no more; without it, every record counts. Raises RackreadyError when the
    site or the ledger cannot be read, or the whole report cannot be written.
    """
    return write(load_site(env, root=root), EnvPaths(root, env), campaign, judging, counting)


def write(
    site: Site, paths: EnvPaths, campaign: str, judging: Judging | None = None, counting: Counting | None = None
) -> Written:
    """Write the report of a campaign of a loaded site; see ``write_reports``."""
    name = _SAFE.sub("_", campaign) + ("" if judging is None else ".again")
    reports = private_dir(paths.reports)
    html, json_file, xml = (reports / f"{name}{end}" for end in (".html", ".json", ".junit.xml"))
    overview = Overview(len(site.nodes()))
    with without_gc(), ReportSource.open(site, paths, campaign) as source, scratch(reports, name) as folder:
        head = source.head() | ({} if judging is None else {"judged_again": True})
        work = ReportPart(site, paths, head["generated"], folder, judging, counting, source.results())
        made = [_added(part, overview) for part in parts(work)]
        _log.info("%s: read the records of %d nodes", campaign, len(site.nodes()))
        runs = _runs(source, folder, overview)
        head |= {"summary": overview.summary(), "racks": overview.racks(site)}
        listed = {"nodes": joined(piece.json for piece in made), "runs": joined([runs.json])}
        with replaced(json_file) as file:
            file.writelines(json_object({**head, **listed, **source.tail(), "events": lines(source.events())}))
        with replaced(xml) as file:
            _junit(file, head, made, runs)
        for event in source.events():
            overview.event(event)
        with replaced(html) as file:
            file.write(_page({**head, **source.tail()}, overview, source.raw(overview.wanted())).encode())
    for path in (html, json_file, xml):
        _log.info("wrote %s", path)
    return Written(html, json_file, xml, overview.outcomes(), overview.aside(), ended=not unfinished(head))


def _added(part: Part, overview: Overview) -> _Pieces:
    """Add a part to the page, and return its files."""
    for node in part.seen:
        overview.node(node)
    overview.units.take(part.units)
    return _Pieces(part.json, part.xml, part.totals)


def _runs(source: ReportSource, folder: Path, overview: Overview) -> _Pieces:
    """Write the runs over several nodes into files, and add them to the page: those that no later attempt replaced."""
    made = _Pieces(folder / "runs.json", folder / "runs.xml", junit.Totals())
    last = Attempts()
    with made.json.open("w", encoding="utf-8") as json_file:
        for place, run in enumerate(source.runs()):
            json_file.write((",\n" if place else "") + line(run))
            last.add(run)
    with (
        made.json.open(encoding="utf-8") as json_file,
        made.xml.open("w", encoding="utf-8", errors="replace") as xml_file,
    ):
        for run in last.counting(listed(json_file)):
            xml_file.write(junit.run_case(run, made.totals))
            overview.run(run)
    return made


def _junit(file: IO[bytes], head: Mapping[str, Any], made: list[_Pieces], runs: _Pieces) -> None:
    totals = junit.Totals()
    own, found = junit.campaign_suite(head)
    for counted in [found, *(piece.totals for piece in [*made, runs])]:
        totals.add(counted)
    file.write((junit.HEAD + junit.head(head, totals) + own).encode())
    file.writelines(joined((piece.xml for piece in made), between=b""))
    if runs.totals.tests:
        file.write(junit.runs_head(runs.totals, head["generated"]).encode())
        file.writelines(blocks(runs.xml))
        file.write(junit.SUITE_FOOT.encode())
    file.write(junit.FOOT.encode())


def build(site: Site, paths: EnvPaths, campaign: str) -> dict[str, Any]:
    """Return the report of a small site as one document in memory: the JSON file in which every record counts."""
    with ReportSource.open(site, paths, campaign) as source:
        nodes = list(source.nodes())
        overview = _overview(nodes)
        listed = {"nodes": nodes, "runs": list(source.runs())}
        return {
            **source.head(),
            "summary": overview.summary(),
            "racks": overview.racks(site),
            **listed,
            **source.tail(),
            "events": list(source.events()),
        }


def render(document: dict[str, Any], raw: Mapping[str, str] | None = None) -> str:
    """Return the HTML of a report document, with raw outputs by hash. Every value is escaped; no URL is loaded."""
    overview = _overview(document["nodes"])
    for run in counting_runs(document["runs"]):
        overview.run(run)
    for event in document["events"]:
        overview.event(event)
    return _page(document, overview, raw or {})


def _overview(nodes: list[dict[str, Any]]) -> Overview:
    overview = Overview(len(nodes))
    for place, node in enumerate(nodes):
        overview.node(node_page(node, small=overview.small))
        overview.units.add(place, node["name"], node["gates"])
    return overview


def _shown(value: Any) -> Any:  # noqa: ANN401 - whatever a template prints
    """Return a value with its control characters visible: HTML allows none (HTML Living Standard, 13.2.3.5)."""
    return visible(value) if type(value) is str else value


def _ticks(text: str) -> list[str]:
    """Return text cut at its backticks: every second part is code. Text with an odd backtick stays whole."""
    parts = text.split("`")
    return parts if len(parts) % 2 else [text]


def _minute(time: str) -> str:
    """Return a time of a report for people: "2026-11-22 09:00 UTC"."""
    return f"{datetime.fromisoformat(time).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _page(head: Mapping[str, Any], overview: Overview, raw: Mapping[str, str]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rackready.evidence", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {"ticks": _ticks, "figure": bounds.figure, "minute": _minute}
    about: dict[str, Any] = {
        "again": "judged_again" in head,
        "unfinished": unfinished(head),
        "env": f" --env {env}" if (env := outside(str(head["env"]))) else "",
        "signs": overview_tables.SIGNS,
        "words": bounds.WORDS,
        "label": bounds.label,
    }
    about |= {"raw": raw, "raw_left": len(set(overview.wanted()) - set(raw)) if raw else 0}
    shown = overview.page(head["racks"])
    shown["faults"] = in_document(shown["faults"], env)
    return environment.get_template("report.html.j2").render(report=head, **about, **shown)
