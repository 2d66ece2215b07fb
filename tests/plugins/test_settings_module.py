"""Module rackready_settings: it corrects and names kernel settings and shared folders; a dry run changes nothing."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.test_files_module import ROOT, Ended, Stub, ship


class Sticky(Stub):
    """As the stub, with the mode in whole: the sticky bit is part of it."""

    def set_fs_attributes_if_different(self, wanted: dict[str, str], changed: bool) -> bool:  # noqa: FBT001 - Ansible's signature
        path, mode = Path(wanted["path"]), int(wanted["mode"], 8)
        differs = path.lstat().st_mode & 0o7777 != mode
        if not self.check_mode:
            path.chmod(mode)
        return changed or differs


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    ship(monkeypatch)
    spec = importlib.util.spec_from_file_location("rackready_settings", ROOT / "plugins/modules/rackready_settings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SYSCTL", tmp_path / "sys")

    def call(
        *, check: bool = False, kernel: dict[str, int] | None = None, shared: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        params = {"kernel": kernel or {}, "shared": [str(tmp_path / name) for name in shared]}
        monkeypatch.setattr(module, "AnsibleModule", lambda **_: Sticky(params, tmp_path, check_mode=check))
        with pytest.raises(Ended) as ended:
            module.main()
        said: dict[str, Any] = ended.value.args[0]
        return said

    return call


def test_a_kernel_setting_that_is_not_in_force_is_named_and_set_and_one_that_there_is_not_is_left_out(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "sys/kernel").mkdir(parents=True)
    place = tmp_path / "sys/kernel/numa_balancing"
    place.write_text("1\n")
    wanted = {"kernel.numa_balancing": 0, "kernel.no_such": 1}
    looked = run(check=True, kernel=wanted)
    assert looked["written"] == ["kernel.numa_balancing"]
    item = {"kind": "kernel", "name": "kernel.numa_balancing", "expected": "0", "actual": "1"}
    assert looked["drift"] == [item]
    assert place.read_text() == "1\n"
    assert run(kernel=wanted)["written"] == ["kernel.numa_balancing"]
    assert place.read_text() == "0\n"
    assert run(kernel=wanted)["changed"] is False


def test_a_folder_of_all_users_gets_its_sticky_bit_back(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t").chmod(0o777)
    looked = run(check=True, shared=("t",))
    assert looked["written"] == [str(tmp_path / "t")]
    assert [(item["expected"], item["actual"]) for item in looked["drift"]] == [
        ("folder, mode 1777", "folder, mode 0777")
    ]
    assert (tmp_path / "t").stat().st_mode & 0o7777 == 0o777
    assert run(shared=("t",))["written"] == [str(tmp_path / "t")]
    assert (tmp_path / "t").stat().st_mode & 0o7777 == 0o1777
    assert run(shared=("t",))["changed"] is False


def test_a_folder_that_is_gone_is_made(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    assert run(check=True, shared=("t",))["written"] == [str(tmp_path / "t")]
    assert not (tmp_path / "t").exists()
    assert run(shared=("t",))["written"] == [str(tmp_path / "t")]
    assert (tmp_path / "t").stat().st_mode & 0o7777 == 0o1777


def test_a_folder_of_all_users_may_be_a_link(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    run(shared=("disk",))
    (tmp_path / "t").symlink_to(tmp_path / "disk")
    assert run(check=True, shared=("t",))["changed"] is False
