"""The program that changes Slurm's files, on the controller of a simulated rack: its real slurmctld and systemd."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Any

from rackready.drivers.one_file import one_file
from rackready.drivers.scheduler.slurm_files import MODULES
from rackready.drivers.with_request import ARGV, with_request

NAME = "rackready_nodes.conf"
LIMIT_S = 600
"""More than the program takes at worst: a trial of 30 s, systemctl of 120 s, scontrol of 90 s."""


@dataclass(frozen=True)
class SlurmHost:
    """The container of a rack's Slurm controller."""

    container: str

    def sh(self, command: str) -> str:
        """Run a command there and return its output."""
        argv = ["podman", "exec", self.container, "sh", "-c", command]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout

    def ask(self, op: str, kill_at: str = "", **more: Any) -> dict[str, Any]:
        """Send a request. With ``kill_at`` the program is killed where it calls that; the answer is empty then."""
        request = {"op": op, "folder": "/etc/slurm", "unit": "slurmctld.service", "wait_s": 20, **more}
        source = one_file(MODULES)
        if kill_at:
            dies = f"def {kill_at}(*_):\n    os.kill(os.getpid(), 9)\n\n\nif __name__"
            source = source.replace("if __name__", dies, 1)
        done = subprocess.run(
            ["podman", "exec", "-i", self.container, *ARGV],
            input=with_request(source, json.dumps(request)), capture_output=True, text=True, check=False,
            timeout=LIMIT_S,
        )  # fmt: skip
        if kill_at:
            assert done.returncode != 0, done.stdout
            return {}
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def apply(self, lines: str, nodes: list[str], kill_at: str = "", reload: str = "restart") -> dict[str, Any]:
        """Bring lines into the cluster's configuration."""
        now = self.ask("read")
        main = now["files"]["slurm.conf"]
        if f"Include {NAME}" not in main:
            main += f"Include {NAME}\n"
        files = {"slurm.conf": main, NAME: lines}
        return self.ask("apply", kill_at, files=files, seen=now["seen"], reload=reload, nodes=nodes)
