"""How long a three-tier fabric takes to wire and prove, and how that grows. usage: scripts/bench/topology.py [GPUS ...].

Ends with one JSON line per case. ``fabric_mib`` is what wiring and proof add to the peak of a process that holds the nodes already.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

CASES = (1_000, 10_000, 100_000)
GPUS_A_NODE = 8
RADIX = 128
SU_NODES = 64


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(gpus: int) -> dict[str, object]:
    """Wire and prove a fabric for so many GPUs in three tiers; return seconds of wall clock and of this process, and MiB."""
    from rackready.design.topology.build import build_at  # noqa: PLC0415 - only the measuring process needs it
    from rackready.design.topology.types import EndpointNode  # noqa: PLC0415
    from rackready.model.topology import Topology  # noqa: PLC0415

    topology = Topology.model_validate({"leaf": {"model": "any"}, "tiers": 3, "su_nodes": SU_NODES})
    rails = tuple(range(1, GPUS_A_NODE + 1))
    nodes = [EndpointNode(f"gpu-{number:05d}", number // SU_NODES + 1, rails, 400) for number in range(gpus // GPUS_A_NODE)]
    before, began, used = _peak(), time.perf_counter(), time.process_time()
    plan = build_at((RADIX,) * 3, topology, nodes)
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    if plan.proof is None or not plan.proof.ok:
        raise SystemExit("\n".join(plan.problems))
    return {
        "bench": "topology",
        "n": gpus,
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu, 3),
        "peak_mib": round(_peak()),
        "fabric_mib": round(_peak() - before),
        "switches": len(plan.switches),
        "cables": len(plan.endpoints) + len(plan.trunks),
    }


def main() -> None:
    """Measure each case in a process of its own, so that one's memory is not another's."""
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(int(sys.argv[2]))))
        return
    for gpus in [int(item) for item in sys.argv[1:]] or CASES:
        subprocess.run([sys.executable, __file__, "--one", str(gpus)], check=True)


if __name__ == "__main__":
    main()
