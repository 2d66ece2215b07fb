"""Module rackready_rail_addresses: rails in; the manager, the differences and the refusals out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rackready.ondevice.command import Done
from rackready.ondevice.rail_addresses import RailAddresses
from tests.plugins.test_driver_modules import load
from tests.plugins.test_files_module import Ended, Stub

RAIL = {"netdev": "rail1", "pci": "0000:18:00.0", "address": "10.8.1.11/24", "rail": 1}
FILE = "etc/systemd/network/05-rackready-rail1.network"


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """A node with networkd at work, which has the rail as soon as rackready's file is there."""
    module = load("rackready_rail_addresses", monkeypatch)
    (tmp_path / "sys/class/net/rail1").mkdir(parents=True)
    (tmp_path / "sys/class/net/rail1/mtu").write_text("9000\n")

    def run(argv: Sequence[str]) -> Done:
        line, have = " ".join(argv), (tmp_path / FILE).exists()
        if line.startswith("systemctl is-active"):
            return Done(0 if "networkd" in line else 3, "")
        if line.startswith("networkctl --no-pager"):
            return Done(0, f"  Network File: /{FILE}\n" if have else "")
        if line == "ip -o -4 address show dev rail1":
            return Done(0, "2: rail1    inet 10.8.1.11/24 scope global\n" if have else "")
        return Done(0, "")

    def called(manager: str = "auto", *, check: bool = False) -> dict[str, Any]:
        params = {"rails": [RAIL], "mtu": 9000, "manager": manager, "token": 0, "ledger": "", "lock_wait_s": 1}
        made = {"run": run, "root": tmp_path, "folder": tmp_path / "lock", "settle_s": 0.1}
        monkeypatch.setattr(module, "RailAddresses", lambda *given, **more: RailAddresses(*given, **made, **more))
        monkeypatch.setattr(module, "AnsibleModule", lambda **_: Stub(params, tmp_path, check_mode=check))
        with pytest.raises(Ended) as ended:
            module.main()
        said: dict[str, Any] = ended.value.args[0]
        return said

    return called


def test_a_dry_run_names_what_a_run_then_writes_once(call: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    dry = call(check=True)
    assert not (tmp_path / FILE).exists()
    assert (dry["changed"], dry["manager"]) == (True, "networkd")
    assert {item["kind"] for item in dry["drift"]} == {"file", "nic"}
    assert call()["drift"] == dry["drift"]
    assert (tmp_path / FILE).exists()
    assert (call()["changed"], call()["manager"]) == (False, "networkd")


def test_a_manager_that_is_not_at_work_is_refused(call: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    assert call("networkmanager")["check"] == {
        "expected": "networkmanager to set the rails' addresses",
        "actual": "not at work; networkd at work",
        "next_step": "Set fabric.address_manager in the site file, or stop the manager that is not to set them.",
    }
    assert not (tmp_path / FILE).exists()


def test_none_leaves_the_rails_to_the_unit(call: Callable[..., dict[str, Any]]) -> None:
    assert {key: call("none")[key] for key in ("manager", "changed")} == {"manager": "none", "changed": False}
