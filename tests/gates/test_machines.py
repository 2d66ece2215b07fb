"""Connections to nodes and switches in one: each machine has its own lock and its own answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.design.site import load_site
from rackready.drivers.ssh.target import KeyLogin, SshTarget
from rackready.gates.engine import connections
from rackready.gates.engine.connections import Machines
from rackready.paths import EnvPaths


class FakeSession:
    """A switch that repeats the command."""

    def run(self, command: str, *, timeout_s: float) -> tuple[int, str]:
        return 0, f"{command} within {timeout_s:g} s"

    def close(self) -> None: ...


def test_nodes_and_switches_answer_over_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(_paths: Any, _switch: Any) -> tuple[FakeSession, str]:  # noqa: ANN401
        return FakeSession(), ""

    monkeypatch.setattr(connections, "open_session", opened)
    key = tmp_path / "absent"
    target = SshTarget("node01", "127.0.0.1", 1, "root", KeyLogin(key), tmp_path / "known_hosts")
    machines = Machines({"node01": target}, load_site("sim"), EnvPaths(tmp_path, "sim"))
    node = machines.run("node01", ("true",), timeout_s=1)
    assert (node.reached, node.exit_code) == (False, None)
    assert node.failure == (
        f"node01 127.0.0.1:1: private key {key} - Expected: an OpenSSH private key without passphrase "
        "Actual: No such file or directory. Correct access.private_key in the site file"
    )
    switch = machines.run("leaf01", ("nv show system",), timeout_s=2)
    assert (switch.exit_code, switch.stdout) == (0, "nv show system within 2 s")
    machines.close()
