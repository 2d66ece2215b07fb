"""Mirrors of rpm repositories, with the real tools: packages, module streams, signatures."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.design.repositories import wrong_keys
from rackready.drivers.mirror import keys, verify
from rackready.drivers.mirror.build import Order, build
from rackready.drivers.mirror.dnf import TOOLS, listed
from rackready.drivers.mirror.parts import Item, Need
from rackready.drivers.mirror.repodata import modules
from rackready.drivers.mirror.tools import MirrorError, run
from rackready_sim.packages.deb import Deb
from tests.unit.mirror import upstream as made
from tests.unit.mirror.upstream import MODULE, PACKAGES, order, upstream, web

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, (*TOOLS, "rpmbuild", "rpmsign"))),
    reason="needs root, dnf, createrepo_c and rpmbuild",
)
NEED = Need(("dgx_h100",), {"tool": "1:1.0-1", "other": ""})
RPMS = ["lib-1.5-1.x86_64.rpm", "other-3.0-1.noarch.rpm", "tool-1.0-1.x86_64.rpm"]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository; rpmbuild takes seconds, so tests copy it."""
    return made.make(tmp_path_factory.mktemp("rpm") / "up", rpm=True, streams=MODULE)


@pytest.fixture
def repo(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "up/repo"))


def asked_of(
    place: Path, *upstreams: made.Upstream, need: Need = NEED, streams: tuple[str, ...] = ("driver:1",)
) -> Order:
    return order(place, *upstreams, system="el9", need=need, streams=streams)


def test_a_mirror_has_exactly_what_is_needed_and_the_stream(tmp_path: Path, repo: Path) -> None:
    with web(repo) as server:
        asked = asked_of(tmp_path, upstream(repo, server.url))
        assert len(build(asked, check=True).lacking) == 3
        built = build(asked)
        before = {path: path.stat() for path in asked.out.rglob("*")}
        again = build(asked)
    assert sorted(server.fetched) == RPMS
    assert (built.changed, again.changed, again.lacking) == (True, False, [])
    assert {path: path.stat() for path in asked.out.rglob("*")}.keys() == before.keys()
    assert all(path.stat().st_mtime_ns == found.st_mtime_ns for path, found in before.items())
    assert sorted(path.name for path in (asked.out / "Packages").iterdir()) == RPMS
    manifest = json.loads((asked.out / "manifest.json").read_text())
    assert [(item["name"], item["version"]) for item in manifest["packages"]] == [
        ("lib", "1.5-1"),
        ("other", "3.0-1"),
        ("tool", "1:1.0-1"),
    ]
    assert verify.verify(asked.out, asked.wanted, tmp_path / "scratch") == 11


def test_a_new_version_is_fetched_alone(tmp_path: Path) -> None:
    repo = made.make(tmp_path / "up", rpm=True)
    need = Need(("dgx_h100",), {"lib": "", "other": ""})
    with web(repo) as server:
        asked = asked_of(tmp_path, upstream(repo, server.url), need=need, streams=())
        build(asked)
        lib = (repo / RPMS[0]).read_bytes()  # signed again, the same package would be another file
        made.make(repo.parent, [*PACKAGES, Deb("other", "3.1-1", "newer")], rpm=True)
        (repo / RPMS[0]).write_bytes(lib)
        run(["createrepo_c", "--quiet", str(repo)])
        server.fetched.clear()
        assert build(asked).changed
    assert server.fetched == ["other-3.1-1.x86_64.rpm"]


def test_nodes_get_one_file_with_the_keys_of_mirror_and_packages(tmp_path: Path, repo: Path) -> None:
    """Packages keep the vendor's signature, and dnf on nodes has no other key file."""
    asked = asked_of(tmp_path, upstream(repo))
    built = build(asked)
    vendor = keys.fingerprints(repo / "mirror.asc")[0]
    assert sorted(keys.fingerprints(asked.out / "mirror.asc")) == sorted([built.signed_by, vendor])
    more = asked.wanted.package_keys(built.signed_by)
    assert more == [vendor]
    assert wrong_keys(asked.out / "mirror.asc", built.signed_by, more) is None  # what install and doctor check
    database = tmp_path / "rpmdb"
    own = ["rpmkeys", "--dbpath", str(database), "--define", "_pkgverify_level all"]
    assert run([*own, "--import", str(asked.out / "mirror.asc")]).returncode == 0
    assert run([*own, "--checksig", *map(str, (asked.out / "Packages").iterdir())]).returncode == 0


def test_a_package_that_no_declared_key_signed_is_refused(tmp_path: Path, repo: Path) -> None:
    run(["rpmsign", "--delsign", str(repo / RPMS[0])])
    run(["createrepo_c", "--quiet", str(repo)])
    asked = asked_of(tmp_path, upstream(repo), need=Need(("dgx_h100",), {"lib": ""}), streams=())
    with pytest.raises(MirrorError) as error:
        build(asked)
    assert RPMS[0] in str(error.value)
    assert not asked.out.exists()


def test_a_package_that_a_killed_run_left_is_checked_too(tmp_path: Path, repo: Path) -> None:
    run(["rpmsign", "--delsign", str(repo / RPMS[0])])
    run(["createrepo_c", "--quiet", str(repo)])
    asked = asked_of(tmp_path, upstream(repo), need=Need(("dgx_h100",), {"lib": ""}), streams=())
    left = asked.work / "dnf/archives" / RPMS[0]
    left.parent.mkdir(parents=True)
    shutil.copy(repo / RPMS[0], left)
    assert build(asked, check=True).lacking == []
    with pytest.raises(MirrorError, match=f"{RPMS[0]} - Expected: a package that a declared key signed"):
        build(asked)
    assert not left.exists()


def test_a_damaged_package_is_refused(tmp_path: Path, repo: Path) -> None:
    path = repo / RPMS[0]
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with web(repo) as server, pytest.raises(MirrorError) as error:
        build(asked_of(tmp_path, upstream(repo, server.url)))
    assert "Expected: packages as the signed index describes Actual:" in str(error.value)


def test_another_fingerprint_an_absent_stream_and_no_answer_are_refused(tmp_path: Path, repo: Path) -> None:
    with pytest.raises(MirrorError, match="Expected: the key ABAB"):
        build(asked_of(tmp_path, upstream(repo, fingerprint="AB" * 20)))
    with pytest.raises(MirrorError, match="Expected: the module streams driver:9 Actual: "):
        build(asked_of(tmp_path, upstream(repo), streams=("driver:9",)))
    with pytest.raises(MirrorError) as error:
        build(asked_of(tmp_path / "b", upstream(repo, "http://127.0.0.1:9/x")))
    assert str(error.value).startswith(
        "software.upstreams vendor (http://127.0.0.1:9/x) - Expected: an answer Actual: "
    )
    with pytest.raises(MirrorError) as error:
        build(asked_of(tmp_path / "c", upstream(repo), need=Need(("dgx_h100",), {"absent": "1-1", "gone": ""})))
    assert "Expected: the packages of dgx_h100 Actual: no absent-1-1, gone" in str(error.value)


def test_an_unsigned_index_is_refused_where_the_site_wants_it_signed(tmp_path: Path, repo: Path) -> None:
    with pytest.raises(MirrorError) as error:
        build(asked_of(tmp_path, upstream(repo, signed_index=True)))
    assert "Expected: an index signed by its declared key Actual: " in str(error.value)


def test_a_damaged_mirror_is_refused(tmp_path: Path, repo: Path) -> None:
    asked = asked_of(tmp_path, upstream(repo))
    build(asked)
    path = asked.out / "Packages" / RPMS[0]
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-1] + b"?")
    with pytest.raises(MirrorError, match=f"Packages/{RPMS[0]} differs"):
        verify.verify(asked.out, asked.wanted, tmp_path / "scratch")
    assert build(asked).changed
    other = replace(asked.wanted, needs=(Need(("dgx_h100",), {"unwanted": ""}),))
    with pytest.raises(MirrorError, match="Actual: no unwanted"):
        verify.verify(asked.out, other, tmp_path / "scratch")


def test_a_status_file_of_dpkg_has_no_meaning_here(tmp_path: Path, repo: Path) -> None:
    asked = order(tmp_path, upstream(repo), system="el9", need=NEED, installed=tmp_path / "status")
    with pytest.raises(MirrorError, match="--installed - Expected: a site whose nodes have apt"):
        build(asked)


def test_another_user_than_root_is_told_how_to_run_it(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asked_of(tmp_path, upstream(repo))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MirrorError, match="Expected: root, because dnf resolves for no other user Actual: user 1000"):
        build(asked)


TABLE = """Dependencies resolved.
================================
 Package   Arch   Version Repo     Size
================================
Installing:
 a-package-with-a-long-name
           x86_64 1:1-1   vendor  161
Installing dependencies:
 lib       noarch 2-1     os      1.2 M

Transaction Summary
================================
Install  2 Packages
"""


def test_the_table_of_dnf_is_read_word_by_word() -> None:
    items = {
        ("a-package-with-a-long-name", "x86_64", "1:1-1", "vendor"): Item("a", "", "", "a", 1, "sha256", ""),
        ("lib", "noarch", "2-1", "os"): Item("lib", "", "", "lib", 1, "sha256", ""),
    }
    assert [item.file for item in listed(TABLE, items)] == ["a", "lib"]
    with pytest.raises(MirrorError, match="Expected: 2 packages of the upstreams' indexes Actual: 1"):
        listed(TABLE, dict(list(items.items())[:1]))


def test_only_streams_that_concern_the_mirror_are_kept(original: Path) -> None:
    text = modules([original / "repodata"], {"tool-2.0-1.x86_64.rpm"}, set())
    assert "stream: '2'" in text
    assert "stream: '1'" not in text
    assert modules([original / "repodata"], {"other-3.0-1.noarch.rpm"}, set()) == ""
    assert "stream: '1'" in modules([original / "repodata"], set(), {"driver:1"})


def test_versions_of_one_transaction_agree(tmp_path: Path) -> None:
    """A newer version that another package would accept stays out where one is pinned."""
    user = Deb("user", "1-1", "needs any lib", {"Depends": "lib"})
    repo = made.make(tmp_path / "up", [*PACKAGES, Deb("lib", "2.5-1", "newer"), user], rpm=True)
    need = Need(("dgx_h100",), {"lib": "1.5-1", "user": ""})
    built = build(asked_of(tmp_path, upstream(repo), need=need, streams=()))
    assert [(item.name, item.version) for item in built.items] == [("lib", "1.5-1"), ("user", "1-1")]
