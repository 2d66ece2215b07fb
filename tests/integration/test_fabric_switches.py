"""Real SSH sessions to simulated switches: configured once, repaired after drift, safe to kill, others' work kept."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
import yaml

from rackready.design.facts import node_facts
from rackready.design.site import load_site
from rackready.drivers.redfish import Bmc, PowerAction
from rackready.drivers.remote import Remote
from rackready.drivers.ssh.first_contact import wait_and_pin
from rackready.drivers.ssh.pins import fingerprint
from rackready.drivers.ssh.target import node_target
from rackready.drivers.switch.agreement import verify_fabric
from rackready.drivers.switch.cabling import Cabling, check_cabling
from rackready.drivers.switch.configure import open_session, run_switches
from rackready.drivers.switch.nvue_text import expand_commands
from rackready.drivers.switch.session import SwitchLoginError
from rackready.ledger.store import Ledger
from rackready.model.base import SecretRef
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready_sim.plan import clone_id
from tests.integration.project import ROOT, Project, within

pytestmark = pytest.mark.integration

_DIES = """
import os, signal, sys
from pathlib import Path
from rackready.drivers.switch.cumulus_nvue import CumulusNvue
from rackready.drivers.switch.configure import open_session, run_switches
from rackready.model.phase import PhaseContext

def die(self, *_):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(CumulusNvue, sys.argv[2], die)
print(run_switches(PhaseContext("sim", Path(sys.argv[1]), "killed"), ["leaf01"]))
"""


_CUT_ROTATION = """
import os, signal, sys
from pathlib import Path
from rackready.design.site import load_site
from rackready.drivers.switch.password import Rotation
from rackready.ledger.store import Ledger
from rackready.paths import EnvPaths

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

Rotation._prove = die
paths = EnvPaths(Path(sys.argv[1]), "sim")
switch = next(item for item in load_site("sim", root=paths.root).switches if item.name == "leaf01")
with Ledger.open(paths.database) as ledger:
    Rotation(ledger, paths, switch, print).run()
"""


def on_switch(project: Project, *argv: str) -> str:
    """Run a command on leaf01 as root: somebody who works on the switch by hand."""
    done = subprocess.run(
        ["podman", "exec", f"rr-{clone_id(project.root)}-leaf01", *argv],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


def run(project: Project, *switches: str, check: bool = False) -> dict[str, NodeResult]:
    return run_switches(PhaseContext("sim", project.root, "test", check), list(switches or ("leaf01", "leaf02")))


def revisions(project: Project) -> dict[str, dict[str, str]]:
    """Return number to state and user of every revision; an untouched switch dates its first one anew at every look."""
    found: dict[str, dict[str, str]] = json.loads(on_switch(project, "nv", "config", "revision", "-o", "json"))
    return {key: {name: value[name] for name in ("state", "user")} for key, value in found.items() if key.isdigit()}


def drift(project: Project) -> None:
    """Somebody lowers an MTU by hand, and applies it."""
    on_switch(project, "nv", "set", "interface", "swp3", "link", "mtu", "1500")
    on_switch(project, "nv", "config", "apply", "-y")


def killed(project: Project, method: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DIES, str(project.root), method],
        env=project.environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr


def test_a_check_shows_the_difference_and_changes_nothing(project: Project) -> None:
    before = revisions(project)
    result = run(project, "leaf01", check=True)["leaf01"]
    assert result.outcome is Outcome.PASS
    assert "+ nv set interface swp16 bridge domain br_default access 904" in result.data["diff"]
    assert revisions(project) == before


def test_one_switch_is_shown_and_nothing_is_loaded(project: Project) -> None:
    before = revisions(project)
    code, text = project.run("fabric", "--show", "leaf01")
    assert code == 0, project.progress()
    assert "+ nv set interface swp16 bridge domain br_default access 904" in text.splitlines()
    assert revisions(project) == before


def test_both_switches_are_configured_once(project: Project) -> None:
    first = run(project)
    assert [(result.outcome, result.changed) for result in first.values()] == [(Outcome.PASS, True)] * 2, first
    before = revisions(project)
    assert [value["state"] for value in before.values()].count("applied") == 1
    second = run(project)
    assert [(result.outcome, result.changed) for result in second.values()] == [(Outcome.PASS, False)] * 2, second
    assert revisions(project) == before


def test_drift_is_repaired(project: Project) -> None:
    run(project, "leaf01")
    drift(project)
    result = run(project, "leaf01")["leaf01"]
    assert result.changed, result
    assert "mtu: 9216" in result.data["diff"]
    assert "swp4" not in result.data["diff"]


@pytest.mark.parametrize(
    ("dies_in", "applies", "note"),
    [
        ("compare", 1, "dropped the candidate of an interrupted run"),
        ("commit", 1, "dropped the candidate of an interrupted run"),
        ("confirm", 0, "confirmed what an interrupted run had applied"),
        ("save", 0, "kept from an interrupted run"),
    ],
)
def test_killed_anywhere_it_goes_on_without_a_blind_repeat(
    project: Project, dies_in: str, applies: int, note: str
) -> None:
    run(project, "leaf01")
    drift(project)
    killed(project, dies_in)
    in_force = len([1 for value in revisions(project).values() if value["state"] != "pending"])
    result = run(project, "leaf01")["leaf01"]
    assert result.outcome is Outcome.PASS, result
    assert note in result.message
    after = revisions(project)
    assert len(after) == in_force + applies
    assert {value["state"] for value in after.values()} <= {"applied", "inactive"}
    ledger = Ledger.read_only(project.paths.database)
    assert [entry.status for entry in ledger.entries("leaf01")][-1] == "done"
    assert "intent" not in {entry.status for entry in ledger.entries("leaf01")}
    ledger.close()
    assert not run(project, "leaf01")["leaf01"].changed


def test_somebody_elses_candidate_is_left_alone(project: Project) -> None:
    run(project, "leaf01")
    on_switch(project, "nv", "set", "interface", "swp60", "description", "spare")
    pending = next(key for key, value in revisions(project).items() if value["state"] == "pending")
    result = run(project, "leaf01")["leaf01"]
    assert result.outcome is Outcome.ERROR
    assert result.message == (
        f"leaf01: revision {pending} of user root is pending - Expected: no other change in progress. "
        f"Nothing was changed; run again once it is applied, or dropped with `nv config delete {pending}`."
    )
    on_switch(project, "nv", "config", "delete", pending)
    assert run(project, "leaf01")["leaf01"].outcome is Outcome.PASS


def test_a_node_that_is_off_is_an_error_never_a_pass(project: Project) -> None:
    run(project)
    result = verify_fabric(PhaseContext("sim", project.root, "test"), ["node01"])["node01"]
    assert result.outcome is Outcome.ERROR
    assert result.message.startswith(
        "node01: reading of its compute interfaces - Expected: a whole document of roce.py Actual: node01 "
    )


def test_another_host_key_is_refused(project: Project) -> None:
    run(project, "leaf02")
    pins = project.paths.known_hosts
    before = pins.read_text(encoding="utf-8")
    address = project.address("leaf02")
    other = next(line.split(" ", 1)[1] for line in before.splitlines() if not line.startswith(address))
    pins.write_text(
        "".join(
            f"{address} {other}\n" if line.startswith(f"{address} ") else f"{line}\n" for line in before.splitlines()
        ),
        encoding="utf-8",
    )
    try:
        result = run(project, "leaf02")["leaf02"]
        assert result.outcome is Outcome.ERROR
        assert (
            f"leaf02 {address}:22: SSH host key changed, no login was tried - Expected: {fingerprint(other)} Actual: "
            in result.message
        )
        assert "`rackready hostkey accept leaf02` shows both keys and pins the new one" in result.message
    finally:
        pins.write_text(before, encoding="utf-8")


def test_a_wrong_password_names_where_it_is_kept(project: Project) -> None:
    secret = project.paths.base / "sim/secrets/leaf02"
    before = secret.read_text(encoding="utf-8")
    secret.write_text("wrong\n", encoding="utf-8")
    try:
        result = run(project, "leaf01", "leaf02")
        assert result["leaf01"].outcome is Outcome.PASS
        assert result["leaf02"].outcome is Outcome.ERROR
        assert (
            "SSH login refused - Expected: user cumulus accepted with the password in file " in result["leaf02"].message
        )
        assert "wrong" not in result["leaf02"].message
    finally:
        secret.write_text(before, encoding="utf-8")


def test_ports_of_a_node_that_left_the_site_are_unset_and_somebody_elses_stay(project: Project) -> None:
    run(project)
    for words in ("interface swp60 bridge domain br_default access 1200", "bridge domain br_default vlan 1200"):
        on_switch(project, "nv", "set", *words.split())
    on_switch(project, "nv", "config", "apply", "-y")
    site = project.paths.site_file
    before = site.read_text(encoding="utf-8")
    smaller = yaml.safe_load(before)
    smaller["racks"][0]["nodes"] = [node for node in smaller["racks"][0]["nodes"] if node["name"] != "node04"]
    smaller["links"] = [link for link in smaller["links"] if link["node"] != "node04"]
    overlay = project.paths.overlay.read_text(encoding="utf-8")
    try:
        site.write_text(yaml.safe_dump(smaller), encoding="utf-8")
        trimmed = yaml.safe_load(overlay)
        trimmed["racks"][0]["nodes"] = [node for node in trimmed["racks"][0]["nodes"] if node["name"] != "node04"]
        project.paths.overlay.write_text(yaml.safe_dump(trimmed), encoding="utf-8")
        result = run(project, "leaf01")["leaf01"]
        assert (result.outcome, result.changed) == (Outcome.PASS, True), result
        left = expand_commands(on_switch(project, "nv", "config", "show", "-o", "commands"))
        assert {words[3] for words in left if words[2] == "interface"} == {
            f"swp{number}" for number in (*range(1, 13), 60)
        }
        assert ("nv", "set", "bridge", "domain", "br_default", "vlan", "1200") in left
        assert not run(project, "leaf01")["leaf01"].changed
    finally:
        site.write_text(before, encoding="utf-8")
        project.paths.overlay.write_text(overlay, encoding="utf-8")
    assert run(project, "leaf01")["leaf01"].changed, "the node came back"


def speaks(project: Project, node: str) -> None:
    """Boot a node and leave on it what role host_lldp leaves, without the rest of an install."""
    site = load_site("sim", root=project.root)
    with Bmc(node, site.node(node).bmc) as controller:
        controller.power(PowerAction.ON)
    netdevs = [nic.netdev for nic in node_facts(site, node).nics]
    lines = f"configure system interface pattern {','.join(netdevs)}\nconfigure lldp portidsubtype ifname\n"
    script = (ROOT / "src/rackready/ondevice/lldp.py").read_text(encoding="utf-8")
    wait_and_pin(node_target(site, node, project.paths.known_hosts), timeout_s=60)
    remote = Remote({node: node_target(site, node, project.paths.known_hosts)})
    try:
        for argv, text in (
            (("install", "-D", "/dev/stdin", "/usr/local/lib/rackready/lldp.py"), script),
            (("install", "-D", "/dev/stdin", "/etc/lldpd.d/rackready.conf"), lines),
            *((("ip", "link", "set", netdev, "up"), "") for netdev in netdevs),
            (("systemctl", "restart", "lldpd"), ""),
        ):
            done = remote.run(node, argv, stdin=text, timeout_s=60)
            assert done.exit_code == 0, f"{argv}: {done.stdout}{done.stderr}{done.failure}"
    finally:
        remote.close()


@pytest.fixture
def cabling(project: Project) -> Callable[[], Cabling]:
    """Return the cabling check of two nodes that speak LLDP, found healthy."""
    run(project)
    nodes, told = ["node01", "node02"], list[str]()
    for node in nodes:
        speaks(project, node)
    context = PhaseContext("sim", project.root, "test")

    def checked() -> Cabling:
        return check_cabling(context, nodes, lambda node, text: told.append(f"{node}: {text}"))

    assert within(120, lambda: not checked().findings)
    assert "node01: comparing 8 cables with the plan by LLDP, for up to 60 s" in told
    return checked


def test_crossed_cables_are_seen_by_lldp_at_both_ends_and_named_with_the_move(
    project: Project, cabling: Callable[[], Cabling]
) -> None:
    assert project.run("sim", "inject", "node01", "cables-swapped", "--nic", "1", "--other", "2")[0] == 0
    try:
        assert within(90, lambda: bool(cabling().findings))  # lldpd keeps an old neighbour until it hears another one
        result = cabling().result("node01")
        assert result.outcome is Outcome.FAIL, result
        assert [one["code"] for one in result.data["findings"]] == ["cable-swapped"], result
        assert "Swap the cables at leaf01 swp1 (rail 1) and swp2 (rail 2)." in result.message
    finally:
        assert project.run("sim", "clear", "node01")[0] == 0


@pytest.mark.slow
def test_a_cable_in_a_spare_port_is_named_with_the_move_and_stops_its_node_alone(
    project: Project, cabling: Callable[[], Cabling]
) -> None:
    assert project.run("sim", "inject", "node02", "cable-wrong-port", "--nic", "3", "--spare", "swp15")[0] == 0
    try:
        assert within(120, lambda: set(cabling().findings) == {"node02"})
        found = cabling()
        assert {node: [one.code for one in items] for node, items in found.findings.items()} == {
            "node02": ["cable-wrong-port"]
        }
        assert "Move the cable from leaf01 swp15 (rail 3) to leaf01 swp7 (rail 3)." in found.result("node02").message
    finally:
        assert project.run("sim", "clear", "node02")[0] == 0
    assert within(90, lambda: not cabling().findings)


@pytest.mark.slow
def test_a_new_password_is_proven_and_a_killed_change_is_finished(project: Project) -> None:
    """Over real SSH, with NVUE's way back: killed when the switch has the new password and has not confirmed it."""
    file = project.paths.root / ".rackready/sim/secrets/leaf01"
    old = file.read_text(encoding="utf-8").strip()
    code, text = project.run("switch", "rotate", "leaf01")
    assert (code, text) == (0, f"leaf01: has a new password, in file {file}\n"), project.progress()[-2000:]
    first = file.read_text(encoding="utf-8").strip()
    assert first != old
    assert "password refused" in refused_with(project, old)
    done = subprocess.run(
        [sys.executable, "-c", _CUT_ROTATION, str(project.root)],
        env=project.environment(),
        cwd=project.root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pending = file.with_name("leaf01.pending")
    second = pending.read_text(encoding="utf-8").strip()
    code, text = project.run("switch", "rotate", "leaf01")
    assert (code, text) == (0, f"leaf01: a change was interrupted; the new password works and is now in file {file}\n")
    assert (file.read_text(encoding="utf-8").strip(), pending.exists()) == (second, False)
    shown = on_switch(project, "nv", "config", "show", "-o", "commands")
    assert "nv set system aaa user cumulus hashed-password *" in shown.replace("'", "")
    traces = [path for path in project.paths.state.rglob("*") if path.is_file() and path != file]
    for word in (old, first, second):
        assert [path for path in traces if word.encode() in path.read_bytes()] == []
    assert run_switches(PhaseContext("sim", project.root, "after"), ["leaf01"])["leaf01"].outcome is Outcome.PASS


def refused_with(project: Project, word: str) -> str:
    """Return what a login with a password that no longer works is told."""
    file = project.root / "old-password"
    file.write_text(word, encoding="utf-8")
    switch = next(item for item in load_site("sim", root=project.root).switches if item.name == "leaf01")
    with pytest.raises(SwitchLoginError) as caught:
        open_session(project.paths, switch.model_copy(update={"password": SecretRef(file=file)}))
    file.unlink()
    return str(caught.value)
