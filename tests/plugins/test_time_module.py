"""Module rackready_time: servers in, dry run and diff out, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rackready.ondevice.command import Done
from rackready.ondevice.time_sync import TimeSync
from tests.plugins.test_driver_modules import load
from tests.plugins.test_files_module import Ended, Stub


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    module = load("rackready_time", monkeypatch)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/chrony.conf").write_text("pool 2.rhel.pool.ntp.org iburst\n")

    def run(argv: Sequence[str]) -> Done:
        if argv[-1] == "sources":
            return Done(0, "^,*,192.0.2.5,2,6,377,23,0.000006523,0.000006523,0.000412000\n")
        return Done(0, "Leap status     : Normal\n" if argv[0] == "chronyc" else "")

    def called(*servers: str, check: bool = False) -> dict[str, Any]:
        params = {"servers": list(servers), "wait_s": 1}
        monkeypatch.setattr(module, "TimeSync", lambda **_: TimeSync(run, tmp_path))
        monkeypatch.setattr(module, "AnsibleModule", lambda **_: Stub(params, tmp_path, check_mode=check))
        with pytest.raises(Ended) as ended:
            module.main()
        said: dict[str, Any] = ended.value.args[0]
        return said

    return called


def test_a_dry_run_shows_the_file_and_a_run_writes_it_once(call: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "etc/chrony.conf"
    dry = call("192.0.2.5", check=True)
    assert file.read_text() == "pool 2.rhel.pool.ntp.org iburst\n"
    assert (dry["changed"], dry["drift"][0]["name"]) == (True, "/etc/chrony.conf")
    assert call("192.0.2.5")["diff"] == dry["diff"]
    assert file.read_text() == dry["diff"][0]["after"]
    assert call("192.0.2.5")["changed"] is False


def test_a_node_without_a_time_service_is_refused(call: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "etc/chrony.conf").unlink()
    assert call("192.0.2.5")["check"] == {
        "expected": "chrony or systemd-timesyncd, which follows base_ntp_servers",
        "actual": "none of both",
        "next_step": "Keep chrony in base_packages, then run again.",
    }
