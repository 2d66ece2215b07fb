"""RDMA writes: where perftest runs, and how much small packets add to ports' counts."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.gates.engine.registry import gate
from rackready.model.outcome import Outcome
from tests.gates.support import Said, outputs, rack
from tests.gates.test_ib_write_bw import GATE, HEALTHY, HEALTHY_BACK, UP, WROTE, link

_GID = "0000:0000:0000:0000:0000:ffff:c0a8:010b"


@pytest.mark.parametrize("fabric", ["roce", "ofed", "infiniband"])
@pytest.mark.parametrize("told", ["one", "nothing", "others"])
def test_perftest_runs_on_the_processors_beside_its_nic(tmp_path: Path, fabric: str, told: str) -> None:
    """Where they are unknown, or may not be used here, it runs on any. OFED's driver has the traffic class itself."""
    allowed = os.sched_getaffinity(0)
    one = min(allowed)
    port_ = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    for name, said in {"gid_attrs/types/3": "RoCE v2", "gids/3": _GID}.items():
        (port_ / name).parent.mkdir(parents=True, exist_ok=True)
        (port_ / name).write_text(f"{said}\n")
    (port_.parents[1] / "device").mkdir()
    if fabric == "ofed":
        (port_.parents[1] / "tc/1").mkdir(parents=True)
        (port_.parents[1] / "tc/1/traffic_class").write_text("106\n")
    if told != "nothing":
        (port_.parents[1] / "device/local_cpulist").write_text(f"{one if told == 'one' else 100_000}\n")
    program = tmp_path / "ib_write_bw"
    program.write_text(f"#!{sys.executable}\nimport os, sys\nprint(sorted(os.sched_getaffinity(0)), *sys.argv[1:])\n")
    program.chmod(0o755)
    known = rack(2)
    known = replace(
        known, fabric=known.fabric.model_copy(update={"kind": "infiniband" if fabric == "infiniband" else "roce"})
    )
    run = gate(GATE).plan(known, list(known.nodes))[0]
    bash, option, script, _, device, *rest = next(
        command.argv for command in run.commands if command.key == "client-forth"
    )
    done = subprocess.run(
        [bash, option, script.replace("/sys/", f"{tmp_path}/sys/"), str(program), device, *rest],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    where = [one] if told == "one" else sorted(allowed)
    own = {"roce": ["--tclass=106", "-x", "3"], "ofed": ["-x", "3"], "infiniband": []}[fabric]
    assert done.stdout.split("] ") == [
        str(where)[:-1],
        " ".join(["-d", "mlx5_0", *own, *rest[2 if own else 0 :]]) + "\n",
    ]


@pytest.mark.parametrize(
    ("counted", "outcome", "said"),
    [
        (1.064, Outcome.PASS, []),
        (
            1.13,
            Outcome.FAIL,
            ["node01 mlx5_0 (rail 1): bytes sent by the port - Expected: 16.8 GB within 11% Actual: 19.0 GB"],
        ),
        (
            0.88,
            Outcome.FAIL,
            ["node01 mlx5_0 (rail 1): bytes sent by the port - Expected: 16.8 GB within 11% Actual: 14.8 GB"],
        ),
    ],
)
def test_headers_of_small_packets_are_no_other_traffic(counted: float, outcome: Outcome, said: list[str]) -> None:
    """An MTU of 1500 leaves 1024 bytes for RDMA; Ethernet's framing is 86 bytes: 6.3 % more than at 4096 bytes."""
    known = rack(2)
    known = replace(known, fabric=known.fabric.model_copy(update={"mtu": 1500}))
    found = gate(GATE)
    run = found.plan(known, list(known.nodes))[0]
    small = {
        key: Said(one.stdout.replace(": 4096[B]", ": 1024[B]"))
        for key, one in {"client-forth": HEALTHY, "client-back": HEALTHY_BACK}.items()
    }
    ports_ = {"after-first": link(sent=7e9 + WROTE * counted), "after-second": link(sent=7e9 + WROTE * 1.064)}
    verdict = found.evaluate(known, run, outputs(run, {**UP, **small, **ports_}))
    assert [str(finding).split(". The data", 1)[0] for finding in verdict.findings] == said
    assert verdict.outcome is outcome
