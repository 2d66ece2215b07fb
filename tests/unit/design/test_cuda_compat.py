"""CUDA forward compatibility: the package comes only where NVIDIA's table has the pair, and is refused elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design import facts
from rackready.design.facts import desired_digest
from rackready.design.hostvars import site_vars
from rackready.drivers.role_packages import asked_for
from rackready.model.problems import SiteInvalidError
from rackready.model.site import Site
from rackready.profiles import loader, scope
from tests.own_set import site_with

ROOT = Path(__file__).resolve().parents[3]
PACKAGED = Path(loader.__file__).parent


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    yield
    scope.use(())


def site(tmp_path: Path, branch: int, cuda: str, gpu: dict[str, Any] | None = None, **of_set: str) -> Site:
    """Return the simulated site with an own set of this branch and CUDA version; ``gpu``: changes of its GPU."""
    document = yaml.safe_load((PACKAGED / "software/hgx-r580-debian12.yml").read_text(encoding="utf-8"))
    driver = document["driver"][580]
    text = yaml.safe_dump(driver).replace("580.173.02", f"{branch}.1.02")
    toolkit = {f"cuda-toolkit-{cuda.replace('.', '-')}": f"{cuda}.2-1"}
    document |= {"default_branch": branch, "cuda": cuda, "cuda_packages": toolkit, **of_set}
    document["driver"] = {branch: yaml.safe_load(text) | {"end_of_life": "2099-01", "pinning": ""}}
    return site_with(tmp_path, document, gpu)


def compat(found: Site) -> tuple[dict[str, str], list[str], str]:
    known = site_vars(found)
    return (
        known["cuda_toolkit_compat"],
        known["cuda_toolkit_compat_absent"],
        known["cuda_toolkit_compat_folder"],
    )


@pytest.mark.parametrize(
    ("branch", "cuda", "package"),
    [
        (535, "13.0", "cuda-compat-13-0"),
        (570, "13.0", "cuda-compat-13-0"),
        (570, "13.4", "cuda-compat-13-4"),
    ],
)
def test_a_toolkit_of_a_newer_major_version_gets_its_package(
    tmp_path: Path, branch: int, cuda: str, package: str
) -> None:
    found = site(tmp_path, branch, cuda, cuda_compat="580.173.02-1")
    assert compat(found) == ({package: "580.173.02-1"}, [], f"/usr/local/cuda-{cuda}/compat")
    assert asked_for(found, ROOT, loader.platform("dgx_h100")).roles["cuda_toolkit"][package] == "580.173.02-1"


@pytest.mark.parametrize(
    ("branch", "cuda"),
    [(580, "13.0"), (580, "13.4"), (595, "13.0"), (535, "12.9"), (570, "12.9"), (580, "12.9")],
    ids=["own pair", "minor version", "older minor version", "R535 minor version", "R570 minor version", "backward"],
)
def test_within_a_major_version_no_package_is_installed(tmp_path: Path, branch: int, cuda: str) -> None:
    found = site(tmp_path, branch, cuda, cuda_compat="580.173.02-1")
    assert compat(found) == ({}, [f"cuda-compat-{cuda.replace('.', '-')}"], "")
    asked = asked_for(found, ROOT, loader.platform("dgx_h100")).roles["cuda_toolkit"]
    assert [name for name in asked if "compat" in name] == []


def refused(tmp_path: Path, *arguments: Any) -> list[str]:
    with pytest.raises(SiteInvalidError) as caught:
        site(tmp_path, *arguments)
    return [str(problem) for problem in caught.value.problems]


def test_a_branch_outside_the_table_is_refused(tmp_path: Path) -> None:
    text = (
        "software.driver_branch: branch 550 does not run CUDA 13.0 of software set own - Expected: branch 580 or "
        "newer, or 535, 570 with cuda-compat-13-0 Actual: a pair that NVIDIA's table of forward compatibility does not "
        "have. Choose another branch, or a set with an older CUDA."
    )
    assert refused(tmp_path, 550, "13.0") == [text]


def test_a_cuda_version_outside_the_table_is_refused(tmp_path: Path) -> None:
    text = (
        "software.driver_branch: branch 535 does not run CUDA 13.9 of software set own - Expected: branch 580 or newer "
        "Actual: a pair that NVIDIA's table of forward compatibility does not have. Choose another branch, or a set "
        "with an older CUDA."
    )
    assert refused(tmp_path, 535, "13.9") == [text]


def test_a_geforce_is_refused(tmp_path: Path) -> None:
    text = (
        "software.driver_branch: branch 570 runs CUDA 13.0 only with cuda-compat-13-0 - Expected: a data center GPU, "
        "or branch 580 or newer Actual: NVIDIA GeForce RTX 4090 (h100_sxm), on which NVIDIA does not support forward "
        "compatibility. Choose another branch, or a set with an older CUDA."
    )
    assert refused(tmp_path, 570, "13.0", {"product_name": "NVIDIA GeForce RTX 4090"}) == [text]


def test_a_geforce_without_need_of_the_package_is_not_refused(tmp_path: Path) -> None:
    assert compat(site(tmp_path, 580, "13.0", {"product_name": "NVIDIA GeForce RTX 4090"}))[0] == {}


def test_the_table_names_only_branches_that_the_minimum_excludes_or_minor_versions() -> None:
    known = loader.forward_compat()
    assert all(int(cuda.partition(".")[0]) in known.minimum for cuda in known.packages)
    assert [gpu for gpu in loader.known("gpu") if loader.gpu(gpu).product_name not in known.products] == [
        "rtx_pro_6000"
    ]


def test_sets_without_a_version_of_the_package_keep_their_digest(tmp_path: Path) -> None:
    plain = site(tmp_path / "a", 535, "13.0")
    before, software = desired_digest(plain, "node01"), loader.software("own")
    assert facts._unset(software) == {"absent", "cuda_compat"}
    other = site(tmp_path / "b", 535, "13.0", cuda_compat="580.1-1")
    assert desired_digest(other, "node01") != before
