"""Services that run with older settings or an older program, and services whose port another program has."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.difference import Difference
from rackready.ondevice.unit_start import not_running, restart_older, with_older_settings


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


class Engine:
    """A host engine that started a while ago, and its program, which a package has just installed."""

    def __init__(self, root: Path, started_s_ago: float, *, active: bool = True) -> None:
        self.root, self.active, self.ran = root, active, list[str]()
        self.refuses = ""
        self.started = int((time.monotonic() - started_s_ago) * 1e6)
        program = root / "usr/bin/nv-hostengine"
        program.parent.mkdir(parents=True)
        program.touch()
        os.utime(program, (1_700_000_000, 1_700_000_000))  # the time of the package's build

    def __call__(self, argv: Sequence[str]) -> Done:
        if argv[1] == "is-active":
            return Done(0 if self.active else 3, "")
        if argv[1] == "show":
            return Done(0, f"{self.started}\n")
        self.ran.append(" ".join(argv))
        return Done(1, "Job failed.\n") if argv[1] == self.refuses else Done(0, "")

    def restart(self, *, check: bool = False) -> list[Difference]:
        return restart_older(self, {"dcgm.service": "/usr/bin/nv-hostengine"}, root=self.root, check=check)


def test_a_service_that_runs_the_program_of_before_is_restarted_though_the_file_is_as_old_as_its_build(
    tmp_path: Path,
) -> None:
    engine = Engine(tmp_path, 200)
    seen = engine.restart(check=True)
    assert engine.ran == []
    assert engine.restart() == seen
    assert [str(item) for item in seen] == [
        "dcgm.service started before, wanted started after /usr/bin/nv-hostengine was installed"
    ]
    assert engine.ran == ["systemctl daemon-reload", "systemctl restart dcgm.service"]


def test_a_service_that_runs_the_installed_program_or_does_not_run_is_left_alone(tmp_path: Path) -> None:
    for engine in (Engine(tmp_path / "newer", -5), Engine(tmp_path / "stopped", 200, active=False)):
        assert engine.restart() == []
        assert engine.ran == []


def test_a_restart_that_fails_is_a_problem_of_the_node(tmp_path: Path) -> None:
    engine = Engine(tmp_path, 200)
    engine.refuses = "restart"
    with pytest.raises(NodeProblem) as caught:
        engine.restart()
    assert str(caught.value) == (
        "Expected: `systemctl restart dcgm.service` succeeds Actual: Job failed. "
        "Check `journalctl -u dcgm.service` on the node."
    )
