"""Writes a node's operating system: arms the boot service, boots the node from the network once, follows its reports.

The ledger's entry ``image`` begins before the first change and ends when the installed system shows the plan's digest.
A later run reads entry, reports and power state and goes on from there; it never begins a second installation.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from rackready import files
from rackready.design.imaging import for_run
from rackready.drivers.boot_service import ArmedNode, BootService, Report, Reports
from rackready.drivers.hostkey_accept import HOST_KEY
from rackready.drivers.redfish import Bmc, BootTarget
from rackready.drivers.ssh.command import Shell
from rackready.drivers.ssh.errors import CHECK_HOST, SshLostError, SshTimeoutError
from rackready.drivers.ssh.pins import fingerprint, pin, pinned
from rackready.drivers.ssh.session import connect
from rackready.drivers.ssh.target import SshTarget
from rackready.ledger.rows import LedgerEntry
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from rackready.stacks.args import ImagingArgs, NodeArgs
from rackready.stacks.boot_jobs import ImagingJob, load_plan, read_job, saved_plan
from rackready.stacks.imaging_words import held, progress_words, refusal, silence
from rackready.stacks.installations import IMAGE, eject, end, installations, installed_by
from rackready.stacks.power import Power, made_by_us

IMAGED = "/var/lib/rackready/imaged.json"
"""File of the installed system that names the plan by which it was written."""
_POLL_S = 2.0
_POWER_S = 15.0
"""Seconds between two looks at the power state: reports come without the BMC, which is spared."""
_OFF_S = 60.0
"""Seconds for the ramdisk to power the machine off after a refusal."""
_BOOT_S = 1800.0
"""Longest time from power-on to the ramdisk's first report, s. Our choice: large servers test memory for 15 minutes."""
_SILENT_S = 900.0
"""Longest time between two reports, s. Our choice: a slow disk is checked for as long."""
_POWER_ONS = 3
"""Power-ons in one run before a machine that goes off by itself is given up."""
_SETTLE_S = 900.0
"""Longest time for cloud-init to end at the first boot, s: our choice."""
_TRIES, _TRY_S = 12, 5.0
"""Logins while sshd is restarted, and seconds between them."""
SHOW = (
    f"! command -v cloud-init >/dev/null || timeout {_SETTLE_S:.0f} cloud-init status --wait >/dev/null; cat {IMAGED}"
)
"""Command that waits for cloud-init and then shows the plan."""


ERASE_VARIABLE = "RACKREADY_ERASE"
"""Environment variable that passes the nodes of ``--erase`` to the provider, comma-separated."""


class ImagingError(RackreadyError):
    """An operating system was not installed."""


class Server(Protocol):
    """What is used of the boot service."""

    def arm(self, node: ArmedNode) -> str:
        """Answer a node from now on; the same plan again changes nothing."""

    def disarm(self, node: str) -> bool:
        """Answer a node no more."""

    def medium(self, node: str) -> str:
        """Build its boot medium and return the URL."""

    def media(self, node: str) -> str:
        """Return the URL of the folder of its boot medium."""

    def reports(self, node: str, digest: str = "") -> Reports:
        """Return its reports, oldest first."""


def ready_service(state: Path, job: ImagingJob) -> BootService:
    """Return the boot service with the job's files in place and its daemons running. Raises RackreadyError."""
    service = BootService(state / "boot", job.service)
    service.prepare(job.ramdisk, job.kernel)
    service.publish_image(job.image, str(job.plan["image"]["sha256"]))
    service.start()
    return service


class Imaging:
    """The installation of one node. ``consent``: campaign that may erase it, "" without `--erase`."""

    def __init__(  # noqa: PLR0913 - a node, its records and its callbacks
        self,
        args: NodeArgs,
        what: ImagingArgs,
        ledger: Ledger,
        state: Path,
        *,
        consent: str,
        proceed: Callable[[], None],
        say: Callable[[str], None],
        serve: Callable[[Path, ImagingJob], Server] = ready_service,
    ) -> None:
        self._args, self._what, self._ledger, self._state = args, what, ledger, state
        self._consent = consent
        self._proceed, self._say = proceed, say
        self._serve = serve
        self._power = Power(args, ledger, proceed=proceed, say=say)
        self._told: set[str] = set()
        self.powered = False
        """Whether the machine may be on because of an installation that has not ended."""

    def write(self, target: SshTarget, *, made: bool) -> bool:
        """Have the operating system written where that is due; return whether the machine was booted by us for it.

        A machine that is on and not ours, or that was imaged before, is left as it is. Raises RackreadyError.
        """
        entry = self._due(made=made)
        if entry is None:
            return bool(self._entries("done")) and made_by_us(self._ledger, self._args.node)
        plan = load_plan(self._state, self._args.node, entry.desired)
        job = read_job(self._state, self._args.node, self._what.digest)
        service = self._serve(self._state, job)
        self._power.prepare()
        self._follow(entry, plan, job, service)
        eject(self._args, job, service, proceed=self._proceed, say=self._say)
        service.disarm(self._args.node)
        self._pin(target, job.host_key)
        self.powered = True
        self._say("image written, the node starts from its disk")
        return True

    def confirm(self, target: SshTarget) -> None:
        """Compare the plan that the running system names with the one that was written, and record the end.

        Raises ImagingError when it was installed by another plan, or by none.
        """
        begun, done = self._entries("intent"), self._entries("done")
        if not begun and not done:
            return
        entry = (begun or done)[-1]
        shown = _digest_shown(target)
        if shown != entry.desired:
            raise ImagingError(
                target.where,
                "the running system is not the one that was written",
                expected=f"plan {entry.desired[:8]} in {IMAGED}",
                actual=f"plan {shown[:8]}" if shown else "none",
                next_step=self._erase_step("If it booted from another disk, correct its boot order"),
            )
        if begun:
            self._ledger.done(entry.token, {"host_key": fingerprint(pinned(target.known_hosts, target.host))})
            saved_plan(self._state, self._args.node, entry.desired).unlink(missing_ok=True)

    # whether -----------------------------------------------------------------------------------------------------

    def _entries(self, status: str) -> list[LedgerEntry]:
        return installations(self._ledger, self._args.node, status)

    def _due(self, *, made: bool) -> LedgerEntry | None:
        """Return the installation to carry out: one that was begun, a first one, or one that the operator asked for."""
        begun, done = self._entries("intent"), self._entries("done")
        anew = bool(self._consent) and not installed_by(self._ledger, self._args.node, self._consent)
        if begun and not (anew and begun[-1].observed.get("run") != self._consent):
            self.powered = made or made_by_us(self._ledger, self._args.node)
            self._require_consent(begun[-1])
            self._say("continues the installation that an earlier run started")
            return begun[-1]
        if not anew:
            return self._first(done)
        self._make_off(made=made)
        for entry in begun:
            end(self._ledger, self._state, entry, "started again with --erase")
        return self._begin(self._consent)

    def _require_consent(self, entry: LedgerEntry) -> None:
        """Refuse to continue an installation whose consent to erase ended with a repair. Raises ImagingError.

        One whose last report is "done" has nothing left to erase: only its end is to be recorded.
        """
        run = entry.observed.get("run")
        if not run or run == self._consent or entry.epoch == self._ledger.epoch(self._args.node):
            return
        job = read_job(self._state, self._args.node)
        service = BootService(self._state / "boot", job.service)
        news = self._news(entry, service)
        if news is not None and news.step == "done":
            return
        service.disarm(self._args.node)
        eject(self._args, job, service, proceed=self._proceed, say=self._say)
        raise ImagingError(
            self._args.node,
            "its installation with --erase was cut off before a repair",
            expected="--erase in this run",
            actual=f"--erase in campaign {run} only",
            next_step=f"Its disks may be half written: `{self._erase_command()}` erases them and images it again.",
        )

    def _first(self, done: list[LedgerEntry]) -> LedgerEntry | None:
        if done:
            if done[-1].observed.get("content") != self._what.digest:
                self._say(
                    f"was imaged by plan {done[-1].desired[:8]}, and the site file has changed since: it stays as it is"
                )
            return None
        with Bmc(self._args.node, self._args.bmc) as bmc:
            power = bmc.require(self._args.serial, self._args.serial_kind or "any").power
        if power != "Off":
            self._say("was not imaged by rackready and is on: it stays as it is")
            return None
        return self._begin("")

    def _make_off(self, *, made: bool) -> None:
        """Power off a machine of ours that is to be installed again. Raises ImagingError for somebody else's."""
        node = self._args.node
        with Bmc(node, self._args.bmc) as bmc:
            power = bmc.require(self._args.serial, self._args.serial_kind or "any").power
            if power == "Off":
                return
            if not (made or made_by_us(self._ledger, node)):
                raise ImagingError(
                    node,
                    "--erase",
                    expected="powered off, or powered on by rackready",
                    actual=f"power {power}, and rackready did not power it on",
                    next_step="If nobody uses it, power it off, then run again.",
                )
            self._say("is powered off, to be erased and imaged again")
            self._power.off(bmc)

    def _begin(self, run: str) -> LedgerEntry:
        """Record an installation, with its plan in a file, before anything is done."""
        job = read_job(self._state, self._args.node, self._what.digest)
        plan = for_run(job.plan, run=run, erase=bool(run))
        digest = str(plan["digest"])
        files.replace(saved_plan(self._state, self._args.node, digest), json.dumps(plan).encode())
        service = BootService(self._state / "boot", job.service)
        earlier = {report.boot for report in service.reports(self._args.node, digest).reports}
        observed = {"run": run, "content": job.digest, "earlier": sorted(earlier), "image": self._what.image}
        return self._ledger.begin(self._args.node, IMAGE, digest, observed)

    # how ---------------------------------------------------------------------------------------------------------

    def _follow(self, entry: LedgerEntry, plan: dict[str, Any], job: ImagingJob, service: Server) -> None:
        """Bring the machine to its ramdisk, and follow the reports until it is done. Raises ImagingError."""
        begun = heard = time.monotonic()
        looked, power_ons, armed, medium = float("-inf"), 0, False, ""
        last: Report | None = None
        while True:
            self._proceed()
            news = self._news(entry, service)
            if news is not None and news != last:
                last, heard = news, time.monotonic()
            if last is not None and last.step == "done":
                return
            if last is not None and last.step in {"refused", "failed"}:
                self._over(entry, last, job, service)
            if not armed:
                service.arm(ArmedNode(name=job.node, mac=job.mac, address=job.address, plan=plan))
                self._say(f"boot service armed: {job.words}")
                medium = service.medium(job.node) if job.boot is BootTarget.CD else ""
                armed = True
            if time.monotonic() - looked >= _POWER_S:
                looked = time.monotonic()
                if self._bring_on(entry, job, service, medium):
                    power_ons, heard = power_ons + 1, time.monotonic()
                    self._not_often(power_ons, last)
            self._not_stuck(job, last, time.monotonic() - heard, time.monotonic() - begun)
            time.sleep(_POLL_S)

    def _news(self, entry: LedgerEntry, service: Server) -> Report | None:
        """Report what is new from the ramdisk, and return its newest report."""
        found = service.reports(self._args.node, entry.desired)
        for line in map(str, found.strange):
            self._tell(line)
        reports = [report for report in found.reports if report.boot not in entry.observed["earlier"]]
        for report in reports:
            self._tell(progress_words(report), key=f"{report.boot} {report.step} {(report.percent or 0) // 10}")
        return reports[-1] if reports else None

    def _tell(self, line: str, key: str = "") -> None:
        if (key or line) not in self._told:
            self._told.add(key or line)
            self._say(line)

    def _bring_on(self, entry: LedgerEntry, job: ImagingJob, service: Server, medium: str) -> bool:
        """Power the machine on, with its boot override and medium, if it is off; return whether it was off.

        A machine that went off after its last report is not powered on: the reports are read once more before.
        """
        with Bmc(self._args.node, self._args.bmc) as bmc:
            power = bmc.require(self._args.serial, self._args.serial_kind or "any").power
            if power == "Off":
                last = self._news(entry, service)
                if last is not None and last.step in {"done", "refused", "failed"}:
                    return False
            self.powered = True
            if not self._power.on(bmc, power, job.boot, image=entry.desired, medium=medium):
                self.powered = False
                raise ImagingError(
                    self._args.node,
                    "its installation has not begun",
                    expected="powered off",
                    actual=f"power {power}, and rackready did not power it on",
                    next_step="If nobody uses it, power it off, then run again.",
                )
        return power == "Off"

    def _over(self, entry: LedgerEntry, last: Report, job: ImagingJob, service: Server) -> None:
        """Record an installation that was refused or failed, leave the machine off, and raise ImagingError."""
        service.disarm(self._args.node)
        with Bmc(self._args.node, self._args.bmc) as bmc:
            deadline = time.monotonic() + _OFF_S
            while (power := bmc.observe()) != "Off" and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            if power != "Off":
                self._power.off(bmc)
        self.powered = False
        eject(self._args, job, service, proceed=self._proceed, say=self._say)
        end(self._ledger, self._state, entry, f"{last.step} {last.code}: {last.message}")
        raise ImagingError.of([refusal(self._args.node, last, self._erase_command())])

    def _not_often(self, power_ons: int, last: Report | None) -> None:
        if power_ons <= _POWER_ONS:
            return
        raise ImagingError(
            self._args.node,
            "goes off while it is imaged",
            expected="on until the image is written",
            actual=f"off {power_ons} times, {held(last)}",
            next_step="Look at its console and the event log of its BMC, then run again.",
        )

    def _not_stuck(self, job: ImagingJob, last: Report | None, silent_s: float, total_s: float) -> None:
        longest = min(_BOOT_S if last is None else _SILENT_S, float(job.timeout_s))
        if silent_s <= longest and total_s <= job.timeout_s:
            return
        raise ImagingError.of([silence(self._args.node, last, silent_s, total_s, job)])

    def _pin(self, target: SshTarget, key: str) -> None:
        """Pin the host key that the plan installs, before the first contact."""
        before = pinned(target.known_hosts, target.host)
        if before == key:
            return
        entry = self._ledger.begin(self._args.node, HOST_KEY, fingerprint(key), {"pinned": before, "install": IMAGE})
        pin(target.known_hosts, target.host, key)
        self._ledger.done(entry.token, {"pinned": fingerprint(key)})

    def _erase_command(self) -> str:
        node = self._args.node
        return f"rackready provision --env {self._args.env} --limit {node} --erase {node}"

    def _erase_step(self, first: str) -> str:
        return f"{first}; `{self._erase_command()}` erases its disks and images it again."


def _digest_shown(target: SshTarget) -> str:
    """Return the digest of the plan that the running system names, "" for none. Raises SshError.

    It waits until cloud-init is done: until then it restarts sshd, and the next step would find no connection.
    """
    for left in reversed(range(_TRIES)):
        try:
            with connect(target, timeout_s=30.0) as client:
                done = Shell(client, target.where, CHECK_HOST).run(SHOW, timeout_s=_SETTLE_S + 30.0)
            break
        except (SshTimeoutError, SshLostError):
            if not left:
                raise
            time.sleep(_TRY_S)
    try:
        return str(json.loads(done.stdout)["digest"]) if done.exit_code == 0 else ""
    except (ValueError, KeyError, TypeError):
        return ""
