"""Flavours of the driver's kernel modules: a set whose modules do not drive a GPU of its nodes is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

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


def site(tmp_path: Path, *, open_modules: bool, gpu: dict[str, Any]) -> Site:
    """Return the simulated site with an own set of one flavour; ``gpu``: changes of its GPU's profile."""
    document = yaml.safe_load((PACKAGED / "software/hgx-r580-debian12.yml").read_text(encoding="utf-8"))
    return site_with(tmp_path, document | {"open_modules": open_modules}, gpu)


def modules(*flavours: str) -> dict[str, Any]:
    return {"kernel_modules": {"flavours": list(flavours), "source": "a test"}}


@pytest.mark.parametrize(
    ("flavour", "other", "given"),
    [("proprietary", "open", "false"), ("open", "proprietary", "true")],
    ids=["proprietary on a GPU that needs open ones", "open on a GPU that is too old"],
)
def test_modules_that_do_not_drive_the_gpu_are_refused(tmp_path: Path, flavour: str, other: str, given: str) -> None:
    with pytest.raises(SiteInvalidError) as caught:
        site(tmp_path, open_modules=flavour == "open", gpu=modules(other))
    assert [str(problem) for problem in caught.value.problems] == [
        (
            f"software.set: the {flavour} kernel modules of software set own cannot drive NVIDIA H100 80GB HBM3 "
            f"(h100_sxm) - Expected: {other} modules Actual: open_modules: {given}. Choose a set with the other "
            "flavour, or correct open_modules of your own (profiles/software/)."
        )
    ]


@pytest.mark.parametrize("flavour", ["open", "proprietary"])
@pytest.mark.parametrize("gpu", [{}, modules("open", "proprietary"), {"kernel_modules": None}])
def test_a_gpu_with_both_flavours_or_none_published_takes_either(
    tmp_path: Path, flavour: str, gpu: dict[str, Any]
) -> None:
    assert site(tmp_path, open_modules=flavour == "open", gpu=gpu).software.set == "own"


@pytest.mark.parametrize("gpu", loader.known("gpu"))
def test_packaged_gpus_follow_nvidia_s_rule_of_architectures(gpu: str) -> None:
    """Blackwell: open alone; Turing to Hopper: both (developer blog of R560; installation guide, Kernel Modules)."""
    profile = loader.gpu(gpu)
    assert profile.kernel_modules is not None
    wanted = {
        "blackwell": ["open"],
        "hopper": ["open", "proprietary"],
        "ada": ["open", "proprietary"],
        "ampere": ["open", "proprietary"],
    }
    assert profile.kernel_modules.flavours == wanted[profile.architecture]
    assert profile.kernel_modules.source.startswith("NVIDIA")


@pytest.mark.parametrize("platform", ["dgx_b200", "dgx_b300", "gb200_nvl72", "gb300_nvl72", "xe7745_rtx_pro_6000"])
def test_every_blackwell_server_has_open_modules_alone(platform: str) -> None:
    found = loader.gpu(loader.platform(platform).gpu).kernel_modules
    assert found is not None
    assert found.flavours == ["open"]
