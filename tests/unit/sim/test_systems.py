"""Systems that a simulated node can be: their identity, their driver packages, and their persistence daemon."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from jinja2 import Environment

from rackready.profiles import loader
from rackready_sim import image, systems
from rackready_sim.errors import SimError
from rackready_sim.packages import driver, driver_rhel, driver_ubuntu, kernel_image, recipes
from rackready_sim.packages import kernel as build
from rackready_sim.packages.deb import Deb
from rackready_sim.programs.hwsim import persistenced
from tests.unit.profiles.test_software_sets import site_of

ROOT = Path(__file__).resolve().parents[3]
SETS = loader.known("software")
BASE = {"libc6", "python3", "ocl-icd", "opencl-filesystem", "kernel-core"}
"""What the image has."""


def mirror(name: str) -> list[Deb]:
    found = loader.software(name)
    return recipes.packages(found, found.driver[found.default_branch].version)


def words(text: str) -> list[tuple[str, str]]:
    """Return (name, exact version or "") of each relation."""
    found = [re.fullmatch(r"(\S+)(?: \((>?=) (\S+)\))?", item.strip()) for item in text.split(",") if item.strip()]
    return [(item[1], item[3] if item[2] == "=" else "") for item in found if item is not None]


@pytest.mark.parametrize("name", SETS)
def test_the_mirror_has_every_package_of_the_set_in_its_version(name: str) -> None:
    found = loader.software(name)
    have = {(item.name, item.version) for item in mirror(name)}
    driver = found.driver[found.default_branch]
    wanted = {
        **driver.packages,
        **driver.persistence,
        **driver.fabric,
        **found.cuda_packages,
        found.nccl_package: found.nccl,
    }
    wanted |= {"datacenter-gpu-manager-4-cuda13": found.dcgm, "nvidia-container-toolkit": found.container_toolkit}
    wanted |= {"perftest": found.perftest, "nccl-tests": found.nccl_tests, "mft": found.mft}
    assert set(wanted.items()) - have == set()
    assert driver.pinning in {package for package, _ in have} | {""}


@pytest.mark.parametrize("name", SETS)
def test_every_dependency_is_in_the_mirror_in_the_version_that_it_needs(name: str) -> None:
    offered: set[tuple[str, str]] = set()
    for item in mirror(name):
        offered |= {(item.name, item.version), (item.name, "")}
        for provided, version in words(item.fields.get("Provides", "")):
            offered |= {(provided, version), (provided, "")}
    needed = {need for item in mirror(name) for need in words(item.fields.get("Depends", "").replace("|", ","))}
    # rpm compares releases only where both sides have one (rpmdsCompare): 3:580.173.02 is met by 3:580.173.02-1.el9.
    offered |= {(package, version.rpartition("-")[0]) for package, version in offered if name.endswith("el9")}
    assert {need for need in needed if need[0] not in BASE} - offered == set()


@pytest.mark.parametrize("name", ["hgx-r580-ubuntu2204", "hgx-r580-ubuntu2404"])
def test_ubuntus_driver_is_ubuntus(name: str) -> None:
    """Names of the 580 branch carry it, those from 590 on do not; the daemon is a package of its own in both."""
    names = {item.name for item in mirror(name)}
    assert {"libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-utils-580", "nvidia-compute-utils-580"} <= names
    assert {"libnvidia-compute", "nvidia-dkms-open", "nvidia-utils", "nvidia-compute-utils"} <= names
    assert "nvidia-persistenced" in names
    assert not names & {"nvidia-driver-cuda", "libnvidia-ml1", "libnvidia-compute-595"}
    utils = next(item for item in mirror(name) if item.name == "nvidia-compute-utils-580")
    assert list(utils.files) == [driver.MPS]


def test_debians_driver_is_debians() -> None:
    names = {item.name for item in mirror("hgx-r580-debian12")}
    assert {"nvidia-open", "nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced"} <= names
    assert not {item for item in names if item.endswith("-580") and "pinning" not in item}


def test_rhels_driver_is_rhels_and_each_branch_is_a_stream() -> None:
    packages = mirror("hgx-r580-el9")
    names = {item.name for item in packages}
    assert {"kmod-nvidia-open-dkms", "nvidia-driver-cuda", "libnvidia-ml", "nvidia-persistenced", "libnccl"} <= names
    assert not names & {"nvidia-open", "libnvidia-ml1", "libnccl2", "linux-headers", "nvidia-driver-pinning-580"}
    streams = driver_rhel.streams(packages)
    assert sorted(streams) == ["580-open", "595-open"]
    assert "nvidia-kmod-common-3:580.173.02-1.el9.noarch" in streams["580-open"]
    assert [item for item in streams["580-open"] if "fabricmanager" in item or ":595" in item] == []


def test_a_rocky_node_says_so_and_has_an_image_of_its_own(tmp_path: Path) -> None:
    system = systems.of_site(site_of("hgx-r580-el9"))
    systems.install(system, tmp_path)
    release = dict(re.findall(r'^(\w+)="?(.*?)"?$', (tmp_path / "usr/lib/os-release").read_text(), re.MULTILINE))
    assert (release["ID"], release["ID_LIKE"], release["PLATFORM_ID"]) == (
        "rocky",
        "rhel centos fedora",
        "platform:el9",
    )
    assert (tmp_path / "etc/redhat-release").read_text() == "Rocky Linux release 9.5 (Blue Onyx)\n"
    assert (system.image, system.admins) == (image.RHEL, "wheel")
    assert systems.of_site(site_of("hgx-r580-ubuntu2404")).image is image.DEBIAN


IDENTITY = {
    "hgx-r580-ubuntu2204": ("ubuntu", "22.04", "jammy", "Ubuntu 22.04.5 LTS"),
    "hgx-r580-ubuntu2404": ("ubuntu", "24.04", "noble", "Ubuntu 24.04.3 LTS"),
}


@pytest.mark.parametrize(("name", "identity"), IDENTITY.items(), ids=list(IDENTITY))
def test_an_ubuntu_node_says_so(name: str, identity: tuple[str, str, str, str], tmp_path: Path) -> None:
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    systems.install(systems.of_site(site_of(name)), tmp_path)
    release = dict(re.findall(r'^(\w+)="?(.*?)"?$', (tmp_path / "usr/lib/os-release").read_text(), re.MULTILINE))
    assert (release["ID"], release["VERSION_ID"], release["VERSION_CODENAME"], release["PRETTY_NAME"]) == identity
    assert release["ID_LIKE"] == "debian"
    lsb = dict(re.findall(r'^(\w+)="?(.*?)"?$', (tmp_path / "etc/lsb-release").read_text(), re.MULTILINE))
    assert (lsb["DISTRIB_ID"], lsb["DISTRIB_RELEASE"], lsb["DISTRIB_DESCRIPTION"]) == ("Ubuntu", *identity[1::2])


def test_a_debian_node_is_the_image_as_it_is(tmp_path: Path) -> None:
    systems.install(systems.of_site(site_of("hgx-r580-debian12")), tmp_path)
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir() or path.is_symlink()}
    unit = "etc/systemd/system/multi-user.target.wants/networking.service"
    assert found == {"etc/network/interfaces", unit}, "but for its network manager"


def test_a_debian_13_node_says_so(tmp_path: Path) -> None:
    systems.install(systems.SYSTEMS["debian13"], tmp_path)
    release = dict(re.findall(r'^(\w+)="?(.*?)"?$', (tmp_path / "usr/lib/os-release").read_text(), re.MULTILINE))
    assert (release["ID"], release["VERSION_ID"], release["VERSION_CODENAME"]) == ("debian", "13", "trixie")
    assert (tmp_path / "etc/debian_version").read_text() == "13.1\n"


def test_a_system_that_is_not_simulated_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    site = site_of("hgx-r580-ubuntu2404")
    other = loader.software("hgx-r580-ubuntu2404").model_copy(update={"os": "sles15"})
    monkeypatch.setattr(loader, "software", lambda _name: other)
    with pytest.raises(SimError) as caught:
        systems.of_site(site)
    assert str(caught.value) == (
        "operating system of hgx-r580-ubuntu2404 - Expected: one of debian12, debian13, el9, ubuntu2204, ubuntu2404 "
        "Actual: sles15. "
        "Choose a version set of one of these systems (software.set)."
    )


@pytest.mark.parametrize(
    ("arguments", "on"),
    [
        ("--user root --verbose", True),
        ("--user nvidia-persistenced --no-persistence-mode --verbose", False),
        ("--persistence-mode", True),
        ("--no-persistence-mode --persistence-mode", True),
        ("--persistence-mode --no-persistence-mode", False),
    ],
)
def test_the_daemon_turns_persistence_mode_on_unless_told_not_to(arguments: str, on: bool) -> None:  # noqa: FBT001
    assert persistenced._persist(arguments.split()) is on


def effective(*texts: str) -> dict[str, str]:
    """Return the settings of a unit with its drop-ins: an empty value resets a list (systemd.service(5))."""
    out: dict[str, str] = {}
    for text in texts:
        for key, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
            assert not (key == "ExecStart" and value and out.get(key)), "two ExecStart in a service that forks"
            out[key] = value
    return out


ARCHIVE_UNIT = """[Unit]
StopWhenUnneeded=true

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose
"""
"""Of Ubuntu's archive: canonical/nvidia-graphics-drivers @9c04f0b1, nvidia-compute-utils-595."""
VERSION = "580.173.02"
NVIDIAS = {
    "debian": driver.driver_packages(VERSION, "-1"),
    "ubuntu": driver_ubuntu.driver_packages(VERSION, "-1ubuntu1"),
    "rhel": driver_rhel.driver_packages(VERSION, "-1.el9"),
}


def drop_in(*, mode: bool) -> str:
    """Return the role's drop-in; ``mode``: nvidia_persistence_mode."""
    template = (ROOT / "roles/nvidia_persistence/templates/persistence.conf.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=False)  # noqa: S701 - no HTML
    return environment.from_string(template).render(ansible_managed="managed", nvidia_persistence_mode=mode)


def unit_of(packages: list[Deb]) -> str:
    package = next(item for item in packages if item.name == "nvidia-persistenced")
    return str(package.files["/usr/lib/systemd/system/nvidia-persistenced.service"])


def test_the_roles_drop_in_turns_it_on_where_the_unit_of_ubuntus_archive_does_not() -> None:
    alone, together = effective(ARCHIVE_UNIT), effective(ARCHIVE_UNIT, drop_in(mode=True))
    assert "WantedBy" not in alone  # static: systemctl enable does nothing
    assert persistenced._persist(alone["ExecStart"].split()) is False
    assert persistenced._persist(together["ExecStart"].split()) is True
    assert "--user" not in together["ExecStart"]
    assert (together["Type"], together["WantedBy"]) == ("forking", "multi-user.target")
    assert (alone["StopWhenUnneeded"], together["StopWhenUnneeded"]) == ("true", "false")


@pytest.mark.parametrize("unit", [*map(unit_of, NVIDIAS.values()), ARCHIVE_UNIT], ids=[*NVIDIAS, "archive"])
def test_the_roles_drop_in_turns_it_off_where_the_site_says_so(unit: str) -> None:
    together = effective(unit, drop_in(mode=False))
    assert persistenced._persist(together["ExecStart"].split()) is False
    assert "--user" not in together["ExecStart"]
    assert together["WantedBy"] == "multi-user.target"


@pytest.mark.parametrize("packages", NVIDIAS.values(), ids=list(NVIDIAS))
def test_units_of_nvidias_repositories_turn_it_on_as_a_user_that_their_package_makes(packages: list[Deb]) -> None:
    unit = effective(unit_of(packages))
    assert persistenced._persist(unit["ExecStart"].split()) is True
    assert unit["WantedBy"] == "multi-user.target"
    user = persistenced._user(unit["ExecStart"].split())
    package = next(item for item in packages if item.name == "nvidia-persistenced")
    assert user in ("", "root") or f"/usr/sbin/nologin {user} " in package.scripts["postinst"]


@pytest.mark.parametrize("given", ["--user nobody-here", "--user=nobody-here", "-u nobody-here"])
def test_the_daemon_ends_where_its_user_is_absent(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert persistenced.main([*given.split(), "--verbose"], VERSION) == 1
    assert "Failed to find user ID of user 'nobody-here'" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "named"), [("22.04", True), ("24.04", False)])
def test_the_kernel_of_ubuntu_22_names_its_compiler_before_it_has_headers(number: str, *, named: bool) -> None:
    files = kernel_image.image_packages("ubuntu", number)[0].files
    path = f"/boot/config-{os.uname().release}"
    assert (path in files) is named
    assert not named or 'CONFIG_CC_VERSION_TEXT="x86_64-linux-gnu-gcc-12 (' in str(files[path])


@pytest.mark.parametrize("there", [True, False])
def test_dkms_needs_the_compiler_of_the_kernel_on_ubuntu_22(tmp_path: Path, *, there: bool) -> None:
    kernel = os.uname().release
    tools = {item.name: item for item in (*build.build_packages("ubuntu2204"), *NVIDIAS["ubuntu"])}
    for path, content in tools[f"linux-headers-{kernel}"].files.items():
        place = tmp_path / "modules" / kernel / "build" / path.partition(f"{kernel}/")[2]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(str(content))
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in ("sh", "uname", "sed", "tr", "mkdir", "mv"):
        (programs / tool).symlink_to(shutil.which(tool) or tool)
    for link in tools["gcc-12"].links if there else ():
        (programs / Path(link).name).symlink_to("/bin/true")
    script = tools["nvidia-dkms-580-open"].scripts["postinst"]
    for folder, own in (("/lib/modules", "modules"), ("/etc/dkms", "conf"), ("/var/lib/dkms", "dkms")):
        script = script.replace(folder, str(tmp_path / own))
    done = subprocess.run(["/bin/sh", "-ec", script, "sh", "configure"], env={"PATH": str(programs)}, check=False)
    assert done.returncode == 0  # NVIDIA's packages hide a failed build
    assert (tmp_path / "modules" / kernel / "updates/dkms/nvidia.ko").exists() is there
    assert (tmp_path / f"dkms/nvidia/{VERSION}/build/make.log").exists() is not there


@pytest.mark.parametrize(
    ("name", "unit", "udev"),
    [
        ("debian12", "networking.service", False),
        ("ubuntu2204", "systemd-networkd.service", True),
        ("ubuntu2404", "systemd-networkd.service", True),
        ("el9", "NetworkManager.service", True),
    ],
)
def test_each_system_has_the_network_manager_of_its_installer(
    tmp_path: Path, name: str, unit: str, *, udev: bool
) -> None:
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    mask = tmp_path / "etc/systemd/system/systemd-udevd.service"
    mask.symlink_to("/dev/null")
    systems.install(systems.SYSTEMS[name], tmp_path)
    wants = tmp_path / "etc/systemd/system/multi-user.target.wants"
    assert [path.name for path in wants.iterdir()] == [unit]
    assert mask.is_symlink() is not udev
    assert (tmp_path / "etc/netplan/50-cloud-init.yaml").exists() is name.startswith("ubuntu")
