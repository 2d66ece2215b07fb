"""The launcher srun and a handover that writes Slurm's files cannot go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.site import parse_site
from rackready.design.yaml import read_judged
from rackready.model.problems import SiteInvalidError
from rackready.model.site import Site
from tests.unit.design.written import example

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


def on_nvl72(launcher: str, **handover: Any) -> Site:
    own = {"kind": "slurm", "controller": "198.18.0.9", "private_key": "keys/slurm"}
    document = example("gb200-nvl72-8-racks") | {"handover": own | handover}
    document["gates"]["launcher"] = launcher
    return parse_site(document, source="site.yml", base=Path("/base"))


def test_programs_outside_of_slurm_get_no_channel_of_its_jobs() -> None:
    with pytest.raises(SiteInvalidError) as caught:
        on_nvl72("openmpi", imex_channels="per_job")
    assert [str(problem) for problem in caught.value.problems] == [
        (
            "handover.imex_channels: IMEX channels of gates on several nodes, which openmpi starts - Expected: shared: "
            "rackready makes one channel for all Actual: per_job: Slurm makes one for each of its jobs. Set "
            "gates.launcher to srun (without handover.files); or leave out imex_channels and SwitchType."
        )
    ]


@pytest.mark.parametrize(("launcher", "channels"), [("srun", "per_job"), ("openmpi", "shared")])
def test_who_starts_programs_has_a_channel(launcher: str, channels: str) -> None:
    assert on_nvl72(launcher, imex_channels=channels).gates.launcher == launcher


def test_a_server_without_imex_needs_no_channel() -> None:
    document, _ = read_judged(SITE)
    document["handover"] |= {"imex_channels": "per_job"}
    assert parse_site(document, source="site.yml", base=Path("/base")).gates.launcher == "openmpi"


def test_an_unknown_platform_is_told_with_its_place() -> None:
    document = example("gb200-nvl72-8-racks")
    document["handover"] = {"kind": "slurm", "controller": "198.18.0.9", "private_key": "k", "imex_channels": "per_job"}
    document["gates"]["launcher"] = "openmpi"
    text = yaml.safe_dump(document).replace("gb200_nvl72", "gb200_nvl27")
    with pytest.raises(SiteInvalidError, match="gb200_nvl27"):
        parse_site(yaml.safe_load(text), source="site.yml", base=Path("/base"))
