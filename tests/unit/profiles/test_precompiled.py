"""Version sets with modules that Ubuntu built and signed: which are refused, and what role and mirror get."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from rackready.design.facts import desired_digest
from rackready.design.hostvars import site_vars
from rackready.drivers.role_packages import asked_for
from rackready.model.site import Site
from rackready.model.software import SoftwareProfile
from rackready.profiles import loader, scope
from tests.own_set import site_with

ROOT = Path(__file__).resolve().parents[3]
PACKAGED = Path(loader.__file__).parent / "software"
MODULES = "linux-modules-nvidia-580-server-open-KERNEL"
SUFFIX = "0ubuntu0.24.04.1"
# Names: NVIDIA/gpu-driver-container 09dc954, ubuntu24.04/precompiled; version: the mirror of a site has its own.
ARCHIVE = {
    "nvidia-headless-no-dkms-580-server-open": f"580.173.02-{SUFFIX}",
    "nvidia-utils-580-server": f"580.173.02-{SUFFIX}",
}


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    yield
    scope.use(())


def document(name: str = "hgx-r580-ubuntu2404", **changes: Any) -> dict[str, Any]:
    """Return a packaged set with precompiled modules; ``changes``: of its driver, and of the set itself."""
    found = yaml.safe_load((PACKAGED / f"{name}.yml").read_text(encoding="utf-8"))
    of_set = {key: changes.pop(key) for key in ("open_modules",) if key in changes}
    own = {"precompiled": {MODULES: ""}, "packages": ARCHIVE, "pinning": ""}
    found["driver"][580] |= own | changes
    return found | of_set


def wrong(name: str = "hgx-r580-ubuntu2404", **changes: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        SoftwareProfile.model_validate(document(name, **changes))
    [error] = caught.value.errors()
    return str(error["msg"]).removeprefix("Value error, ")


def test_a_set_with_precompiled_modules_is_read() -> None:
    found = SoftwareProfile.model_validate(document())
    assert found.driver[580].precompiled == {MODULES: ""}
    desktop = {MODULES.replace("-server", ""): "", "linux-signatures-nvidia-KERNEL": ""}
    assert SoftwareProfile.model_validate(document(precompiled=desktop))
    closed = {
        "linux-objects-nvidia-580-server-KERNEL": "",
        "linux-modules-nvidia-580-server-KERNEL": "",
        "linux-signatures-nvidia-KERNEL": "",
    }
    assert SoftwareProfile.model_validate(document(precompiled=closed, open_modules=False))


def test_other_systems_are_refused_with_the_reason() -> None:
    assert wrong("hgx-r580-el9") == (
        "driver.580.precompiled: NVIDIA has no precompiled open module of branch 580 for RHEL 9, and no source names "
        "the proprietary one's package"
    )
    assert wrong("hgx-r580-debian12") == "driver.580.precompiled: no source names such packages for debian12"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"precompiled": {"linux-modules-nvidia-580-server-open-6.8.0-142-generic": ""}},
            (
                "linux-modules-nvidia-580-server-open-6.8.0-142-generic is not linux-modules-nvidia-...-KERNEL, nor "
                "its objects or signatures"
            ),
        ),
        (
            {"precompiled": {"linux-headers-KERNEL": ""}},
            "linux-headers-KERNEL is not linux-modules-nvidia-...-KERNEL, nor its objects or signatures",
        ),
        (
            {"open_modules": False},
            (
                "linux-modules-nvidia-580-server-KERNEL or linux-modules-nvidia-580-KERNEL is missing "
                "(open_modules: false)"
            ),
        ),
        (
            {"precompiled": {"linux-modules-nvidia-595-server-open-KERNEL": ""}},
            (
                "linux-modules-nvidia-580-server-open-KERNEL or linux-modules-nvidia-580-open-KERNEL is missing "
                "(open_modules: true)"
            ),
        ),
        (
            {"packages": ARCHIVE | {"nvidia-dkms-580-open": "580.173.02-1ubuntu1"}},
            "nvidia-dkms-580-open of packages builds the module, too",
        ),
    ],
    ids=["one kernel", "no module", "other flavour", "other branch", "dkms beside it"],
)
def test_a_wrong_list_is_refused(changes: dict[str, Any], text: str) -> None:
    assert wrong(**changes) == f"driver.580.precompiled: {text}"


def site(tmp_path: Path, **changes: Any) -> Site:
    """Return the simulated site with an own set: precompiled, and with these changes of its driver."""
    return site_with(tmp_path, document(**changes))


def test_role_and_mirror_get_modules_of_the_kernel_and_no_build_tools(tmp_path: Path) -> None:
    found = site(tmp_path)
    assert site_vars(found)["nvidia_driver_precompiled"] == {MODULES: ""}
    asked = asked_for(found, ROOT, loader.platform("dgx_h100"))
    assert asked.roles["nvidia_driver"] == ARCHIVE
    assert (asked.build, asked.headers) == ((), (MODULES,))
    wanted = asked.packages(("6.8.0-142-generic",))
    assert [name for name in wanted if "dkms" in name or "headers" in name] == [
        "nvidia-headless-no-dkms-580-server-open"
    ]
    assert "linux-modules-nvidia-580-server-open-6.8.0-142-generic" in wanted


def test_a_set_that_builds_asks_for_headers_as_before(tmp_path: Path) -> None:
    found = site(tmp_path, precompiled={})
    asked = asked_for(found, ROOT, loader.platform("dgx_h100"))
    assert asked.headers == ("linux-headers-KERNEL",)
    assert set(asked.build) == {"dkms", "gcc", "make"}


def test_the_list_is_part_of_a_node_s_digest(tmp_path: Path) -> None:
    digests = {desired_digest(site(tmp_path, precompiled=own), "node01") for own in ({}, {MODULES: ""})}
    assert len(digests) == 2
