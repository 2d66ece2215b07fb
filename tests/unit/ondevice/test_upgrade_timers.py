"""Timers that upgrade packages: off once, on again only those that were on, and a systemctl that fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.upgrade_timers import UpgradeTimers

TIMERS = ["dnf-automatic.timer", "dnf-automatic-install.timer"]


class Node:
    """A node with both timers; ``on``: those that are enabled and active."""

    def __init__(self, root: Path, *on: str) -> None:
        self.root, self.on = root, set(on)
        self.ran: list[str] = []
        self.failed: set[str] = set()
        self.answer = Done(0, "")
        for name in TIMERS:
            (root / "usr/lib/systemd/system").mkdir(parents=True, exist_ok=True)
            (root / "usr/lib/systemd/system" / name).write_text("")

    def __call__(self, argv: Sequence[str]) -> Done:
        if argv[1] == "is-failed":
            return Done(0 if argv[-1] in self.failed else 1, "")
        if argv[1].startswith("is-"):
            return Done(0 if argv[-1] in self.on else 1, "")
        self.ran.append(" ".join(argv))
        if argv[1] == "reset-failed":
            self.failed.remove(argv[-1])
            return self.answer
        self.on = self.on | {argv[-1]} if argv[1] == "enable" else self.on - {argv[-1]}
        return self.answer

    def ensure(self, *, off: bool, check: bool = False) -> list[str]:
        timers = UpgradeTimers(self, self.root, self.root / "var")
        return [str(item) for item in timers.ensure(TIMERS, off=off, check=check)]


def test_a_timer_that_was_on_goes_off_and_on_again(tmp_path: Path) -> None:
    node = Node(tmp_path, TIMERS[1])
    off = [f"{TIMERS[1]} enabled, wanted disabled"]
    assert node.ensure(off=True, check=True) == off
    assert (node.ran, (tmp_path / "var").exists()) == ([], False)
    assert node.ensure(off=True) == off
    assert node.ensure(off=True) == []
    on = [f"{TIMERS[1]} disabled, wanted enabled"]
    assert node.ensure(off=False, check=True) == on
    assert node.ensure(off=False) == on
    assert node.ensure(off=False) == []
    assert node.ran == [f"systemctl disable --now {TIMERS[1]}", f"systemctl enable --now {TIMERS[1]}"]
    node.on.clear()  # by the owner: the record is no more
    assert node.ensure(off=False) == []


def test_a_run_that_was_killed_while_it_turned_timers_off_knows_what_was_on(tmp_path: Path) -> None:
    node = Node(tmp_path, *TIMERS)
    plain = node.__call__

    def killed(argv: Sequence[str]) -> Done:
        done = plain(argv)
        if argv[1] == "disable":
            raise KeyboardInterrupt
        return done

    with pytest.raises(KeyboardInterrupt):
        UpgradeTimers(killed, tmp_path, tmp_path / "var").ensure(TIMERS, off=True)
    assert len(node.ensure(off=True)) == 1
    assert len(node.ensure(off=False)) == 2
    assert node.on == set(TIMERS)


def test_timers_that_are_not_installed_do_not_count(tmp_path: Path) -> None:
    node = Node(tmp_path, *TIMERS)
    for path in (tmp_path / "usr/lib/systemd/system").iterdir():
        path.unlink()
    assert node.ensure(off=True) == []


def test_a_systemctl_that_fails_is_reported(tmp_path: Path) -> None:
    node = Node(tmp_path, TIMERS[0])
    node.answer = Done(1, "Failed to disable unit: Access denied\n")
    with pytest.raises(NodeProblem) as caught:
        node.ensure(off=True)
    assert str(caught.value) == (
        f"Expected: `systemctl disable --now {TIMERS[0]}` succeeds "
        "Actual: exit 1: Failed to disable unit: Access denied. "
        f"Run `systemctl status {TIMERS[0]}` on the node: it shows why."
    )


def test_a_service_that_failed_before_its_timer_went_off_is_reset(tmp_path: Path) -> None:
    node = Node(tmp_path, TIMERS[0])
    node.failed = {"dnf-automatic.service"}
    said = [f"{TIMERS[0]} enabled, wanted disabled", "dnf-automatic.service failed, wanted not failed"]
    assert node.ensure(off=True, check=True) == said
    assert (node.failed, node.ran) == ({"dnf-automatic.service"}, [])
    assert node.ensure(off=True) == said
    assert node.ran == [f"systemctl disable --now {TIMERS[0]}", "systemctl reset-failed dnf-automatic.service"]
    assert node.ensure(off=True) == []


@pytest.mark.parametrize("system", ["main", "RedHat_9"])
def test_no_timer_of_a_node_asks_the_internet_for_firmware(system: str) -> None:
    text = (Path(__file__).parents[3] / f"roles/base/vars/{system}.yml").read_text(encoding="utf-8")
    assert "fwupd-refresh.timer" in yaml.safe_load(text)["__base_upgrade_timers"]
