"""The gate on services and mounts: none failed or restarts again and again, and the needed ones run."""

from __future__ import annotations

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.gates import base
from rackready.gates.host import reading
from rackready.gates.host.reading import Answers, HostGate, Tool, WantedValues
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge

_ANSWERS = frozenset({0, 3, 4})
"""Exit codes of `systemctl is-active`: all units active; one is not; one does not exist (from systemd 253 on).

Source: systemctl(1), exit status.
"""
_STATES = frozenset(
    {"active", "inactive", "failed", "activating", "deactivating", "reloading", "maintenance", "unknown"}
)
_RESTARTS = frozenset({"auto-restart", "auto-restart-queued"})
"""SUB of a service that ended by itself and waits for its restart (service_state; systemd.service(5), Restart=)."""
_RHEL_NAMES = {"chrony.service": "chronyd.service"}
"""Units of Debian that have another name in the RHEL family."""
_KERNEL = ("dev-", "proc-", "sys-")
"""Mounts of the kernel's own interfaces (systemd's API file systems).

They contain no data, and a container may lack them: gates that read there report that.
"""


SYSTEMCTL_UNREADABLE = ErrorKind(
    "systemctl-unreadable",
    "systemctl's output is not understood",
    meaning="systemctl printed something other than its list of units.",
    next_step="Run the gate again.",
)
MOUNT_FAILED = FailKind(
    "mount-failed",
    "mount failed",
    meaning="A mount of the node failed.",
    next_step="Run `systemctl status {name}` and `journalctl -u {name}` on the node: they show why.",
)
SERVICE_FAILED = FailKind(
    "service-failed",
    "service failed",
    meaning="A service of the node failed.",
    next_step="Run `systemctl status {name}` and `journalctl -u {name}` on the node: they show why.",
)
SERVICE_RESTARTS = FailKind(
    "service-restarts",
    "service ended and restarts",
    meaning="A service ends by itself and is restarted again and again.",
    next_step="Run `systemctl status {name}` and `journalctl -u {name}` on the node: they show why.",
)
STATES_UNREADABLE = ErrorKind(
    "service-states-unreadable",
    "states of services not understood",
    meaning="systemctl did not print one known state for each service.",
    next_step="Run the gate again.",
)
SERVICE_NOT_ACTIVE = FailKind(
    "service-not-active",
    "{name}",
    meaning="A service that the site wants does not run.",
    next_step="Run `systemctl status {name}` and `journalctl -u {name}` on the node: they show why.",
)

FINDINGS = (SYSTEMCTL_UNREADABLE, MOUNT_FAILED, SERVICE_FAILED, SERVICE_RESTARTS, STATES_UNREADABLE, SERVICE_NOT_ACTIVE)


class Services(HostGate):
    """No service or mount has failed, none restarts again and again, and the services that must run do."""

    id = "node/host/sanity/services"
    findings = (*reading.FINDINGS, *FINDINGS)
    looks = True
    what = "services"

    class Inputs(base.Inputs):
        """Units that must run, and units that may fail."""

        active: tuple[str, ...] = Field(
            ("chrony.service",),
            description="units that must be active; node/gpu/sanity/versions judges those of the driver",
        )
        may_fail: tuple[str, ...] = Field(
            (), description="services and mounts whose failure or restarts are accepted, by name"
        )

    inputs: Inputs

    def wanted(self, facts: NodeFacts) -> WantedValues:
        """Return the questions to systemd."""
        options = ("--all", "--plain", "--no-legend", "--no-pager", "--full", "--type=service,mount")
        failed = Tool("systemctl", ("systemctl", "list-units", *options), "systemd")
        asked = Tool("is-active", ("systemctl", "is-active", *self._units(facts)), "systemd")
        return WantedValues((failed, asked) if self.inputs.active else (failed,))

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Compare the states of units with the wanted ones."""
        node = facts.node.name
        text = found.text("systemctl")
        if text is not None:
            self._failed(judge, node, text)
        if self.inputs.active:
            self._active(judge, node, self._units(facts), found)

    def _units(self, facts: NodeFacts) -> tuple[str, ...]:
        """Return the units that must be active, by their names on the node's system."""
        names = _RHEL_NAMES if facts.software.os.startswith("el") else {}
        return tuple(names.get(name, name) for name in self.inputs.active)

    def _failed(self, judge: Judge, node: str, text: str) -> None:
        rows = [line.split(None, 4) for line in text.splitlines() if line.strip()]
        judge.judged += 1
        if not rows or any(len(row) < 4 for row in rows):  # noqa: PLR2004 - UNIT LOAD ACTIVE SUB
            judge.error(node, SYSTEMCTL_UNREADABLE, "UNIT LOAD ACTIVE SUB per line", text.strip()[:80] or "nothing")
            return
        for name, _load, active, sub in sorted(row[:4] for row in rows if row[0] not in self.inputs.may_fail):
            if name.endswith(".mount"):
                if active == "failed" and not name.startswith(_KERNEL):
                    judge.fail(node, MOUNT_FAILED, f"{name} not failed", "failed", name=name)
            elif active == "failed":
                judge.fail(node, SERVICE_FAILED, f"{name} not failed", "failed", name=name)
            elif sub in _RESTARTS:
                judge.fail(
                    node, SERVICE_RESTARTS, f"{name} running, or stopped on purpose", f"{active} ({sub})", name=name
                )

    def _active(self, judge: Judge, node: str, units: tuple[str, ...], found: Answers) -> None:
        text = found.text("is-active", good=_ANSWERS)
        if text is None:
            return
        states = text.split()
        if (
            len(states) != len(units)
            or not set(states) <= _STATES
            or (set(states) == {"active"}) != (found.code("is-active") == 0)
        ):
            actual = f"{' '.join(states)!r}, exit {found.code('is-active')}"
            judge.error(node, STATES_UNREADABLE, f"{len(units)} states", actual)
            return
        for name, state in zip(units, states, strict=True):
            judge.equal(node, SERVICE_NOT_ACTIVE, "active", state, name=name)
