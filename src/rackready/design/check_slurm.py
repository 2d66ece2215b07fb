"""Checks of a handover to Slurm against the rest of the site."""

from __future__ import annotations

from rackready.design.flaw import Flaw, Subject
from rackready.model.operations import files_of


def check_slurm(subject: Subject) -> list[Flaw]:
    """Return the launcher srun where nodes enter Slurm's files only once they are certified.

    A gate of several nodes would reserve nodes that Slurm does not know, so no new node could ever be certified.
    """
    site = subject.site
    if site.gates.launcher != "srun" or files_of(site.handover) is None:
        return []
    return [
        Flaw.of(
            ("gates", "launcher"),
            "launcher of gates on several nodes beside handover.files",
            "Remove gates.launcher; or remove handover.files and write the nodes into Slurm's files yourself.",
            expected="openmpi: rackready adds a node to Slurm once its gates passed",
            actual="srun, which needs the node in Slurm before",
            reads=(("handover", "files"),),
        )
    ]
