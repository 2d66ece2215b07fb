"""The check that Slurm runs on nodes: its file, what is expected of each node, and the nodes that lack it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rackready.design.check_gates import today
from rackready.drivers.remote import Runner
from rackready.gates.nodecheck import bundle
from rackready.ledger.store import Ledger
from rackready.model.evidence import Fingerprint
from rackready.model.operations import files_of
from rackready.model.site import Site
from rackready.model.slurm_files import SlurmChecks
from rackready.model.state import OUT
from rackready.paths import EnvPaths, private_dir
from rackready.render.slurm_checks import PROGRAM

_TIMEOUT_S = 30
"""Time beside the check's own limit, s: login, Python. Our judgement."""
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


def out_of_service(paths: EnvPaths) -> frozenset[str]:
    """Return the nodes on which no job may start. They are drained, and get the program when they return."""
    if not Ledger.exists(paths.database):
        return frozenset()
    return frozenset(row.name for row in Ledger.read_only(paths.database).states() if row.state in OUT)


def lacking(
    runner: Runner, nodes: Sequence[str], known: Sequence[str], checks: SlurmChecks | None = None
) -> tuple[str, ...]:
    """Return the nodes that Slurm's checks would drain: the program is not there, or finds something.

    ``known``: those that the site names. The owner of the others answers for them with ``others``.
    """
    wanted = checks or SlurmChecks()
    limit_s = wanted.limit_s + _TIMEOUT_S

    def lacks(node: str) -> bool:
        if node not in known:
            return not wanted.others
        return runner.run(node, [PROGRAM, "--look"], timeout_s=limit_s).exit_code != 0

    with ThreadPoolExecutor(max_workers=max(1, min(_AT_ONCE, len(nodes))), thread_name_prefix="slurm-checks") as pool:
        return tuple(node for node, bad in zip(nodes, pool.map(lacks, nodes), strict=True) if bad)
