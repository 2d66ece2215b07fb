"""Slurm's major releases, and those of slurmd that a slurmctld takes: pure.

Source: Slurm's upgrades.shtml, "Compatibility Window": the two previous major releases, from 24.11 on three; slurmctld
is upgraded before slurmd. A slurmd outside of that never registers (tried with 22.05.8 and 24.11.5).
"""

from __future__ import annotations

import re

from rackready.drivers.scheduler.base import SchedulerError

Release = tuple[int, int]
"""Year and month, e.g. (22, 5)."""
_UNEVEN: tuple[Release, ...] = ((20, 2), (20, 11), (21, 8), (22, 5), (23, 2), (23, 11))
"""Releases before the six-month cycle, which began with 24.05."""
_EVEN_MONTHS = (5, 11)
_FIRST_EVEN, _THREE_FROM = 24, (24, 11)
_VERSION = re.compile(r"^SLURM_VERSION\s*=\s*(\d+)\.(\d+)\.", re.MULTILINE)


def of_config(where: str, text: str) -> Release:
    """Return slurmctld's own release from `scontrol show config`. Raises SchedulerError."""
    match = _VERSION.search(text)
    if match is None:
        raise SchedulerError(
            where,
            "`scontrol show config`",
            expected="SLURM_VERSION = 24.11.5",
            actual=" ".join(text.split())[:120] or "nothing",
            next_step="Check that slurmctld runs there.",
        )
    return int(match[1]), int(match[2])


def named(release: Release) -> str:
    """Return a release as Slurm writes it: 22.05."""
    return f"{release[0]}.{release[1]:02d}"


def taken_by(slurmctld: Release) -> tuple[str, ...]:
    """Return the releases of slurmd that a slurmctld takes, its own first."""
    even = ((year, month) for year in range(_FIRST_EVEN, slurmctld[0] + 1) for month in _EVEN_MONTHS)
    older = [release for release in (*_UNEVEN, *even) if release < slurmctld]
    window = 3 if slurmctld >= _THREE_FROM else 2
    return tuple(named(release) for release in (slurmctld, *reversed(older[-window:])))
