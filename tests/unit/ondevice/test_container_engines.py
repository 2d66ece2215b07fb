"""Container engines get the NVIDIA runtime where they lack it, and nothing else changes."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.container_engines import SETTINGS, Engines

RUNTIME = {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}


class Node:
    """A node with these units. `nvidia-ctk` writes what the real one writes, unless it ``fails`` or is ``idle``."""

    def __init__(self, root: Path, *units: str) -> None:
        self.root, self.ran, self.fails, self.idle = root, list[list[str]](), "", False
        self.users, self.started, self.runs = "", 0, True
        for unit in units:
            path = root / "usr/lib/systemd/system" / f"{unit}.service"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def write(self, engine: str, text: str) -> None:
        path = self.root / SETTINGS[engine]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run(self, argv: Sequence[str]) -> Done:
        self.ran.append(list(argv))
        if argv[0] == "nvidia-smi":
            return Done(0, self.users)
        if argv[:2] == ["systemctl", "show"]:
            assert argv[2:4] == ["--property=ActiveEnterTimestampMonotonic", "--value"]
            return Done(0, f"{self.started}\n")
        if argv[:2] == ["systemctl", "is-active"]:
            return Done(0 if self.runs else 3, "")
        if argv[0] == self.fails:
            return Done(1, "level=info\nlevel=error msg=broken\n")
        if argv[0] == "nvidia-ctk" and not self.idle:
            engine = argv[3].removeprefix("--runtime=")
            self.write(engine, json.dumps({"runtimes": RUNTIME}) if engine == "docker" else "nvidia-container-runtime")
        return Done(0, "")

    @property
    def engines(self) -> Engines:
        return Engines(self.run, self.root)

    def changes(self) -> list[list[str]]:
        """Return the calls that change something."""
        return [argv for argv in self.ran if argv[0] == "nvidia-ctk" or argv[1:2] == ["try-restart"]]


@pytest.mark.parametrize(
    ("units", "present"),
    [
        ((), []),
        (("docker", "containerd"), ["docker"]),
        (("docker", "containerd", "kubelet"), ["docker", "containerd"]),
        (("containerd",), ["containerd"]),
        (("crio",), ["crio"]),
    ],
)
def test_engines_that_start_containers_for_users(tmp_path: Path, units: tuple[str, ...], present: list[str]) -> None:
    assert Node(tmp_path, *units).engines.present() == present


@pytest.mark.parametrize("engine", ["docker", "crio"])
def test_an_engine_without_the_runtime_gets_it_once(tmp_path: Path, engine: str) -> None:
    node = Node(tmp_path, engine)
    found = {engine: (f"{engine} with the NVIDIA runtime", f"none in /{SETTINGS[engine]}")}
    assert node.engines.ensure(check=True) == found
    assert node.changes() == []
    assert node.engines.ensure() == found
    drop_in = [f"--drop-in-config=/{SETTINGS[engine]}"] if engine != "docker" else []
    assert node.changes() == [
        ["nvidia-ctk", "runtime", "configure", f"--runtime={engine}", *drop_in],
        ["systemctl", "try-restart", f"{engine}.service"],
    ]
    node.ran.clear()
    assert node.engines.ensure() == {}
    assert node.changes() == []


def test_an_engine_that_missed_its_restart_gets_it(tmp_path: Path) -> None:
    node = Node(tmp_path, "docker")
    node.write("docker", json.dumps({"runtimes": RUNTIME}))
    node.started = int(time.monotonic() * 1e6)
    assert node.engines.ensure() == {}
    node.started -= 60_000_000
    found = {"docker": ("docker started after its settings were written", "it runs with older ones")}
    assert node.engines.ensure() == found
    assert node.changes() == [["systemctl", "try-restart", "docker.service"]]
    node.runs = False
    assert node.engines.ensure() == {}


def test_nothing_restarts_below_a_process_on_the_gpus(tmp_path: Path) -> None:
    node = Node(tmp_path, "docker")
    node.users = "4711, python3\n"
    assert refusal(node) == (
        "Expected: no process on the GPUs while docker restarts Actual: 4711 python3. "
        "Drain the node and wait until its jobs end, then run again. Nothing was changed."
    )
    assert node.changes() == []


def test_dockers_other_settings_do_not_count_as_the_runtime(tmp_path: Path) -> None:
    node = Node(tmp_path, "docker")
    node.write("docker", '{"log-driver": "journald"}')
    assert list(node.engines.differences()) == ["docker"]
    node.write("docker", "")
    assert list(node.engines.differences()) == ["docker"]


def refusal(node: Node) -> str:
    with pytest.raises(NodeProblem) as refused:
        node.engines.ensure()
    return str(refused.value)


def test_refusals(tmp_path: Path) -> None:
    node = Node(tmp_path, "docker")
    node.write("docker", "{")
    assert refusal(node) == (
        "Expected: JSON in /etc/docker/daemon.json Actual: Expecting property name enclosed in double quotes: line 1 "
        "column 2 (char 1). Correct the file on the node, or remove it; then run again."
    )
    node.write("docker", "{}")
    node.idle = True
    assert refusal(node) == (
        "Expected: docker with the NVIDIA runtime Actual: none in /etc/docker/daemon.json. "
        "Run `nvidia-ctk runtime configure --runtime=docker` on the node and read its output."
    )
    node.idle, node.fails = False, "systemctl"
    assert refusal(node) == (
        "Expected: `systemctl try-restart docker.service` succeeds Actual: exit 1: level=error msg=broken. "
        "Run it on the node."
    )
