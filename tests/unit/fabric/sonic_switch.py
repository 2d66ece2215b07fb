"""A SONiC switch of one folder: the rack's own programs behind a session that runs their scripts with a real shell.

`systemd-run` and `systemctl` keep units in files; a timer ends when a test says so.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rackready.drivers.switch import sonic_scripts
from tests.unit.fabric import warm_programs

_SYSTEMD_RUN = """#!/bin/sh
for w; do case $w in --unit=*) unit=${w#--unit=};; --on-active=*) timer=${w#--on-active=};; --*) ;; *) break;; esac
shift; done
if [ -n "$timer" ]; then echo "$timer $*" >UNITS/$unit.timer; exit 0; fi
[ ! -e UNITS/$unit.killed ] || exit 1
exec "$@"
"""
_SYSTEMCTL = """#!/bin/sh
case $1 in reset-failed) exit 0;; restart) exec "$2.sh" start;; esac
shift
for u; do rm -f UNITS/$u; done
"""


class SonicSwitch:
    """One switch, and the scripts that it was sent."""

    def __init__(self, root: Path, ports: int = 64, **hardware: Any) -> None:
        self.root, self.sent, self.told = root, [], {}
        names = [f"Ethernet{8 * place}" for place in range(ports)]
        state = {
            "os": "sonic",
            "switch": "leaf01",
            "platform": {"mac": "48:b0:2d:00:00:01"},
            "ports": {name: {"rate_gbps": 800} for name in names},
            "gcu_pause_s": 0,
        }
        self._write("opt/hw/state.json", json.dumps(state | hardware))
        self._programs()
        self._sh("sonic-boot")

    sent: list[str]
    told: dict[str, tuple[int, str]]

    def run(self, command: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Run one command in a shell."""
        del timeout_s
        return self._sh(command)

    def feed(self, command: str, text: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Run a script as root."""
        del timeout_s
        assert command == "sudo -n sh -s"
        self.sent.append(text)
        return self._sh(text)

    def as_root(self, argv: Sequence[str], *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Docker and lldpcli: what ``told`` has for `show neighbors` and `show chassis`; the rest runs."""
        del timeout_s
        self.sent.append(" ".join(argv))
        if "bgp" in argv:
            return self._sh(shlex.join(argv))
        return self.told.get(argv[-2], (1, "Error response from daemon: container lldp is not running\n"))

    def close(self) -> None:
        """Nothing to end."""

    def config(self) -> dict[str, Any]:
        """Return CONFIG_DB."""
        found: dict[str, Any] = json.loads((self.root / "run/sonic/config_db.json").read_text())
        return found

    def saved(self) -> dict[str, Any]:
        """Return the configuration of the next boot."""
        found: dict[str, Any] = json.loads((self.root / "etc/sonic/config_db.json").read_text())
        return found

    def put(self, change: dict[str, dict[str, dict[str, str]]], *, save: bool = False) -> None:
        """Change CONFIG_DB as an operator would."""
        config = self.config()
        for table, entries in change.items():
            config.setdefault(table, {}).update(entries)
        for path in ["run/sonic/config_db.json", *(["etc/sonic/config_db.json"] if save else [])]:
            (self.root / path).write_text(json.dumps(config))

    def hardware(self, **changes: Any) -> None:
        """Change the hardware."""
        path = self.root / "opt/hw/state.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    def timers(self) -> list[int]:
        """Return the seconds of every timer that is set."""
        return [int(path.read_text().split()[0]) for path in (self.root / "units").glob("*.timer")]

    def expire(self) -> None:
        """Let every timer end."""
        for path in (self.root / "units").glob("*.timer"):
            _, command = path.read_text().split(" ", 1)
            path.unlink()
            assert self._shell(command)[0] == 0

    def boot(self) -> None:
        """Power the switch off and on: /run and the units are gone."""
        for path in [
            *self.root.glob("run/rackready/*"),
            *self.root.glob("units/*"),
            *self.root.glob("run/sonic/*.json"),
        ]:
            path.unlink()
        self._sh("sonic-boot")

    def _sh(self, script: str) -> tuple[int, str]:
        place = str(self.root)
        return self._shell(
            script.replace("/run/rackready", f"{place}/run/rackready").replace("/etc/sonic", f"{place}/etc/sonic")
        )

    def _shell(self, text: str) -> tuple[int, str]:
        done = subprocess.run(
            ["sh", "-s"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={"PATH": f"{self.root}/bin:/usr/bin:/bin", "SUDO_USER": "admin"},
        )
        return done.returncode, done.stdout + done.stderr

    def _programs(self) -> None:
        (self.root / "units").mkdir()
        for name, function in (
            ("config", "config"),
            ("pfcwd", "pfcwd"),
            ("sonic-cfggen", "cfggen"),
            ("sonic-db-cli", "db_cli"),
            ("sonic-boot", "boot"),
            ("bgp.sh", "bgp"),
            ("docker", "docker"),
        ):
            self._write(f"bin/{name}", warm_programs.program(self.root, function))
        self._write("bin/systemd-run", _SYSTEMD_RUN.replace("UNITS", str(self.root / "units")))
        self._write("bin/systemctl", _SYSTEMCTL.replace("UNITS", str(self.root / "units")))

    def _write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o755)
        assert os.access(target, os.R_OK)


assert sonic_scripts.FOLDER == "/run/rackready"
