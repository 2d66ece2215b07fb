"""Measure wiring and proving a three-tier fabric, by number of GPUs. usage: scripts/bench/topology.py [GPUS ...].

Ends with one JSON line per case. ``fabric_mib`` is what wiring and proof add to the peak of a process that holds the
nodes already.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.cases import Clock, Line, each, peak_mib

CASES = (1_000, 10_000, 100_000)
GPUS_A_NODE = 8
RADIX = 128
SU_NODES = 64


def measure(gpus: int) -> Line:
    """Wire and prove a three-tier fabric for so many GPUs; return wall-clock seconds, process seconds, and MiB."""
    from rackready.design.topology.build import build_at  # noqa: PLC0415 - only the measuring process needs it
    from rackready.design.topology.types import EndpointNode  # noqa: PLC0415
    from rackready.model.topology import Topology  # noqa: PLC0415

    topology = Topology.model_validate({"leaf": {"model": "any"}, "tiers": 3, "su_nodes": SU_NODES})
    rails = tuple(range(1, GPUS_A_NODE + 1))
    nodes = [
        EndpointNode(f"gpu-{number:05d}", number // SU_NODES + 1, rails, 400) for number in range(gpus // GPUS_A_NODE)
    ]
    before, clock = peak_mib(), Clock()
    plan = build_at((RADIX,) * 3, topology, nodes)
    spent = clock.line()
    if plan.proof is None or not plan.proof.ok:
        raise SystemExit("\n".join(map(str, plan.problems)))
    return {
        "bench": "topology",
        "n": gpus,
        **spent,
        "fabric_mib": round(peak_mib() - before),
        "switches": len(plan.switches),
        "cables": len(plan.endpoints) + len(plan.trunks),
    }


if __name__ == "__main__":
    each(__file__, CASES, measure)
