"""Measure loading, checking and fully planning a site, by number of GPUs. usage: scripts/bench/plan.py [GPUS ...].

``seconds`` are those of a first plan, as `rackready plan` makes it when nothing was applied yet;
``compared_cpu_seconds`` come on top when all was, for the facts of every device and their comparison (``compared_mib``:
peak memory then). ``write_seconds`` and ``write_cpu_seconds`` are those of all files that `--write` adds, processor
time of the process that writes the pages included (``written_mib``: their size, ``write_mib``: peak memory of this
process then). The site is the largest example (DGX B200, three tiers), cut to so many GPUs. One JSON line per case. The
time of making the site's YAML text is not counted; reading it is.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rackready.design.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.cases import Clock, Line, each  # noqa: E402 - run by path: the root is put on the path first

CASES = (1_000, 10_000, 100_000)
GPUS_A_NODE = 8
NODES_A_RACK = 4
LARGEST = 3125
"""Racks of nodes of the example."""


def document(gpus: int) -> dict[str, Any]:
    """Return the example with as many racks of nodes as hold so many GPUs.

    Its network racks stay, since their slots may be left free.
    """
    import yaml  # noqa: PLC0415 - only the measuring process needs it

    site: dict[str, Any] = yaml.safe_load(
        (ROOT / "inventories/examples/gpus-100k-three-tier.yml").read_text(encoding="utf-8")
    )
    racks = -(-gpus // (GPUS_A_NODE * NODES_A_RACK))
    if racks < LARGEST:
        site["racks"][0]["name"] = f"g[0001-{racks:04d}]"
        site.pop("deliveries")
    return site


def measure(gpus: int) -> Line:
    """Load and plan a site of so many GPUs, difference to nothing included, as `rackready plan` does."""
    import yaml  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "site.yml"
        file.write_text(yaml.safe_dump(document(gpus)), encoding="utf-8")
        return _planned(gpus, file)


def _planned(gpus: int, file: Path) -> Line:
    clock = Clock()
    from rackready.design.collector import without_gc  # noqa: PLC0415

    with without_gc():  # as the command does
        return _measured(gpus, file, clock)


def _measured(gpus: int, file: Path, clock: Clock) -> Line:
    from rackready.design.device_facts import device_facts  # noqa: PLC0415
    from rackready.design.diff import difference  # noqa: PLC0415
    from rackready.design.plan import plan_site  # noqa: PLC0415
    from rackready.design.plan_summary import summary  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415

    site = load_site("bench", site_file=file, root=ROOT)
    loaded = clock.line()
    plan = plan_site(site)
    planned = clock.line()
    document = summary(plan, None, difference({}, device_facts(plan, ())))
    whole = clock.line()
    if plan.problems:
        raise SystemExit("\n".join(str(problem) for problem in plan.problems))
    parts = {"load_seconds": loaded["seconds"], "plan_seconds": _less(planned, loaded), "plan_mib": planned["peak_mib"]}
    parts |= _written(plan, document)
    applied = device_facts(plan)
    again = Clock()
    if difference(applied, device_facts(plan, applied)):
        raise SystemExit("a plan differs from itself")
    more = again.line()
    parts |= {"compared_cpu_seconds": more["cpu_seconds"], "compared_mib": more["peak_mib"]}
    return {"bench": "plan", "n": gpus, "nodes": len(site.nodes()), "cables": len(plan.cables.cables), **whole, **parts}


def _written(plan: Plan, document: dict[str, Any]) -> Line:
    from rackready.render.plan_files import write_plan  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        clock, before = Clock(), _children()
        write_plan(plan, document, Path(folder))
        spent, children = clock.line(), _children() - before
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return {
        "write_seconds": spent["seconds"],
        "write_cpu_seconds": round(float(str(spent["cpu_seconds"])) + children, 3),
        "write_mib": spent["peak_mib"],
        "written_mib": round(size / 2**20),
    }


def _children() -> float:
    """Return the processor time of processes that this one started and that ended, s."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _less(after: Line, before: Line) -> float:
    return round(float(str(after["seconds"])) - float(str(before["seconds"])), 3)


if __name__ == "__main__":
    each(__file__, CASES, measure, growing=("seconds", "cpu_seconds", "peak_mib"))
