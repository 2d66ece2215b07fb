"""Connections of gates: nodes and switches of a site are both reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.design.site import load_site
from rackready.drivers.remote import UnreachableError
from rackready.drivers.ssh.target import node_target
from rackready.gates.engine.connections import Machines
from rackready.paths import EnvPaths


def test_a_switch_beside_a_node_does_not_hide_the_node(tmp_path: Path) -> None:
    site = load_site("sim")
    paths = EnvPaths(tmp_path, "sim")
    machines = Machines({"node01": node_target(site, "node01", paths.known_hosts)}, site, paths)
    with pytest.raises(UnreachableError, match="node01"):  # no key is pinned, so nothing is dialled
        machines.start("node01", ["true"], timeout_s=1)
    assert machines.run("node01", ["true"], timeout_s=1).reached is False
