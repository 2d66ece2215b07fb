"""One simulated bare-metal node in a root of its own, the commands that image it, and what its BMC and disks show."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.overlays import merge
from rackready.design.site import load_site
from rackready.drivers.marked_processes import end_all, marked, project_mark
from rackready.drivers.redfish import Bmc, PowerAction
from rackready_sim.store import Store
from tests.integration.project import ROOT, Project, within

ENV, NODE = "sim-metal", "node01"
IMAGED = "/var/lib/rackready/imaged.json"
PROVISION_S = 2400.0
_BUILT = ("images", "ramdisk")


class BareMetal(Project):
    """The node of `sim-metal`, with blank disks and no memory of another one. ``change``: merged over its site file."""

    def __init__(self, root: Path, change: dict[str, Any]) -> None:
        super().__init__(root, ENV)
        for name in _BUILT:
            (root / ".rackready" / name).symlink_to(ROOT / ".rackready" / name)
        written = yaml.safe_load(self.paths.site_file.read_text(encoding="utf-8"))
        self.paths.site_file.write_text(yaml.safe_dump(merge(written, change)), encoding="utf-8")
        self.sim("up", "--metal", "1", "--bare")

    # commands ----------------------------------------------------------------------------------------------------

    def sim(self, *words: str) -> None:
        """Run a command of the simulated rack."""
        code, text = self.run("sim", *words)
        assert code == 0, text + self.progress()[-2000:]

    def provision(self, *more: str, code: int = 0) -> dict[str, Any]:
        """Run `provision` to its end; return its document."""
        child = self.start("provision", *more, "--output", "json")
        text, _ = child.communicate(timeout=PROVISION_S)
        assert child.returncode == code, text[-3000:] + self.progress()[-3000:]
        found: dict[str, Any] = json.loads(text)
        return found

    def until_said(self, words: str) -> subprocess.Popen[str]:
        """Run `provision` until a line of its progress has these words; return the running command."""
        before = len(self.progress())
        child = self.start("provision", "--output", "json")
        deadline = time.monotonic() + PROVISION_S
        while words not in self.progress()[before:]:
            assert child.poll() is None, f"it ended before {words!r}: {self.progress()[before:][-3000:]}"
            assert time.monotonic() < deadline, self.progress()[before:][-3000:]
            time.sleep(0.1)
        return child

    def close(self) -> None:
        """Stop what a failed test left running: commands, then the boot service's daemons, then the machine."""
        for child in self._children:
            self.kill(child)
        self.run("boot-service", "stop")
        super().close()

    def kill(self, child: subprocess.Popen[str]) -> None:
        """Kill a command and all that it started, as the death of the controller does."""
        child.kill()
        child.wait()
        if self.paths.database.file.exists():
            mark = project_mark(self.paths.database.file)
            end_all(lambda: marked(mark))

    # the machine -------------------------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        return Store(self.root)

    @property
    def bmc(self) -> Bmc:
        return Bmc(NODE, load_site(ENV, root=self.root).node(NODE).bmc)

    def power(self, action: PowerAction) -> None:
        """Have the BMC cut or give power."""
        with self.bmc as bmc:
            bmc.power(action, wait_s=30.0)

    def disk(self, index: int) -> Path:
        """Return the file of a disk."""
        return self.store.base / "metal" / NODE / f"disk{index}.raw"

    def hash(self, index: int) -> str:
        """Return the hash of everything on a disk."""
        with self.disk(index).open("rb") as source:
            return hashlib.file_digest(source, "sha256").hexdigest()

    def console_says(self, words: str, seconds: float) -> bool:
        """Whether the serial console says something in time."""
        path = self.store.logs / f"{NODE}-console.log"
        return within(seconds, lambda: words in path.read_text(encoding="utf-8", errors="replace"))

    def power_ons(self) -> int:
        """Return how often the BMC gave power."""
        return [line["action"] for line in self.power_log() if line["node"] == NODE].count("on")

    def reports(self) -> list[dict[str, Any]]:
        """Return the reports of the ramdisk since the node was armed, oldest first."""
        folder = self.paths.state / "boot" / "nodes" / NODE / "reports"
        found = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
        return sorted(found, key=lambda report: (report["at"], report["seconds"]))

    def boots_with(self, step: str) -> set[str]:
        """Return the boots of the ramdisk that reported a step."""
        return {report["boot"] for report in self.reports() if report["step"] == step}

    # the installed system ----------------------------------------------------------------------------------------

    def on_node(self, command: str) -> str:
        """Run a command on the node, by the pins that rackready keeps."""
        from rackready.drivers.ssh.command import Shell  # noqa: PLC0415
        from rackready.drivers.ssh.session import connect  # noqa: PLC0415
        from rackready.drivers.ssh.target import node_target  # noqa: PLC0415

        target = node_target(load_site(ENV, root=self.root), NODE, self.paths.known_hosts)
        with connect(target, timeout_s=60.0) as client:
            done = Shell(client, target.where, "Look at it.").run(command, timeout_s=60.0)
        assert done.exit_code == 0, done
        return done.stdout.strip()

    def wait_for_ssh(self, seconds: float = 900.0) -> None:
        """Wait until the node answers, and its first boot is over."""
        assert within(seconds, lambda: self.on_node("hostname") == NODE), self.on_node("hostname")

    def check_installed(self, root: str = "/dev/vda2") -> None:
        """The node runs what was written, from this device."""
        assert self.on_node("hostname") == NODE
        assert json.loads(self.on_node(f"cat {IMAGED}"))["node"] == NODE
        assert self.on_node("systemctl is-system-running --wait || true") in {"running", "degraded"}
        assert self.on_node("findmnt -no SOURCE,FSTYPE /").split() == [root, "ext4"]


@contextmanager
def bare_metal(root: Path, change: dict[str, Any] | None = None) -> Iterator[BareMetal]:
    """Make the machine, and take it down at the end; skip where it cannot run."""
    if os.geteuid() != 0:
        pytest.skip("the simulated machine needs root (network bridge, tap)")
    if not (ROOT / ".rackready/ramdisk/ramdisk.img").exists():
        pytest.skip("neither ramdisk nor image: `make test-metal` builds both")
    machine = BareMetal(root, change or {})
    try:
        yield machine
    finally:
        machine.close()


def refused(document: dict[str, Any]) -> str:
    """Return the reason for which the one node was not provisioned."""
    (row,) = document["nodes"]
    return str(row["reason"])
