"""State outside the working tree, as in a pipeline: a killed job leaves no lock, and the next one goes on."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

import pytest

from rackready import paths
from rackready.design.site import absolute
from rackready.gates.engine.local import store_paths
from rackready.ledger.lock import is_held
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths, placed, private_dir, project_root
from tests.unit.campaign.test_campaign import did, run, start


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a runner keeps."""
    monkeypatch.setenv("RACKREADY_STATE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def tree(folder: Path) -> Path:
    """A fresh checkout: what was there is gone, as `git clean -ffdx` does it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def test_a_cancelled_job_is_resumed_from_a_fresh_checkout(tmp_path: Path, kept: Path) -> None:
    root = tree(tmp_path / "build")
    child = start(root, "hang:fabric")
    deadline = time.monotonic() + 300
    while not ((root / "did.log").exists() and any(line.startswith("fabric") for line in did(root))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    state = EnvPaths(root, "x")
    assert state.state == kept / "x"
    assert is_held(state.lock, state.database)
    code, text = run(root, "run")
    assert code != 0
    assert "another controller works on this site" in text, "a second job is refused while the first one works"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert not is_held(state.lock, state.database), "the kernel frees the lock of a killed job"
    code, text = run(tree(root), "run")
    assert code == 0, text
    assert "which was cut off" in text
    assert [line.split()[0] for line in did(root)][:1] == ["fabric"], "what was done before is not repeated"
    assert not (root / ".rackready").exists()


def test_a_job_in_another_folder_begins_anew_from_the_ledger(tmp_path: Path, kept: Path) -> None:
    first, other = tree(tmp_path / "builds-0"), tree(tmp_path / "builds-1")
    code, _ = run(first, "die:fabric")
    assert code == -signal.SIGKILL
    code, text = run(other, "run")
    assert code == 0, text
    assert f"was cut off and is not resumed (it began in {first}): a new one continues" in text
    assert did(other)[-1].startswith("handover")
    assert (kept / "x/state.sqlite").exists()


def test_the_folder_of_state_is_private_and_paths_below_it_follow(tmp_path: Path, kept: Path) -> None:
    kept.mkdir(mode=0o755)
    private_dir(EnvPaths(tmp_path, "x").logs / "c1")
    assert kept.stat().st_mode & 0o777 == 0o700
    assert placed(tmp_path, ".rackready/sim/key") == kept / "sim/key"
    assert placed(tmp_path, ".rackready-other/key") == tmp_path / ".rackready-other/key"
    assert placed(tmp_path, "/etc/key") == Path("/etc/key")
    written = {"password": {"file": ".rackready/sim/bmc"}, "key": "inventories/x/mirror.asc", "name": ".rackready/x"}
    assert absolute(written, tmp_path) == {
        "password": {"file": f"{kept}/sim/bmc"},
        "key": f"{tmp_path}/inventories/x/mirror.asc",
        "name": ".rackready/x",
    }


def test_a_folder_that_somebody_named_is_taken(tmp_path: Path, kept: Path) -> None:
    assert store_paths(tmp_path / "store").state == tmp_path / "store/.rackready/local"
    assert not kept.exists()


def test_a_folder_that_others_use_is_refused_and_keeps_its_rights(tmp_path: Path, kept: Path) -> None:
    kept.mkdir()
    (kept / "of-others").touch()
    kept.chmod(0o1777)
    with pytest.raises(RackreadyError) as caught:
        private_dir(EnvPaths(tmp_path, "x").state)
    assert str(caught.value) == (
        f"RACKREADY_STATE {kept} - Expected: a folder of rackready's own: new, empty or mode 0700 Actual: mode 1777 "
        f"with files in it. Name a folder below it; or, if nothing else uses it: chmod 700 {kept}."
    )
    assert kept.stat().st_mode & 0o7777 == 0o1777
    assert [path.name for path in kept.iterdir()] == ["of-others"]
    kept.chmod(0o700)
    assert private_dir(EnvPaths(tmp_path, "x").state) == kept / "x"


def test_a_relative_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACKREADY_STATE", "state")
    with pytest.raises(RackreadyError) as caught:
        _ = EnvPaths(tmp_path, "x").state
    assert str(caught.value) == (
        "RACKREADY_STATE - Expected: an absolute path Actual: state. Write it from the root on."
    )


def test_the_nearest_site_repository_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RACKREADY_ROOT", raising=False)
    inner = tmp_path / "team/site"
    for folder in (tmp_path, inner):
        (folder / "inventories/x").mkdir(parents=True)
        (folder / "inventories/x/site.yml").touch()
    (tmp_path / "team/inventories").mkdir()
    monkeypatch.chdir(inner / "inventories/x")
    assert project_root() == inner
    monkeypatch.chdir(tmp_path / "team")
    assert project_root() == tmp_path, "inventories of something else are not ours"
    monkeypatch.chdir("/")
    assert project_root() == paths.shipped(), "this checkout"
