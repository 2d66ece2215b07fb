"""Files of people at work on them: deep trees, links, swapped folders, and what is mounted below."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackready.ondevice import safe_files
from rackready.ondevice.safe_files import ChangedError, Spot, below, place, remove, replace_text, text_of

DEEP = 1500
"""More folders than Python's recursion and PATH_MAX allow."""


@pytest.fixture
def top(tmp_path: Path) -> Iterator[int]:
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield folder
    os.close(folder)


def nested(folder: int, depth: int, name: str = "d" * 20) -> None:
    """Make folders in folders, with a file in the innermost."""
    here = os.dup(folder)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below_it = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below_it
    os.close(os.open("secret", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_a_tree_that_is_too_deep_for_paths_is_seen_whole_and_removed(top: int, tmp_path: Path) -> None:
    nested(top, DEEP)
    seen = [item.name for item in below(top, lambda _item: True)]
    assert (len(seen), seen[-1]) == (DEEP + 1, "secret")
    remove(top, "d" * 20)
    assert list(tmp_path.iterdir()) == []


def test_folders_come_before_their_files_and_some_are_not_entered(top: int, tmp_path: Path) -> None:
    for name in ("a/x/1", "a/y/2", "b"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert [item.path() for item in below(top, lambda item: item.name != "x")] == ["a", "a/x", "a/y", "a/y/2", "b"]


def test_links_are_removed_and_never_followed(top: int, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").write_text("x")
    (tmp_path / "gone/deep").mkdir(parents=True)
    (tmp_path / "gone/deep/link").symlink_to(tmp_path / "kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    remove(top, "gone")
    remove(top, "link")
    assert (sorted(path.name for path in tmp_path.iterdir()), (tmp_path / "kept/file").read_text()) == (["kept"], "x")


def test_a_folder_that_becomes_a_link_while_it_is_removed_leads_nowhere(
    top: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").write_text("x")
    (tmp_path / "gone/deep").mkdir(parents=True)
    real = os.lstat

    def swap(name: str, *, dir_fd: int) -> os.stat_result:
        found = real(name, dir_fd=dir_fd)
        if name == "deep" and not (tmp_path / "gone/deep").is_symlink():
            (tmp_path / "gone/deep").rmdir()
            (tmp_path / "gone/deep").symlink_to(tmp_path / "kept")
        return found

    monkeypatch.setattr(os, "lstat", swap)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        remove(top, "gone")
    assert (tmp_path / "kept/file").read_text() == "x"


def test_a_folder_that_is_moved_while_it_is_removed_ends_the_removal(
    top: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone/deep").mkdir(parents=True)
    (tmp_path / "gone/deep/file").write_text("x")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/deep").write_text("x")
    real = os.unlink

    def move(name: str, *, dir_fd: int) -> None:
        real(name, dir_fd=dir_fd)
        (tmp_path / "gone/deep").rename(tmp_path / "etc/moved")

    monkeypatch.setattr(os, "unlink", move)
    with pytest.raises(ChangedError, match="deep was moved"):
        remove(top, "gone")
    assert (tmp_path / "etc/deep").exists()


def test_what_cannot_be_removed_does_not_keep_the_rest(
    top: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone/a", "gone/b", "gone/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    real = os.unlink

    def immutable(name: str, *, dir_fd: int) -> None:
        if name == "b":
            raise PermissionError(1, "Operation not permitted")
        real(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", immutable)
    with pytest.raises(PermissionError):
        remove(top, "gone")
    assert [path.name for path in (tmp_path / "gone").iterdir()] == ["b"]


BIND = """
import os, sys
from pathlib import Path
from rackready.ondevice.safe_files import below, remove
top = os.open(sys.argv[1], os.O_RDONLY)
print(sorted(item.path() for item in below(top, lambda _item: True)))
remove(top, "gone")
print(sorted(str(path.relative_to(sys.argv[1])) for path in Path(sys.argv[1]).rglob("*")))
"""


def test_a_bind_mount_of_the_same_disk_is_not_entered_and_not_emptied(tmp_path: Path) -> None:
    for name in ("kept/file", "gone/inner/mounted/x", "gone/other/y"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "gone/inner/mounted/x").unlink()
    mount = f'mount --bind {tmp_path}/kept {tmp_path}/gone/inner/mounted && exec {sys.executable} -c "$0" {tmp_path}'
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0:
        pytest.skip("needs a mount namespace of its own, so root")
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", mount, BIND],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    seen, left = done.stdout.splitlines()
    assert seen == ("['gone', 'gone/inner', 'gone/inner/mounted', 'gone/other', 'gone/other/y', 'kept', 'kept/file']")
    assert left == "['gone', 'gone/inner', 'gone/inner/mounted', 'gone/inner/mounted/file', 'kept', 'kept/file']"


def never(_link: os.stat_result, _folder: os.stat_result) -> bool:
    return False


def test_a_path_goes_through_links_that_are_trusted_only(tmp_path: Path) -> None:
    (tmp_path / "data/eve").mkdir(parents=True)
    (tmp_path / "data/eve/keys").write_text("k")
    (tmp_path / "homes").symlink_to("/data")
    (tmp_path / "rel").symlink_to("data/eve")
    for path in ("/homes/eve/keys", "/rel/keys"):
        with place(str(tmp_path), path, lambda *_: True) as found:
            assert (found.name, found.link, text_of(found, 10)) == ("keys", False, "k")
        with place(str(tmp_path), path, never) as found:
            assert (found.name, found.link) == (path.split("/")[1], True)


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with place(str(tmp_path), "/a/x", lambda *_: True) as found:
        assert found.link


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with place(str(tmp_path), "/new", never) as found:
        assert found.name == "new"
    with pytest.raises(FileNotFoundError), place(str(tmp_path), "/none/new", never):
        pass


def test_only_plain_files_up_to_a_length_are_read(top: int, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_text("12345")
    (tmp_path / "link").symlink_to(tmp_path / "long")
    assert text_of(Spot(top, "long"), 5) == "12345"
    with pytest.raises(OSError, match="longer than 4 bytes"):
        text_of(Spot(top, "long"), 4)
    with pytest.raises(OSError, match="no plain file"):
        text_of(Spot(top, "pipe"), 5)
    with pytest.raises(OSError, match="Too many levels"):
        text_of(Spot(top, "link"), 5)


def test_a_file_is_replaced_with_owner_and_mode(top: int, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("old")
    (tmp_path / "keys").chmod(0o640)
    (tmp_path / ".keys.rackready").symlink_to(tmp_path / "other")
    replace_text(Spot(top, "keys"), "new")
    found = (tmp_path / "keys").stat()
    assert ((tmp_path / "keys").read_text(), found.st_mode & 0o777) == ("new", 0o640)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keys"]


def test_the_kernel_tells_the_mount(tmp_path: Path) -> None:
    one, two = os.open(tmp_path, os.O_RDONLY), os.open("/proc", os.O_RDONLY)
    assert safe_files.mount_of(one) != safe_files.mount_of(two)
    os.close(one)
    os.close(two)
