"""The real dnf with a repository of others that gives nothing: it is left out; rackready's own are not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.build import BuildTools
from rackready.ondevice.command import Done, NodeProblem, run
from rackready.ondevice.dnf import Dnf
from rackready.ondevice.packages import Wish
from tests.unit.mirror import upstream as made

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("dnf", "createrepo_c", "rpmbuild", "rpmsign"))),
    reason="needs root, dnf, createrepo_c and rpmbuild",
)
REPOSITORIES = """[baseos]
name=baseos
mirrorlist=http://127.0.0.1:9/mirrorlist
[rackready]
name=rackready
baseurl=file://{repo}
gpgcheck=1
gpgkey=file://{repo}/mirror.asc
skip_if_unavailable=0
"""
CONFIG = "[main]\nbest=True\nreposdir={root}/etc/yum.repos.d\nmodule_platform_id=platform:el9\n"


def node(root: Path, repo: Path) -> Dnf:
    """Return dnf with a root of its own, as a node has it."""
    folder = root / "etc/yum.repos.d"
    folder.mkdir(parents=True)
    (folder / "all.repo").write_text(REPOSITORIES.format(repo=repo))
    config = root / "etc/dnf/dnf.conf"
    config.parent.mkdir()
    config.write_text(CONFIG.format(root=root))
    own = {
        "dnf": ["--config", str(config), "--installroot", str(root), "--releasever", "9", "--disableplugin", "*"],
        "rpm": ["--root", str(root)],
    }

    def there(argv: Sequence[str]) -> Done:
        return run([argv[0], *own.get(argv[0], []), *argv[1:]])

    return Dnf(run=there, root=root, folder=root / "rackready", lock_wait_s=0.2)


def test_an_air_gapped_node_installs_what_the_mirror_has(tmp_path: Path) -> None:
    repo = made.make(tmp_path / "up", rpm=True, streams=made.MODULE)
    dnf = node(tmp_path / "node", repo)
    change = dnf.ensure(Wish({"lib": "1.5-1"}, streams=["driver:1"]), "install", 1, "a")
    assert (dnf.installed(["lib"]), dnf.stream("driver")) == ({"lib": ["1.5-1"]}, "1")
    [note] = change.notes
    assert note.startswith("package source baseos gives no metadata, so dnf left it out: Cannot ")
    with pytest.raises(NodeProblem) as caught:
        dnf.ensure(Wish({"libnuma": ""}), "install", 2, "a")
    assert "Actual: no such package or version there; no metadata from baseos (" in str(caught.value)
    shutil.move(repo, tmp_path / "gone")
    with pytest.raises(NodeProblem, match=r"the package mirror answers Actual: Failed to download .* 'rackready'"):
        dnf.ensure(Wish({"other": "3.0-1"}), "install", 3, "a")


def test_what_builds_the_driver_may_be_in_a_repository_that_does_not_answer(tmp_path: Path) -> None:
    dnf = node(tmp_path / "node", made.make(tmp_path / "up", rpm=True))
    (dnf.root / "usr/bin").mkdir(parents=True)
    (dnf.root / "usr/bin/dnf").touch()
    (dnf.root / "etc/os-release").write_text("ID=rocky\n")
    with pytest.raises(NodeProblem) as caught:
        BuildTools(dnf.run, dnf.root).absent({"/usr/sbin/dkms": "dkms"})
    told = str(caught.value)
    assert " Actual: no dkms; no metadata from baseos (Cannot " in told
    assert "reboot into" not in told
    assert told.endswith(" Or give the node a way to baseos, if it is there.")
