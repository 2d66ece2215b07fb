"""gres.conf: rackready's part of it, and what others wrote that cannot stand beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rackready.drivers.scheduler.slurm_text import expand_hosts
from rackready.model.host_list import host_list
from rackready.model.problems import Problem, RackreadyError
from rackready.ondevice import slurm_conf
from rackready.render.slurm_files import GRES, NOT_DETECTED

MAIN = "gres.conf"


def own_gres(files: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return node -> its lines in our part of gres.conf, without its name. Raises SchedulerError."""
    out: dict[str, tuple[str, ...]] = {}
    for line in files.get(GRES, "").splitlines():
        hosts, _, rest = line.removeprefix("NodeName=").partition(" ")
        if line.startswith("NodeName=") and rest != NOT_DETECTED:
            for node in expand_hosts(hosts):
                out[node] = (*out.get(node, ()), rest)
    return out


def objections(place: str, files: Mapping[str, str], nodes: Sequence[str]) -> Iterator[Problem]:
    """Yield the lines of others that set AutoDetect on our nodes: with two values slurmd does not start (gres.c)."""
    for line in slurm_conf.every_line(files, MAIN):
        found = slurm_conf.words(line)
        if "nodename" not in found or found.get("autodetect", "off").lower() == "off":
            continue
        try:
            both = sorted(expand_hosts(found["nodename"]) & set(nodes))
        except RackreadyError:
            continue  # slurmd itself complains of it
        if both:
            yield Problem.of(
                place,
                f"AutoDetect of {host_list(both)}",
                "Take these nodes out of that line: rackready writes their GPUs.",
                expected=f"only `{NOT_DETECTED}` of {GRES}",
                actual=f"`{' '.join(line.split())}`",
            )
