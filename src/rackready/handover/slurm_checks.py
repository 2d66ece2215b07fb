"""The check that Slurm runs on nodes: its file, what is expected of each node, and the nodes that lack it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rackready.design.check_gates import today
from rackready.drivers.remote import Runner
from rackready.gates.nodecheck import bundle
from rackready.model.evidence import Fingerprint
from rackready.model.operations import files_of
from rackready.model.site import Site
from rackready.paths import EnvPaths, private_dir
from rackready.render.slurm_checks import PROGRAM

_TIMEOUT_S = 30
_AT_ONCE = 32


def check_vars(site: Site, paths: EnvPaths, found: Mapping[str, Fingerprint]) -> dict[str, Any]:
    """Return the variables of role slurm_node that put the check on these nodes; {} without checks."""
    files = files_of(site.handover)
    if files is None or files.checks is None:
        return {}
    place = private_dir(paths.state / "slurm") / "slurm-check.py"
    place.write_text(bundle.program(), encoding="utf-8")
    day = today()
    return {
        "slurm_node_check_program": str(place),
        "slurm_node_check_expected": {
            node: bundle.expected(site, files.checks, one, day) for node, one in found.items()
        },
    }


def lacking(runner: Runner, nodes: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes on which the check is not known to be there. ``known``: those that the site names."""

    def lacks(node: str) -> bool:
        return node not in known or runner.run(node, ["test", "-x", PROGRAM], timeout_s=_TIMEOUT_S).exit_code != 0

    with ThreadPoolExecutor(max_workers=max(1, min(_AT_ONCE, len(nodes))), thread_name_prefix="slurm-checks") as pool:
        return tuple(node for node, bad in zip(nodes, pool.map(lacks, nodes), strict=True) if bad)
