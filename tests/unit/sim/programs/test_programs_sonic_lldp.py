"""SONiC's container with lldpd: who may enter it, and how its manager names ports (dockers/docker-lldp/lldpmgrd)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rackready.design.site import load_site
from rackready_sim.hardware import build_switch_state
from rackready_sim.programs import build
from rackready_sim.programs.hwsim import paths
from rackready_sim.programs.hwsim.switch.sonic import db, lldp

READ = ["exec", "lldp", "lldpcli", "-f", "json0", "show", "neighbors", "details"]


class Machine:
    """What was run below a temporary root.

    ``codes``: exit codes by a part of the command; ``unknown``: ports that lldpd does not have.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ran: list[list[str]] = []
        self.codes: dict[str, int] = {}
        self.unknown: set[str] = set()

    def run(self, argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        line = " ".join(argv)
        if "show interfaces ports" in line:
            port = argv[-2]
            return subprocess.CompletedProcess(argv, 0, "" if port in self.unknown else f"lldp.{port}.status=RX and TX")
        self.ran.append(list(argv))
        return subprocess.CompletedProcess(argv, next((c for text, c in self.codes.items() if text in line), 0))

    def port(self, name: str, operstate: str = "up", index: int = 7) -> None:
        folder = self.root / f"sys/class/net/{name}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "operstate").write_text(f"{operstate}\n")
        (folder / "ifindex").write_text(f"{index}\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    (tmp_path / "opt/hw").mkdir(parents=True)
    (tmp_path / "opt/hw/state.json").write_text(json.dumps(build_switch_state(load_site("sim-sonic"), "leaf01")))
    db.boot()
    made = Machine(tmp_path)
    monkeypatch.setattr(lldp.subprocess, "run", made.run)
    monkeypatch.setattr(lldp.os, "geteuid", lambda: 0)
    return made


def test_the_container_answers_with_lldpcli(machine: Machine) -> None:
    assert lldp.docker(READ) == 0
    assert lldp.docker(["exec", "-i", *READ[1:]]) == 0
    assert machine.ran[-1] == ["/usr/sbin/lldpcli", "-f", "json0", "show", "neighbors", "details"]


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["exec", "snmp", "vtysh"], 1, "No such container: snmp"),
        (["exec", "lldp", "bash"], 127, "executable file not found"),
        (["ps"], 1, "requires at least 2 arguments"),
    ],
)
def test_what_docker_refuses(
    machine: Machine, capsys: pytest.CaptureFixture[str], argv: list[str], code: int, said: str
) -> None:
    assert lldp.docker(argv) == code
    assert said in capsys.readouterr().err
    assert not any("lldpcli" in words for words in machine.ran)


def test_a_stopped_container_answers_nothing(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.codes["is-active"] = 3
    assert lldp.docker(READ) == 1
    assert "container lldp is not running" in capsys.readouterr().err


def test_only_root_may_enter(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lldp.os, "geteuid", lambda: 1000)
    assert (lldp.docker(READ), machine.ran) == (1, [])


def named(machine: Machine) -> list[str]:
    said = [" ".join(words[1:]) for words in machine.ran]
    machine.ran.clear()
    return said


def test_a_port_is_named_when_it_comes_up_and_again_when_it_returns(machine: Machine) -> None:
    names = lldp.Manager()
    machine.port("Ethernet0", "down")
    names.step(0)
    assert named(machine) == []
    machine.port("Ethernet0")
    names.step(1)
    names.step(2)
    assert named(machine) == ["configure ports Ethernet0 lldp portidsubtype local etp1"]
    machine.port("Ethernet0", "down")
    names.step(3)
    machine.port("Ethernet0")
    names.step(4)
    assert named(machine) == ["configure ports Ethernet0 lldp portidsubtype local etp1"]
    machine.port("Ethernet0", index=9)
    names.step(5)
    assert named(machine) == ["configure ports Ethernet0 lldp portidsubtype local etp1"], "another cable: a new port"


def test_a_description_is_sent_along(machine: Machine) -> None:
    names = lldp.Manager()
    machine.port("Ethernet8")
    names.step(0)
    with db.change() as config:
        config["PORT"]["Ethernet8"]["description"] = "node01 rail 2"
    names.step(1)
    assert named(machine)[-1] == "configure ports Ethernet8 lldp portidsubtype local etp2 description node01 rail 2"


def test_a_port_that_lldpd_has_not_seen_yet_is_named_later(machine: Machine) -> None:
    machine.unknown = {"Ethernet0"}
    machine.port("Ethernet0")
    names = lldp.Manager()
    names.step(0)
    machine.unknown = set()
    names.step(3)
    assert named(machine) == []
    names.step(6)
    assert named(machine) == ["configure ports Ethernet0 lldp portidsubtype local etp1"]


def test_a_failed_command_is_tried_six_times(machine: Machine) -> None:
    machine.codes["configure"] = 1
    machine.port("Ethernet0")
    names = lldp.Manager()
    for second in range(100):
        names.step(second)
    assert len(named(machine)) == 6


@pytest.mark.parametrize(
    ("os", "path", "line"),
    [
        ("sonic", "etc/lldpd.conf", "configure system hostname leaf01"),
        ("sonic", "etc/default/lldpd", 'DAEMON_ARGS="-I Ethernet[0-9]*,eth0 -C eth0"'),
        ("cumulus_nvue", "etc/lldpd.d/port_info.conf", "configure lldp portidsubtype ifname"),
    ],
)
def test_a_switch_gets_the_lldpd_of_its_system(tmp_path: Path, os: str, path: str, line: str) -> None:
    build.install_lldp(tmp_path, os, "leaf01")
    assert line in (tmp_path / path).read_text().splitlines()
    assert (tmp_path / path).stat().st_mode & 0o777 == 0o644, "lldpcli reads it as _lldpd"
    wanted = tmp_path / "usr/lib/systemd/system/lldpd.service.wants/lldpmgrd.service"
    assert wanted.is_symlink() == (os == "sonic")
