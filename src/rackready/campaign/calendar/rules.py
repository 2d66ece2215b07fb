"""The rules of the calendar: how often each piece of work is due, from what, and what does it.

NVIDIA's InfiniBand Cluster Operation and Maintenance Guide ("Cluster Maintenance Procedure") has work that goes on all
the time, weekly work (trends of link indicators, topology against the plan, health of the fabric) and quarterly work.
rackready's gate sets and commands fill these intervals; that assignment, and every period without a source, is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

QUARTER = 91
"""Days: thirteen weeks, so that it stays on one weekday."""


@dataclass(frozen=True, slots=True)
class DueRule:
    """One rule. ``days``: its period, None where the records have the day. ``interrupts``: it needs a window."""

    id: str
    title: str
    days: int | None
    does: str
    source: str
    interrupts: bool = False


@dataclass(frozen=True, slots=True)
class DueItem:
    """One piece of work. ``name``: node, switch, gate or file; ``last``: when it was done, None for never."""

    rule: DueRule
    name: str
    last: date | None
    due: date
    why: str = ""
    window: str = ""

    def overdue(self, today: date) -> bool:
        """Return whether it was due before today (UTC)."""
        return self.due < today

    @property
    def does(self) -> str:
        """Return the command that does it."""
        return self.rule.does.replace("NAME", self.name)


_NVIDIA = "NVIDIA, InfiniBand Cluster Operation and Maintenance Guide: {} maintenance"

NIGHTLY = DueRule(
    "nightly", "Gates of set nightly", 1, "rackready nightly --limit NAME", "gate set nightly: every night"
)
EVIDENCE = DueRule(
    "evidence",
    "Evidence of the site's gate set becomes too old",
    None,
    "rackready validate --limit NAME",
    "max_age_hours of the gate set",
)
WEEKLY = DueRule(
    "weekly", "Settings, cables and firmware against the plan", 7, "rackready drift", _NVIDIA.format("weekly")
)
QUARTERLY = DueRule(
    "quarterly",
    "Gates of set maintenance that the site's set has, pairs and firmware among them",
    QUARTER,
    "rackready validate --again --limit NAME, then rackready deploy --limit NAME",
    _NVIDIA.format("quarterly"),
    interrupts=True,
)
FIRMWARE = DueRule(
    "firmware",
    "Firmware is not as its baseline or its fleet",
    None,
    "rackready baseline --limit NAME",
    "the last result of a gate about firmware",
    interrupts=True,
)
BMC_PASSWORDS = DueRule(
    "bmc-password", "Password of the BMC", 365, "rackready bmc rotate NAME", "judgement: yearly, and when people leave"
)
SWITCH_PASSWORDS = DueRule(
    "switch-password",
    "Password of the switch",
    365,
    "rackready switch rotate NAME",
    "judgement: yearly, and when people leave",
)
BMC_CERTIFICATES = DueRule(
    "bmc-certificate",
    "TLS certificate of the BMC expires",
    None,
    "rackready bmc certify NAME",
    "bmc_authority.days; due 30 days before: judgement",
)
BMC_CA = DueRule(
    "bmc-ca",
    "The CA of the BMCs expires",
    None,
    "renew it, then `rackready bmc certify --all`",
    "its certificate; due 30 days before: judgement",
)
KILL_SWITCH = DueRule(
    "kill-switch", "A gate that is switched off runs again", None, "see gates.disabled", "gates.disabled"
)

RULES = (
    NIGHTLY,
    EVIDENCE,
    WEEKLY,
    QUARTERLY,
    FIRMWARE,
    BMC_PASSWORDS,
    SWITCH_PASSWORDS,
    BMC_CERTIFICATES,
    BMC_CA,
    KILL_SWITCH,
)
EARLY = 30
"""Days before a certificate's end on which its renewal is due. Judgement, as for the boot service's certificates."""
