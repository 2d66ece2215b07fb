"""Module rackready_upgrade_timers: options in, differences out, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.command import Done
from rackready.ondevice.upgrade_timers import UpgradeTimers
from tests.plugins.test_driver_modules import load
from tests.plugins.test_files_module import Ended, Stub

TIMER = "dnf-automatic.timer"


@pytest.mark.parametrize(("check", "code"), [(True, 0), (False, 0), (False, 1)])
def test_a_timer_that_is_on_goes_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, check: bool, code: int
) -> None:
    module = load("rackready_upgrade_timers", monkeypatch)
    (tmp_path / "usr/lib/systemd/system").mkdir(parents=True)
    (tmp_path / "usr/lib/systemd/system" / TIMER).write_text("")

    def run(argv: Sequence[str]) -> Done:
        return Done({"disable": code, "is-failed": 1}.get(argv[1], 0), "Access denied\n")

    monkeypatch.setattr(module, "UpgradeTimers", lambda: UpgradeTimers(run, tmp_path, tmp_path / "var"))
    params = {"timers": [TIMER], "allowed": False}
    monkeypatch.setattr(module, "AnsibleModule", lambda **_: Stub(params, tmp_path, check_mode=check))
    with pytest.raises(Ended) as ended:
        module.main()
    said = ended.value.args[0]
    assert (tmp_path / "var").exists() is not check
    if code:
        assert said["check"]["actual"] == "exit 1: Access denied"
    else:
        assert (said["changed"], said["differs"]) == (True, [f"{TIMER} enabled, wanted disabled"])
