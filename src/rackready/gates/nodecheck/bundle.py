"""Makes the check's one file for nodes, and says what is expected of each node. Not for nodes itself."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

from rackready.design.facts import NodeFacts, node_facts
from rackready.drivers.one_file import loaded
from rackready.gates.engine.registry import all_gates
from rackready.gates.gpu import xid_actions
from rackready.gates.nodecheck import rules
from rackready.gates.nodecheck.judge import CODES, ECC, GATES, SETTINGS, VERSIONS
from rackready.gates.nodecheck.program import FORMAT
from rackready.model.evidence import Fingerprint
from rackready.model.finding_kinds import KINDS
from rackready.model.site import Site
from rackready.model.slurm_files import SlurmChecks
from rackready.profiles import loader

MODULES = (
    "rackready.format_error",
    "rackready.gates.formats.smi_xml",
    "rackready.gates.formats.smi_nvlink",
    "rackready.gates.formats.kernel_log",
    "rackready.gates.nodecheck.rules",
    "rackready.gates.nodecheck.judge",
    "rackready.gates.nodecheck.program",
)
"""Modules of the program, each after those that it imports."""
_HEAD = '''#!/usr/bin/python3 -I
"""rackready's check of a node for Slurm: Prolog, Epilog and HealthCheckProgram. `--look` only prints.

Written by rackready, which replaces this file. It holds the gates' own readers and rules, module by module.
"""

import json
import sys
import types

'''
_TAIL = """
if __name__ == "__main__":
    sys.exit(sys.modules["rackready.gates.nodecheck.program"].main(TABLE, sys.argv[1:]))
"""
_FABRIC_MANAGER, _PERSISTENCED = "nvidia-fabricmanager.service", "nvidia-persistenced.service"
_WORDS = {True: "Enabled", False: "Disabled"}


def program() -> str:
    """Return the program as one file: the same for every node."""
    return f"{_HEAD}{loaded(MODULES)}TABLE = json.loads(r'''{json.dumps(table(), sort_keys=True)}''')\n{_TAIL}"


def table() -> dict[str, Any]:
    """Return the titles of findings, and the vendor's catalogue of Xids and SXids."""
    all_gates()
    known = loader.xids()
    return {
        "titles": {code: KINDS[code].title for code in CODES},
        "xids": {str(code): (xid.convenient or xid.action, xid.name) for code, xid in known.xids.items()},
        "sxids": {str(code): (sxid.kind, sxid.name) for code, sxid in known.sxids.items()},
        "nvlink5": {"old": xid_actions.nvlink5_rows(0), "new": xid_actions.nvlink5_rows(rules.NEW_DECODE)},
    }


def expected(site: Site, checks: SlurmChecks, found: Fingerprint, day: date) -> dict[str, Any]:
    """Return what is expected of a node: the GPUs of its fingerprint, and what its site and profiles say."""
    facts = node_facts(site, found.node)
    inputs = {entry.id: entry.inputs for entry in loader.gates_of(site.gates)}
    skips = sorted(set(site.gates.skipped(found.node, day)) & set(GATES))
    persistence = inputs.get(SETTINGS, {}).get("persistence")
    return {
        "format": FORMAT,
        "node": found.node,
        "gpus": list(found.gpus),
        "skips": skips,
        "ecc": _WORDS[bool(inputs.get(ECC, {}).get("enabled", True))],
        "persistence": _WORDS[facts.persistence if persistence is None else bool(persistence)],
        "fabric": _fabric(facts),
        "nvlinks": facts.gpu.nvlink.links if facts.gpu.nvlink is not None else 0,
        "units": [] if VERSIONS in skips else _units(facts),
        "filesystems": [str(path) for path in checks.filesystems],
        "least_free_pct": checks.least_free_pct,
        "limit_s": checks.limit_s,
    }


def _fabric(facts: NodeFacts) -> str:
    """Return whether GPUs register with the NVSwitch fabric; "silent": they may report no state (gates.gpu.fabric)."""
    if not facts.platform.nvswitch:
        return ""
    return "reported" if facts.gpu.registers else "silent"


def _units(facts: NodeFacts) -> list[str]:
    return [
        *([_FABRIC_MANAGER] if facts.platform.runs_fabric_manager else []),
        *([_PERSISTENCED] if facts.persistence else []),
    ]
