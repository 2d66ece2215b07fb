"""Faults of the simulated mirror: newer packages of a node, another key, downloads that break off, and their repair."""

from __future__ import annotations

import http.client
import http.server
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from rackready_sim import mirror_faults
from rackready_sim.errors import SimError
from rackready_sim.packages import deb, repo
from rackready_sim.packages.deb import Deb
from rackready_sim.programs.hwsim.sitehost import Handler

STATUS = """Package: dcgm
Status: hold ok installed
Architecture: amd64
Version: 1:4.6-1
Depends: libc6, dcgm-core (= 1:4.6-1)
Conffiles:
 /etc/dcgm.conf 0123456789abcdef0123456789abcdef
Description: monitors GPUs
 More about it.

Package: dcgm-core
Status: install ok installed
Architecture: all
Version: 1:4.6-1
Description: its core

"""


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node's file system with two packages."""
    root = tmp_path / "node"
    info = root / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text(STATUS, encoding="utf-8")
    (info / "dcgm.list").write_text("/.\n/etc\n/etc/dcgm.conf\n/usr/bin/dcgmi\n/usr/bin/link\n/gone\n")
    (info / "dcgm-core.list").write_text("/.\n")
    (info / "dcgm.postinst").write_text("#!/bin/sh\nset -e\necho hello\n")
    for path, text in {"etc/dcgm.conf": "a=1\n", "usr/bin/dcgmi": "#!/bin/sh\n"}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "usr/bin/link").symlink_to("dcgmi")
    return root


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed repository with one package, as ``build_repo`` makes it."""
    out = tmp_path_factory.mktemp("site") / "mirror"
    out.mkdir()
    (out / "Packages").write_text(deb.write(Deb("chrony", "4.3-2", "time"), out))
    (out / "Release").write_text("")
    return out


@pytest.fixture
def mirror(built: Path, tmp_path: Path) -> Path:
    out = tmp_path / "site/mirror"
    out.mkdir(parents=True)
    for path in built.iterdir():
        (out / path.name).write_bytes(path.read_bytes())
    return out


def test_a_newer_package_has_the_content_of_the_installed_one(node: Path, mirror: Path) -> None:
    mirror_faults.inject("mirror-newer", mirror, node, packages="dcgm,dcgm-core", suffix="+t1")
    index = (mirror / "Packages").read_text()
    assert "Package: chrony\n" in index
    assert index.count("Version: 1:4.6-1\n") == 2, "the installed version is there to go back to"
    assert index.count("Version: 1:4.6-1+t1\n") == 2
    assert "Depends: libc6, dcgm-core (= 1:4.6-1+t1)\n" in index
    package = mirror / "dcgm_4.6-1+t1_amd64.deb"
    fields = subprocess.run(["dpkg-deb", "--contents", package], check=True, capture_output=True, text=True).stdout
    assert "./usr/bin/dcgmi\n" in fields
    assert "./usr/bin/link -> dcgmi\n" in fields
    read = subprocess.run(["dpkg-deb", "--info", package, "postinst"], check=True, capture_output=True, text=True)
    assert read.stdout == "#!/bin/sh\nset -e\nset -e\necho hello\n"
    conffiles = subprocess.run(["dpkg-deb", "--info", package, "conffiles"], check=True, capture_output=True, text=True)
    assert conffiles.stdout == "/etc/dcgm.conf\n"


def test_versions_are_told_from_the_first_one(node: Path, mirror: Path) -> None:
    status = node / "var/lib/dpkg/status"
    status.write_text(status.read_text().replace("1:4.6-1", "1:4.6-1+t3"))
    mirror_faults.inject("mirror-newer", mirror, node, packages="dcgm,dcgm-core", suffix="+t4")
    assert "Depends: libc6, dcgm-core (= 1:4.6-1+t4)\n" in (mirror / "Packages").read_text()
    assert "+t3+t4" not in (mirror / "Packages").read_text()


@pytest.mark.parametrize(("fault", "code"), [("mirror-newer", 0), ("mirror-broken", 1)])
def test_a_broken_package_fails_to_configure(node: Path, mirror: Path, fault: str, code: int) -> None:
    mirror_faults.inject(fault, mirror, node, packages="dcgm", suffix="+t1")
    package = mirror / "dcgm_4.6-1+t1_amd64.deb"
    script = subprocess.run(["dpkg-deb", "--info", package, "postinst"], check=True, capture_output=True).stdout
    assert subprocess.run(["sh", "-s", "configure"], input=script, capture_output=True, check=False).returncode == code


def test_repair_brings_back_what_was_served(node: Path, mirror: Path) -> None:
    before = {path.name: path.read_bytes() for path in mirror.iterdir()}
    mirror_faults.inject("mirror-newer", mirror, node, packages="dcgm", suffix="+t1")
    mirror_faults.inject("mirror-cut", mirror, node)
    assert mirror_faults.repair(mirror)
    assert {path.name: path.read_bytes() for path in mirror.iterdir()} == before
    assert not mirror_faults.repair(mirror)


def test_another_key_signs_and_the_published_key_stays(node: Path, mirror: Path) -> None:
    mirror_faults.inject("mirror-newer", mirror, node, packages="dcgm", suffix="+t1")
    key, signed = (mirror / "mirror.asc").read_bytes(), (mirror / "InRelease").read_bytes()
    mirror_faults.inject("mirror-foreign-key", mirror, node)
    assert (mirror / "mirror.asc").read_bytes() == key
    assert (mirror / "InRelease").read_bytes() != signed
    home = mirror.parent / "home"
    home.mkdir(mode=0o700)
    gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet"]
    subprocess.run([*gpg, "--import", mirror / "mirror.asc"], check=True, capture_output=True)
    done = subprocess.run([*gpg, "--verify", mirror / "InRelease"], capture_output=True, text=True, check=False)
    assert "No public key" in done.stderr
    assert repo.MirrorBuildError.__name__ not in done.stderr


def test_unknown_faults_and_packages_are_refused(node: Path, mirror: Path) -> None:
    with pytest.raises(SimError, match=r"Expected: one of mirror-newer, .* Actual: mirror-nonsense"):
        mirror_faults.inject("mirror-nonsense", mirror, node)
    with pytest.raises(SimError, match=r"package fio of the node - Expected: installed Actual: absent\."):
        mirror_faults.inject("mirror-newer", mirror, node, packages="fio", suffix="+t1")


@pytest.fixture
def server(mirror: Path) -> Iterator[http.client.HTTPConnection]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(mirror))) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        server.shutdown()


def test_a_cut_download_ends_in_the_middle_and_the_index_is_whole(
    server: http.client.HTTPConnection, mirror: Path
) -> None:
    name = "chrony_4.3-2_amd64.deb"
    server.request("GET", f"/{name}")
    assert server.getresponse().read() == (mirror / name).read_bytes()
    (mirror / ".cut").touch()
    server.close()
    server.request("GET", "/Packages")
    assert server.getresponse().read() == (mirror / "Packages").read_bytes()
    server.close()
    server.request("GET", f"/{name}")
    with pytest.raises(http.client.IncompleteRead):
        server.getresponse().read()
