"""Module rackready_files: it replaces and names what differs, leaves the rest alone; a dry run changes nothing."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils import basic

import rackready
from rackready import ondevice
from rackready.ondevice import file_state

ROOT = Path(__file__).resolve().parents[2]


class Ended(Exception):  # noqa: N818 - as a module ends
    """What a module says at its end."""


class Stub:
    """Ansible's module as far as this one uses it; owner and group are not changed, for that needs root."""

    def __init__(self, params: dict[str, Any], tmpdir: Path, *, check_mode: bool) -> None:
        self.params, self.tmpdir, self.check_mode = params, str(tmpdir), check_mode

    def atomic_move(self, source: str, target: str) -> None:
        shutil.move(source, target)

    def load_file_common_arguments(self, params: dict[str, str], path: str) -> dict[str, str]:
        return params | {"path": path}

    def set_fs_attributes_if_different(self, wanted: dict[str, str], changed: bool) -> bool:  # noqa: FBT001 - Ansible's signature
        assert (wanted["owner"], wanted["group"]) == ("root", "root")
        path, mode = Path(wanted["path"]), int(wanted["mode"], 8)
        differs = path.lstat().st_mode & 0o777 != mode
        if not self.check_mode and not path.is_symlink():
            path.chmod(mode)
        # as Ansible 2.19: a link keeps its mode, so a play reports nothing, and a dry run always a difference
        return changed or (differs and (self.check_mode or not path.is_symlink()))

    def exit_json(self, **said: Any) -> None:
        raise Ended(said)

    def fail_json(self, **said: Any) -> None:
        raise Ended(said | {"failed": True})


def ship(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a module find code of ours where Ansible puts it on a node."""
    for name, module in (("", rackready), (".ondevice", ondevice), (".ondevice.file_state", file_state)):
        monkeypatch.setitem(sys.modules, f"ansible.module_utils.rackready{name}", module)


def shipped(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module as a node runs it."""
    ship(monkeypatch)
    spec = importlib.util.spec_from_file_location("rackready_files", ROOT / "plugins/modules/rackready_files.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    module = shipped(monkeypatch)
    (tmp_path / "tmp").mkdir()

    def call(*, check: bool = False, folders: tuple[str, ...] = (), sweep: str = "", **files: str) -> dict[str, Any]:
        wishes = [{"path": str(tmp_path / name), "content": content, "mode": "0640"} for name, content in files.items()]
        params: dict[str, Any] = {"folders": [str(tmp_path / name) for name in folders], "files": wishes}
        params["sweep"] = [str(tmp_path / sweep)] if sweep else []
        monkeypatch.setattr(module, "Quiet", lambda **_: Stub(params, tmp_path / "tmp", check_mode=check))
        with pytest.raises(Ended) as ended:
            module.main()
        said: dict[str, Any] = ended.value.args[0]
        return said

    return call


def test_folders_and_files_are_made_once(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    said = run(folders=("a/b",), one="1\n", two="2\n")
    assert said["written"] == [str(tmp_path / name) for name in ("a/b", "one", "two")]
    assert ((tmp_path / "one").read_text(), (tmp_path / "one").stat().st_mode & 0o777) == ("1\n", 0o640)
    again = run(folders=("a/b",), one="1\n", two="2\n")
    assert (again["changed"], again["written"], again["diff"]) == (False, [], [])


def test_only_what_differs_is_named(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    run(one="1\n", two="2\n")
    said = run(one="1\n", two="3\n")
    assert said["written"] == [str(tmp_path / "two")]
    assert [(item["before"], item["after"]) for item in said["diff"]] == [("2\n", "3\n")]
    (tmp_path / "one").chmod(0o666)
    assert run(one="1\n", two="3\n")["written"] == [str(tmp_path / "one")], "a mode is a difference too"


def test_a_dry_run_says_it_and_touches_nothing(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    run(one="1\n")
    said = run(check=True, folders=("a",), one="2\n", two="2\n")
    assert (said["changed"], said["written"]) == (True, [str(tmp_path / name) for name in ("a", "one", "two")])
    assert (tmp_path / "one").read_text() == "1\n"
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "two").exists()


def test_the_difference_is_typed_and_by_hash(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    run(one="1\n")
    (tmp_path / "one").write_text("2\n")
    said = run(check=True, folders=("a",), one="1\n", two="2\n")
    one, two = "sha256 4355a46b19d348dc, mode 0640", "sha256 53c234e5e8472b6a, mode 0640"
    assert [(Path(item["name"]).name, item["kind"], item["expected"], item["actual"]) for item in said["drift"]] == [
        ("a", "file", "folder, mode 0755", "absent"),
        ("one", "file", one, two),
        ("two", "file", two, "absent"),
    ]


def test_a_file_that_is_not_wanted_any_more_is_removed(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    run(**{"k-one": "1\n", "k-two": "2\n", "other": "3\n"})
    said = run(check=True, sweep="k-*", **{"k-one": "1\n"})
    assert (said["changed"], said["written"]) == (True, [str(tmp_path / "k-two")])
    assert [(item["expected"], item["actual"]) for item in said["drift"]] == [
        ("absent", "sha256 53c234e5e8472b6a, mode 0640")
    ]
    assert (tmp_path / "k-two").exists(), "a dry run removes nothing"
    run(sweep="k-*", **{"k-one": "1\n"})
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["k-one", "other"]
    assert run(sweep="k-*", **{"k-one": "1\n"})["changed"] is False


def test_a_folder_in_the_place_of_a_file_is_refused(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    said = run(one="1\n")
    assert said == {
        "msg": f"Expected: {tmp_path}/one is a file Actual: it is a folder. Remove it on the node, then run again.",
        "failed": True,
        "check": {
            "expected": f"{tmp_path}/one is a file",
            "actual": "it is a folder",
            "next_step": "Remove it on the node, then run again.",
        },
    }


def test_a_link_in_the_place_of_a_file_is_a_difference_and_is_replaced(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Also one to the same content: who owns its target could change the file."""
    run(one="1\n", theirs="1\n")
    (tmp_path / "one").unlink()
    (tmp_path / "one").symlink_to(tmp_path / "theirs")
    said = run(check=True, one="1\n")
    assert [item["actual"] for item in said["drift"]] == [f"link to {tmp_path}/theirs"]
    assert run(one="1\n")["changed"] is True
    assert not (tmp_path / "one").is_symlink()
    assert run(check=True, one="1\n")["changed"] is False


def test_a_folder_may_be_a_link_to_one(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    run(folders=("disk",))
    (tmp_path / "a").symlink_to(tmp_path / "disk")
    assert run(check=True, folders=("a",))["changed"] is False
    (tmp_path / "disk").chmod(0o700)
    assert run(check=True, folders=("a",))["changed"] is True
    assert run(folders=("a",))["changed"] is True
    assert ((tmp_path / "a").is_symlink(), (tmp_path / "disk").stat().st_mode & 0o777) == (True, 0o755)


@pytest.mark.parametrize("no_log", [False, True])
@pytest.mark.parametrize("is_quiet", [True, False], ids=["this-module", "a-plain-one"])
def test_no_content_of_a_file_reaches_the_journal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, no_log: bool, is_quiet: bool
) -> None:
    """With the arguments that a push, a pull and a proof give: the task's own no_log. The twin is Ansible's own."""
    module, logged = shipped(monkeypatch), list[str]()
    wishes = [{"path": str(tmp_path / "key"), "content": "content-of-a-file"}]
    given = {"files": wishes, "_ansible_no_log": no_log, "_ansible_module_name": "rackready_files"}
    given |= {"_ansible_check_mode": True}
    monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode())
    monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy")
    monkeypatch.setattr(basic, "has_journal", False)
    monkeypatch.setattr(basic.syslog, "syslog", lambda *words: logged.append(str(words)))
    made = (module.Quiet if is_quiet else basic.AnsibleModule)(argument_spec=module.OPTIONS, supports_check_mode=True)
    assert made.params["files"][0]["content"] == "content-of-a-file"
    assert any("content-of-a-file" in line for line in logged) is not (is_quiet or no_log)
    assert logged == [] or not (is_quiet or no_log)
