"""`rackready release prune` as a user calls it: it shows first, and keeps the newest builds."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers.release import code
from tests.unit.release.world import Index, pin_keys, write_site, write_vars

Call = Callable[..., tuple[int, str, str]]
RELEASE = ".rackready/sim/release"


@pytest.fixture
def root(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a site repository with two builds of four nodes, old enough to be pruned."""
    Index(monkeypatch)
    monkeypatch.setattr(code, "archive", lambda: b"roles and playbooks")
    write_site(tmp_path)
    pin_keys(tmp_path)
    for text in ("x: 1\n", "x: 2\n"):
        write_vars(tmp_path, "group_vars/nodes.yml", text)
        assert call("release", "build")[0] == 0
    for path in (tmp_path / RELEASE / "objects/sha256").iterdir():
        os.utime(path, (time.time() - 7200,) * 2)
    return tmp_path


def files(root: Path) -> list[Path]:
    return sorted(path for path in (root / RELEASE).rglob("*") if path.is_file())


def document(call: Call, *words: str) -> dict[str, Any]:
    exit_code, out, _ = call("release", "prune", *words, "--output", "json")
    assert exit_code == 0, out
    found: dict[str, Any] = json.loads(out)
    return found


def test_it_shows_what_would_go_and_removes_nothing(root: Path, call: Call) -> None:
    before = files(root)
    exit_code, out, told = call("release", "prune", "--keep", "1")
    assert (exit_code, out) == (0, "would go: 1 builds, 8 objects, 0 reports, 0.0 MiB\nkept: 4 releases\n")
    assert "nothing was removed. Add --yes to remove it" in told
    assert files(root) == before


def test_the_newest_builds_stay_whole(root: Path, call: Call) -> None:
    newest = json.loads(call("release", "list", "--output", "json")[1])["indexes"][0]["index"]
    before = files(root)
    found = json.loads(call("release", "prune", "--keep", "1", "--yes", "--output", "json")[1])
    assert (found["done"], found["builds"], found["objects"], found["kept_releases"]) == (True, 1, 8, 4)
    gone = set(before) - set(files(root))
    assert len(gone) == 9
    assert found["bytes"] > 0
    assert [row["index"] for row in json.loads(call("release", "list", "--output", "json")[1])["indexes"]] == [newest]
    assert call("release", "verify")[0] == 0
    again = document(call, "--keep", "1", "--yes")
    assert (again["builds"], again["objects"], again["bytes"]) == (0, 0, 0)


def test_by_default_three_builds_stay(root: Path, call: Call) -> None:
    assert document(call)["builds"] == 0
    assert root.is_dir()


def test_a_newest_build_that_cannot_be_read_is_refused_and_nothing_goes(root: Path, call: Call) -> None:
    newest = json.loads(call("release", "list", "--output", "json")[1])["indexes"][0]["index"]
    path = root / RELEASE / f"releases/{newest}.json"
    path.chmod(0o600)
    path.write_text("{")
    before = files(root)
    exit_code, _, told = call("release", "prune", "--keep", "1", "--yes")
    assert exit_code == 2
    assert f"{path}: index of releases - Expected: a readable index Actual: " in " ".join(told.split())
    assert files(root) == before


def test_a_file_that_cannot_be_removed_is_said(root: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink = Path.unlink

    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        if path.parent.name == "releases":
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, missing_ok=missing_ok)

    oldest = json.loads(call("release", "list", "--output", "json")[1])["indexes"][1]["index"]
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        exit_code, _, told = call("release", "prune", "--keep", "1", "--yes")
    assert exit_code == 2
    place = root / RELEASE / f"releases/{oldest}.json"
    assert " ".join(told.split()).endswith(
        f"{place} - Expected: a file that can be removed Actual: Permission denied. Check owner and mode of its "
        "folder, then run again: it finds the rest."
    )
