"""Modules rackready_mig and rackready_driver_change: options in, dry run and diff out, and what they refuse."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.mig import Mig
from tests.plugins.test_files_module import ROOT, Ended, Stub, ship

ONDEVICE = ("apt", "command", "dnf", "driver", "driver_change", "fence", "mig", "packages")


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    ship(monkeypatch)
    for part in ONDEVICE:
        code = importlib.import_module(f"rackready.ondevice.{part}")
        monkeypatch.setitem(sys.modules, f"ansible.module_utils.rackready.ondevice.{part}", code)
    spec = importlib.util.spec_from_file_location(name, ROOT / f"plugins/modules/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def defaults(module: ModuleType) -> dict[str, Any]:
    return {name: option.get("default") for name, option in module.OPTIONS.items()}


class Node:
    """One GPU; ``made``: its instance exists."""

    def __init__(self) -> None:
        self.on = self.made = False

    def __call__(self, argv: Sequence[str]) -> Done:
        line = " ".join(argv)
        if "--query-gpu" in line:
            return Done(0, f"0, 0x233510DE, {'Enabled' if self.on else 'Disabled'}\n")
        if "-lgi" in argv:
            row = "|   0  MIG 7g.141gb         0        0          0:8     |\n"
            return Done(0, row) if self.made else Done(6, "No GPU instances found: Not Found\n")
        if "-lci" in argv:
            row = "|   0      0       MIG 7g.141gb         4         0          0:7     |\n"
            return Done(0, row) if self.made else Done(6, "No compute instances found: Not Found\n")
        self.on, self.made = self.on or "-mig" in argv, self.made or "-cgi" in argv
        return Done(0, "")


@pytest.fixture
def mig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    module, node = load("rackready_mig", monkeypatch), Node()

    def make(**options: Any) -> Mig:
        return Mig(run=node, root=tmp_path, folder=tmp_path / "fence", **options)

    monkeypatch.setattr(module, "Mig", make)
    configs = {"whole": [{"devices": "all", "mig-enabled": True, "mig-devices": {"7g.141gb": 1}}]}

    def call(layout: str = "whole", *, check: bool = False) -> dict[str, Any]:
        params = defaults(module) | {"configs": configs, "layout": layout, "lock_wait_s": 1}
        monkeypatch.setattr(module, "AnsibleModule", lambda **_: Stub(params, tmp_path, check_mode=check))
        with pytest.raises(Ended) as ended:
            module.main()
        said: dict[str, Any] = ended.value.args[0]
        return said

    return call


def test_mig_dry_run_shows_the_difference_a_run_makes_it_and_a_second_run_changes_nothing(
    mig: Callable[..., dict[str, Any]],
) -> None:
    looked = mig(check=True)
    assert looked["changed"]
    assert looked["differs"] == ["GPU 0 MIG off, wanted MIG on, 1 x 7g.141gb"]
    assert looked["diff"] == {"before": "GPU 0 MIG off\n", "after": "GPU 0 MIG on, 1 x 7g.141gb\n"}
    assert looked["drift"] == [
        {"kind": "gpu", "name": "GPU 0", "expected": "MIG on, 1 x 7g.141gb", "actual": "MIG off"}
    ]
    made = mig()
    assert (made["changed"], made["diff"]) == (True, looked["diff"])
    assert made["boot"] == ["/usr/bin/nvidia-smi -i 0 -mig 1", "/usr/bin/nvidia-smi mig -i 0 -cgi 7g.141gb -C"]
    assert not mig()["changed"]


def test_mig_without_a_layout_removes_the_unit_once(mig: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    unit = tmp_path / "etc/systemd/system/rackready-mig.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    looked = mig("", check=True)
    assert (looked["changed"], looked["boot"], unit.exists()) == (True, [], True)
    made = mig("")
    assert (made["diff"], unit.exists()) == (looked["diff"], False)
    assert not mig("")["changed"]


def test_role_mig_removes_the_unit_where_the_site_names_no_layout() -> None:
    tasks = yaml.safe_load((ROOT / "roles/mig/tasks/main.yml").read_text(encoding="utf-8"))
    assert [(task["when"], task.get("ansible.builtin.import_tasks")) for task in tasks] == [
        ("mig_layout | length > 0", None),
        ("mig_layout | length == 0", "absent.yml"),
    ]


def test_mig_refusal_is_the_module_s_message(mig: Callable[..., dict[str, Any]]) -> None:
    said = mig("half")
    assert said["failed"]
    assert said["msg"] == (
        "Expected: one of the layouts whole Actual: layout half. Correct mig_layout, or add the layout to mig_configs."
    )


@pytest.fixture
def change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    module = load("rackready_driver_change", monkeypatch)

    class Change:
        """What the module calls; each call is noted."""

        def __init__(self, *_: object) -> None:
            self.notes = ["a note"]

        def preview(self, version: str) -> bool:
            return version == "open"

        def begin(self, version: str, wish: Any, files: list[str], token: int, ledger: str) -> bool:  # noqa: ANN401
            assert (wish.packages, wish.hold, wish.streams) == ({"nvidia-open": "2-1", "any": ""}, True, ["m:s"])
            assert (version, files, token, ledger) == ("2", ["/etc/pin"], 7, "ledger")
            return bool(wish.allow_downgrade)

        def undo(self, version: str, failure: str, *_: object) -> NodeProblem:
            return NodeProblem(f"driver {version}", "rolled back", f"What failed: {failure}")

    monkeypatch.setattr(module, "DriverChange", Change)

    def call(*, check: bool = False, **options: Any) -> dict[str, Any]:
        params = defaults(module) | options
        monkeypatch.setattr(module, "AnsibleModule", lambda **_: Stub(params, tmp_path, check_mode=check))
        with pytest.raises(Ended) as ended:
            module.main()
        said: dict[str, Any] = ended.value.args[0]
        return said

    return call


def test_driver_change_begins_with_all_it_is_given(change: Callable[..., dict[str, Any]]) -> None:
    packages = {"nvidia-open": "2-1", "any": None}
    options = {"version": "2", "packages": packages, "streams": ["m:s"], "files": ["/etc/pin"]}
    said = change(state="begun", allow_downgrade=True, token=7, ledger="ledger", **options)
    assert said == {"changed": False, "open": True, "notes": ["a note"]}


def test_driver_change_undone_always_fails_and_in_a_dry_run_undoes_nothing(
    change: Callable[..., dict[str, Any]],
) -> None:
    failure = "Expected: a Actual: b. Do c."
    said = change(state="undone", version="2", failure=failure)
    assert said["msg"] == f"Expected: driver 2 Actual: rolled back. What failed: {failure}"
    assert said["check"] == {"expected": "driver 2", "actual": "rolled back", "next_step": f"What failed: {failure}"}
    assert change(check=True, state="undone", version="2", failure=failure) == {"failed": True, "msg": failure}
    assert change(check=True, state="begun", version="open")["open"] is True
    assert change(check=True, state="ended", version="2")["changed"] is False
