"""Services that a run which was cut off left with older settings, and services whose port another program has."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.command import Done
from rackready.ondevice.unit_start import not_running, with_older_settings


def systemctl(started_s_ago: float, *, reload: str = "no", state: str = "active running") -> object:
    """Return a node on which units have this state."""
    active, sub = state.split()
    values = {
        "ActiveEnterTimestampMonotonic": str(int((time.monotonic() - started_s_ago) * 1e6)) if started_s_ago else "0",
        "NeedDaemonReload": reload,
    }

    def run(argv: Sequence[str]) -> Done:
        asked = argv[2].removeprefix("--property=")
        if asked == "ActiveState,SubState":
            return Done(0, f"ActiveState={active}\nSubState={sub}\n")
        return Done(0, f"{values[asked]}\n")

    return run


def older(root: Path, run: object, written_s_ago: float) -> list[str]:
    path = root / "etc/a.conf"
    path.parent.mkdir(exist_ok=True)
    path.touch()
    at = time.time() - written_s_ago
    os.utime(path, (at, at))
    return with_older_settings(run, {"a.service": ["/etc/absent", "/etc/a.conf"]}, root)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("started_s_ago", "written_s_ago", "expected"),
    [
        (100, 200, []),
        (200, 100, ["a.service"]),
        (100.0, 99.5, []),  # within a step of the clock
        (200, -3600, []),  # a file from the future
        (0, 100, []),  # it does not run
    ],
)
def test_a_unit_that_started_before_its_file_was_written(
    tmp_path: Path, started_s_ago: float, written_s_ago: float, expected: list[str]
) -> None:
    assert older(tmp_path, systemctl(started_s_ago), written_s_ago) == expected


def test_a_unit_whose_drop_in_systemd_has_not_read(tmp_path: Path) -> None:
    assert older(tmp_path, systemctl(100, reload="yes"), 200) == ["a.service"]


def test_a_unit_that_starts_again_and_again_does_not_run() -> None:
    assert not_running(systemctl(1), ["a.service"]) == []  # type: ignore[arg-type]
    assert not_running(systemctl(1, state="activating auto-restart"), ["a.service"]) == [  # type: ignore[arg-type]
        "a.service is activating (auto-restart), so no answer at its port is its own"
    ]
    assert not_running(lambda _argv: Done(127, ""), ["a.service"]) == [
        "a.service is unknown (unknown), so no answer at its port is its own"
    ]
