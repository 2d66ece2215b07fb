"""Daemons that systemd starts: the capabilities of their units, and a user who is not root."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from rackready.drivers.boot_service import (
    BootService,
    BootServiceError,
    checks,
    daemons,
    programs,
    systemd,
)
from tests.unit.boot_service import dhcp_client as dhcp
from tests.unit.boot_service.made import armed, settings
from tests.unit.boot_service.nets import joined
from tests.unit.boot_service.scene import MAC, NEEDS, Scene, answer

pytestmark = NEEDS


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv of util-linux")
def test_the_capabilities_of_their_units_are_enough_for_roots_daemons(tmp_path: Path) -> None:
    """As systemd starts them, in a checkout below another user's home."""
    home = tmp_path / "home"
    home.mkdir()
    scene = Scene(home)
    try:
        scene.here.run(scene.service.stop)
        os.chown(home, 65534, 65534)
        home.chmod(0o700)
        for unit in sorted(scene.service.layout.units.glob("*.service"), reverse=True):
            ended = scene.here.run(partial(started_as_by_systemd, unit))
            assert (unit.name, ended.returncode, ended.stderr) == (unit.name, 0, "")
        assert scene.service.running()
        scene.arm(armed("node01", MAC))
        assert answer(scene.ask(dhcp.PXE)).file == "shimx64.efi"
        assert scene.tftp("shimx64.efi")
        assert scene.web("http://10.9.0.1:8080/boot/ca.pem")[0] == 200
        assert "failed" not in (scene.service.layout.logs / "nginx-error.log").read_text()
    finally:
        scene.close()


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv of util-linux")
def test_another_user_than_root_goes_on_once_root_has_started_the_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    units, layout, asked = tmp_path / "units", scene.service.layout, []
    units.mkdir()
    names = [programs.unit_name(layout, program) for program in programs.both(layout)]

    def say(*words: str) -> str:
        asked.append(" ".join(words[:-1]))
        return (layout.run / f"{words[-1].split('-')[-1].removesuffix('.service')}.pid").read_text()

    def root_restarts() -> None:
        for program in programs.both(layout):
            daemons.stop(program, layout)
        for name in names:
            shutil.copy(layout.units / name, units)
            assert scene.here.run(partial(started_as_by_systemd, units / name)).returncode == 0

    try:
        scene.here.run(scene.service.stop)
        for name, value in (("RUNNING", tmp_path), ("UNIT_FOLDER", units), ("_systemctl", say)):
            monkeypatch.setattr(systemd, name, value)
        monkeypatch.setattr(checks, "dhcp_servers", lambda _interface: [])
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        for changes in ({}, {"dns": ["10.9.0.53"]}):
            service = BootService(layout.root, settings(supervise="systemd", **changes))
            with pytest.raises(BootServiceError) as caught:
                scene.here.run(service.start)
            assert str(caught.value) == (
                "boot service: units of systemd - Expected: root, who may install them Actual: user id 1000. Run as "
                f"root `cp {layout.units}/*.service {units}/ && systemctl daemon-reload && systemctl enable "
                f"{' '.join(names)} && systemctl restart {' '.join(names)}`, then run the same command again."
            )
            root_restarts()
            assert scene.here.run(service.start) == []
            assert all(daemons.current(program, layout) for program in programs.both(layout))
            asked.clear()
            assert (scene.here.run(service.start), asked) == ([], [])
        tested: list[str] = []
        monkeypatch.setattr(programs.Program, "refusal", lambda self: tested.append(self.name) or [])
        with pytest.raises(BootServiceError, match="units of systemd"):
            scene.here.run(BootService(layout.root, settings(supervise="systemd", http_port=80)).start)
        assert tested == ["dnsmasq"], "nginx's own test opens port 80"
        with pytest.raises(BootServiceError, match=r"systemctl disable --now .* && rm .* && systemctl daemon-reload`"):
            scene.here.run(service.stop)
    finally:
        for name in names:
            (units / name).unlink(missing_ok=True)
        scene.close()


def test_daemons_that_systemd_does_not_run_are_not_its_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    try:
        monkeypatch.setattr(systemd, "RUNNING", tmp_path)
        monkeypatch.setattr(systemd, "UNIT_FOLDER", scene.service.layout.units)
        monkeypatch.setattr(systemd, "_systemctl", lambda *_: "0\n")
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        assert not systemd.started_by_hand(scene.service.layout)
    finally:
        monkeypatch.undo()
        scene.close()


@pytest.mark.parametrize(
    ("supervise", "said"),
    [
        ("systemd", []),
        (
            "rackready",
            [
                f"boot service: {port} - Expected: we may open it Actual: Permission denied. Start the service as "
                "root, or let systemd do it (provisioning.service.supervise)."
                for port in ("TCP port 80", "UDP port 67", "UDP port 69")
            ],
        ),
    ],
)
def test_ports_that_only_root_may_open_are_no_obstacle_to_systemd(supervise: str, said: list[str]) -> None:
    here, there = joined("boot0", "nic0", MAC)
    here.ip("address add 10.9.0.1/24 dev boot0")
    own = settings(supervise=supervise, http_port=80)

    def found() -> list[str]:
        os.seteuid(65534)
        try:
            return [str(item) for item in checks.port_problems(own, dhcp=True, http=True)]
        finally:
            os.seteuid(0)

    try:
        assert here.run(found) == said
    finally:
        here.close()
        there.close()


def started_as_by_systemd(unit: Path) -> subprocess.CompletedProcess[str]:
    """Run a unit's test and start with its capabilities alone."""
    rows = [line.partition("=") for line in unit.read_text().splitlines()]
    names = next(value for key, _, value in rows if key == "CapabilityBoundingSet").lower()
    kept = ",".join(f"+{name.removeprefix('cap_')}" for name in names.split())
    words = ["setpriv", f"--bounding-set=-all,{kept}", "--inh-caps=-all", "--no-new-privs", "--"]
    for command in [value for key, _, value in rows if key in {"ExecStartPre", "ExecStart"}]:
        ended = subprocess.run([*words, *command.split()], capture_output=True, text=True, check=False, timeout=30)
        if ended.returncode != 0:
            break
    return ended
