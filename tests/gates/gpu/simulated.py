"""A simulated node below a temporary root whose programs answer gates in this process, without a rack."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rackready.design.site import load_site
from rackready.gates.base import Command, Output
from rackready.gates.engine.registry import gate
from rackready.gates.records.offline import facts
from rackready.model.outcome import Verdict
from rackready.ondevice import containers, pcie_path, under_load
from rackready_sim import faults
from rackready_sim.hardware import build_state
from rackready_sim.programs.hwsim import ctk, firmware, kmod, kmsg, paths, pcitree, rdmatree, store
from rackready_sim.programs.hwsim.dcgm import engine, proftester
from rackready_sim.programs.hwsim.dcgm import main as dcgm
from rackready_sim.programs.hwsim.perf import copies
from rackready_sim.programs.hwsim.smi import main as smi
from rackready_sim.programs.hwsim.smi import xml

DRIVER = "580.173.02"
Program = Callable[[list[str]], int]
PROGRAMS: dict[str, Program] = {
    "nvidia-smi": lambda argv: smi.main(argv, DRIVER),
    "dcgmi": lambda argv: dcgm.main(argv, "4.6.0"),
    "journalctl": kmsg.journalctl,
    "dcgmproftester13": proftester.main,
    "nvbandwidth": copies.main,
    "sh": lambda argv: PROGRAMS[argv[1].rsplit("exec ", 1)[1].split()[0]](argv[1].rsplit("exec ", 1)[1].split()[1:]),
    "nvidia-ctk": lambda argv: ctk.main(argv, "1.20.0-1"),
}


@dataclass
class Node:
    """A node with its hardware state; ``boot`` lays out its devices as power-on does."""

    monkeypatch: pytest.MonkeyPatch
    name: str = "node01"
    seconds: float = 1.0
    slept: list[float] = field(default_factory=list)
    """What its programs waited, s: no test waits for it, and every command took that much longer."""
    state: dict[str, Any] = field(default_factory=dict)

    def boot(self) -> None:
        self.save()
        for name in ("nvidia", "nvidia-uvm"):
            module = paths.module_file(name)
            module.parent.mkdir(parents=True, exist_ok=True)
            module.write_text(f"name={name}\nversion={DRIVER}\n")
        folder = paths.at("/usr/lib/x86_64-linux-gnu")
        folder.mkdir(parents=True, exist_ok=True)
        for library in ("libnvidia-ml", "libcuda"):
            (folder / f"{library}.so.{DRIVER}").write_text("")
        if not (folder / "libnvidia-ml.so.1").exists():
            (folder / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{DRIVER}")
        kmsg.say("Linux version 6.1.0-41-amd64")
        pcitree.write(self.state)
        firmware.coldplug()
        self._software()

    def _software(self) -> None:
        """What install and the services do after boot."""
        present = [gpu["uuid"] for gpu in self.state["gpus"] if gpu["present"]]
        with store.change() as runtime:
            runtime["persistence"] = dict.fromkeys(present, True)
            stuck = self.state["fabric_manager"]["stuck"]
            runtime["fabric"] = {"state": "In Progress"} if stuck else {"state": "Completed", "pid": 1}
            runtime["dcgm"] = {"driver": DRIVER, "gpus": present}
        for index in range(8):
            device = paths.at(f"/dev/nvidia{index}")
            device.parent.mkdir(parents=True, exist_ok=True)
            device.write_text("")
        for control in CONTROL:
            paths.at(control).write_text("")
        ctk._write("/var/run/cdi/nvidia.yaml")

    def save(self) -> None:
        paths.at("/opt/hw").mkdir(parents=True, exist_ok=True)
        paths.at("/opt/hw/state.json").write_text(json.dumps(self.state))

    def judge(self, gate_id: str, inputs: Mapping[str, object] | None = None) -> Verdict:
        known = facts("dgx_h100", 1)
        found = gate(gate_id, inputs)
        run = found.plan(known, ["node01"])[0]
        outputs = {
            command.key: self.answer(command) for command in sorted(run.commands, key=lambda command: command.stage)
        }
        return found.evaluate(known, run, outputs)

    def answer(self, command: Command) -> Output:
        out, before = io.StringIO(), sum(self.slept)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = (
                self._script(command) if command.stdin else PROGRAMS[Path(command.argv[0]).name](list(command.argv[1:]))
            )
        return Output(
            command.key,
            command.node,
            " ".join(command.argv),
            code,
            out.getvalue(),
            seconds=self.seconds + sum(self.slept) - before,
        )

    def _script(self, command: Command) -> int:
        if pcie_path.FORMAT in command.stdin:
            return pcie_path.main(str(paths.at("/sys/bus/pci/devices")))
        if under_load.FORMAT in command.stdin:
            return self._watch(*command.argv[2:])
        assert containers.FORMAT in command.stdin
        self.monkeypatch.setattr(containers, "run", run)
        self.monkeypatch.setattr(containers, "FOLDERS", (str(paths.at("/var/run/cdi")),))
        self.monkeypatch.setattr(
            containers, "host_paths", lambda text, real=HOST_PATHS: [str(paths.at(path)) for path in real(text)]
        )
        self.monkeypatch.setattr(containers, "CONTROL", tuple(str(paths.at(path)) for path in CONTROL))
        self.monkeypatch.setattr(containers, "_RUNTIMES", {})
        return containers.main()

    def _watch(self, longest: str, program: str) -> int:
        reports, running = iter([run(["nvidia-smi", "-q", "-x"])["out"], ""]), iter([True, False])
        self.monkeypatch.setattr(under_load, "ask", lambda: next(reports))
        self.monkeypatch.setattr(under_load, "lives", lambda name: name == "dcgmi" and next(running))
        return under_load.main(longest, program)


HOST_PATHS, CONTROL = containers.host_paths, containers.CONTROL


def run(argv: list[str]) -> dict[str, Any]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = PROGRAMS[argv[0]](argv[1:])
    return {"rc": code, "out": out.getvalue(), "err": err.getvalue()}


def node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *broken: tuple[str, dict[str, Any]], name: str = "node01"
) -> Node:
    """A node of the simulated site with faults, booted."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    monkeypatch.setattr(xml, "clock", lambda: time.time() + sum(slept))
    monkeypatch.setattr(kmod, "_node", lambda *_: None)
    monkeypatch.setattr(engine, "reachable", lambda: True)
    monkeypatch.setattr(rdmatree, "refresh", lambda _nic: False)
    made = Node(monkeypatch, state=build_state(load_site("sim"), name), slept=slept)
    for fault, params in broken:
        faults.inject(made.state, fault, **params)
    made.boot()
    return made
