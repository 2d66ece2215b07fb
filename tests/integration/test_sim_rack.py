"""The simulated rack itself: made, powered over Redfish, broken, repaired and removed, apart from other racks."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import paramiko
import pytest

from rackready.design.site import load_site
from rackready.drivers.redfish import Bmc, BootTarget, PowerAction
from rackready.drivers.redfish_errors import BmcLoginError, BmcTlsError
from rackready.model.site import Site
from rackready_sim.plan import clone_id
from tests.integration.project import Project, cannot_run, within
from tests.integration.slurm_controller import NAME, SlurmHost

pytestmark = pytest.mark.integration

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


def site_of(project: Project) -> Site:
    return load_site("sim", root=project.root)


def bmc(project: Project, node: str) -> Bmc:
    return Bmc(node, site_of(project).node(node).bmc)


def answers(project: Project, node: str) -> bool:
    with socket.create_connection((project.address(node), 22), timeout=1.0) as connection:
        return connection.recv(8) == b"SSH-2.0-"


def power_on(project: Project, *nodes: str) -> None:
    for node in nodes:
        with bmc(project, node) as controller:
            controller.power(PowerAction.ON)
    for node in nodes:
        assert within(60, lambda node=node: answers(project, node)), f"{node} does not answer"  # type: ignore[misc]


def podman(*args: str) -> str:
    return subprocess.run(["podman", *args], capture_output=True, text=True, check=True, timeout=60).stdout


def created(project: Project) -> dict[str, str]:
    """Container name -> id of this root's containers."""
    out = podman(
        "ps", "-a", "--filter", f"label=rackready.clone={clone_id(project.root)}", "--format", "{{.Names}} {{.ID}}"
    )
    return dict(line.split() for line in out.splitlines())


def interfaces(project: Project) -> list[str]:
    found = json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, check=True).stdout)
    return [item["ifname"] for item in found if item["ifname"].startswith(f"rr-{clone_id(project.root)}")]


@pytest.fixture
def node01(project: Project) -> Iterator[str]:
    """A node that is on, and healthy again afterwards."""
    power_on(project, "node01")
    yield "node01"
    project.run("sim", "clear", "node01")


def test_nodes_are_off_and_unreachable_until_their_bmc_powers_them_on(project: Project) -> None:
    _, status = project.json("sim", "status")
    assert status["up"] is True
    assert {row["state"] for row in status["machines"] if row["kind"] == "node"} == {"off"}
    assert not any(name.endswith("node02") for name in created(project))
    with bmc(project, "node02") as controller:
        found = controller.require("SIM-DGXH100-0002")
        assert (found.manufacturer, found.model, found.power) == ("NVIDIA", "DGXH100", "Off")
        controller.set_boot_once(BootTarget.PXE)
        controller.power(PowerAction.ON)
    assert within(60, lambda: answers(project, "node02"))
    assert project.ssh("node02", "hostname").strip() == "node02"
    assert project.ssh("node02", "cat /proc/1/comm").strip() == "systemd"
    boot = json.loads((project.paths.base / "sim/bmc/node02.json").read_text())
    assert (boot["target"], boot["enabled"]) == ("None", "Disabled")


def test_a_second_up_changes_nothing(project: Project, node01: str) -> None:
    before, boot = created(project), project.ssh(node01, BOOT_ID)
    code, document = project.json("sim", "up")
    assert (code, document["changes"]) == (0, [])
    assert created(project) == before
    assert project.ssh(node01, BOOT_ID) == boot


def test_a_wrong_password_and_another_nodes_password_are_refused(project: Project) -> None:
    secrets = project.paths.base / "sim/secrets"
    wrong = site_of(project).node("node01").bmc
    for path in (secrets / "node02-bmc", secrets / "leaf01"):
        refused = wrong.model_copy(update={"password": wrong.password.model_copy(update={"file": path})})
        with Bmc("node01", refused) as controller, pytest.raises(BmcLoginError, match=r"node01 BMC .* Actual: 401"):
            controller.identify()


def test_a_bmc_is_trusted_only_with_the_racks_own_authority(project: Project) -> None:
    untrusting = site_of(project).node("node01").bmc.model_copy(update={"ca": None})
    with Bmc("node01", untrusting) as controller, pytest.raises(BmcTlsError):
        controller.identify()


def test_a_reset_boots_anew_and_keeps_the_disk(project: Project, node01: str) -> None:
    project.ssh(node01, "touch /root/on-disk /run/in-memory")
    before, log = project.ssh(node01, BOOT_ID), len(project.power_log())
    with bmc(project, node01) as controller:
        controller.power(PowerAction.RESET)
    assert within(60, lambda: project.ssh(node01, BOOT_ID) != before)
    assert project.ssh(node01, "ls /root/on-disk /run/in-memory 2>/dev/null || true").split() == ["/root/on-disk"]
    assert [(row["node"], row["action"], row["by"]) for row in project.power_log()[log:]] == [
        ("node01", "reset", "bmc")
    ]


def test_powered_off_by_its_system_or_by_its_bmc_a_node_is_off(project: Project, node01: str) -> None:
    with suppress(AssertionError, subprocess.CalledProcessError):
        project.ssh(node01, "systemctl poweroff")
    with bmc(project, node01) as controller:
        assert within(60, lambda: controller.observe() == "Off")
    power_on(project, node01)
    with bmc(project, node01) as controller:
        assert controller.power(PowerAction.OFF) == "Off"
    with pytest.raises(OSError, match=r"(?i)refused|no route|timed out"):
        answers(project, node01)
    assert project.power_log()[-1]["action"] == "graceful-off"


def test_a_node_has_its_nics_down_and_no_way_out_of_the_rack(project: Project, node01: str) -> None:
    links = json.loads(project.ssh(node01, "ip -j link"))
    nics = {link["ifname"]: link for link in links if link["ifname"].startswith("enp")}
    assert len(nics) == 8
    assert nics["enp24s0np0"]["address"] == "b8:3f:d2:00:01:01"
    assert all(link["operstate"] == "DOWN" for link in nics.values())
    assert project.ssh(node01, "ip route show default").strip() == ""


def test_a_cable_that_is_pulled_is_missed_at_both_ends_until_it_is_back(project: Project, node01: str) -> None:
    def ports() -> list[str]:
        return leaf(project, "ls /sys/class/net").split()

    assert "swp2" in ports()
    project.ssh(node01, "ip link set enp64s0np0 up")
    assert project.run("sim", "inject", "node01", "nic-down", "--nic", "2")[0] == 0
    assert "swp2" not in ports()
    assert project.ssh(node01, "cat /sys/class/net/enp64s0np0/carrier").strip() == "0"
    _, status = project.json("sim", "status")
    assert [fault["name"] for row in status["machines"] if row["name"] == "node01" for fault in row["faults"]] == [
        "nic-down"
    ]
    _, document = project.json("sim", "up")
    assert "swp2" not in ports(), f"`sim up` repaired an injected fault: {document}"
    assert project.run("sim", "clear", "node01", "nic-down")[0] == 0
    assert "swp2" in ports()


def test_faults_that_do_not_exist_are_refused(project: Project) -> None:
    assert project.run("sim", "inject", "node01", "no-such-fault")[0] == 2
    assert project.run("sim", "inject", "node77", "nic-down")[0] == 2
    assert project.run("sim", "clear", "node02", "nic-down")[0] == 1


def leaf(project: Project, command: str) -> str:
    """Run a command on leaf01, logged in as an operator would."""
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())  # noqa: S507 - a rack of this test
    password = (project.paths.base / "sim/secrets/leaf01").read_text().strip()
    client.connect(
        project.address("leaf01"),
        username="cumulus",
        password=password,
        allow_agent=False,
        look_for_keys=False,
        timeout=10,
    )
    try:
        _, out, _ = client.exec_command(command, timeout=30)
        return out.read().decode()
    finally:
        client.close()


def test_a_switch_lets_in_only_who_knows_its_password(project: Project) -> None:
    assert leaf(project, "hostname; sudo -n id -un").split() == ["leaf01", "root"]
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())  # noqa: S507 - a rack of this test
    with pytest.raises(paramiko.AuthenticationException):
        client.connect(
            project.address("leaf01"),
            username="cumulus",
            password="wrong",
            allow_agent=False,
            look_for_keys=False,
            timeout=10,
        )


def test_a_node_lets_in_nobody_by_password(project: Project, node01: str) -> None:
    transport = paramiko.Transport((project.address(node01), 22))
    transport.start_client(timeout=10)
    with pytest.raises(paramiko.BadAuthenticationType) as refused:
        transport.auth_password("root", "x")
    transport.close()
    assert "password" not in refused.value.allowed_types


def test_the_mirror_serves_a_signed_repository(project: Project) -> None:
    url = site_of(project).software.mirror.url
    with urllib.request.urlopen(f"{url}/InRelease", timeout=10) as answer:  # noqa: S310 - http, in the rack
        assert answer.read().startswith(b"-----BEGIN PGP SIGNED MESSAGE-----")
    assert site_of(project).software.mirror.key.read_text().startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----")


def test_the_scheduler_knows_four_drained_nodes_and_runs_a_job_where_a_node_was_handed_over(
    project: Project, node01: str
) -> None:
    assert within(60, lambda: project.ssh("slurmctl", "sinfo --noheader --format '%D %T'").split()[:1] == ["4"])
    assert "drain" in project.ssh("slurmctl", "sinfo --noheader --format %T")
    project.ssh(
        node01,
        f"echo {(project.paths.base / 'sim/secrets/munge').read_text().strip()} | base64 -d > /etc/munge/munge.key "
        "&& chown munge: /etc/munge/munge.key "
        "&& chmod 400 /etc/munge/munge.key && systemctl restart munge "
        "&& for i in 0 1 2 3 4 5 6 7; do test -e /dev/nvidia$i || mknod /dev/nvidia$i c 195 $i; done "
        f"&& slurmd --conf-server {project.address('slurmctl')}:6817",
    )
    assert within(60, lambda: "*" not in project.ssh("slurmctl", "sinfo --noheader --nodes node01 --format %t"))
    project.ssh("slurmctl", "scontrol update nodename=node01 state=resume")
    assert (
        project.ssh("slurmctl", "timeout 90 srun --nodelist node01 --gres=gpu:8 hostname").strip().splitlines()[-1]
        == "node01"
    )
    project.ssh("slurmctl", "scontrol update nodename=node01 state=drain reason=test")
    project.ssh(node01, "pkill slurmd")


def reboots_by_itself(project: Project, node01: str) -> None:
    """A reboot of the system comes back without the BMC."""
    before, log = project.ssh(node01, BOOT_ID), len(project.power_log())
    with suppress(AssertionError, subprocess.CalledProcessError):
        project.ssh(node01, "systemctl reboot")
    assert within(180, lambda: project.ssh(node01, BOOT_ID) != before)
    assert [(row["action"], row["by"]) for row in project.power_log()[log:]] == [("reboot", "host")]
    assert len(project.ssh(node01, "ls /sys/class/infiniband").split()) == 8


EXTRA = (
    "NodeName=extra01 NodeAddr=192.0.2.200 CPUs=2 State=DRAIN Reason=new\nPartitionName=extra Nodes=extra01 State=UP\n"
)


def test_files_of_slurm_are_tried_written_and_taken_back(project: Project) -> None:
    host = SlurmHost(f"rr-{clone_id(project.root)}-slurmctl")
    before = host.ask("read")
    assert (before["release"], before["answers"]) == ("slurm-wlm 22.05.8", True)
    assert host.apply(EXTRA, ["extra01"])["result"] == "applied"
    assert "extra01" in host.ask("read")["known"]
    # Without its state the line drains nobody at the next restart, and slurmctld keeps the drain that it has.
    settled = EXTRA.replace(" State=DRAIN Reason=new", "")
    assert host.apply(settled, [], reload="none")["result"] == "applied"
    # The trial refuses what slurmctld 22.05 would die of; nothing was written.
    refused = host.apply(settled + "NodeName=extra01 CPUs=4\n", ["extra01"])
    assert (refused["result"], refused["words"][-1]) == (
        "refused",
        "fatal: Duplicated NodeName extra01 in the config file",
    )
    # What passes the trial and does not bring the promised node is taken back.
    back = host.apply(settled + "# more\n", ["extra01", "extra02"])
    assert (back["result"], back["words"]) == (
        "taken-back",
        ["slurmctld does not know extra02", "with the old files slurmctld runs again"],
    )
    assert host.ask("read")["files"][NAME] == settled
    # Killed before a file was written, before slurmctld read the new files, and after it.
    host.apply(settled + EXTRA.replace("extra", "other"), ["other01"], kill_at="write")
    assert host.ask("recover")["words"] == [
        "an interrupted change was taken back",
        "with the old files slurmctld runs again",
    ]
    host.apply(settled + EXTRA.replace("extra", "other"), ["other01"], kill_at="reload")
    assert "other01" not in host.ask("read")["known"]
    assert host.ask("recover")["words"] == ["an interrupted change was ended: slurmctld runs with it"]
    assert {"extra01", "other01"} <= set(host.ask("read")["known"])
    host.apply(settled + EXTRA.replace("extra", "other") + "# more\n", ["other01"], kill_at="missing")
    assert host.ask("recover")["words"] == ["an interrupted change was ended: slurmctld runs with it"]
    # A setting that somebody else has, too: Slurm would take the last one in silence.
    host.sh("echo 'HealthCheckInterval = 600' >> /etc/slurm/slurm.conf")
    twice = host.apply(settled + "HealthCheckInterval=300\n", ["extra01"])
    assert (twice["result"], twice["words"]) == (
        "refused",
        ["error: HealthCheckInterval 1 specified more than once, latest value used"],
    )
    host.sh("sed -i '/^HealthCheckInterval/d' /etc/slurm/slurm.conf")
    assert {"extra01", "other01"} <= set(host.ask("read")["known"])
    host.sh(f"rm /etc/slurm/{NAME}; sed -i '/^Include/d' /etc/slurm/slurm.conf; systemctl restart slurmctld")
    assert host.ask("read")["files"] == before["files"]


def test_what_died_is_repaired_and_what_lives_is_left_alone(project: Project, node01: str) -> None:
    boot = project.ssh(node01, BOOT_ID)
    emulator = json.loads((project.paths.base / "sim/redfish.json").read_text())["pid"]
    os.kill(emulator, signal.SIGKILL)
    podman("kill", f"rr-{clone_id(project.root)}-mirror")
    assert within(10, lambda: project.run("sim", "status")[0] == 1)
    code, document = project.json("sim", "up")
    assert code == 0
    assert sorted(text.split()[0] for text in document["changes"]) == ["Redfish", "mirror"]
    assert project.ssh(node01, BOOT_ID) == boot
    with bmc(project, node01) as controller:
        assert controller.observe() == "On"
    reboots_by_itself(project, node01)


def test_a_switch_that_died_comes_back_with_its_cables(project: Project, node01: str) -> None:
    podman("kill", f"rr-{clone_id(project.root)}-leaf01")
    assert project.run("sim", "up")[0] == 0
    assert {"swp1", "swp2", "swp3", "swp4"} <= set(leaf(project, "ls /sys/class/net").split())
    assert (
        len([name for name in project.ssh(node01, "ls /proc/sys/net/ipv4/conf").split() if name.startswith("enp")]) == 8
    )


def test_no_password_stands_in_a_process_list_or_a_log(project: Project, node01: str) -> None:
    del node01
    secrets = [path.read_text().strip() for path in (project.paths.base / "sim/secrets").iterdir()]
    seen = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    for path in (project.paths.base / "sim/logs").iterdir():
        seen += path.read_text()
    assert not [secret[:6] for secret in secrets if secret in seen]


def test_down_is_refused_while_a_deploy_holds_the_rack(project: Project) -> None:
    project.paths.lock.touch()
    with project.paths.lock.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        before = created(project)
        assert project.run("sim", "down")[0] == 2
        assert created(project) == before
    assert "Stop it (Ctrl-C), then run `rackready sim down` again." in project.progress()


def test_another_clone_comes_up_killed_or_not_and_goes_down_alone(
    project: Project, node01: str, tmp_path: Path
) -> None:
    """The second clone's `up` is killed at several moments; then it is made, and removed, beside the first."""
    if reason := cannot_run():
        pytest.skip(reason)
    boot, first, bridges = project.ssh(node01, BOOT_ID), created(project), interfaces(project)
    other = Project(tmp_path / "other")
    try:
        for seconds in (0.8, 1.6, 3.0):
            child = other.start("sim", "up")
            time.sleep(seconds)
            child.kill()
            child.communicate()
        code, _ = other.json("sim", "up")
        assert code == 0, other.progress()
        assert {path["subnet"] for path in map(_record, (project, other))} == {
            _record(project)["subnet"],
            _record(other)["subnet"],
        }
        assert _record(project)["subnet"] != _record(other)["subnet"]
        power_on(other, "node01")
        killed = other.start("sim", "down")
        time.sleep(0.7)
        killed.kill()
        killed.communicate()
    finally:
        assert other.run("sim", "down")[0] == 0
    assert created(other) == {}
    assert interfaces(other) == []
    assert clone_id(other.root) not in podman("images")
    assert {path.name for path in (other.root / ".rackready").iterdir()} <= {".gitignore", "tools", "sim.lock"}
    assert other.run("sim", "down")[0] == 0
    assert created(project) == first
    assert interfaces(project) == bridges
    assert project.ssh(node01, BOOT_ID) == boot


def _record(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.paths.base / "sim/rack.json").read_text())
    return found
