"""The share of a node that a step of `srun` asks for. Pure.

A step gets only the GPUs that it asks for: `--exclusive` gives the job the whole node, but no `--gres` to its steps
(Slurm, src/stepmgr/stepmgr.c, _copy_job_tres_to_step), and one CPU a task, since it implies `--exact`
(src/common/slurm_opt.c, arg_set_exclusive; src/srun/launch.c). Where slurmd constrains devices and cores
(cgroup.conf(5)), the program would see no GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.slurm_text import field_of
from rackready.model.problems import Problem

_BETWEEN = re.compile(r",(?![^()]*\))")
"""Between two entries of Gres; a comma in parentheses is part of a list of sockets, as in gpu:h100:8(S:0,2)."""


@dataclass(frozen=True, slots=True)
class Equipment:
    """A node's GPUs, CPUs and CPUs of a core, as slurmctld knows them."""

    gpus: int
    cpus: int
    threads: int

    def share(self, ranks: int) -> int:
        """Return the CPUs of each of so many processes: whole cores, since Slurm gives no core to two of them."""
        share = self.cpus // ranks
        return share - share % self.threads


def parse_equipment(node: str, line: str) -> Equipment:
    """Return the equipment of a line of `scontrol show node --oneliner`. Raises SchedulerError for any other text.

    CPUEfctv leaves out the cores that slurmd keeps for itself (CoreSpecCount); Slurm has it from 22.05.
    """
    cpus, threads = field_of(line, "CPUEfctv") or field_of(line, "CPUTot"), field_of(line, "ThreadsPerCore")
    if not cpus.isdigit() or not threads.isdigit() or not int(threads):
        raise SchedulerError(
            node,
            "`scontrol show node`",
            expected="CPUTot=... ThreadsPerCore=...",
            actual=" ".join(line.split())[:200] or "nothing",
            next_step="Run it on the controller; its release may print another format.",
        )
    return Equipment(_gpus(field_of(line, "Gres")), int(cpus), int(threads))


def _gpus(gres: str) -> int:
    """Return the number of GPUs in Gres, e.g. gpu:h100:8(S:0-1): the type may lack, and the number where it is 1."""
    words = [entry.split("(")[0].split(":") for entry in _BETWEEN.split(gres)]
    return sum(int(last) if (last := entry[-1]).isdigit() else 1 for entry in words if entry[0] == "gpu")


def options(where: str, found: Mapping[str, Equipment], wanted: Mapping[str, int]) -> tuple[str, ...]:
    """Return the options of a step with one process for each GPU of these nodes. Raises SchedulerError.

    ``wanted``: the GPUs of each node. A cluster without GPUs in Gres cannot withhold any, and refuses to be asked.
    """
    counted = any(node.gpus for node in found.values())
    if counted and (problems := list(_others(where, found, wanted))):
        raise SchedulerError.of(problems)
    gres = (f"--gres=gpu:{max(wanted.values())}",) if counted else ()
    share = min(node.share(wanted[name]) for name, node in found.items())
    return (*gres, f"--cpus-per-task={share}") if share else gres


def _others(where: str, found: Mapping[str, Equipment], wanted: Mapping[str, int]) -> Iterator[Problem]:
    for name, node in sorted(found.items()):
        if node.gpus != wanted[name]:
            yield Problem.of(
                name,
                f"GPUs in Slurm on {where}",
                "Nothing was started. Correct Gres of the node in slurm.conf and gres.conf, then `scontrol "
                "reconfigure`; or use the launcher openmpi.",
                expected=f"Gres=gpu:{wanted[name]}, as the platform has",
                actual=f"gpu:{node.gpus}" if node.gpus else "none, while other nodes of the program have some",
            )
