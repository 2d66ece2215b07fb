"""A simulated node that a test has used is put back for the next one, whatever the test did to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gates import laid_out


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """Return path -> (mode, content or target) of everything below a folder."""
    return {
        path.relative_to(root).as_posix(): (
            path.lstat().st_mode,
            str(path.readlink()) if path.is_symlink() else "" if path.is_dir() else path.read_text(encoding="utf-8"),
        )
        for path in root.rglob("*")
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "node"
    (found / "sys/class").mkdir(parents=True)
    (found / "sys/class/nic").write_text("up\n", encoding="utf-8")
    (found / "sys/class/gpu").write_text("8\n", encoding="utf-8")
    (found / "sys/link").symlink_to("class/nic")
    return found


def rewrite(root: Path) -> None:
    """Write other text of the same size at once: the clock that dates files may not have ticked."""
    (root / "sys/class/nic").write_text("no\n", encoding="utf-8")


def replace_kinds(root: Path) -> None:
    (root / "sys/class/gpu").unlink()
    (root / "sys/class/gpu").mkdir()
    (root / "sys/link").unlink()
    (root / "sys/link").write_text("x", encoding="utf-8")


def remove_a_folder(root: Path) -> None:
    for path in ("sys/class/nic", "sys/class/gpu"):
        (root / path).unlink()
    (root / "sys/class").rmdir()


def change_a_link(root: Path) -> None:
    (root / "sys/link").unlink()
    (root / "sys/link").symlink_to("class/gpu")


CHANGES: list[Callable[[Path], None]] = [
    rewrite,
    replace_kinds,
    remove_a_folder,
    change_a_link,
    lambda root: (root / "sys/new/one").mkdir(parents=True),
    lambda root: (root / "sys/class/nic").chmod(0o400),
    lambda root: (root / "sys/class/nic").replace(root / "sys/class/gpu"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_put_back(root: Path, change: Callable[[Path], None]) -> None:
    name, before = str(root), tree(root)
    with pytest.MonkeyPatch.context() as patch:
        laid_out.keep(name, root, patch)
        change(root)
        assert laid_out.free(name, patch) is None, "a test has it"
    assert tree(root) != before
    for _ in range(2):
        with pytest.MonkeyPatch.context() as patch:
            found = laid_out.free(name, patch)
            assert found is not None
            assert (found.root, tree(root)) == (root, before)
            change(root)


def test_one_that_is_gone_is_not_given(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.MonkeyPatch.context() as patch:
        laid_out.keep(str(root), root, patch)
    root.rename(root.with_name("elsewhere"))
    assert laid_out.free(str(root), monkeypatch) is None
