"""The provision phase on the real Pulumi engine, against BMCs and hosts of the test: no root, no containers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackready.model.outcome import Outcome
from tests.integration.provisioning import ENV, ROOT, Bench, engine_missing

pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(engine_missing()), reason=engine_missing())]
NODES = ["node01", "node02", "node03", "node04"]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "clone", net=90)
    yield made
    made.rack.stop()


def outcomes(results: dict[str, object]) -> dict[str, str]:
    return {node: result.outcome.value for node, result in results.items()}  # type: ignore[attr-defined]


def test_from_off_to_reached_and_back(bench: Bench) -> None:
    bench.rack.set_power(bench.rack.node("node04"), "On")  # by somebody else, before us

    planned = bench.provision(check=True)
    assert [result.message for result in planned.values()] == [
        "would create: power on, wait for SSH, pin its host key"
    ] * 4
    assert [node.asked for node in bench.rack.nodes] == [[]] * 4

    first = bench.provision()
    assert outcomes(first) == dict.fromkeys(NODES, "pass")
    assert all(result.changed for result in first.values())
    assert [node.asked for node in bench.rack.nodes] == [["boot Hdd Once", "On"]] * 3 + [[]]
    assert [first[node].data["made"] for node in NODES] == [True, True, True, False]
    assert len(bench.paths.known_hosts.read_text().splitlines()) == 4

    second = bench.provision()
    said = {node: (result.outcome, result.changed, result.message) for node, result in second.items()}
    assert said == dict.fromkeys(NODES, (Outcome.PASS, False, "as it should be"))

    bench.rack.set_power(bench.rack.node("node01"), "Off")
    planned = bench.provision(check=True)
    assert [planned[node].changed for node in NODES] == [True, False, False, False]
    assert planned["node01"].message == "would update: bring back power"
    third = bench.provision()
    assert [third[node].changed for node in NODES] == [True, False, False, False]
    assert [node.boots() for node in bench.rack.nodes] == [2, 1, 1, 0]

    gone = bench.destroy()
    assert outcomes(gone) == dict.fromkeys(NODES, "pass")
    assert [node.power for node in bench.rack.nodes] == ["Off", "Off", "Off", "On"]
    assert gone["node04"].message == "was on before us, left on"
    assert bench.state() == {}


def test_one_bad_node_holds_back_no_other_and_each_is_named(bench: Bench) -> None:
    bench.overlay(provision_timeout_s=5)
    (bench.rack.folder / "node01-bmc").write_text("not-the-password")
    bench.rack.node("node02").serial = "SOMEBODY-ELSE"
    bench.rack.node("node03").boot_s = -1
    found = bench.provision()
    assert outcomes(found) == {"node01": "error", "node02": "error", "node03": "error", "node04": "pass"}
    assert (
        "Redfish refused the login of user admin - Expected: HTTP 200 Actual: 401. Check the password in file "
        in found["node01"].message
    )
    assert (
        "answers for another machine, nothing was done to it - Expected: serial FAKE-0002 Actual: system SOMEBODY-ELSE"
        in found["node02"].message
    )
    assert found["node03"].message.startswith("node03 127.90.2.3:")
    assert "SSH - Expected: an answer within 5 s" in found["node03"].message
    assert all(found[node].message.startswith(f"{node} ") for node in NODES[:3])
    assert [node.boots() for node in bench.rack.nodes] == [0, 0, 1, 1]
    assert bench.rack.node("node01").logins <= 2

    (bench.rack.folder / "node01-bmc").write_text(bench.rack.node("node01").password)
    bench.rack.node("node02").serial = "FAKE-0002"
    bench.rack.node("node03").boot_s = 0
    bench.rack.set_power(bench.rack.node("node03"), "On")  # its sshd comes up late, the power is on
    repaired = bench.provision()
    assert outcomes(repaired) == dict.fromkeys(NODES, "pass")
    assert [node.boots() for node in bench.rack.nodes] == [1, 1, 1, 1]
    assert repaired["node03"].data["made"] is True
    assert not any(node.sessions for node in bench.rack.nodes)

    (bench.rack.folder / "node04-bmc").write_text("not-the-password")
    later = bench.provision(check=True)
    assert outcomes(later) == {"node01": "pass", "node02": "pass", "node03": "pass", "node04": "error"}
    assert "Redfish refused the login" in later["node04"].message


def test_a_subset_leaves_the_others_alone_and_never_plans_their_deletion(bench: Bench) -> None:
    assert outcomes(bench.provision("node02", "node03")) == {"node02": "pass", "node03": "pass"}
    assert [node.boots() for node in bench.rack.nodes] == [0, 1, 1, 0]
    assert outcomes(bench.provision("node01", "node02")) == {"node01": "pass", "node02": "pass"}
    assert set(bench.state()) == {"node01", "node02", "node03"}
    assert outcomes(bench.destroy("node02", "node04")) == {"node02": "pass", "node04": "pass"}
    assert [node.power for node in bench.rack.nodes] == ["On", "Off", "On", "Off"]
    assert set(bench.state()) == {"node01", "node03"}


def test_a_node_that_left_the_site_file_is_not_deleted_by_a_run(bench: Bench) -> None:
    bench.provision()
    bench.without("node04")
    found = bench.provision("node01", "node02", "node03")
    assert {result.message for result in found.values()} == {"as it should be"}
    assert bench.rack.node("node04").power == "On"
    assert set(bench.state()) == set(NODES)
    bench.destroy("node01", "node02", "node03")
    assert [node.power for node in bench.rack.nodes] == ["Off", "Off", "Off", "On"]


def test_no_secret_stands_anywhere(bench: Bench) -> None:
    bench.provision()
    passphrase = (bench.paths.state / "secrets" / "pulumi").read_text()
    wanted = [passphrase.encode(), *(node.password.encode() for node in bench.rack.nodes)]
    leaks = [
        path
        for path in (bench.root / ".rackready").rglob("*")
        if path.is_file()
        and "tools" not in path.parts
        and path.parent.name != "secrets"
        and any(secret in path.read_bytes() for secret in wanted)
    ]
    assert leaks == []
    assert (bench.paths.state / "secrets" / "pulumi").stat().st_mode & 0o777 == 0o600
    assert (bench.paths.logs / "c1" / "provision.log").stat().st_mode & 0o777 == 0o600


def test_plain_pulumi_in_the_stacks_folder_shows_what_would_change(bench: Bench) -> None:
    env = {**os.environ, **bench.environment(), "RACKREADY_ROOT": str(bench.root)}
    stack = f"{ENV}-rack01"
    folder = bench.root / "stacks" / "metal"
    shutil.copytree(ROOT / "stacks" / "metal", folder)

    def pulumi(*words: str) -> str:
        done = subprocess.run(
            ["pulumi", *words, "--non-interactive"],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    bench.provision("node01")
    shown = pulumi("preview", "--stack", stack)
    assert "node04" in shown
    assert "6 to create" in shown
    assert "delete" not in shown
    assert [node.boots() for node in bench.rack.nodes] == [1, 0, 0, 0]
