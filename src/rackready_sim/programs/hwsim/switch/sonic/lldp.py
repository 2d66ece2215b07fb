"""SONiC's container `lldp`: `docker exec` into it, and its manager that names the ports of the real lldpd.

Source: sonic-buildimage @086b03bd70 dockers/docker-lldp: lldpmgrd, lldpd.conf.j2, supervisord.conf.common.j2. The
switch has no containers: lldpd runs beside the shell, with the container's arguments and configuration.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from ... import paths
from . import bgp, db

_PROGRAM = "/usr/sbin/lldpcli"
"""In the container. On the host, `lldpcli` is a script that calls `docker exec`."""
_PERIOD_S = 1.0
_AGAIN_S = 6.0
_RETRIES = 5
"""FAILED_CMD_TIMEOUT and RETRY_LIMIT of lldpmgrd."""
Command = tuple[str, ...]


def docker(argv: list[str]) -> int:
    """Run `docker exec [-i] [-t] lldp lldpcli ...` or `... bgp vtysh ...`: texts and exit codes of Docker's client."""
    if os.geteuid():
        sys.stderr.write("permission denied while trying to connect to the Docker daemon socket\n")
        return 1
    words = argv[1:]
    while words and words[0].startswith("-"):
        words = words[1:]
    if argv[:1] != ["exec"] or len(words) < 2:  # noqa: PLR2004 - container, program
        sys.stderr.write('"docker exec" requires at least 2 arguments.\n')
        return 1
    if words[0] not in _CONTAINERS:
        sys.stderr.write(f"Error response from daemon: No such container: {words[0]}\n")
        return 1
    return _CONTAINERS[words[0]](words[1:])


def container(words: list[str]) -> int:
    """Run a program in the container `lldp`."""
    if subprocess.run(["systemctl", "is-active", "--quiet", "lldpd.service"], check=False).returncode:
        sys.stderr.write("Error response from daemon: container lldp is not running\n")
        return 1
    if words[0] != "lldpcli":
        sys.stderr.write(f'OCI runtime exec failed: exec: "{words[0]}": executable file not found in $PATH: unknown\n')
        return 127
    return subprocess.run([_PROGRAM, *words[1:]], check=False).returncode


_CONTAINERS: dict[str, Callable[[list[str]], int]] = {"bgp": bgp.container, "lldp": container}


def manager(_argv: list[str]) -> int:
    """Name every port of lldpd as it comes up, until stopped; end where lldpd does not take `resume`, as lldpmgrd."""
    names = Manager()
    names.step(time.monotonic())
    if subprocess.run([_PROGRAM, "resume"], check=False, capture_output=True).returncode:
        return 1
    while True:
        names.step(time.monotonic())
        time.sleep(_PERIOD_S)


class Manager:
    """What lldpmgrd has told lldpd: port -> its index in the kernel and the command. A port that went is forgotten."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, Command]] = {}
        self._failed: dict[str, tuple[int, float]] = {}

    def step(self, now: float) -> None:
        """Tell lldpd of ports that came up, or whose alias or description changed."""
        for port, fields in db.read().get("PORT", {}).items():
            if _fact(port, "operstate") != "up":
                self._told.pop(port, None)
                self._failed.pop(port, None)
                continue
            wanted = (_fact(port, "ifindex"), command(port, fields))
            count, last = self._failed.get(port, (0, now - _AGAIN_S))
            if self._told.get(port) == wanted or count > _RETRIES or now - last < _AGAIN_S:
                continue
            if _knows(port) and not subprocess.run(wanted[1], check=False, capture_output=True).returncode:
                self._told[port] = wanted
            else:
                self._failed[port] = (count + 1, now)


def _knows(port: str) -> bool:
    """Whether lldpd has a port. Debian's lldpcli succeeds without it; SONiC's fails (src/lldpd/patch/0001)."""
    argv = [_PROGRAM, "-f", "keyvalue", "show", "interfaces", "ports", port, "summary"]
    return f"lldp.{port}." in subprocess.run(argv, check=False, capture_output=True, text=True).stdout


def command(port: str, fields: dict[str, Any]) -> Command:
    """Return the command that names a port by its alias (generate_pending_lldp_config_cmd_for_port)."""
    words = (_PROGRAM, "configure", "ports", port, "lldp", "portidsubtype", "local", str(fields.get("alias") or port))
    return (*words, "description", str(fields["description"])) if fields.get("description") else words


def _fact(port: str, name: str) -> str:
    try:
        return paths.at(f"/sys/class/net/{port}/{name}").read_text().strip()
    except OSError:  # not plugged in
        return ""
