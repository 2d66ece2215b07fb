"""Slurm's files on nodes that have copies of their own: reads and writes them over SSH.

The work on a node is one program, ``ondevice/slurm_node_files.py``. Which nodes and which files, the caller knows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from rackready.drivers.one_file import one_file
from rackready.drivers.program_answer import document
from rackready.drivers.scheduler.slurm_files import GRES_MAIN, MAIN, Finishing
from rackready.drivers.with_request import ARGV, with_request
from rackready.ondevice import slurm_conf
from rackready.ondevice import slurm_node_files as program
from rackready.ondevice.network_mounts import NETWORK
from rackready.render.slurm_files import TOPOLOGY

UNIT = "slurmd.service"
BESIDE = (
    "acct_gather.conf", "cgroup.conf", "helpers.conf", "job_container.conf", "mpi.conf", "namespace.yaml", "oci.conf",
    "plugstack.conf", "topology.yaml",
)  # fmt: skip
"""Further files that slurmd reads, beside slurm.conf, gres.conf and topology.conf: what slurmctld sends to configless
nodes (Slurm, src/common/fetch_config.c). rackready copies them to a node that has none, and never over one."""
_KEEPS_JOBS = frozenset({"process", "none"})
"""KillMode of slurmd's unit with which a restart leaves jobs alone (Slurm's etc/slurmd.service.in; systemd.kill(5))."""
_AT_ONCE = 32
_LOOK_S, _WRITE_S = 60.0, 300.0
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class NodeLook:
    """Slurm's files of a node, name -> SHA-256; whether slurmd runs, and how its unit is stopped.

    ``ours``: files that are still as rackready wrote them, perhaps long ago. ``links``: names that are links.
    ``filesystem``: type of that of the folder.
    """

    files: Mapping[str, str]
    active: bool
    kill_mode: str
    ours: frozenset[str] = frozenset()
    links: frozenset[str] = frozenset()
    filesystem: str = ""

    @property
    def on_a_network(self) -> bool:
        """Whether other machines have the same folder."""
        return self.filesystem in NETWORK or self.filesystem.startswith("fuse.")

    @property
    def restart_kills(self) -> bool:
        """Whether a restart of slurmd would end jobs."""
        return self.active and self.kill_mode not in _KEEPS_JOBS


def shared(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files that must be the same everywhere: slurm.conf, gres.conf, their includes, and topology.conf."""
    out: dict[str, str] = {}

    def add(name: str) -> None:
        if name in files and name not in out:
            out[name] = files[name]
            for included in slurm_conf.includes(files[name]):
                add(included)

    for name in (MAIN, GRES_MAIN, TOPOLOGY):
        add(name)
    return out


def digests(files: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return name -> SHA-256 of the text as a node has it."""
    return {
        name: None if text is None else hashlib.sha256(text.encode(program.BYTES)).hexdigest()
        for name, text in files.items()
    }


@dataclass(frozen=True, slots=True)
class NotWritten:
    """Why a node was not written. ``changed``: names of files there that are neither the old nor the new ones."""

    why: str
    changed: str = ""


class SlurmNodes:
    """Nodes that have Slurm's files in ``folder``."""

    def __init__(self, runner: Finishing, folder: str) -> None:
        self._runner = runner
        self._folder = folder

    def look(self, nodes: Sequence[str]) -> dict[str, NodeLook | str]:
        """Return each node's files, or why they are unknown."""

        def one(node: str) -> NodeLook | str:
            found = self._ask(node, {"op": "look"}, _LOOK_S, whole=False)
            if isinstance(found, str):
                return found
            return NodeLook(
                found["files"],
                found["active"],
                found["kill_mode"],
                frozenset(found["ours"]),
                frozenset(found["links"]),
                found["filesystem"],
            )

        return _each(nodes, one)

    def write(
        self,
        nodes: Sequence[str],
        files: Mapping[str, str | None],
        instead: Mapping[str, str | None],
        anything: frozenset[str] = frozenset(),
        more: Mapping[str, Mapping[str, str]] | None = None,
        *,
        restart: bool = True,
    ) -> dict[str, NotWritten]:
        """Write files on nodes, restart slurmd where it runs, and return node -> why it failed; {} when none did.

        ``instead``: name -> text that may be there now, beside the new one; on ``anything`` any may. ``more``: further
        files of a node. The operator cannot stop this in between.
        """
        base = {"op": "write", "instead": digests(instead), "restart": restart}

        def one(node: str) -> NotWritten | None:
            asked = {
                **base,
                "files": {**files, **(more or {}).get(node, {})},
                "anything": node in anything,
            }
            found = self._ask(node, asked, _WRITE_S, whole=True)
            if isinstance(found, str):
                return NotWritten(found)
            if found["result"] == "differs":
                names = ", ".join(found["words"])
                return NotWritten(f"{names} changed meanwhile", names)
            if found["result"] == "not-restarted":
                return NotWritten(f"slurmd does not start: {'; '.join(found['words'])}")
            return None

        return {node: failed for node, failed in _each(nodes, one).items() if failed is not None}

    def _ask(self, node: str, asked: dict[str, Any], limit_s: float, *, whole: bool) -> dict[str, Any] | str:
        request = json.dumps({"folder": self._folder, "unit": UNIT, **asked})
        source = with_request(one_file([program.__name__]), request)
        answer = self._runner.run(node, ARGV, stdin=source, timeout_s=limit_s, cleaning=whole)
        found, why = document(answer, program.FORMAT)
        if why:
            return why.removeprefix(f"{node}: ")
        return found if found["result"] != "os-error" else "; ".join(found["words"])


def _each(nodes: Sequence[str], one: Callable[[str], _T]) -> dict[str, _T]:
    with ThreadPoolExecutor(max_workers=max(1, min(_AT_ONCE, len(nodes))), thread_name_prefix="slurm-nodes") as pool:
        return dict(zip(nodes, pool.map(one, nodes), strict=True))
