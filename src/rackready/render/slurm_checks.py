"""Settings of slurm.conf that make Slurm run our check of a node around jobs. Pure."""

from __future__ import annotations

from rackready.model.slurm_files import SlurmChecks

PROGRAM = "/usr/local/lib/rackready/slurm-check"
"""The check on a node; role slurm_node puts it there."""
NO_HOLD = "nohold_on_prolog_fail"
"""Without it Slurm holds a job whose prolog failed, instead of starting it elsewhere (slurm.conf(5))."""
KEYS = {"prolog": "Prolog", "epilog": "Epilog", "health": "HealthCheckProgram"}
_SPARE_S = 30
"""Time beside the check's own limit until Slurm ends a prolog, s: to start Python on a busy node. Our judgement."""


def settings_of(checks: SlurmChecks | None) -> dict[str, str]:
    """Return the settings, by key (slurm.conf(5)); {} without checks."""
    if checks is None:
        return {}
    out = {KEYS[at]: PROGRAM for at in KEYS if at in checks.at}
    if "prolog" in checks.at:
        # Alloc: on every node of a job when it is allocated, not only where its first step starts.
        out |= {"PrologFlags": "Alloc", "SchedulerParameters": NO_HOLD}
    if {"prolog", "epilog"} & set(checks.at):
        out["PrologEpilogTimeout"] = str(checks.limit_s + _SPARE_S)
    if "health" in checks.at:
        # CYCLE: spread over the interval, not all nodes at once.
        out |= {"HealthCheckInterval": str(checks.interval_s), "HealthCheckNodeState": "IDLE,CYCLE"}
    return out
