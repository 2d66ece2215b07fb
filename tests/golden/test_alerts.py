"""Golden files of monitoring: docs/reference/alerts.md, and the files for Prometheus of the simulated rack.

`GOLDENS=rewrite pytest tests/golden` rewrites them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rackready.design.monitoring.condition import Condition
from rackready.design.monitoring.conditions import records, topics
from rackready.design.site import load_site
from rackready.render.monitoring import monitoring_files

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "alerts.md"
FILES = Path(__file__).parent / "monitoring"
_HEAD = """# Alerts

Made from `src/rackready/design/monitoring` (`make goldens`). How to use them: [Monitoring](../howto/monitoring.md).
Action: NVIDIA's word in the Xid catalogue. A critical alert needs somebody now,
a warning today; info only explains others. Watch: what [`rackready watch`](../howto/watch.md) does;
`none`: the alert exists in Prometheus alone.
"""


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def row(condition: Condition) -> str:
    waits = f"{condition.for_s or condition.hold_s} s" if condition.for_s or condition.hold_s else "at once"
    cells = [
        condition.id,
        condition.severity.value,
        condition.action or "-",
        condition.watch.value,
        waits,
        f"{condition.meaning} {condition.next_step}",
        f"`{condition.expr}` ({condition.unit})",
        condition.source,
    ]
    return "| " + " | ".join(cell(one) for one in cells) + " |"


def page() -> str:
    out = [_HEAD]
    for topic in topics():
        out += [
            f"## {topic.name}\n",
            "| alert | severity | action | watch | after | meaning and next step | query (unit) | source |",
            "|---|---|---|---|---|---|---|---|",
            *map(row, topic.conditions),
            "",
        ]
    out += ["## Recording rules\n", "| name | unit | meaning | query |", "|---|---|---|---|"]
    out += [f"| {one.name} | {one.unit} | {one.meaning} | `{cell(one.expr)}` |" for one in records().values()]
    return "\n".join(out) + "\n"


def compare(path: Path, text: str) -> None:
    if os.environ.get("GOLDENS") == "rewrite":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path} is old: make goldens"


def test_the_page_of_alerts_is_current() -> None:
    compare(PAGE, page())


@pytest.mark.parametrize("name", sorted(monitoring_files(load_site("sim", root=ROOT))))
def test_files_of_the_simulated_rack(name: str) -> None:
    made = monitoring_files(load_site("sim", root=ROOT))
    compare(FILES / name, made[name].decode())
