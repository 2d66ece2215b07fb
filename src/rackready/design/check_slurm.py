"""Checks of a handover to Slurm against the rest of the site."""

from __future__ import annotations

from rackready.design.handover_of import handover_places
from rackready.design.site_flaws import Flaw, Loc, Subject
from rackready.model.operations import files_of


def check_slurm(subject: Subject) -> list[Flaw]:
    """Return the launcher srun where nodes enter Slurm's files only once they are certified.

    A gate of several nodes would reserve nodes that Slurm does not know, so no new node could ever be certified.
    """
    out = []
    for here, site in handover_places(subject.site):
        if site.gates.launcher == "srun" and files_of(site.handover) is not None:
            own = site.part is not None and site.part.launcher is not None
            out.append(_flaw((*here[:-1], "launcher") if own else ("gates", "launcher"), here))
    return out


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
