"""Files of roles are parsed once a process, and anew when their text changes."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import yaml

from rackready.design.site import load_site
from rackready.drivers import role_packages
from rackready.drivers.role_packages import Asked, asked_for
from rackready.model.site import Site
from rackready.profiles import loader
from rackready_sim.packages import recipes

ROOT = Path(__file__).resolve().parents[3]


def asked(site: Site, group_vars: Path | None = None) -> Asked:
    return asked_for(site, ROOT, loader.platform("dgx_h100"), group_vars)


def test_a_second_platform_parses_no_file_again() -> None:
    site = load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=Path("/checkout"))
    first = asked(site)
    parsed = role_packages._parsed.cache_info().misses
    assert asked_for(site, ROOT, loader.platform("dgx_b200")).roles != {}
    assert asked(site) == first
    assert role_packages._parsed.cache_info().misses == parsed


def test_a_file_that_changed_is_read_anew(tmp_path: Path) -> None:
    site = load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=Path("/checkout"))
    for version in ("1.2-1", "1.3-1"):
        values = {"cuda_toolkit_packages": {"cuda-toolkit-12-8": version}}
        (tmp_path / "all.yml").write_text(yaml.safe_dump(values), encoding="utf-8")
        assert asked(site, tmp_path).roles["cuda_toolkit"] == {"cuda-toolkit-12-8": version}


def test_recommended_packages_that_the_roles_need_are_asked_for_where_dnf_leaves_them_out() -> None:
    site = load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=Path("/checkout"))
    software = site.software.model_copy(update={"set": "hgx-r580-el9"})
    found = asked(site.model_copy(update={"software": software}))
    assert "fio-engine-libaio" in found.roles["base"]
    assert "openssl" in found.build


@pytest.mark.parametrize(
    ("software", "stack", "pinned"),
    [
        ("hgx-r580-ubuntu2404", "doca", True),
        ("hgx-r580-ubuntu2404", "inbox", False),
        ("hgx-r580-el9", "doca", False),
    ],
)
def test_doca_s_own_dkms_is_pinned_away_where_apt_installs(software: str, stack: str, pinned: bool) -> None:  # noqa: FBT001 - a case
    site = load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=Path("/checkout"))
    change = {"set": software, "nic_stack": stack}
    pins = asked(site.model_copy(update={"software": site.software.model_copy(update=change)})).pins
    assert ("Package: dkms\nPin: release l=DOCA-HOST*\nPin-Priority: -1\n" in pins) is pinned
    if software != "hgx-r580-el9":
        driver = pins.split("\n\n")[0]
        assert "Pin-Priority: 1001" in driver


def of_set(name: str, **changes: object) -> Asked:
    site = load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=Path("/checkout"))
    return asked(site.model_copy(update={"software": site.software.model_copy(update={"set": name, **changes})}))


@pytest.mark.parametrize("name", [name for name in loader.known("software") if not name.endswith("el9")])
def test_every_package_that_the_driver_brings_in_its_version_is_pinned(name: str) -> None:
    """Unpinned, apt takes the newest one, and refuses the driver for it."""
    software = loader.software(name)
    own = software.driver[software.default_branch]
    offered = {item.name: item for item in recipes.packages(software, own.version) if own.version in item.version}
    closure, todo = set[str](), {*own.packages, *own.persistence, *own.fabric, *own.imex}
    while todo:
        closure |= todo
        needs = " ".join(offered[one].fields.get("Depends", "") for one in todo if one in offered)
        todo = set(re.findall(r"[a-z][a-z0-9.+-]+", needs)) & set(offered) - closure
    family = re.search(r"^Package: (.+)$", of_set(name).pins, re.MULTILINE)
    assert family is not None
    free = {one for one in closure if not any(fnmatchcase(one, pattern) for pattern in family[1].split())}
    assert free <= {"libnvsdm"}
    assert "nvidia-persistenced" in closure


@pytest.mark.parametrize(("name", "extra"), [("hgx-r580-ubuntu2204", {"gcc-12"}), ("hgx-r580-ubuntu2404", set())])
def test_ubuntu_22_builds_with_the_compiler_of_its_newer_kernels(name: str, extra: set[str]) -> None:
    assert set(of_set(name).build) == {"dkms", "gcc", "make"} | extra
    assert set(of_set(name, nic_stack="doca").roles["nic_stack"]) & {"gcc-12"} == extra
    assert "gcc-12" not in of_set(name).roles["nic_stack"]


def test_the_compiler_is_there_before_doca_builds_its_modules() -> None:
    tasks = yaml.safe_load((ROOT / "roles/nic_stack/tasks/doca.yml").read_text(encoding="utf-8"))
    packages = [task["rackready_packages"]["packages"] for task in tasks if "rackready_packages" in task]
    assert ["__nic_stack_build" in text for text in packages] == [True, False]
