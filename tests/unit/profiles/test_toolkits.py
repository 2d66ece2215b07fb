"""Version sets with several CUDA toolkits: side by side on a node, the newest as the default."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from rackready.design.facts import node_facts
from rackready.design.hostvars import site_vars
from rackready.drivers.role_packages import asked_for
from rackready.gates.host.versions import wanted_packages
from rackready.model.site import Site
from rackready.model.software import SoftwareProfile
from rackready.profiles import loader, scope
from rackready_sim.packages.recipes import packages
from tests.own_set import site_with

ROOT = Path(__file__).resolve().parents[3]
SET = "hgx-r580-ubuntu2404"
BOTH = {"cuda-toolkit-13-0": "13.0.2-1", "cuda-toolkit-12-9": "12.9.1-1"}


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    yield
    scope.use(())


def document(**changes: Any) -> dict[str, Any]:
    found = yaml.safe_load((Path(loader.__file__).parent / f"software/{SET}.yml").read_text(encoding="utf-8"))
    return found | {"id": "own", "cuda_packages": BOTH} | changes


def site(tmp_path: Path, **changes: Any) -> Site:
    return site_with(tmp_path, document(**changes))


def test_role_mirror_and_gate_get_both_toolkits(tmp_path: Path) -> None:
    found = site(tmp_path)
    known = site_vars(found)
    assert known["cuda_toolkit_packages"] == BOTH
    assert (known["cuda_toolkit_versions"], known["cuda_toolkit_default"]) == (["12.9", "13.0"], "13.0")
    assert asked_for(found, ROOT, loader.platform("dgx_h100")).roles["cuda_toolkit"] == BOTH
    assert BOTH.items() <= wanted_packages(node_facts(found, "node01")).items()


def test_the_driver_is_judged_by_the_newest_toolkit(tmp_path: Path) -> None:
    """An older toolkit runs on every newer driver; forward compatibility of the newest serves both."""
    old = document()
    text = yaml.safe_dump(old["driver"][580]).replace("580.173.02", "570.1.02")
    driver = {570: yaml.safe_load(text) | {"end_of_life": "2099-01", "pinning": ""}}
    known = site_vars(site(tmp_path, default_branch=570, driver=driver))
    assert known["cuda_toolkit_compat"] == {"cuda-compat-13-0": ""}
    assert known["cuda_toolkit_compat_folder"] == "/usr/local/cuda-13.0/compat"
    assert known["dcgm_cuda_major"] == 13


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"cuda": "12.9"}, "cuda: 12.9 is not the newest toolkit of cuda_packages, 13.0"),
        (
            {"cuda": "13.9", "cuda_packages": {"cuda-toolkit-13-9": "1-1", "cuda-toolkit-13-10": "1-1"}},
            "cuda: 13.9 is not the newest toolkit of cuda_packages, 13.10",
        ),
    ],
    ids=["an older one", "numbers, not letters"],
)
def test_another_default_than_the_newest_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SoftwareProfile.model_validate(document(**changes))
    assert [item["msg"].removeprefix("Value error, ") for item in caught.value.errors()] == [text]


def test_a_set_without_a_toolkit_metapackage_is_read() -> None:
    found = SoftwareProfile.model_validate(document(cuda_packages={"cuda-libraries-13-0": "13.0.2-1"}))
    assert found.toolkits == []


def test_the_simulated_mirror_has_both_and_one_of_them_is_the_default() -> None:
    made = {item.name: item for item in packages(SoftwareProfile.model_validate(document()), "580.173.02")}
    for release in ("12.9", "13.0"):
        dashed = release.replace(".", "-")
        assert f"/usr/local/cuda-{release}/bin/nvcc" in made[f"cuda-nvcc-{dashed}"].files
        assert f"/usr/local/cuda-{release}/version.json" in made[f"cuda-toolkit-{dashed}"].files
    links = [item.links for item in made.values() if "/usr/local/cuda" in item.links]
    assert links == [{"/usr/local/cuda": "cuda-13.0"}]
