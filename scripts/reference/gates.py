"""docs/reference/gates/: every gate with its inputs, bounds and findings, from the gates themselves."""

from __future__ import annotations

import re
from typing import Any

import yaml
from markdown import bounds, cell, code, slug, table

from rackready.gates.engine.describe import OUTCOMES, explained
from rackready.gates.engine.registry import all_gates, gate
from rackready.gates.records.offline import facts, platform_of
from rackready.model.keys import bounds_of, kind_of

_MODEL = "dgx_h100"
"""Server model for which bounds are computed: the one that the simulated rack has."""
_NODES = 4
_MARK = "<!-- written by `make reference`: change the gate, not this page -->"

PAGES = {
    "gpu": ("GPU gates", "GPUs, NVLink, drivers and containers of one node."),
    "host": ("Host gates", "Processors, memory, disks, links, settings and storage of one node."),
    "bmc": ("BMC and rack-device gates", "What BMCs, PDUs, power shelves and CDUs report over Redfish."),
    "fabric": ("Fabric gates", "Links, RDMA and collectives between nodes."),
}


def pages() -> dict[str, str]:
    """Return file name -> page."""
    known = facts(platform_of(_MODEL), _NODES)
    documents = {gate_id: explained(gate(gate_id), known) for gate_id in all_gates()}
    found = {
        f"{name}.md": _page(title, text, [item for item in documents.values() if _page_of(item["id"]) == name])
        for name, (title, text) in PAGES.items()
    }
    return found | {"README.md": _index(list(documents.values()))}


def _page_of(gate_id: str) -> str:
    scope, subject = gate_id.split("/")[:2]
    if scope == "bmc" or subject in {"power", "cooling"}:
        return "bmc"
    return {"gpu": "gpu", "fabric": "fabric"}.get(subject, "host")


def _index(documents: list[dict[str, Any]]) -> str:
    lines = [
        "# Gate reference",
        "",
        _MARK,
        "",
        (
            "Every gate, as `rackready gate list` has them. [Use gates](../../howto/gates.md) explains how to run them "
            "and how to judge outputs that were captured"
        ),
        (
            "elsewhere. `rackready gate show ID` prints every command of a gate, `rackready gate explain ID` its "
            "bounds for your site."
        ),
        "",
        *table(("outcome", "meaning"), [(code(name), cell(text)) for name, text in OUTCOMES.items()]),
    ]
    rows = [
        (
            f"[{code(item['id'])}]({_page_of(item['id'])}.md#{slug(item['id'])})",
            cell(item["title"]),
            cell(_set_names(item)),
        )
        for item in documents
    ]
    return "\n".join([*lines, *table(("gate", "a pass says", "gate sets"), rows)])


def _set_names(document: dict[str, Any]) -> str:
    return ", ".join(item["set"] for item in document["sets"])


def _page(title: str, text: str, documents: list[dict[str, Any]]) -> str:
    lines = [f"# {title}", "", _MARK, "", f"{text} [All gates](README.md).", ""]
    lines += [
        (
            f"Bounds are those of {_NODES} x {_MODEL}, as far as they are known before a run. "
            "Braces stand for what only a run tells."
        ),
        "",
    ]
    seen: dict[str, str] = {}
    for document in documents:
        lines += _section(document, seen)
    return "\n".join(lines)


def _section(document: dict[str, Any], seen: dict[str, str]) -> list[str]:
    """Return the lines of one gate. ``seen``: findings that were printed already -> the gate that has them."""
    lines = [f"## {document['id']}", "", cell(document["title"]), ""]
    lines += [
        f"- Measures: {', '.join(document['measures']) or 'nothing that coverage counts'}",
        f"- Gate sets: {_sets(document)}",
        "",
    ]
    lines += [line for text in document["how"][1:] for line in (_paragraphs(text), "")]
    lines += table(("input", "default", "type", "bounds", "meaning"), _inputs(document))
    lines += table(("bound", "metric", "value", "source"), [_bound(item) for item in document["bounds"]])
    for item in document["fleet"]:
        worse = "below" if item["better"] == "higher" else "above"
        lines += [
            (
                f"Fleet: {code(item['metric'])} not {worse} that of at least 16 identical units; "
                f"the smallest effect to find is {item['effect']:.0%}."
            ),
            "",
        ]
    rows = _findings(document)
    table_of = "\n".join(table(("outcome", "finding", "meaning", "next step"), rows))
    if table_of in seen:
        return [*lines, f"Findings: those of [{code(seen[table_of])}](#{slug(seen[table_of])}).", ""]
    seen[table_of] = document["id"]
    return [*lines, table_of]


def _inputs(document: dict[str, Any]) -> list[tuple[str, ...]]:
    fields = type(gate(document["id"]).inputs).model_json_schema().get("properties", {})
    return [
        (
            code(name),
            _value(item["value"]),
            cell(kind_of(fields[name])),
            bounds(bounds_of(fields[name])),
            cell(item["description"]),
        )
        for name, item in document["inputs"].items()
    ]


def _findings(document: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return a row for each finding that the gate can make: the one place that knows how findings are described."""
    return [
        (
            item["outcome"],
            f"{cell(item['title'])} ({code(item['code'])})",
            cell(item["meaning"]),
            " or: ".join(_with_links(cell(step)) for step in item["next_steps"]),
        )
        for item in document["findings"]
    ]


def _with_links(text: str) -> str:
    """Return a text in which runbooks are links."""
    return re.sub(r"docs/runbooks/([\w-]+)\.md", r"[the runbook](../../runbooks/\1.md)", text)


def _sets(document: dict[str, Any]) -> str:
    said = []
    for item in document["sets"]:
        age = f", counts for {item['max_age_hours']:g} h" if item["max_age_hours"] else ""
        said.append(
            f"{item['set']} "
            f"({'required' if item['required'] else 'advisory'}{age}"
            f"{', void after a boot' if item['after_boot'] else ''})"
        )
    return ", ".join(said) or f"none: {cell(document['in_no_set']) or 'no reason is given'}"


def _bound(item: dict[str, Any]) -> tuple[str, ...]:
    sign = {"ge": "at least", "le": "at most", "eq": "equal to"}.get(str(item["op"]), str(item["op"]))
    unit = "" if item["unit"] == "1" else f" {item['unit']}"
    return cell(item["label"]), code(item["metric"]), cell(f"{sign} {item['bound']:.6g}{unit}"), cell(item["source"])


def _value(value: object) -> str:
    """Return a default as YAML has it."""
    if value is None or value in ((), {}, ""):
        return "*none*" if value is None else "*empty*"
    listed = list(value) if isinstance(value, tuple) else value
    return code(yaml.safe_dump(listed, default_flow_style=True, width=1000).removesuffix("...\n"))


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()).replace("``", "`").replace("<", "&lt;") for part in text.split("\n\n"))
