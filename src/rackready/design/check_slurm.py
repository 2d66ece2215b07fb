"""Checks of a handover to Slurm against the rest of the site."""

from __future__ import annotations

from collections.abc import Iterator

from rackready.design.handover_of import handover_places, served
from rackready.design.site_flaws import Flaw, Loc, Subject
from rackready.model.operations import SlurmHandover, files_of
from rackready.model.site import Site
from rackready.profiles import loader


def check_slurm(subject: Subject) -> list[Flaw]:
    """Return launchers that cannot measure several nodes.

    srun would reserve nodes that Slurm does not know where nodes enter its files only once they are certified, so no
    new node could ever be certified. Programs of any other launcher are no job of Slurm, so they get no IMEX channel
    from it.
    """
    out = []
    for here, site in handover_places(subject.site):
        if site.gates.launcher == "srun" and files_of(site.handover) is not None:
            own = site.part is not None and site.part.launcher is not None
            out.append(_flaw((*here[:-1], "launcher") if own else ("gates", "launcher"), here))
        out += _channels(here, site)
    return out


def _channels(here: Loc, site: Site) -> Iterator[Flaw]:
    """Yield channels that jobs of Slurm alone get, where gates over an NVLink domain run outside of Slurm."""
    handover = site.handover
    if not isinstance(handover, SlurmHandover) or handover.imex_channels == "shared" or site.gates.launcher == "srun":
        return
    platforms = {node.platform for node in served(site)} & set(loader.known("platform"))
    if any(loader.platform(name).runs_imex for name in platforms):
        yield Flaw.of(
            (*here, "imex_channels"),
            f"IMEX channels of gates on several nodes, which {site.gates.launcher} starts",
            "Set gates.launcher to srun (without handover.files); or leave out imex_channels and SwitchType.",
            expected="shared: rackready makes one channel for all",
            actual="per_job: Slurm makes one for each of its jobs",
        )


def _flaw(loc: Loc, here: Loc) -> Flaw:
    key = "launcher" if loc[0] == here[0] else "gates.launcher"
    return Flaw.of(
        loc,
        "launcher of gates on several nodes beside handover.files",
        f"Remove {key}; or remove handover.files and write the nodes into Slurm's files yourself.",
        expected="openmpi: rackready adds a node to Slurm once its gates passed",
        actual="srun, which needs the node in Slurm before",
        reads=((*here, "files"),),
    )
