"""The simulated mirror for the RHEL family, as Debian's rpm reads it."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rackready_sim.packages import repo, rpm
from rackready_sim.packages.deb import Deb
from tests.unit.profiles.test_software_sets import site_of

pytestmark = pytest.mark.skipif(
    not all(shutil.which(name) for name in ("rpmbuild", "rpmsign", "createrepo_c", "modifyrepo_c", "gpg", "gcc")),
    reason="rpm, createrepo-c, gpg and gcc are needed to build the mirror: `make setup-sim`",
)
QUERY = "%{NAME} %|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE} %{ARCH}"


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mirror") / "mirror"
    repo.build_repo(site_of("hgx-r580-el9"), out)
    return out


def asked(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def test_packages_have_names_epochs_and_releases_of_the_set(mirror: Path) -> None:
    rows = {asked("rpm", "-qp", "--nosignature", "--qf", QUERY, str(path)) for path in mirror.glob("*.rpm")}
    assert {
        "nvidia-driver-cuda 3:580.173.02-1.el9 x86_64",
        "nvidia-driver-cuda 3:595.91.07-1.el9 x86_64",
        "kmod-nvidia-open-dkms 3:580.173.02-1.el9 noarch",
        "nvidia-fabricmanager 580.173.02-1 x86_64",
        "datacenter-gpu-manager-4-core 1:4.6.0-1 x86_64",
        "libnccl 2.28.9-1+cuda13.0 x86_64",
    } <= rows


def test_every_package_is_signed_with_the_published_key(mirror: Path, tmp_path: Path) -> None:
    database = ("--define", f"_dbpath {tmp_path}")
    subprocess.run(["rpm", *database, "--import", str(mirror / "mirror.asc")], check=True, capture_output=True)
    for path in mirror.glob("*.rpm"):
        assert "digests signatures OK" in asked("rpmkeys", *database, "--checksig", str(path))


def test_the_index_lists_the_streams_of_the_driver(mirror: Path) -> None:
    [modules] = (mirror / "repodata").glob("*modules.yaml.gz")
    text = gzip.decompress(modules.read_bytes()).decode()
    assert re.findall(r'stream: "(\S+)"', text) == ["580-open", "595-open"]
    assert '"nvidia-driver-cuda-3:580.173.02-1.el9.x86_64"' in text
    assert 'type="modules"' in (mirror / "repodata/repomd.xml").read_text()


def test_libraries_are_in_lib64(mirror: Path) -> None:
    listed = asked("rpm", "-qpl", "--nosignature", str(mirror / "libnvidia-ml-580.173.02-1.el9.x86_64.rpm"))
    assert listed.split() == ["/usr/lib64/libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.580.173.02"]


def test_fio_s_engine_for_linux_is_a_package_that_fio_only_recommends(mirror: Path) -> None:
    [fio], [engine] = mirror.glob("fio-[0-9]*.rpm"), mirror.glob("fio-engine-libaio-*.rpm")
    assert asked("rpm", "-qp", "--nosignature", "--recommends", str(fio)).split() == ["fio-engine-libaio"]
    assert asked("rpm", "-qpl", "--nosignature", str(fio)).split() == ["/usr/bin/fio"]
    version = asked("rpm", "-qp", "--nosignature", "--qf", "%{VERSION}-%{RELEASE}", str(fio))
    assert f"fio = {version}" in asked("rpm", "-qp", "--nosignature", "--requires", str(engine)).splitlines()
    assert asked("rpm", "-qpl", "--nosignature", str(engine)).split() == ["/usr/lib64/fio/fio-libaio.so"]


def test_building_again_changes_nothing(mirror: Path) -> None:
    index = mirror / "repodata/repomd.xml"
    before = index.stat().st_mtime_ns
    repo.build_repo(site_of("hgx-r580-el9"), mirror)
    assert index.stat().st_mtime_ns == before


def test_scripts_get_dpkgs_words_and_packages_with_common_paths_are_built_apart(tmp_path: Path) -> None:
    def package(version: str) -> Deb:
        scripts = {"postinst": 'echo "$1" 100%\n', "prerm": 'echo "$1"\n'}
        return Deb("tool", version, "a tool", {"Depends": "libc6 (>= 2)"}, {"/usr/bin/tool": version}, scripts=scripts)

    rpm.write([package("1-1"), package("2-1"), package("3")], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "tool-1-1.x86_64.rpm",
        "tool-2-1.x86_64.rpm",
        "tool-3-1.x86_64.rpm",
    ]
    shown = asked("rpm", "-qp", "--scripts", "--requires", str(tmp_path / "tool-1-1.x86_64.rpm"))
    assert 'set -- configure\necho "$1" 100%' in shown
    assert 'if [ "$1" = 0 ]; then set -- remove; else set -- upgrade; fi' in shown
    assert "glibc >= 2" in shown


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("a", "a"), ("a (= 3:1-1)", "a = 3:1-1"), ("libc6 (>> 2)", "glibc > 2"), ("openmpi-bin", "openmpi")],
)
def test_relations_are_translated(text: str, wanted: str) -> None:
    assert rpm.relation(text) == wanted


@pytest.mark.parametrize(
    ("version", "wanted"), [("3:1.2-1.el9", ("3", "1.2", "1.el9")), ("1.2-1", ("", "1.2", "1")), ("9", ("", "9", "1"))]
)
def test_versions_are_split(version: str, wanted: tuple[str, str, str]) -> None:
    assert rpm.parts(version) == wanted
