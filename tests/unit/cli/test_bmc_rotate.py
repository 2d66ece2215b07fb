"""`rackready bmc rotate`: outcome and exit code of each BMC, and what the operator reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import yaml

from rackready.paths import EnvPaths
from tests.unit.sim.bmc_service import FACTORY, served

Call = Callable[..., tuple[int, str, str]]


def test_every_bmc_gets_its_own_and_a_failure_is_of_that_one_alone(call: Call, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    (tmp_path / "factory").write_text(FACTORY, encoding="utf-8")
    with served(tmp_path) as service:
        service.is_a("gb200", factory_password=FACTORY)
        common = {"port": service.server.server_port, "factory_password": {"file": str(tmp_path / "factory")}}
        common["ca"] = str(service.rack.store.tls / "ca.pem")
        overlay = {
            "racks": [
                {
                    "name": "rack01",
                    "nodes": [
                        {"name": name, "bmc": {**common, "address": address, "password": {"file": str(secrets / name)}}}
                        for name, address in (("node01", "127.85.1.3"), ("node02", "127.85.1.99"))
                    ],
                }
            ]
        }
        path = EnvPaths(tmp_path, "sim").overlay
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(overlay), encoding="utf-8")
        code, out, err = call("bmc", "rotate", "node01", "node02")
        assert (code, out) == (1, f"node01: the BMC has a password of its own, in file {secrets / 'node01'}\n")
        assert "node02 BMC 127.85.1.99:" in err
        assert "unreachable - Expected: Redfish answers within 5 s" in err
        again = call("bmc", "rotate", "node01", "--output", "json")
        assert (again[0], [row["outcome"] for row in json.loads(again[1])["bmcs"]]) == (0, ["changed"])
    secret = (secrets / "node01").read_text(encoding="utf-8").strip()
    for file in (tmp_path / ".rackready").rglob("*"):
        if file.is_file():
            assert secret.encode() not in file.read_bytes(), file
            assert FACTORY.encode() not in file.read_bytes(), file
