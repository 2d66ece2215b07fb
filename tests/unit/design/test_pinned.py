"""A campaign works on the site as it began: later edits of the site file change nothing and are reported."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rackready.design.pinned import VARIABLE, digest, edited, pin, pinned_file, read_pinned, site_of
from rackready.design.site import load_site
from rackready.model.phase import PhaseContext
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths

ROOT = Path(__file__).resolve().parents[3]
SITE = ROOT / "inventories" / "sim" / "site.yml"


@pytest.fixture
def paths(tmp_path: Path) -> EnvPaths:
    folder = tmp_path / "inventories" / "sim"
    folder.mkdir(parents=True)
    shutil.copy(SITE, folder)
    return EnvPaths(tmp_path, "sim")


def edit(paths: EnvPaths, old: str, new: str) -> None:
    text = paths.site_file.read_text(encoding="utf-8")
    assert old in text
    paths.site_file.write_text(text.replace(old, new), encoding="utf-8")


def begun(paths: EnvPaths) -> PhaseContext:
    return PhaseContext("sim", paths.root, "c1", site_digest=pin(paths, load_site("sim", root=paths.root)))


@pytest.mark.parametrize(
    "path", [SITE, *sorted((ROOT / "inventories" / "examples").glob("*.yml"))], ids=lambda path: path.stem
)
def test_a_site_is_the_same_after_it_was_stored(path: Path, tmp_path: Path) -> None:
    site = load_site("sim", site_file=path, root=ROOT)
    where = EnvPaths(tmp_path, "sim")
    assert read_pinned(pinned_file(where, pin(where, site))) == site
    assert pinned_file(where, digest(site)).stat().st_mode & 0o777 == 0o600


def test_an_edit_during_a_campaign_changes_nothing_and_is_reported(paths: EnvPaths) -> None:
    ctx = begun(paths)
    assert edited(ctx) == ""
    before = site_of(ctx)
    edit(paths, "unit: 25", "unit: 29")
    now = site_of(PhaseContext("sim", paths.root, "c2"))
    assert (site_of(ctx), now.node("node04").unit) == (before, 29)
    assert edited(ctx) == (
        f"{paths.site_file}, an overlay or a site profile was edited during this campaign, "
        "which used the previous version. "
        "Run the same command again to apply the edit."
    )


def test_an_invalid_edit_is_reported_with_its_reason(paths: EnvPaths) -> None:
    ctx = begun(paths)
    edit(paths, "name: sim", "nme: sim")
    assert site_of(ctx).name == "sim"
    assert edited(ctx).startswith(
        f"{paths.site_file} was edited during this campaign, which used the previous version. "
        "The new version is invalid: "
    )
    assert "nme" in edited(ctx)


@pytest.mark.parametrize(("change", "actual"), [("gone", "no file"), ("cut", "EOFError, damaged"), ("other", "")])
def test_a_stored_site_that_is_not_whole_is_refused(paths: EnvPaths, change: str, actual: str) -> None:
    ctx = begun(paths)
    path, data = pinned_file(paths, ctx.site_digest), pinned_file(paths, ctx.site_digest).read_bytes()
    if change == "other":
        edit(paths, "unit: 25", "unit: 29")
        other = pin(paths, load_site("sim", root=paths.root))
        data, actual = pinned_file(paths, other).read_bytes(), other[:40]
    path.unlink()
    if change != "gone":
        path.write_bytes(data[: len(data) // 2] if change == "cut" else data)
    with pytest.raises(RackreadyError) as refused:
        site_of(ctx)
    assert str(refused.value) == (
        f"{path}: pinned site of this campaign - Expected: SHA-256 {ctx.site_digest[:12]} Actual: {actual}. "
        f"Remove {path} and run the same command again: it stores the site again."
    )


def test_ansible_reads_the_site_of_the_campaign(paths: EnvPaths) -> None:
    ctx = begun(paths)
    edit(paths, "name: sim", "nme: sim")
    argv = [str(Path(sys.executable).with_name("ansible-inventory")), "-i", str(paths.site_file), "--list"]
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(paths.root),
        "PYTHONPATH": str(ROOT / "src"),
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "LANG": "C.UTF-8",
    }
    done = subprocess.run(
        argv,
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=env | {VARIABLE: str(pinned_file(paths, ctx.site_digest))},
    )
    assert sorted(json.loads(done.stdout)["_meta"]["hostvars"]) == ["node01", "node02", "node03", "node04"]
    live = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=ROOT, env=env)
    assert "nme" in live.stderr, "without it, the file as it is now is read"


def test_the_state_of_another_site_is_refused_until_somebody_says_that_it_is_the_same(
    paths: EnvPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two site repositories with an environment of one name, and one $RACKREADY_STATE."""
    monkeypatch.setenv("RACKREADY_STATE", str(tmp_path / "state"))
    second = EnvPaths(tmp_path / "second", "sim")
    shutil.copytree(paths.inventory, second.inventory)
    edit(second, "name: sim", "name: berlin")
    early = load_site("sim", root=second.root)  # before the first site's first run
    begun(paths)
    assert load_site("sim", root=paths.root).name == "sim"
    owner = tmp_path / "state/sim/site_name"
    text = (
        f"{owner.parent}: ledger, evidence and keys - Expected: those of site berlin Actual: those of site sim. "
        "Nothing was changed. Give this site repository state of its own (RACKREADY_STATE). If it is the same site "
        f"under a new name, remove {owner}."
    )
    for refused in (lambda: load_site("sim", root=second.root), lambda: pin(second, early)):
        with pytest.raises(RackreadyError) as error:
            refused()
        assert str(error.value) == text
    assert load_site("sim", root=second.root, site_file=second.site_file).name == "berlin", "--site has no state"
    owner.unlink()
    begun(second)
    assert owner.read_text(encoding="utf-8") == "berlin\n"
    with pytest.raises(RackreadyError):
        load_site("sim", root=paths.root)
