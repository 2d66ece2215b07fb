"""Time of a node: the servers of the site in the system's own time service, which runs now and at every boot.

chrony: files and units of Debian's and Ubuntu's package (/etc/chrony/chrony.conf, chrony.service) and of RHEL 9's
(/etc/chrony.conf, chronyd.service); directives of chrony.conf(5) 4.2 and later. RHEL's file reads no folder for
further settings, so the file itself is edited. systemd-timesyncd, where chrony is not installed: timesyncd.conf(5).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import time_sources
from .command import NodeProblem, Run, run
from .difference import Difference
from .file_state import digest, state
from .unit_start import started_before
from .whole_file import replace_file

CHRONY = {"/etc/chrony/chrony.conf": "chrony.service", "/etc/chrony.conf": "chronyd.service"}
"""Settings of chrony to the unit that reads them."""
TIMESYNCD = "usr/lib/systemd/systemd-timesyncd"
DROP_IN = "/etc/systemd/timesyncd.conf.d/90-rackready.conf"
_UNIT = "systemd-timesyncd.service"
_OFF = "#rackready: "
"""Begins a line of the system that the site's servers replace; it comes back when the site declares none."""
_SOURCE = re.compile(r"\s*(server|pool|peer)\s", re.IGNORECASE)
_BEGIN, _END = "# Begin of rackready (role base): base_ntp_servers", "# End of rackready"
_POLL_S = 1.0


@dataclass(frozen=True)
class Service:
    """A time service: its unit, the file with its servers, and that file's wanted text (None: no file)."""

    unit: str
    path: str
    wanted: str | None


@dataclass
class TimeSync:
    """Time service of one node. ``root`` is the start of its file system; ``sleep`` waits (tests)."""

    run: Run = run
    root: Path = Path("/")
    wait_s: float = 60.0
    """Longest wait for the first answers of the servers; chronyd with iburst needs a few seconds."""
    sleep: Callable[[float], None] = time.sleep
    notes: list[str] = field(default_factory=list)
    diff: list[dict[str, str]] = field(default_factory=list)

    def ensure(self, servers: Sequence[str], *, check: bool = False) -> list[Difference]:
        """Give the service the servers, keep it running, and prove that the clock follows one of them.

        Return what differed. Without servers, the system's own stay, and a clock that follows none is a note. Raises
        NodeProblem.
        """
        service = self._service(servers)
        if service is None:
            return self._without(servers, check=check)
        found = self.differences(service)
        if found and not check:
            self._change(service, found)
        if check and found:
            return found
        self._prove(service, servers)
        return found

    def differences(self, service: Service) -> list[Difference]:
        """Return what is not as wanted: the file, and the unit."""
        place, found = self._at(service.path), []
        before = _read(place)
        if before != service.wanted:
            wanted = service.wanted
            expected = "absent" if wanted is None else digest(wanted.encode("utf-8", "surrogateescape"))
            found.append(Difference("file", service.path, expected, state(place)))
            headers = dict.fromkeys(("before_header", "after_header"), service.path)
            self.diff = [headers | {"before": _shown(before), "after": _shown(wanted)}]
        for verb, good, bad in (("is-enabled", "enabled", "disabled"), ("is-active", "active", "inactive")):
            if self.run(["systemctl", verb, "--quiet", service.unit]).returncode != 0:
                found.append(Difference("unit", service.unit, good, bad))
        if self._outdated(service):
            found.append(
                Difference("unit", service.unit, f"started after a change of {service.path}", "started before")
            )
        return found

    def _outdated(self, service: Service) -> bool:
        """Return whether the service started before its settings were written, as after a run that was killed."""
        place = self._at(service.path)
        # a removed drop-in is a change of its folder
        return started_before(self.run, service.unit, place if place.exists() else place.parent)

    def _service(self, servers: Sequence[str]) -> Service | None:
        for path, unit in CHRONY.items():
            found = _read(self._at(path))
            if found is not None:
                return Service(unit, path, chrony_text(found, servers))
        if (self.root / TIMESYNCD).exists():
            ours = f"# Written by rackready (role base): base_ntp_servers.\n[Time]\nNTP={' '.join(servers)}\n"
            return Service(_UNIT, DROP_IN, ours if servers else None)
        return None

    def _without(self, servers: Sequence[str], *, check: bool) -> list[Difference]:
        if servers and not check:
            step = "Keep chrony in base_packages, then run again."
            raise NodeProblem("chrony or systemd-timesyncd, which follows base_ntp_servers", "none of both", step)
        self.notes.append("no time service on the node: neither chrony nor systemd-timesyncd")
        return []

    def _change(self, service: Service, found: Sequence[Difference]) -> None:
        place, written = self._at(service.path), any(item.kind == "file" for item in found)
        restart = written or self._outdated(service)
        if written and service.wanted is None:
            place.unlink()
        elif written:
            place.parent.mkdir(parents=True, exist_ok=True)
            mode = place.stat().st_mode & 0o7777 if place.exists() else 0o644
            replace_file(place, service.wanted or "", mode=mode)
        self._do(["systemctl", "enable", service.unit])
        self._do(["systemctl", "restart" if restart else "start", service.unit])

    def _prove(self, service: Service, servers: Sequence[str]) -> None:
        waited = 0.0
        while actual := self._not_synchronised(service, servers):
            if not servers:
                self.notes.append(f"the clock follows no time server: {actual}; base_ntp_servers declares the site's")
                return
            if waited >= self.wait_s:
                step = (
                    "Check on the node that they answer (`chronyc -n sources`, `timedatectl timesync-status`) "
                    "and that UDP port 123 is open."
                )
                expected = f"a clock that follows one of {', '.join(servers)} within {self.wait_s:.0f} s"
                raise NodeProblem(expected, actual, step)
            self.sleep(_POLL_S)
            waited += _POLL_S

    def _not_synchronised(self, service: Service, servers: Sequence[str]) -> str:
        ask = time_sources.timesyncd if service.unit == _UNIT else time_sources.chrony
        return ask(self.run, servers)

    def _do(self, argv: list[str]) -> None:
        done = self.run(argv)
        if done.returncode != 0:
            said = (done.out.strip().splitlines() or ["no output"])[-1]
            step = f"Run `systemctl status {argv[-1]}` on the node: it shows why."
            raise NodeProblem(f"`{' '.join(argv)}` succeeds", f"exit {done.returncode}: {said}", step)

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")


def chrony_text(before: str, servers: Sequence[str]) -> str:
    """Return chrony's settings with these servers in place of the system's; without servers, with the system's again.

    Sources from DHCP and from folders (sourcedir) stay: the network or the site put them there. A begin mark without
    an end mark is no block: what follows it may be the site's.
    """
    rows = re.findall(r"[^\n]*\n|[^\n]+", before)
    ours = _block([row.rstrip("\r\n") for row in rows])
    kept = [row.removeprefix(_OFF) for index, row in enumerate(rows) if index not in ours]
    if not servers:
        return "".join(kept)
    text = "".join(f"{_OFF}{row}" if _SOURCE.match(row) else row for row in kept)
    end = "" if not text or text.endswith("\n") else "\n"
    return text + end + "".join(f"{row}\n" for row in [_BEGIN, *(f"server {name} iburst" for name in servers), _END])


def _block(rows: Sequence[str]) -> set[int]:
    """Return the indices of the rows from a begin mark to the end mark that follows it."""
    found: set[int] = set()
    begin = len(rows)
    for index, row in enumerate(rows):
        if row == _BEGIN:
            begin = index
        elif row == _END:
            found |= set(range(begin, index + 1))
            begin = len(rows)
    return found


def _read(path: Path) -> str | None:
    """Return the text of a file, in which other bytes than UTF-8 keep their place; None when there is no file."""
    return path.read_bytes().decode("utf-8", "surrogateescape") if path.exists() else None


def _shown(text: str | None) -> str:
    return (text or "").encode("utf-8", "surrogateescape").decode("utf-8", "replace")
