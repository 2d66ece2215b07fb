"""Our check of nodes in a cluster's slurm.conf, beside what others wrote there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from rackready.model.host_list import host_list
from rackready.model.problems import Problem
from rackready.model.slurm_files import SlurmChecks
from rackready.render.slurm_checks import KEYS, NO_HOLD, PROGRAM, settings_of
from rackready.render.slurm_files import NODES

_ALLOC = frozenset({"alloc", "contain", "x11", "nohold", "runinjob", "forcerequeueonfail"})
"""Flags that set Alloc (Slurm, src/common/read_config.c, prolog_str2flags); DeferBatch does not in every release."""
_SLURMCTLD_HOOKS = ("prologslurmctld", "epilogslurmctld")


def runs_it(files: Mapping[str, str]) -> bool:
    """Return whether our part of slurm.conf makes Slurm run the check."""
    lines = {f"{key}={PROGRAM}" for key in KEYS.values()}
    return bool(lines & set(files.get(NODES, "").splitlines()))


def settings_beside(checks: SlurmChecks | None, theirs: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that we write. ``theirs``: key (lower case) -> value that others wrote, which stays.

    The time limit of prologs is left to the owner of a prolog on the controller, for which it counts, too.
    """
    out = settings_of(checks)
    if any(key in theirs for key in _SLURMCTLD_HOOKS):
        out.pop("PrologEpilogTimeout", None)
    return out


def objections(
    place: str, checks: SlurmChecks | None, theirs: Mapping[str, str], nodes_of_others: AbstractSet[str]
) -> Iterator[Problem]:
    """Yield why Slurm cannot run the check beside what others wrote."""
    if checks is None:
        return
    for at in checks.at:
        value = theirs.get(KEYS[at].lower(), PROGRAM)
        if value != PROGRAM:
            yield Problem.of(
                place,
                KEYS[at],
                f"Let that program call {PROGRAM} and take {at} out of handover.files.checks.at, or remove the line.",
                expected=f"{PROGRAM}, or not set",
                actual=value,
            )
    yield from _values(place, checks, theirs)
    yield from _flags(place, checks, theirs.get("prologflags", ""))
    yield from _times(place, checks, theirs)
    if nodes_of_others and not checks.others and {"prolog", "epilog"} & set(checks.at):
        yield Problem.of(
            place,
            f"NodeName of {host_list(nodes_of_others)}",
            f"Put {PROGRAM} and its file /etc/rackready/slurm-check.json on them and set handover.files.checks.others, "
            "or take prolog and epilog out of handover.files.checks.at.",
            expected="only nodes that rackready hands over: Slurm runs prolog and epilog on every node",
            actual="defined by somebody else",
        )


def _values(place: str, checks: SlurmChecks, theirs: Mapping[str, str]) -> Iterator[Problem]:
    parameters = theirs.get("schedulerparameters", NO_HOLD)
    if "prolog" in checks.at and NO_HOLD not in parameters.split(","):
        yield Problem.of(
            place,
            "SchedulerParameters",
            "Add it: else Slurm holds a job whose prolog found a fault.",
            expected=f"{NO_HOLD} among them",
            actual=parameters,
        )
    if "health" in checks.at and theirs.get("healthcheckinterval") == "0":
        yield Problem.of(
            place,
            "HealthCheckInterval",
            "Remove the line, or take health out of handover.files.checks.at.",
            expected="not 0, which turns the health check off",
            actual="0",
        )


def _flags(place: str, checks: SlurmChecks, value: str) -> Iterator[Problem]:
    flags = frozenset(value.lower().split(","))
    if "runinjob" in flags and {"prolog", "epilog"} & set(checks.at):
        yield Problem.of(
            place,
            "PrologFlags",
            "Remove it, or take prolog and epilog out of handover.files.checks.at: with it they run inside the job, "
            "where ConstrainDevices hides GPUs that are not the job's.",
            expected="without RunInJob",
            actual=value,
        )
    if value and "prolog" in checks.at and not flags & _ALLOC:
        yield Problem.of(
            place,
            "PrologFlags",
            "Add it: else Slurm checks a node only when the job's first step starts there.",
            expected="Alloc among them",
            actual=value,
        )


def _times(place: str, checks: SlurmChecks, theirs: Mapping[str, str]) -> Iterator[Problem]:
    """Yield time limits that would cut the check off. From Slurm 25.05 prolog and epilog may have their own."""
    keys = [f"{at.capitalize()}Timeout" for at in ("prolog", "epilog") if at in checks.at]
    for key in dict.fromkeys(key if key.lower() in theirs else "PrologEpilogTimeout" for key in keys):
        value = theirs.get(key.lower(), "")
        if value.isdigit() and int(value) < checks.limit_s:
            yield Problem.of(
                place,
                key,
                "Raise it, or lower handover.files.checks.limit_s: Slurm drains a node whose prolog or epilog it cut "
                "off.",
                expected=f"at least {checks.limit_s} s (handover.files.checks.limit_s)",
                actual=f"{value} s",
            )
