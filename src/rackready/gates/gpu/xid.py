"""The gate on Xids and SXids since boot, each with the vendor's action."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field, Strict

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Command, Gate, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.formats import kernel_log
from rackready.gates.formats.kernel_log import Event, KernelLog
from rackready.gates.gpu import parts, xid_actions
from rackready.gates.gpu.recovery import ACTIONS
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.gates.nodecheck.rules import FATAL_SXIDS, HARMLESS, RECOVERY_XID
from rackready.model.outcome import Verdict
from rackready.model.place import Place
from rackready.profiles import loader

_KEY = "log"
_CLOCK = "clock"


LOG_UNREADABLE = ErrorKind(
    "kernel-log-unreadable",
    "kernel log unreadable",
    meaning="The kernel log cannot be read, so it is unknown whether the GPUs had errors.",
    next_step="Read it by hand (`journalctl --dmesg --boot` as root on the node), then run the gate again.",
)
CLOCK_UNREADABLE = ErrorKind(
    "xid-clock-unreadable",
    "node clock unreadable",
    meaning="The node's time is unknown, so the input `since` cannot be checked.",
    next_step="Run `date +%s` on the node.",
)
SINCE_AHEAD = ErrorKind(
    "xid-since-ahead",
    "events count from a time in the future",
    meaning="Events count from a time in the future, so none would count.",
    next_step="Correct the input `since` in the gate set, or the node's clock (gate node/host/sanity/clock).",
)
XID_FORM = ErrorKind(
    "xid-unknown-form",
    "kernel log has an Xid in an unknown form",
    meaning="The driver wrote an Xid that rackready cannot read.",
    next_step="Look the Xid up in the vendor's catalogue.",
)
FALLEN_OFF = FailKind(
    "gpu-fallen-off-bus",
    "GPU has fallen off the bus",
    meaning="The driver lost the GPU on the PCIe bus: only a power cycle or a repair brings it back.",
    next_step="{step}",
)
LOG_EXIT_CODE = ErrorKind(
    "kernel-log-exit-code",
    "kernel log contradicts itself",
    meaning="journalctl printed the log and still ended with an error, so lines may be missing.",
    next_step="Run `journalctl --dmesg --boot` by hand.",
)
LOG_EXCERPT = ErrorKind(
    "kernel-log-excerpt",
    "kernel log is an excerpt",
    meaning="The log lacks the line that the driver writes when it is loaded: it is not the whole log, and errors may "
    "be missing.",
    next_step="Give the whole log, not parts of it. On a node: check that the driver is loaded (`lsmod`), then run "
    "the gate again.",
)
LOG_NOT_FROM_BOOT = ErrorKind(
    "kernel-log-not-from-boot",
    "kernel log does not reach back to the boot",
    meaning="The journal dropped the first messages since boot, and errors may be lost with them.",
    next_step="Enlarge the journal (journald.conf SystemMaxUse, RuntimeMaxUse), reboot, then run the gate again.",
)
XID = FailKind(
    "xid",
    "Xid {code} ({name})",
    meaning="The driver reported an error of this GPU, and the vendor asks for an action.",
    next_step="{step}",
)
XID_154_UNREADABLE = ErrorKind(
    "xid-154-unreadable",
    "Xid 154 unreadable",
    meaning="The driver asks for a recovery action but does not report which.",
    next_step="Run `nvidia-smi -q | grep 'Recovery Action'`.",
)
XID_154 = FailKind(
    "xid-154",
    "Xid 154 (GPU recovery action changed)",
    meaning="The driver asks for a recovery action on this GPU.",
    next_step="{step}",
    steps=tuple(dict.fromkeys(ACTIONS.values())),
    runbook="docs/runbooks/gpu.md",
)
XID_154_UNKNOWN = ErrorKind(
    "xid-154-unknown-action",
    "Xid 154: unknown recovery action",
    meaning="The driver asks for a recovery action that rackready does not know.",
    next_step="Read the vendor's catalogue, run `nvidia-smi -q | grep 'Recovery Action'`, and update rackready.",
)
SXID_FATAL = FailKind(
    "sxid-fatal",
    "SXid {code} ({name})",
    meaning="An NVSwitch reported a fatal error: NVLink traffic of all GPUs behind it may have stopped.",
    next_step=(
        "Power the node off and on: this resets the fabric and all its GPUs. "
        "If it happens again, replace the NVSwitch board: docs/runbooks/nvlink-down.md."
    ),
    runbook="docs/runbooks/nvlink-down.md",
)
SXID_UNKNOWN = ErrorKind(
    "sxid-unknown",
    "SXid {code} ({name})",
    meaning="An NVSwitch reported an error that the vendor's guide does not list.",
    next_step="Look the SXid up in the Fabric Manager guide, appendix D.",
)

FINDINGS = (
    LOG_UNREADABLE,
    CLOCK_UNREADABLE,
    SINCE_AHEAD,
    XID_FORM,
    FALLEN_OFF,
    LOG_EXIT_CODE,
    LOG_EXCERPT,
    LOG_NOT_FROM_BOOT,
    XID,
    XID_154_UNREADABLE,
    XID_154,
    XID_154_UNKNOWN,
    SXID_FATAL,
    SXID_UNKNOWN,
)


class Xids(Gate):
    """The kernel log since boot has no Xid or SXid that asks for more than restarting an application."""

    id = "node/gpu/sanity/xid"
    findings = FINDINGS
    looks = True
    covers = frozenset({"gpu"})

    class Inputs(base.Inputs):
        """Time from which events count."""

        since: Annotated[datetime, Strict(strict=False)] | None = Field(
            None,
            description="events before this time (with its zone) are only noted, e.g. before a recorded reset; "
            "null: since boot",
        )

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002 - the same for all
        """Return one run per node: the kernel's messages since boot, and the clock if the input `since` is set."""
        argv: dict[str, tuple[str, ...]] = {
            _KEY: ("journalctl", "--dmesg", "--boot", "--no-pager", "--output=short-iso")
        }
        if self.inputs.since is not None:
            argv[_CLOCK] = ("date", "+%s")
        return [
            Run.of_node(node, *(Command(key=key, node=node, argv=words, timeout_s=60) for key, words in argv.items()))
            for node in nodes
        ]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Look every event up in the vendor's catalogue."""
        node = run.nodes[0]
        judge = Judge()
        output = outputs.get(_KEY)
        if judge.trouble(trouble(output, node, "kernel log")) or output is None:
            return judge.verdict(node)
        try:
            log = kernel_log.parse(output.stdout)
        except FormatError as error:
            judge.error(
                node, LOG_UNREADABLE, "the kernel's messages since boot", f"{error} (exit code {output.exit_code})"
            )
            return judge.verdict(node)
        if self._since_is_past(judge, node, outputs.get(_CLOCK)):
            self._judge(judge, facts.nodes[node], node, log, output.exit_code)
        return judge.verdict(node)

    def _since(self) -> datetime | None:
        since = self.inputs.since
        return since if since is None or since.tzinfo else since.replace(tzinfo=UTC)

    def _since_is_past(self, judge: Judge, node: str, output: Output | None) -> bool:
        """Return whether `since` is in the past on the node, else add an error.

        With a time in the future no event would count, and every log would pass.
        """
        since = self._since()
        if since is None:
            return True
        if judge.trouble(trouble(output, node, "reading of the node's clock")) or output is None:
            return False
        text = output.stdout.strip()
        if output.exit_code != 0 or re.fullmatch(r"[0-9]{9,11}", text) is None:
            said = f"{text[:80]!r} (exit code {output.exit_code})"
            judge.error(node, CLOCK_UNREADABLE, "seconds since 1970", said)
            return False
        clock = datetime.fromtimestamp(int(text), UTC)
        if since > clock:
            judge.error(node, SINCE_AHEAD, f"at most {clock.isoformat()}, the node's clock", since.isoformat())
        return since <= clock

    def _judge(self, judge: Judge, facts: NodeFacts, node: str, log: KernelLog, exit_code: int | None) -> None:
        judge.judged += 1
        notes: list[str] = []
        for where, events in _grouped(facts, node, self._counted(log.xids, notes)).items():
            _xids(judge, facts, where, events, notes)
        for where, events in _grouped(facts, node, self._counted(log.sxids, notes)).items():
            _sxids(judge, where, events, notes)
        self._fallen_off(judge, facts, node, log, notes)
        for line in log.unreadable:
            judge.error(node, XID_FORM, "a known form", line)
        _completeness(judge, node, log, exit_code)
        judge.metric("xids", node, len(log.xids), "1")
        judge.metric("sxids", node, len(log.sxids), "1")
        judge.note = "; ".join(notes) or None
        if not judge.errors:
            bad = {finding.unit for finding in judge.fails}
            judge.measured.update(
                unit for index in range(facts.platform.gpus) if (unit := f"{node}/gpu{index}") not in bad
            )

    def _fallen_off(self, judge: Judge, facts: NodeFacts, node: str, log: KernelLog, notes: list[str]) -> None:
        """Fail every GPU that fell off the bus without an Xid: the driver logs one only for a GPU it had started."""
        known = {event.pci for event in log.xids if event.code == kernel_log.FALLEN}
        fallen = [
            event
            for event in self._counted(log.fallen, notes)
            if event.pci not in known and not (known and not event.pci)
        ]
        for pci in dict.fromkeys(event.pci for event in fallen):
            same = [event for event in fallen if event.pci == pci]
            where = Place(node, parts.name(facts, pci)) if pci else node
            actual = f"{_times(same)}: {same[-1].text.rstrip('.')}"
            judge.fail(
                where,
                FALLEN_OFF,
                "no such line since boot",
                actual,
                step=xid_actions.next_step("RESTART_BM", kernel_log.FALLEN),
            )

    def _counted(self, events: Sequence[Event], notes: list[str]) -> list[Event]:
        """Return the events since the time from which they count."""
        since = self._since()
        if since is None:
            return list(events)
        old = [event for event in events if (found := kernel_log.date(event.when)) is not None and found < since]
        if old:
            notes.append(f"{len(old)} events before {since.isoformat()} not counted")
        return [event for event in events if event not in old]


def _completeness(judge: Judge, node: str, log: KernelLog, exit_code: int | None) -> None:
    if exit_code != 0:
        judge.error(node, LOG_EXIT_CODE, "exit code 0", f"{log.lines} lines and exit code {exit_code}")
    if log.from_boot and not log.whole:
        what = "the driver's first line ('NVRM: loading NVIDIA UNIX') and what came after it"
        actual = f"{log.lines} {'line' if log.lines == 1 else 'lines without it'}"
        judge.error(node, LOG_EXCERPT, what, actual)
    if not log.from_boot:
        judge.error(
            node,
            LOG_NOT_FROM_BOOT,
            "the line with which the kernel starts or the driver is loaded ('NVRM: loading NVIDIA UNIX')",
            f"{log.lines} lines without it",
        )


def _grouped(facts: NodeFacts, node: str, events: Sequence[Event]) -> dict[str, list[Event]]:
    """Return the events by part: 'node03 gpu2', 'node03 nvswitch1'."""
    out: dict[str, list[Event]] = {}
    for event in events:
        switch = (
            f"nvswitch{event.switch}" if event.switch is not None and event.switch >= 0 else f"NVSwitch at {event.pci}"
        )
        part = parts.name(facts, event.pci) if event.switch is None else switch
        out.setdefault(f"{node} {part}", []).append(event)
    return out


def _xids(judge: Judge, facts: NodeFacts, where: str, events: Sequence[Event], notes: list[str]) -> None:
    for code in dict.fromkeys(event.code for event in events):
        same = [event for event in events if event.code == code]
        if code == RECOVERY_XID:
            _recovery(judge, where, same)
            continue
        action, name = xid_actions.action(facts, same)
        if action in HARMLESS:
            notes.append(f"{where}: Xid {code} ({name}) {_times(same)}, vendor's action {action}")
        else:
            judge.fail(
                where,
                XID,
                "none since boot",
                f"{_times(same)}: {same[-1].said.rstrip('.')}",
                code=code,
                name=name,
                step=xid_actions.next_step(action, code),
            )


def _recovery(judge: Judge, where: str, events: Sequence[Event]) -> None:
    """Judge Xid 154, the action that the driver asks for: the last one counts."""
    wanted = kernel_log.recovery(events[-1].text)
    if wanted is None:
        judge.error(where, XID_154_UNREADABLE, "the recovery action that the driver asks for", events[-1].text)
    elif wanted in ACTIONS:
        judge.fail(where, XID_154, "None", f"{wanted}, {_times(events)}", step=ACTIONS[wanted])
    elif wanted != "None":
        judge.error(where, XID_154_UNKNOWN, "None", f"{wanted}, {_times(events)}")


def _sxids(judge: Judge, where: str, events: Sequence[Event], notes: list[str]) -> None:
    known = loader.xids().sxids
    for code in dict.fromkeys(event.code for event in events):
        same = [event for event in events if event.code == code]
        entry = known.get(code)
        fatal = any(event.text.startswith("Fatal") for event in same) or (
            entry is not None and entry.kind in FATAL_SXIDS
        )
        name = entry.name if entry else "not in the vendor's guide"
        text = next((event.text for event in same if event.text.startswith(("Fatal", "Non-fatal"))), same[-1].text)
        if fatal:
            judge.fail(where, SXID_FATAL, "none since boot", f"{_times(same)}: {text}", code=code, name=name)
        elif entry is None:
            judge.error(where, SXID_UNKNOWN, "none since boot", f"{_times(same)}: {text}", code=code, name=name)
        else:
            notes.append(f"{where}: SXid {code} ({name}) {_times(same)}, {entry.kind.replace('_', '-')}")


def _times(events: Sequence[Event]) -> str:
    last = events[-1].when
    return f"1 time at {last}" if len(events) == 1 else f"{len(events)} times, last at {last}"
