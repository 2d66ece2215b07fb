"""What a tenant left on a node and on its BMC: found, and removed (`rackready hand-back`).

The work on the node is two programs, ``ondevice/tenant_traces.py`` and ``ondevice/scratch_erase.py``, sent over SSH.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from rackready.drivers.one_file import one_file
from rackready.drivers.program_answer import document
from rackready.drivers.remote import Runner
from rackready.model.bmc import Bmc as BmcSite
from rackready.model.hand_back import HandBack
from rackready.model.problems import RackreadyError
from rackready.ondevice import (
    network_mounts,
    nvme_admin,
    safe_files,
    scratch_arrays,
    scratch_drives,
    scratch_erase,
    tenant_keys,
    tenant_traces,
    tenants,
)

PROCESS, GPU_MEMORY, ELSEWHERE = "process", "gpu-memory", "elsewhere"
_PARTS = [
    part.__name__
    for part in (network_mounts, safe_files, tenants, tenant_keys, nvme_admin, scratch_drives, scratch_arrays)
]
"""What the programs import, in this order."""
_LOOK_S, _SCRUB_S = 900.0, 1800.0
"""Longest look and scrub, s. Judgement: all files of the node's own disks are looked at."""
_AROUND_S = 1800.0
"""Longest time that an erase of scratch needs beside that of its drives, s. Judgement: marks, arrays, file systems."""
_SHOWN = 5


class TenantTracesError(RackreadyError):
    """A node's traces cannot be read or removed."""


@dataclass(frozen=True, slots=True)
class Left:
    """What was found. ``traces``: kind -> what is there; ``counts``: kind -> how many; ``refused``: why none may go."""

    traces: dict[str, list[str]]
    counts: dict[str, int]
    refused: str = ""
    gone: int = 0

    def words(self, but: Sequence[str] = ()) -> list[str]:
        """Return a line for each kind but some, the first few named."""
        out = []
        for kind, number in ((kind, number) for kind, number in self.counts.items() if kind not in but):
            named = self.traces.get(kind, [])[:_SHOWN]
            more = f" and {number - len(named)} more" if number > len(named) else ""
            out.append(f"{kind}: {'; '.join(named)}{more}")
        return out


@dataclass(frozen=True, slots=True)
class Scratch:
    """Scratch disks. ``plans``: mount point and drives, in words; ``erased``: drives; ``begun``: by a killed run."""

    plans: list[str]
    erased: list[str]
    refused: str = ""
    begun: bool = False


class TenantNode:
    """One node between two tenants. Every method raises TenantTracesError when the node gives no whole answer."""

    def __init__(self, runner: Runner, node: str, wanted: HandBack, login: str, key: str) -> None:
        self._runner, self._node, self._wanted = runner, node, wanted
        self._request = {
            "keep_users": [login, *wanted.keep_users],
            "keep_keys": [key, *wanted.keep_keys],
            "login": login,
            "empty": list(wanted.empty),
            "spare": [*wanted.scratch, *wanted.spare],
        }

    def traces(self, *, scrub: bool) -> Left:
        """Return what a tenant left, after a scrub what is still there."""
        request = {**self._request, "op": "scrub" if scrub else "look"}
        found = self._ask(tenant_traces, request, _SCRUB_S if scrub else _LOOK_S)
        traces: dict[str, list[str]] = {}
        for item in found["found"]:
            traces.setdefault(item["kind"], []).append(item["what"])
        return Left(traces, found["counts"], found["refused"], found["gone"])

    def scratch(self, *, erase: bool) -> Scratch:
        """Return what the scratch disks are, and erase them if asked. Sites without scratch ask nothing."""
        if not self._wanted.scratch:
            return Scratch([], [])
        request = {"op": "look", "scratch": list(self._wanted.scratch)}
        found = self._ask(scratch_erase, request, _LOOK_S)
        if erase and not found["refused"]:
            found = self._ask(scratch_erase, {**request, "op": "erase"}, found["longest_s"] + _AROUND_S)
        plans = [f"{plan['mount']} ({plan['kind']}) on {', '.join(plan['members'])}" for plan in found["plans"]]
        return Scratch(plans, found["erased"], found["refused"], found["begun"])

    def _ask(self, program: ModuleType, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        argv, text = ["python3", "-", json.dumps(request)], one_file([*_PARTS, program.__name__])
        answer = self._runner.run(self._node, argv, stdin=text, timeout_s=limit_s)
        found, actual = document(answer, program.FORMAT)
        if not actual:
            return found
        raise TenantTracesError(
            self._node,
            "what its tenant left",
            expected="an answer from the node",
            actual=actual,
            next_step="Check that the node answers and has python3, then run again: it starts again.",
        )


def strangers(accounts: Sequence[str], bmc: BmcSite, wanted: HandBack) -> list[str]:
    """Return the enabled accounts of a BMC that the site does not name."""
    return [name for name in accounts if name not in {bmc.username, *wanted.bmc_accounts}]
