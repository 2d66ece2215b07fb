"""Software sets: package names and versions as NVIDIA publishes them per system, and the refusals of wrong sets."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment
from pydantic import ValidationError

from rackready.design import check_software
from rackready.design.hostvars import platform_vars, site_vars
from rackready.design.site import parse_site
from rackready.model.problems import SiteInvalidError
from rackready.model.site import Site
from rackready.model.software import SoftwareProfile
from rackready.profiles import loader

ROOT = Path(__file__).resolve().parents[3]
SETS = loader.known("software")

# NVIDIA's CUDA repository. Debian 12: driver installation guide (`nvidia-open`; `nvidia-driver-cuda` is its compute
# part). Ubuntu: names carry the branch below 590 (guide, "Recent updates"; canonical/nvidia-graphics-drivers,
# debian/templates/control.in); persistenced is a package of its own (nvidia-persistenced_580.65.06-0ubuntu1_amd64.deb),
# in Ubuntu's archive a part of the compute utilities; driver packages end in -1ubuntu1 or -0ubuntu1.
# RHEL 9: epoch 3, release -1.el9, a module stream instead of a pinning package (nvidia-driver-cuda-3:570.133.20-1.el9
# in listings; guide, "Open GPU kernel modules").
# Fabric packages are unversioned from 580 on (NVIDIA/gpu-driver-container @09dc954, ubuntu24.04/precompiled, and
# @038c8b5, rhel9/install.sh): the table of names that changed at R580. NVSDM replaces NSCQ on boards with NVLink 5.
# IMEX needs nvidia-modprobe of its version, which EL has among the driver's packages. Debian 12: 580 is not published
# for Arm, so the set has no IMEX, and no source names NVLSM.
FABRIC = {
    "fabric": ["libnvidia-nscq", "nvidia-fabricmanager"],
    "fabric_nvlink5": ["libnvsdm", "nvidia-fabricmanager"],
}
DEBIAN = {
    "packages": ["nvidia-open"],
    "persistence": ["nvidia-persistenced"],
    "imex": [],
    **FABRIC,
}
UBUNTU = {
    "packages": [
        "libnvidia-cfg1-{b}",
        "libnvidia-compute-{b}",
        "nvidia-compute-utils-{b}",
        "nvidia-dkms-{b}-open",
        "nvidia-utils-{b}",
    ],
    "persistence": ["nvidia-persistenced"],
    "imex": ["nvidia-imex", "nvidia-modprobe"],
    **FABRIC,
}
EL = {
    "packages": [
        "kmod-nvidia-open-dkms",
        "libnvidia-cfg",
        "libnvidia-gpucomp",
        "libnvidia-ml",
        "nvidia-driver-cuda",
        "nvidia-driver-cuda-libs",
        "nvidia-driver-libs",
        "nvidia-kmod-common",
        "nvidia-modprobe",
    ],
    "persistence": ["nvidia-persistenced"],
    "imex": ["nvidia-imex"],
    **FABRIC,
}
PUBLISHED = {"debian12": DEBIAN, "ubuntu2204": UBUNTU, "ubuntu2404": UBUNTU, "el9": EL}
SUFFIX = {"debian12": r"-1", "ubuntu2204": r"-[01]ubuntu1", "ubuntu2404": r"-[01]ubuntu1", "el9": r"-1\.el9"}
EPOCH = {"el9": "3:"}
# Fabric packages have no epoch, and no system in their release on EL (libnvsdm-580.126.20-1 of Amazon Linux 2023).
FABRIC_SUFFIX = SUFFIX | {"el9": "-1"}
# Files in NVIDIA's CUDA repositories: nvlsm_2025.10.11-1_amd64.deb (ubuntu2204), nvlsm_2025.06.10-1_amd64.deb
# (ubuntu2404), nvlsm-2025.06.6-1.x86_64.rpm (rhel9, bottlerocket-os packages/nvlsm).
NVLSM = {"debian12": "", "ubuntu2204": "2025.10.11-1", "ubuntu2404": "2025.06.10-1", "el9": "2025.06.6-1"}


def raw(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / f"src/rackready/profiles/software/{name}.yml").read_text(encoding="utf-8"))


def site_of(name: str, **software: Any) -> Site:
    document = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    document["software"] |= {"set": name, **software}
    return parse_site(document, source="site.yml", base=ROOT)


@pytest.mark.parametrize("name", SETS)
def test_driver_packages_are_those_that_nvidia_publishes_for_the_system(name: str) -> None:
    found = loader.software(name)
    for branch, driver in found.driver.items():
        for kind, names in PUBLISHED[found.os].items():
            assert sorted(getattr(driver, kind)) == [item.format(b=branch) for item in names], (branch, kind)
        rpm = found.os == "el9"
        assert driver.pinning == ("" if rpm else f"nvidia-driver-pinning-{branch}")
        assert driver.stream == (f"nvidia-driver:{branch}-open" if rpm else "")
        own = {*driver.packages.values(), *driver.persistence.values()}
        form = EPOCH.get(found.os, "") + re.escape(driver.version) + SUFFIX[found.os]
        assert all(re.fullmatch(form, item) for item in own), own
        connect = {*driver.fabric.values(), *driver.fabric_nvlink5.values(), *driver.imex.values()}
        assert all(re.fullmatch(re.escape(driver.version) + FABRIC_SUFFIX[found.os], item) for item in connect), connect
        assert driver.persistence_unit  # only that of Ubuntu's archive is static: --no-persistence-mode


@pytest.mark.parametrize("name", SETS)
def test_nvlsm_is_of_nvidia_s_repository_or_the_set_says_why_not(name: str) -> None:
    found = loader.software(name)
    assert found.nvlsm == NVLSM[found.os]
    lacks = {"imex", "nvlsm"} if found.os == "debian12" else set()
    assert set(found.absent) == lacks


@pytest.mark.parametrize("name", SETS)
def test_no_package_of_the_systems_own_archive_is_named(name: str) -> None:
    """`-server` flavours and `nvidia-fabricmanager-580` are Ubuntu's: they do not go with NVIDIA's own packages."""
    driver = loader.software(name).driver
    names = {package for item in driver.values() for package in (*item.packages, *item.fabric)}
    assert not [item for item in names if "-server" in item or re.fullmatch(r"nvidia-fabricmanager-\d+", item)]


@pytest.mark.parametrize("name", SETS)
def test_the_cuda_libraries_are_of_the_sets_cuda(name: str) -> None:
    found = loader.software(name)
    dashed = found.cuda.replace(".", "-")
    assert list(found.cuda_packages) == [f"cuda-toolkit-{dashed}"]
    assert found.nccl.endswith(f"+cuda{found.cuda}")
    assert found.dcgm.startswith("1:4.")  # DCGM's packages have epoch 1


@pytest.mark.parametrize("name", SETS)
def test_roles_get_the_sets_packages_and_versions(name: str) -> None:
    found, given = loader.software(name), site_vars(site_of(name))
    driver = found.driver[found.default_branch]
    assert given["base_os"] == found.os
    assert given["nvidia_driver_packages"] == driver.packages
    of_server = platform_vars(site_of(name), loader.platform("dgx_h100"))
    assert of_server["nvidia_fabricmanager_packages"] == driver.fabric
    assert given["nvidia_persistence_packages"] == driver.persistence
    assert given["nvidia_persistence_unit"] is driver.persistence_unit


def changed(path: str, value: object) -> dict[str, Any]:
    document = raw("hgx-r580-ubuntu2404")
    place: Any = document
    *folders, last = path.split("/")
    for item in folders:
        place = place[int(item) if item.isdigit() else item]
    place[int(last) if last.isdigit() else last] = value
    return document


OLD = {**raw("hgx-r580-ubuntu2404")["driver"][580]}
WRONG = [
    (
        "driver/580/packages/nvidia-utils-580",
        "580.126.20-1ubuntu1",
        "nvidia-utils-580: package version 580.126.20-1ubuntu1 is not of driver 580.173.02",
    ),
    (
        "driver/580/fabric/nvidia-fabricmanager",
        "580.173.020-1",
        "nvidia-fabricmanager: package version 580.173.020-1 is not of driver 580.173.02",
    ),
    ("driver/590", OLD, "driver.590: version 580.173.02 is not of branch 590"),  # one version in two branches
    ("default_branch", 595, "default_branch 595 is not in driver, which has 580"),
    ("driver/580/version", "580", r"String should match pattern '^\d+\.\d+(\.\d+)?$'"),
    ("driver/580/end_of_life", "June 2028", r"String should match pattern '^\d{4}-\d{2}$'"),
    ("driver/580/packages", {}, "Dictionary should have at least 1 item after validation, not 0"),
    ("kernel", "6.8", "Extra inputs are not permitted"),
    ("absent", {"nvlsm": "none is published"}, "absent.nvlsm: the set has nvlsm"),
    ("absent", {"imex": "none is published"}, "absent.imex: the set has imex"),
    ("absent", {"fabric_nvlink5": "none is published"}, "absent.fabric_nvlink5: the set has fabric_nvlink5"),
]


@pytest.mark.parametrize(
    ("path", "value", "text"), WRONG, ids=[f"{item[0]}-{number}" for number, item in enumerate(WRONG)]
)
def test_a_wrong_set_is_refused(path: str, value: object, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SoftwareProfile.model_validate(changed(path, value))
    assert [item["msg"].removeprefix("Value error, ") for item in caught.value.errors()] == [text]


def test_an_epoch_belongs_to_the_package_version() -> None:
    document = changed("driver/580/packages/nvidia-utils-580", "3:580.173.02-1ubuntu1")  # as in RHEL's repository
    assert SoftwareProfile.model_validate(document)


def test_a_driver_is_found_by_its_version_alone() -> None:
    found = loader.software("hgx-r580-ubuntu2404")
    assert found.of_version("580.173.02") is found.driver[580]
    with pytest.raises(KeyError, match=r"580\.126\.20"):
        found.of_version("580.126.20")


def test_a_branch_past_its_end_of_life_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_software, "today", lambda: date(2028, 7, 1))
    with pytest.raises(SiteInvalidError) as caught:
        site_of("hgx-r580-ubuntu2404")
    assert [str(problem) for problem in caught.value.problems] == [
        (
            "software.driver_branch: branch 580 is past its end of life - Expected: a branch with support "
            "Actual: support ended 2028-06. Choose another branch or another set."
        )
    ]


def test_a_branch_in_the_last_month_of_its_support_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_software, "today", lambda: date(2028, 6, 30))
    assert site_of("hgx-r580-ubuntu2404").software.set == "hgx-r580-ubuntu2404"


def test_an_unknown_set_names_those_that_exist() -> None:
    with pytest.raises(SiteInvalidError, match=", ".join(SETS)):
        site_of("hgx-r580-ubuntu2604")


def test_a_set_that_nvidia_does_not_publish_is_refused_with_the_reason() -> None:
    with pytest.raises(SiteInvalidError) as caught:
        site_of("hgx-r580-debian13")
    [problem] = caught.value.problems
    assert str(problem) == (
        "software.set: version set hgx-r580-debian13 - Expected: published packages Actual: NVIDIA's repository for "
        "Debian 13 begins with driver branch 590, and Debian 13 refuses the key of the repository for Debian 12. "
        "Install Debian 12 or Ubuntu 24.04 on these nodes, or add a set of your own with a branch from 590 on beside "
        "site.yml (profiles/software/)."
    )


def test_every_unpublished_set_names_its_source_and_is_no_packaged_set() -> None:
    folder = Path(loader.__file__).parent / "unpublished"
    for path in sorted(folder.glob("*.yml")):
        why = loader.unpublished(path.stem)
        assert why is not None
        assert why.id == path.stem
        assert why.source
        assert path.stem not in SETS
    assert loader.unpublished("hgx-r580-debian12") is None


FACTS = [  # as Ansible reports them: distribution, distribution_version, distribution_major_version
    ("Debian", "12.11", "12", "debian12"),
    ("Debian", "13.1", "13", "debian13"),
    ("Ubuntu", "22.04", "22", "ubuntu2204"),
    ("Ubuntu", "24.04", "24", "ubuntu2404"),
    ("Ubuntu", "24.10", "24", "ubuntu2410"),
    ("Rocky", "9.6", "9", "el9"),
    ("AlmaLinux", "9.6", "9", "el9"),
    ("RedHat", "9.6", "9", "el9"),
    ("Rocky", "8.10", "8", "rocky8"),
]


@pytest.mark.parametrize(("name", "version", "major", "wanted"), FACTS)
def test_a_nodes_system_is_compared_with_the_sets(name: str, version: str, major: str, wanted: str) -> None:
    """Role base refuses a node of another system than the set's, so 24.10 is not 24.04."""
    templates = yaml.safe_load((ROOT / "roles/base/vars/main.yml").read_text(encoding="utf-8"))
    own = ROOT / f"roles/base/vars/{name}_{major}.yml"
    templates |= yaml.safe_load(own.read_text(encoding="utf-8")) if own.exists() else {}
    facts = {"distribution": name, "distribution_version": version, "distribution_major_version": major}
    environment = Environment(autoescape=False)  # noqa: S701 - no HTML
    release = environment.from_string(templates["__base_release"]).render(ansible_facts=facts).strip()
    found = environment.from_string(templates["__base_os"]).render(ansible_facts=facts, __base_release=release)
    assert found == wanted
    sets = [item for item in SETS if loader.software(item).os == found]
    assert sets == ([f"hgx-r580-{wanted}"] if wanted in PUBLISHED else [])


def test_each_wrong_value_of_a_file_is_refused_with_its_place() -> None:
    document = changed("driver/580/end_of_life", "June 2028") | {"kernel": "6.8"}
    document["driver"][580]["packages"] = {}
    with pytest.raises(loader.ProfileInvalidError) as caught:
        loader._parse("profiles/software/lab.yml", yaml.safe_dump(document), SoftwareProfile)
    assert str(caught.value).splitlines() == [
        (
            "profiles/software/lab.yml: driver[580].end_of_life - Expected: text that matches ^\\d{4}-\\d{2}$ "
            "Actual: 'June 2028'. Correct the file."
        ),
        "profiles/software/lab.yml: driver[580].packages - Expected: at least 1 item Actual: none. Correct the file.",
        "profiles/software/lab.yml: kernel - Expected: no key of that name Actual: '6.8'. Correct the file.",
    ]


def test_a_rule_of_a_set_that_is_broken_is_named() -> None:
    with pytest.raises(loader.ProfileInvalidError) as caught:
        loader._parse("lab.yml", yaml.safe_dump(changed("default_branch", 595)), SoftwareProfile)
    assert str(caught.value) == (
        "lab.yml - Expected: a software profile Actual: default_branch 595 is not in driver, which has 580. "
        "Correct the file."
    )


def test_a_key_given_twice_is_refused_with_its_lines() -> None:
    text = (Path(loader.__file__).parent / "software/hgx-r580-debian12.yml").read_text(encoding="utf-8").rstrip("\n")
    with pytest.raises(loader.ProfileInvalidError) as caught:
        loader._parse("profiles/software/lab.yml", f"{text}\nid: other\n", SoftwareProfile)
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines, 1) if line.startswith("id:"))
    assert str(caught.value) == (
        "profiles/software/lab.yml - Expected: a software profile "
        f"Actual: key 'id' is given twice, in lines {first} and {len(lines) + 1}. Correct the file."
    )
