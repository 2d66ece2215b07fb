"""Module rackready_fresh_programs: options in, differences out, and what it refuses."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.ondevice.command import Done
from tests.plugins.test_driver_modules import load
from tests.plugins.test_files_module import ROOT, Ended, Stub

UNIT = "nvidia-dcgm.service"


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    module = load("rackready_fresh_programs", monkeypatch)
    program = tmp_path / "nv-hostengine"
    program.touch()
    os.utime(program, (1_700_000_000, 1_700_000_000))
    started = {"s_ago": 100.0}

    def called(*, check: bool = False, code: int = 0) -> dict[str, Any]:
        def run(argv: Sequence[str]) -> Done:
            if argv[1] == "show":
                return Done(0, str(int((time.monotonic() - started["s_ago"]) * 1e6)))
            if argv[1] == "restart":
                started["s_ago"] = -5.0
                return Done(code, "Access denied\n")
            return Done(0, "")

        params = {"programs": {UNIT: str(program)}}
        monkeypatch.setattr(module, "run", run)
        monkeypatch.setattr(module, "AnsibleModule", lambda **_: Stub(params, tmp_path, check_mode=check))
        with pytest.raises(Ended) as ended:
            module.main()
        said: dict[str, Any] = ended.value.args[0]
        return said

    return called


def test_a_dry_run_shows_what_a_run_restarts_once(call: Callable[..., dict[str, Any]]) -> None:
    dry = call(check=True)
    assert (dry["changed"], [item["name"] for item in dry["drift"]]) == (True, [UNIT])
    assert call() == dry
    assert call()["changed"] is False


def test_a_restart_that_fails_is_the_module_s_failure(call: Callable[..., dict[str, Any]]) -> None:
    said = call(code=1)
    assert (said["failed"], said["check"]["actual"]) == (True, "Access denied")


def test_role_dcgm_asks_after_the_packages_and_before_it_asks_the_host_engine() -> None:
    files = [yaml.safe_load((ROOT / f"roles/dcgm/tasks/{name}.yml").read_text()) for name in ("main", "service")]
    order = [task["ansible.builtin.import_tasks"] for task in files[0][1]["block"]]
    assert order.index("install.yml") < order.index("service.yml")
    assert files[1][0]["rackready_fresh_programs"]["programs"] == {UNIT: "/usr/bin/nv-hostengine"}
