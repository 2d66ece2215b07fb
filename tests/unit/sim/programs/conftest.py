from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rackready.design.site import load_site
from rackready_sim import faults
from rackready_sim.hardware import build_state
from rackready_sim.programs.hwsim import kmod, paths, rdmatree, store

VERSION = "580.173.02"


@dataclass
class Machine:
    """One simulated node below a temporary root."""

    root: Path
    state: dict[str, Any]
    capsys: pytest.CaptureFixture[str]

    def save(self) -> None:
        paths.at("/opt/hw").mkdir(parents=True, exist_ok=True)
        paths.at("/opt/hw/state.json").write_text(json.dumps(self.state))

    def inject(self, name: str, **params: Any) -> None:
        faults.inject(self.state, name, **params)
        self.save()

    def install(self, version: str = VERSION) -> None:
        """Put on disk what the packages of the driver put there."""
        for name in ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem"):
            module = paths.module_file(name)
            module.parent.mkdir(parents=True, exist_ok=True)
            module.write_text(f"name={name}\nversion={version}\n")
        folder = paths.at("/usr/lib/x86_64-linux-gnu")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"libnvidia-ml.so.{version}").write_text("")
        link = folder / "libnvidia-ml.so.1"
        link.unlink(missing_ok=True)
        link.symlink_to(f"libnvidia-ml.so.{version}")
        (folder / "libnccl.so.2.28.9").write_text("")
        if not (folder / "libnccl.so.2").is_symlink():
            (folder / "libnccl.so.2").symlink_to("libnccl.so.2.28.9")

    def load(self) -> None:
        assert kmod.load("nvidia") == ""

    def ready(self) -> None:
        """Driver loaded, persistence on, fabric manager (this process) done, host engine started."""
        self.install()
        self.load()
        uuids = [gpu["uuid"] for gpu in self.state["gpus"] if gpu["present"]]
        with store.change() as runtime:
            runtime["persistence"] = dict.fromkeys(uuids, True)
            runtime["fabric"] = {"state": "Completed", "pid": 1}
            runtime["dcgm"] = {"driver": VERSION, "gpus": uuids}

    def run(self, program: Callable[..., int], *arguments: str, **more: Any) -> tuple[int, str, str]:
        self.capsys.readouterr()
        code = program(list(arguments), **more)
        out, err = self.capsys.readouterr()
        return code, out, err


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Machine:
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(kmod, "_node", lambda *_: None)
    monkeypatch.setattr(rdmatree, "ipv4", lambda name: "192.168.1.11" if name.startswith("enp") else None)
    monkeypatch.setattr(rdmatree, "mtu", lambda _name: 9000)
    made = Machine(tmp_path, build_state(load_site("sim"), "node01"), capsys)
    made.save()
    for nic in made.state["nics"]:
        folder = paths.at(f"/sys/class/net/{nic['netdev']}")
        folder.mkdir(parents=True)
        (folder / "carrier").write_text("1\n")
    return made
