"""Apply a switch's configuration: read, compare, commit with timed revert, verify, confirm; safe to kill anywhere.

A run that is killed between commit and confirm leaves two things: an intent in the ledger, and a switch that will
revert the change by itself. The next run observes which state the switch is in and continues from there.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

from rackready.design.switches import SwitchConfig
from rackready.drivers.process import check_stop
from rackready.drivers.switch.base import (
    Revision,
    RevisionState,
    SwitchBusyError,
    SwitchDriver,
    SwitchError,
    SwitchRevertedError,
    SwitchUncertainError,
)
from rackready.drivers.switch.session import SwitchUnreachableError
from rackready.drivers.switch.verify import verify_config
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger, LedgerEntry
from rackready.model.outcome import Finding

OPERATION = "switch-commit"
REVERT_AFTER_S = 120
_SETTLE_S = 20.0


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result for a switch. ``diff``: the change (dry run: the planned one); ``note``: leftovers of earlier runs.

    ``ports``: in a dry run, the site's ports on which something would change.
    """

    changed: bool
    diff: str = ""
    note: str = ""
    ports: tuple[str, ...] = ()


def apply_config(
    driver: SwitchDriver, config: SwitchConfig, ledger: Ledger, *, check: bool = False, settle_s: float = _SETTLE_S
) -> ApplyResult:
    """Apply a switch's configuration, return the result. Raises SwitchError (busy, reverted, refused, unreachable)."""
    commands = _commands(driver, config, ledger)
    if check:
        return _preview(driver, config, commands)
    note = _recover(driver, config, commands, ledger)
    _refuse_busy(driver)
    if not driver.missing(commands) and not _open_intent(ledger, config.name):
        _must_verify(config, driver, settle_s)
        return ApplyResult(changed=False, note=note)
    work = _Work(driver, config, commands, ledger, settle_s)
    effect = run_effect(
        ledger, config.name, OPERATION, _digest(commands), before=work.before, observe=work.observe, act=work.act
    )
    if effect.outcome == "unknown":
        raise SwitchUncertainError(
            config.name,
            "an earlier change may still be under way",
            expected="confirmed or reverted",
            actual="unknown",
            next_step=f"Wait {REVERT_AFTER_S} s and run again.",
        )
    if effect.outcome == "already":
        driver.save()
        _must_verify(config, driver, settle_s)
        return ApplyResult(changed=False, note=note or "kept from an interrupted run")
    return ApplyResult(bool(effect.result.get("changed")), str(effect.result.get("diff", "")), note)


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """One command that is not applied. ``wanted`` and ``actual``: its value, where the command sets one."""

    command: str
    removes: bool
    wanted: str = ""
    actual: str = ""


def differences(driver: SwitchDriver, config: SwitchConfig, ledger: Ledger) -> list[ConfigDifference]:
    """Return what differs from a switch's declared configuration. Nothing is loaded, and no candidate is made."""
    missing = driver.missing(_commands(driver, config, ledger))
    values = driver.values(missing)
    return [ConfigDifference(command, driver.removes(command), *values.get(command, ("", ""))) for command in missing]


@dataclass(frozen=True, slots=True)
class CandidateLine:
    """One command of a switch's configuration.

    ``state``: applied, missing, or removes (it takes away what the site names no more).
    """

    command: str
    state: str


def candidate(driver: SwitchDriver, config: SwitchConfig, ledger: Ledger) -> list[CandidateLine]:
    """Return a switch's whole configuration as the site wants it, in order. Nothing is loaded."""
    commands = _commands(driver, config, ledger)
    missing = set(driver.missing(commands))

    def state(command: str) -> str:
        if driver.removes(command):
            return "removes"
        return "missing" if command in missing else "applied"

    return [
        CandidateLine(command, state(command))
        for command in commands
        if command in missing or not driver.removes(command)
    ]


def _digest(commands: list[str]) -> str:
    return hashlib.sha256("\n".join(commands).encode()).hexdigest()


def _commands(driver: SwitchDriver, config: SwitchConfig, ledger: Ledger) -> list[str]:
    """Return the commands for what the site wants, and the removal of what we wrote and it no longer wants.

    The removals of an interrupted run stay in the list: on the switch they may have happened already.
    """
    wanted = driver.wanted(config)
    entries = [entry for entry in ledger.entries(config.name) if entry.operation == OPERATION]
    wrote = [
        entry.observed.get("wrote", entry.observed.get("commands", [])) for entry in entries if entry.status == "done"
    ]
    begun = _open_intent(ledger, config.name)
    left = [] if begun is None else driver.still_apart(list(begun.observed.get("commands", [])), wanted)
    return wanted + sorted({*driver.unwanted(wrote, wanted), *left})


def _preview(driver: SwitchDriver, config: SwitchConfig, commands: list[str]) -> ApplyResult:
    missing = driver.missing(commands)
    lines = (f"{'-' if driver.removes(command) else '+'} {command}" for command in missing)
    ports = driver.touched(missing, {port.name for port in config.ports})
    return ApplyResult(bool(missing), "\n".join(lines), ports=tuple(sorted(ports)))


def _open_intent(ledger: Ledger, name: str) -> LedgerEntry | None:
    entry = ledger.latest(name, OPERATION)
    return entry if entry is not None and entry.status == "intent" else None


def _recover(driver: SwitchDriver, config: SwitchConfig, commands: list[str], ledger: Ledger) -> str:
    """Clean up after a killed run on the switch, and return a note of what was found."""
    entry = _open_intent(ledger, config.name)
    if entry is None:
        return ""
    theirs: list[str] = list(entry.observed.get("commands", []))
    known = set(entry.observed.get("revisions", []))
    note = ""
    for revision in driver.revisions():
        if revision.id in known:
            continue
        if revision.state is RevisionState.UNCONFIRMED and not driver.missing(theirs, revision.id):
            note = _finish(driver, config, commands if entry.desired == _digest(commands) else None)
        elif revision.state is RevisionState.CANDIDATE and driver.only_holds(revision.id, theirs):
            driver.discard(revision.id)
            note = note or "dropped the candidate of an interrupted run"
    if entry.desired != _digest(commands):
        ledger.failed(entry.token, "superseded: the site wants something else now")
    return note


def _finish(driver: SwitchDriver, config: SwitchConfig, commands: list[str] | None) -> str:
    """Confirm the change of an interrupted run when it is still wanted, whole and verifies, else roll it back.

    ``commands`` is None when the site wants something else now. Some switches apply a change piece by piece.
    """
    if commands is not None and not driver.missing(commands) and not verify_config(config, driver.read_back()):
        driver.confirm()
        return "confirmed what an interrupted run had applied"
    driver.rollback()
    return "rolled back what an interrupted run had applied"


def _refuse_busy(driver: SwitchDriver) -> None:
    for revision in driver.revisions():
        if revision.state is RevisionState.UNCONFIRMED or (
            revision.state is RevisionState.CANDIDATE and not driver.only_holds(revision.id, [])
        ):
            raise _busy(driver, revision)


def _busy(driver: SwitchDriver, revision: Revision) -> SwitchBusyError:
    what = "waits for confirmation" if revision.state is RevisionState.UNCONFIRMED else "is pending"
    who = f" of user {revision.user}" if revision.user else ""
    then = (
        "confirmed or reverted"
        if revision.state is RevisionState.UNCONFIRMED
        else f"applied, or dropped with `{driver.how_to_drop(revision.id)}`"
    )
    return SwitchBusyError(
        driver.name,
        f"revision {revision.id}{who} {what}",
        expected="no other change in progress",
        next_step=f"Nothing was changed; run again once it is {then}.",
    )


def _findings(config: SwitchConfig, driver: SwitchDriver, settle_s: float) -> list[Finding]:
    deadline = time.monotonic() + settle_s
    while (findings := verify_config(config, driver.read_back())) and time.monotonic() < deadline:
        time.sleep(1.0)
    return findings


def _must_verify(config: SwitchConfig, driver: SwitchDriver, settle_s: float) -> None:
    findings = _findings(config, driver, settle_s)
    if findings:
        raise SwitchError("; ".join(str(finding) for finding in findings), findings=findings)


@dataclass(frozen=True, slots=True)
class _Work:
    """The one effect on a switch: load, compare, commit, verify, confirm."""

    driver: SwitchDriver
    config: SwitchConfig
    commands: list[str]
    ledger: Ledger
    settle_s: float

    def before(self) -> dict[str, object]:
        """Return the state to record; ``wrote`` becomes ours, a value that somebody set before stays theirs."""
        revisions = [revision.id for revision in self.driver.revisions()]
        return {"revisions": revisions, "commands": self.commands, "wrote": self.driver.missing(self.commands)}

    def observe(self, _stored: dict[str, object]) -> Observation:
        if any(revision.state is RevisionState.UNCONFIRMED for revision in self.driver.revisions()):
            return Observation.UNKNOWN
        return Observation.NOT_HAPPENED if self.driver.missing(self.commands) else Observation.HAPPENED

    def act(self, token: int) -> dict[str, object]:
        check_stop()
        try:
            self.driver.load(self.driver.missing(self.commands))
            diff = self.driver.compare()
            if not diff:
                self.driver.discard()
                self.driver.save()  # a run that was killed before it saved: a reboot would lose what it confirmed
                return {"changed": False}
            check_stop()  # the last point to stop: after the commit, only the timed revert would end the change
            self.driver.commit(REVERT_AFTER_S)
        except (SwitchUnreachableError, SwitchUncertainError):
            raise  # the intent stays open: the next run observes what happened
        except SwitchError as error:
            self._drop()
            self.ledger.failed(token, str(error))
            raise
        self._keep_or_revert(token)
        return {"changed": True, "diff": diff}

    def _drop(self) -> None:
        for revision in self.driver.revisions():
            if revision.state is RevisionState.CANDIDATE and self.driver.only_holds(revision.id, self.commands):
                self.driver.discard(revision.id)

    def _keep_or_revert(self, token: int) -> None:
        findings = _findings(self.config, self.driver, self.settle_s)
        if not findings:
            self.driver.confirm()
            self.driver.save()
            return
        self.driver.rollback()
        text = "; ".join(str(finding) for finding in findings)
        self.ledger.failed(token, f"rolled back: {text}")
        message = f"{self.config.name}: the change was applied, did not verify and was rolled back. {text}"
        raise SwitchRevertedError(message, findings=findings)
