"""The simulated mirror: packages as Debian's tools read them, index and signature."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rackready.design.site import load_site
from rackready_sim.packages import deb, driver, fabric, repo
from rackready_sim.programs import build

pytestmark = pytest.mark.skipif(
    not (shutil.which("gpg") and shutil.which("gcc")), reason="gpg and gcc are needed to build the mirror"
)


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mirror") / "mirror"
    repo.build_repo(load_site("sim"), out)
    return out


def index(mirror: Path) -> list[dict[str, str]]:
    return [
        dict(re.findall(r"^(\S+): (.*)$", text, re.MULTILINE))
        for text in (mirror / "Packages").read_text().split("\n\n")
    ]


def test_the_index_describes_the_files(mirror: Path) -> None:
    rows = index(mirror)
    assert len(rows) == len(list(mirror.glob("*.deb")))
    for row in rows:
        raw = (mirror / row["Filename"]).read_bytes()
        assert (len(raw), hashlib.sha256(raw).hexdigest()) == (int(row["Size"]), row["SHA256"])


def test_it_carries_what_the_site_wants_and_newer_ones(mirror: Path) -> None:
    versions = {(row["Package"], row["Version"]) for row in index(mirror)}
    for package in ("nvidia-open", "nvidia-fabricmanager", "libnvidia-ml1", "nvidia-persistenced"):
        assert {(package, f"{version}-1") for version in ("580.173.02", "580.178.01", "595.91.07")} <= versions
    assert {
        ("datacenter-gpu-manager-4-cuda13", "1:4.6.0-1"),
        ("nccl-tests", "2.19.6-1"),
        ("libnccl2", "2.28.9-1+cuda13.0"),
    } <= versions
    names = {name for name, _ in versions}
    for row in index(mirror):
        for item in re.split(r"[,|]", row.get("Depends", "")):
            needed = item.split("(")[0].strip()
            assert needed in names | {"", "libc6", "python3"}, f"{row['Package']} needs {needed}"


def test_doca_brings_nic_tools_that_are_newer_than_the_site_s() -> None:
    """DOCA 3.2.1 has mlnx-tools 2510.0.16-1: a site's own 25.10.0-1 would be a downgrade of it."""
    found = fabric.nic_packages("25.10.0-1", "25.10.0-1", "3.2.1-1")
    assert [package.version for package in found if package.name == "mlnx-tools"] == ["25.10.0-1", "2510.0.16-1"]
    assert found[-1].fields == {"Depends": "mlnx-tools (>= 2510.0.16-1)"}
    assert [package.name for package in fabric.nic_packages("25.10.0-1", "25.10.0-1")] == ["perftest", "mlnx-tools"]


def test_it_carries_what_builds_a_module_for_the_kernel_that_runs(mirror: Path) -> None:
    names = {row["Package"] for row in index(mirror)}
    assert {f"linux-headers-{os.uname().release}", "dkms", "gcc", "make"} <= names


def test_a_module_is_not_built_without_the_headers_of_the_kernel() -> None:
    script = driver.driver_packages("580.173.02", "-1")[2].scripts["postinst"]
    kernel = "0.0.0-not-there"
    done = subprocess.run(
        ["sh", "-c", f"uname() {{ echo {kernel}; }}\nset -- configure\n{script}"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-2:] == [
        f"Module build for kernel {kernel} was skipped since the",
        "kernel headers for this kernel do not seem to be installed.",
    ]


def test_the_signature_is_the_published_keys(mirror: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    base = ["gpg", "--homedir", str(tmp_path), "--batch", "--no-autostart"]
    subprocess.run([*base, "--import", str(mirror / "mirror.asc")], check=True, capture_output=True)
    subprocess.run([*base, "--verify", str(mirror / "InRelease")], check=True, capture_output=True)
    assert (mirror.parent / "mirror-key.asc").stat().st_mode & 0o077 == 0
    assert b"PRIVATE" not in (mirror / "mirror.asc").read_bytes()


def test_building_again_changes_nothing_and_keeps_the_key(mirror: Path) -> None:
    before = (mirror / "InRelease").stat().st_mtime_ns, (mirror / "mirror.asc").read_bytes()
    repo.build_repo(load_site("sim"), mirror)
    assert ((mirror / "InRelease").stat().st_mtime_ns, (mirror / "mirror.asc").read_bytes()) == before
    packages = (mirror / "Packages").read_bytes()
    (mirror / "InRelease").unlink()
    repo.build_repo(load_site("sim"), mirror)
    assert (mirror / "Packages").read_bytes() == packages
    assert (mirror / "mirror.asc").read_bytes() == before[1]


def test_an_expired_key_can_be_had(tmp_path: Path) -> None:
    out = tmp_path / "mirror"
    repo.build_repo(load_site("sim"), out, key_days=-1)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    base = ["gpg", "--homedir", str(home), "--batch", "--no-autostart", "--with-colons"]
    shown = subprocess.run(
        [*base, "--show-keys", str(out / "mirror.asc")], check=True, capture_output=True, text=True
    ).stdout
    assert shown.startswith("pub:e:")


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not here")
def test_dpkg_reads_a_package(mirror: Path) -> None:
    path = mirror / "nvidia-fabricmanager_580.173.02-1_amd64.deb"
    fields = subprocess.run(["dpkg-deb", "--field", str(path)], check=True, capture_output=True, text=True).stdout
    assert "Version: 580.173.02-1\n" in fields
    listed = subprocess.run(["dpkg-deb", "--contents", str(path)], check=True, capture_output=True, text=True).stdout
    assert re.search(r"-rwxr-xr-x root/root .* \./usr/bin/nv-fabricmanager\n", listed)
    assert re.search(r"-rw-r--r-- root/root .* \./usr/share/nvidia/nvswitch/fabricmanager.cfg\n", listed)


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not here")
def test_programs_below_libexec_can_be_run_and_what_lies_beside_them_cannot(mirror: Path) -> None:
    package = next(mirror.rglob("datacenter-gpu-manager-4-cuda13_*.deb"))
    listed = subprocess.run(
        ["dpkg-deb", "--contents", package], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    modes = {line.split("/")[-1]: line[:10] for line in listed}
    assert (modes["nvbandwidth"], modes["dcgmproftester13"], modes["README"]) == (
        "-rwxr-xr-x",
        "-rwxr-xr-x",
        "-rw-r--r--",
    )


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not here")
def test_dcgm_restarts_nothing_as_the_real_package(mirror: Path) -> None:
    package = next(mirror.rglob("datacenter-gpu-manager-4-core_*.deb"))
    control = subprocess.run(["dpkg-deb", "--ctrl-tarfile", package], check=True, capture_output=True).stdout
    assert b"useradd -Urs /usr/sbin/nologin nvidia-dcgm" in control
    assert b"systemctl" not in control


def test_a_package_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    package = deb.Deb(
        "x",
        "1:2-3",
        "a test",
        {"Depends": "y"},
        {"/usr/bin/x": "#!/bin/sh\n", "/etc/x": "1\n"},
        {"/usr/bin/z": "x"},
        ("/etc/x",),
        {"postinst": "true\n"},
    )
    deb.write(package, tmp_path)
    first = (tmp_path / "x_2-3_amd64.deb").read_bytes()
    deb.write(package, tmp_path)
    assert (tmp_path / "x_2-3_amd64.deb").read_bytes() == first


def test_programs_are_put_into_a_root_file_system_twice_over(tmp_path: Path) -> None:
    (tmp_path / "usr/sbin").mkdir(parents=True)
    (tmp_path / "usr/sbin/modprobe").symlink_to("/bin/kmod")
    (tmp_path / "usr/sbin/ethtool").write_text("the distribution's")
    info = tmp_path / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (info / "ethtool.md5sums").write_text(f"{'0' * 32}  sbin/ethtool\n{'1' * 32}  usr/share/doc/ethtool/copyright\n")
    for _ in range(2):
        build.install(tmp_path)
    assert (tmp_path / "usr/lib/hw/real/modprobe").readlink() == Path("/bin/kmod")
    assert "from hwsim.kmod import modprobe" in (tmp_path / "usr/sbin/modprobe").read_text()
    ours = hashlib.md5((tmp_path / "usr/sbin/ethtool").read_bytes(), usedforsecurity=False).hexdigest()
    assert (
        info / "ethtool.md5sums"
    ).read_text() == f"{ours}  sbin/ethtool\n{'1' * 32}  usr/share/doc/ethtool/copyright\n", "as its package ships it"
    assert (tmp_path / "usr/lib/systemd/system/sysinit.target.wants/hw-firmware.service").exists()
    assert (tmp_path / "usr/bin/nv").stat().st_mode & 0o111
