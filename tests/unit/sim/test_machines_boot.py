"""Booting a simulated machine: its cables are plugged into the namespaces that it runs in, or it starts again."""

from __future__ import annotations

import re
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rackready_sim import hostnet, machines, podman
from rackready_sim.errors import SimError
from rackready_sim.files import write
from rackready_sim.machines import Machines
from rackready_sim.store import Store


class FakePodman:
    """One container with a new process id at each ``init``.

    ``taken``: boot by boot, the step after which its namespaces are removed.
    """

    def __init__(self, taken: list[str]) -> None:
        self.status, self.pid, self.taken = "exited", 0, taken
        self.steps: list[str] = []

    def happened(self, step: str) -> None:
        self.steps.append(step)
        if self.taken and self.taken[0] == step:
            self.taken.pop(0)
            self.status, self.pid = "exited", 0

    def inspect(self, name: str) -> podman.Container:
        return podman.Container(name, self.status, self.pid, 0)

    def init(self, _: str) -> int:
        self.status, self.pid = "initialized", 100 + len(self.steps)
        pid = self.pid
        self.happened("init")
        return pid

    def attach(self, _plan: Any, _machine: Any, pid: int, *, connected: bool) -> None:  # noqa: ANN401 - not looked at
        assert connected
        if pid != self.pid:
            raise SimError(f"cannot open /proc/{pid}/ns/net")
        self.happened("attach")

    def start(self, _: str) -> None:
        self.pid = self.pid or 900  # started without `init`: other namespaces
        self.status = "running"
        self.happened("start")

    def stop(self, _: str, grace_s: int) -> None:
        assert grace_s == 0
        self.status, self.pid = "exited", 0
        self.happened("stop")


def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: list[str]) -> FakePodman:
    fake = FakePodman(taken)
    for name in ("inspect", "init", "start", "stop"):
        monkeypatch.setattr(podman, name, getattr(fake, name))
    monkeypatch.setattr(hostnet, "attach", fake.attach)
    machine = SimpleNamespace(name="leaf01", container="rr-x-leaf01", role="switch")
    plan: Any = SimpleNamespace(machines={"leaf01": machine}, trunks=())
    assert Machines(plan, Store(tmp_path), "image").boot("leaf01") is True
    return fake


def test_a_machine_runs_in_the_namespaces_that_its_cables_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert boot(tmp_path, monkeypatch, []).steps == ["init", "attach", "start"]


def test_namespaces_that_are_cleaned_away_before_the_cables_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert boot(tmp_path, monkeypatch, ["init"]).steps == ["init", "init", "attach", "start"]


def test_a_machine_that_runs_without_cables_is_ended_and_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert boot(tmp_path, monkeypatch, ["attach"]).steps == [
        "init",
        "attach",
        "start",
        "stop",
        "init",
        "attach",
        "start",
    ]


def test_a_machine_that_never_keeps_its_namespaces_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        SimError, match="leaf01: container rr-x-leaf01 - Expected: a running system within 3 tries Actual: none"
    ):
        boot(tmp_path, monkeypatch, ["init"] * 3)


@pytest.mark.parametrize(("seeded", "first"), [(True, "init"), (False, "create")])
def test_a_disk_stays_after_a_boot_that_failed_and_is_made_anew_when_its_making_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, *, seeded: bool
) -> None:
    """Podman reports both as a new container."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if seeded:
        write(disk / machines._SEEDED, "")
    made: list[str] = []
    monkeypatch.setattr(podman, "mounted", lambda _: nullcontext(disk))
    monkeypatch.setattr(podman, "inspect", lambda name: podman.Container(name, "created", 0, 0))
    monkeypatch.setattr(podman, "init", lambda _: made.append("init") or 7)
    monkeypatch.setattr(Machines, "_create", lambda *_: made.append("create"))
    machine: Any = SimpleNamespace(name="node01", container="rr-x-node01", role="node")
    plan: Any = SimpleNamespace(machines={"node01": machine})
    assert Machines(plan, Store(tmp_path), "image")._namespaces(machine) == 7
    assert made[0] == first


def lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: str) -> Machines:
    """A machine whose process is gone while podman reports it running; ``later``: podman's next answers."""
    ended = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True)
    statuses = iter(["running", later])
    monkeypatch.setattr(podman, "inspect", lambda name: podman.Container(name, next(statuses), int(ended.stdout), 137))
    monkeypatch.setattr(machines, "_NOTICED_S", 0.0)
    plan: Any = SimpleNamespace(
        machines={"leaf01": SimpleNamespace(name="leaf01", container="rr-x-leaf01", role="switch")}
    )
    return Machines(plan, Store(tmp_path), "image")


def test_a_machine_that_was_killed_with_its_monitor_is_told_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SimError) as refused:
        lost(tmp_path, monkeypatch, "running").boot("leaf01")
    assert re.sub(r"process \d+", "process N", str(refused.value)) == (
        "leaf01: container rr-x-leaf01 - Expected: its first process N, because podman reports that it runs "
        "Actual: no such process. "
        "It was killed together with podman's monitor of it, and podman cannot start it again: run `rackready sim "
        "down`, then the command again."
    )


def test_a_machine_that_has_just_ended_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lost(tmp_path, monkeypatch, "exited").running("leaf01") is False
