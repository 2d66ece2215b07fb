"""The launcher srun and a handover that writes Slurm's files cannot go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.design.site import parse_site
from rackready.design.yaml import read_judged
from rackready.model.problems import SiteInvalidError
from rackready.model.site import Site

SITE = Path(__file__).resolve().parents[3] / "inventories/sim/site.yml"


def parse(launcher: str, files: dict[str, Any] | None) -> Site:
    document, _ = read_judged(SITE)
    document["gates"]["launcher"] = launcher
    document["handover"] |= {"files": files} if files else {}
    return parse_site(document, source="site.yml", base=Path("/base"))


def test_nodes_that_enter_slurm_once_certified_cannot_be_measured_by_it() -> None:
    with pytest.raises(SiteInvalidError) as caught:
        parse("srun", {"folder": "/etc/slurm"})
    assert [str(problem) for problem in caught.value.problems] == [
        (
            "gates.launcher: launcher of gates on several nodes beside handover.files - Expected: openmpi: "
            "rackready adds a node to Slurm once its gates passed Actual: srun, which needs the node in Slurm before. "
            "Remove gates.launcher; or remove handover.files and write the nodes into Slurm's files yourself."
        )
    ]


@pytest.mark.parametrize(("launcher", "files"), [("srun", None), ("openmpi", {"folder": "/etc/slurm"})])
def test_each_alone_is_good(launcher: str, files: dict[str, Any] | None) -> None:
    assert parse(launcher, files).gates.launcher == launcher
