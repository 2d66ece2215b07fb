"""Mirrors of apt repositories, with the real tools: what they have, what they refuse, what a second run does."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackready.design.site import load_site
from rackready.drivers.mirror import keys, swap, verify
from rackready.drivers.mirror.build import Order, build, carry
from rackready.drivers.mirror.parts import Need
from rackready.drivers.mirror.plan import Image
from rackready.drivers.mirror.tools import MirrorError
from rackready.drivers.role_packages import asked_for
from rackready.profiles import loader
from rackready_sim.packages.deb import Deb
from tests.unit.mirror import upstream as made
from tests.unit.mirror.upstream import PACKAGES, order, upstream, web

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("apt-get", "apt-ftparchive", "gpg"))), reason="needs apt-get, apt-ftparchive and gpg"
)
ROOT = Path(__file__).resolve().parents[3]
DEBS = ["lib_1.5-1_amd64.deb", "other_3.0-1_all.deb", "tool_1.0-1_amd64.deb"]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return made.make(tmp_path / "up")


def state(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return what a run must not touch when nothing is new."""
    return {
        str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.stat().st_mode)
        for path in [folder, *folder.rglob("*")]
    }


def refused(asked: Order, **more: bool) -> str:
    with pytest.raises(MirrorError) as error:
        build(asked, **more)
    return str(error.value)


def test_a_mirror_has_exactly_what_is_needed(tmp_path: Path, repo: Path) -> None:
    asked = order(tmp_path, upstream(repo), makes_key=True)
    built = build(asked)
    assert built.changed
    assert sorted(path.name for path in (asked.out / "pool").iterdir()) == DEBS
    manifest = json.loads((asked.out / "manifest.json").read_text())
    assert [(item["name"], item["version"], item["file"]) for item in manifest["packages"]] == [
        ("lib", "1.5-1", "pool/lib_1.5-1_amd64.deb"),
        ("other", "3.0-1", "pool/other_3.0-1_all.deb"),
        ("tool", "1:1.0-1", "pool/tool_1.0-1_amd64.deb"),
    ]
    for item in manifest["packages"]:
        data = (asked.out / item["file"]).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (item["sha256"], item["size"])
    assert built.signed_by == keys.fingerprints(asked.out / "mirror.asc")[0] == manifest["signed_by"]
    assert (asked.secret.stat().st_mode & 0o777, asked.out.stat().st_mode & 0o777) == (0o600, 0o755)


def test_a_second_run_fetches_nothing_and_changes_nothing(tmp_path: Path, repo: Path) -> None:
    with web(repo) as server:
        asked = order(tmp_path, upstream(repo, server.url))
        build(asked)
        before = state(asked.out)
        again = build(asked)
    assert (again.changed, again.lacking, len(again.items)) == (False, [], 3)
    assert state(asked.out) == before
    assert sorted(server.fetched) == ["lib_1.5-1_amd64.deb", "other_3.0-1_all.deb", "tool_1.0-1_amd64.deb"]


def test_a_new_version_is_fetched_alone_and_the_old_one_leaves(tmp_path: Path, repo: Path) -> None:
    with web(repo) as server:
        asked = order(tmp_path, upstream(repo, server.url))
        build(asked)
        made.make(repo.parent, [*PACKAGES, Deb("other", "3.1-1", "newer", architecture="all")])
        server.fetched.clear()
        built = build(asked)
    assert (built.changed, server.fetched) == (True, ["other_3.1-1_all.deb"])
    assert "other_3.0-1_all.deb" not in {path.name for path in (asked.out / "pool").iterdir()}


def test_a_dry_run_names_what_it_would_fetch_with_sizes(tmp_path: Path, repo: Path) -> None:
    asked = order(tmp_path, upstream(repo))
    found = build(asked, check=True)
    sizes = {Path(item.file).name: item.size for item in found.lacking}
    assert sizes == {name: (repo / name).stat().st_size for name in DEBS}
    assert not asked.out.exists()
    build(asked)
    assert build(asked, check=True).lacking == []


def test_packages_of_a_node_are_left_out(tmp_path: Path, repo: Path) -> None:
    status = tmp_path / "status"
    status.write_text(
        "Package: lib\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.5-1\nMaintainer: x\n"
    )
    asked = order(tmp_path, upstream(repo), installed=status)
    assert [item.name for item in build(asked).items] == ["other", "tool"]


def test_pins_decide_versions_of_dependencies_as_on_nodes(tmp_path: Path) -> None:
    repo = made.make(tmp_path / "up", [*PACKAGES, Deb("lib", "2.0-1", "newer")])
    pins = "Package: lib\nPin: version 1.5*\nPin-Priority: 1001\n"
    assert build(order(tmp_path, upstream(repo), pins=pins)).items[0].version == "1.5-1"
    assert build(order(tmp_path / "b", upstream(repo))).items[0].version == "2.0-1"


def test_doca_s_own_dkms_is_never_taken(tmp_path: Path) -> None:
    """The mirror has a label of its own, so the pin on the nodes would not see where a dkms in it came from."""
    site = load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=Path("/checkout"))
    change = {"set": "hgx-r580-ubuntu2404", "nic_stack": "doca"}
    doca = site.model_copy(update={"software": site.software.model_copy(update=change)})
    pins = asked_for(doca, ROOT, loader.platform("dgx_h100")).pins
    theirs = [Deb("doca-ofed", "3.2.3", "DOCA-OFED", {"Depends": "dkms"}), Deb("dkms", "3.1.5", "DOCA's own")]
    upstreams = (
        upstream(made.make(tmp_path / "doca", theirs, label="DOCA-HOST-3.2.3"), name="doca"),
        upstream(made.make(tmp_path / "os", [Deb("dkms", "3.0.11-1", "Ubuntu's")]), name="os"),
    )
    need = Need(("dgx_h100",), {"doca-ofed": "3.2.3"})
    built = build(order(tmp_path, *upstreams, system="ubuntu2404", need=need, pins=pins))
    assert [(item.name, item.version) for item in built.items] == [("dkms", "3.0.11-1"), ("doca-ofed", "3.2.3")]


def test_several_upstreams_each_count_with_their_own_key(tmp_path: Path) -> None:
    one, two = made.make(tmp_path / "one", PACKAGES[:2]), made.make(tmp_path / "two", PACKAGES[2:])
    built = build(order(tmp_path, upstream(one), upstream(two, name="os")))
    assert [item.name for item in built.items] == ["lib", "other", "tool"]
    wrong = upstream(two, name="os", key=one / "mirror.asc", fingerprint=keys.fingerprints(one / "mirror.asc")[0])
    text = refused(order(tmp_path / "b", upstream(one), wrong))
    assert text.startswith(f"software.upstreams os (file://{two}) - Expected: an index signed by its declared key")
    assert "Actual: a signature by another key" in text
    assert text.endswith("Compare key and fingerprint with what the owner publishes.")


def test_another_fingerprint_is_refused_before_anything_is_fetched(tmp_path: Path, repo: Path) -> None:
    with web(repo) as server:
        asked = order(tmp_path, upstream(repo, server.url, fingerprint="AB" * 20))
        text = refused(asked)
    real = keys.fingerprints(repo / "mirror.asc")[0]
    assert text == (
        f"software.upstreams vendor: {repo}/mirror.asc - Expected: the key {'AB' * 20} Actual: {real}. Nothing was "
        "fetched. Compare both with what the key's owner publishes, then correct key or fingerprint."
    )
    assert (server.fetched, asked.work.exists()) == ([], False)


def test_an_upstream_that_does_not_answer_is_named(tmp_path: Path, repo: Path) -> None:
    text = refused(order(tmp_path, upstream(repo, "http://127.0.0.1:9/x")))
    assert text.startswith("software.upstreams vendor (http://127.0.0.1:9/x) - Expected: an answer Actual: ")
    assert "Nothing was built. Check its url and suite in the site file" in text


def test_a_damaged_package_of_an_upstream_is_refused(tmp_path: Path, repo: Path) -> None:
    path = repo / "lib_1.5-1_amd64.deb"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with web(repo) as server:
        asked = order(tmp_path, upstream(repo, server.url))
        text = refused(asked)
    assert text.startswith(
        f"software.upstreams vendor ({server.url}) - Expected: packages as the signed index describes"
    )
    assert "lib_1.5-1_amd64.deb" in text
    assert not asked.out.exists()


def test_packages_that_no_upstream_has_are_named_all_at_once(tmp_path: Path, repo: Path) -> None:
    need = Need(("dgx_h100",), {"tool": "1:9.9-1", "absent": "", "missing": ""})
    text = refused(order(tmp_path, upstream(repo), need=need))
    assert "Expected: the packages of dgx_h100 Actual: no " in text
    assert "absent" in text
    assert "missing" in text


def test_a_missing_dependency_is_named(tmp_path: Path) -> None:
    repo = made.make(tmp_path / "up", [PACKAGES[0], PACKAGES[3]])
    text = refused(order(tmp_path, upstream(repo)))
    assert "Depends: lib (>= 1.0) but it is not installable" in text
    assert text.endswith("Declare the upstream that has what is missing (software.upstreams), then run again.")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("pool/lib_1.5-1_amd64.deb", "pool/lib_1.5-1_amd64.deb differs"), ("Packages", "Packages differs")],
)
def test_a_damaged_mirror_is_refused_and_the_next_run_fixes_it(
    tmp_path: Path, repo: Path, name: str, expected: str
) -> None:
    with web(repo) as server:
        asked = order(tmp_path, upstream(repo, server.url))
        build(asked)
        server.fetched.clear()
        path = asked.out / name
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data[:-1] + b"?")
        with pytest.raises(MirrorError) as error:
            verify.verify(asked.out, asked.wanted, tmp_path / "scratch")
        assert f"Expected: every file as the signed index describes Actual: {expected}" in str(error.value)
        assert build(asked).changed
    assert server.fetched == ([Path(name).name] if name.endswith(".deb") else [])
    assert verify.verify(asked.out, asked.wanted, tmp_path / "scratch") == 10


def test_a_mirror_that_another_key_signed_is_refused(tmp_path: Path, repo: Path) -> None:
    asked = order(tmp_path, upstream(repo))
    build(asked)
    with pytest.raises(MirrorError) as error:
        verify.verify(asked.out, asked.wanted, tmp_path / "scratch", repo / "mirror.asc")
    assert "SHA256SUMS - Expected: a good signature by" in str(error.value)
    assert "Actual: a signature by another key. Do not use this mirror." in str(error.value)
    release = asked.out / "Release"
    release.write_text(release.read_text().replace("Origin: rackready", "Origin: someone"))
    with pytest.raises(MirrorError, match="the content was changed after it was signed"):
        verify.verify(asked.out, asked.wanted, tmp_path / "scratch")


def test_a_mirror_that_lacks_a_package_of_the_site_is_refused(tmp_path: Path, repo: Path) -> None:
    asked = order(tmp_path, upstream(repo))
    build(asked)
    more = replace(asked.wanted, needs=(Need(("dgx_h100",), {"unwanted": ""}),))
    with pytest.raises(MirrorError, match="Actual: no unwanted"):
        verify.verify(asked.out, more, tmp_path / "scratch")


KILLED = """
import sys
from pathlib import Path
from rackready.drivers.mirror.build import build
from tests.unit.mirror.upstream import order, upstream
build(order(Path(sys.argv[1]), upstream(Path(sys.argv[2]), sys.argv[3])))
"""


def test_a_killed_run_leaves_the_old_mirror_whole_and_fetches_nothing_twice(tmp_path: Path, repo: Path) -> None:
    with web(repo) as server:
        asked = order(tmp_path, upstream(repo, server.url))
        build(asked)
        made.make(
            repo.parent,
            [*PACKAGES, Deb("other", "3.1-1", "newer"), Deb("lib", "1.6-1", "newer", {}, {"/x": "y" * 99_999})],
        )
        before = state(asked.out)
        server.fetched.clear()
        server.stall_after = 1
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, tmp_path, repo, server.url], cwd=Path(__file__).parents[3], env=os.environ
        )
        assert server.reached.wait(60)
        child.kill()
        child.wait()
        assert state(asked.out) == before
        assert verify.verify(asked.out, asked.wanted, tmp_path / "scratch") == 10
        server.stall_after = 1_000_000
        whole, half = server.fetched
        server.go_on.set()
        assert build(asked).changed
    assert verify.verify(asked.out, asked.wanted, tmp_path / "scratch") == 10
    assert {whole, half} == {"lib_1.6-1_amd64.deb", "other_3.1-1_amd64.deb"}
    assert server.fetched == [whole, half, half]
    assert sorted(path.name for path in asked.out.parent.iterdir()) == [".mirror.work", "mirror"]


def test_a_run_that_finds_the_new_mirror_wrong_keeps_the_old_one(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = order(tmp_path, upstream(repo))
    build(asked)
    before = state(asked.out)
    made.make(repo.parent, [*PACKAGES, Deb("other", "3.1-1", "newer")])

    def wrong(*_: Any) -> int:
        raise MirrorError("it is wrong")

    monkeypatch.setattr(verify, "verify", wrong)
    assert refused(asked) == "it is wrong"
    assert state(asked.out) == before


def test_two_runs_at_once_are_refused(tmp_path: Path, repo: Path) -> None:
    asked = order(tmp_path, upstream(repo))
    with swap.locked(asked.work, asked.out):
        assert "Expected: one run at a time" in refused(asked)


def test_a_folder_with_other_things_is_not_replaced(tmp_path: Path, repo: Path) -> None:
    asked = order(tmp_path, upstream(repo))
    asked.out.mkdir()
    (asked.out / "thesis.tex").write_text("years of work")
    assert refused(asked).startswith(f"{asked.out} - Expected: a mirror that `rackready mirror` made")
    assert (asked.out / "thesis.tex").read_text() == "years of work"


def test_missing_tools_are_named_with_their_packages(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = order(tmp_path, upstream(repo))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(asked) == (
        "controller - Expected: the programs apt-get, apt-ftparchive, gpg Actual: not installed. Install the packages "
        "that bring them: apt, apt-utils, gnupg."
    )


def test_an_archive_can_be_checked_without_rackready(tmp_path: Path, repo: Path) -> None:
    asked = replace(
        order(tmp_path, upstream(repo)), images=[Image("g", "r/i@sha256:" + "0" * 64, "sha256:" + "0" * 64)]
    )
    build(asked)
    target = tmp_path / "carry.tar"
    assert carry(asked.out, target, asked.tell)
    before = target.stat()
    assert not carry(asked.out, target, asked.tell)
    after = target.stat()  # the archive was read, so its access time may move
    assert (after.st_ino, after.st_mtime_ns, after.st_size) == (before.st_ino, before.st_mtime_ns, before.st_size)
    with tarfile.open(target) as tar:
        assert tar.getnames()[:4] == [
            f"mirror/{name}" for name in ("manifest.json", "SHA256SUMS", "SHA256SUMS.asc", "mirror.asc")
        ]
        tar.extractall(tmp_path / "inside", filter="data")
    inside = tmp_path / "inside/mirror"
    assert subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=inside, check=False).returncode == 0
    assert verify.verify(inside, asked.wanted, tmp_path / "scratch", asked.out / "mirror.asc") == 10
    assert json.loads((inside / "manifest.json").read_text())["images"][0]["digest"] == "sha256:" + "0" * 64
    target.write_bytes(target.read_bytes()[:5000])
    assert carry(asked.out, target, asked.tell)


def test_a_file_system_without_exchange_has_two_renames(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "_exchange", lambda *_: False)
    asked = order(tmp_path, upstream(repo))
    build(asked)
    made.make(repo.parent, [*PACKAGES, Deb("other", "3.1-1", "newer")])
    assert build(asked).changed
    asked.out.rename(swap.beside(asked.out))  # a process that died between the two
    assert build(asked).changed is False
    assert verify.verify(asked.out, asked.wanted, tmp_path / "scratch") == 10


def test_a_signing_key_that_others_can_read_is_refused(tmp_path: Path, repo: Path) -> None:
    asked = order(tmp_path, upstream(repo))
    build(asked)
    asked.secret.chmod(0o644)
    assert refused(asked) == f"{asked.secret} - Expected: mode 0600 Actual: 0644. Run: chmod 600 {asked.secret}."
