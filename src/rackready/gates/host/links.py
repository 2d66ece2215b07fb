"""The gate on links of the compute NICs: state, rate, outages and flaps."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pydantic import Field

from rackready.design.facts import NicFacts, NodeFacts
from rackready.gates import base
from rackready.gates.engine.nodes_without_nics import NOTE
from rackready.gates.host import reading
from rackready.gates.host.reading import AGAIN, Answers, HostGate, Limit, Tool, WantedValues, placed
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Op
from rackready.model.place import Place
from rackready.ondevice.roce import CHANGES

LOG = Tool("dmesg", ("dmesg",), "util-linux", keep=r"mlx5_core .*Link (down|up)$")
_LINE = re.compile(
    r"^\[\s*(?P<at>\d+\.\d+)\] mlx5_core (?:(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) "
    r")?(?P<netdev>[^\s:]+)(?: \([\w ]+\))?: Link (?P<way>down|up)$"
)
"""As netdev_info writes it: driver, PCI address, interface name, and in brackets its state while it has no name.

The address stays if the interface is renamed, so it identifies the NIC; the name does if no address is logged.
"""
UPTIME = "/proc/uptime"
_GRACE_SOURCE = "oci-hpc: any flap of the last 6 hours that is later than 30 minutes after boot"
_DAY_S = 86400
_YEAR_S = 366 * _DAY_S
_COUNT_SOURCE = "Azure node health checks: 5 or more lost carriers of a port in a day"
_AWAY_SOURCE = "NVIDIA's health checks of GB200 and GB300, rdma_linkflap_fatal: one outage of 30 s or more is critical"
_CHANGE = re.compile(r"^(\d+\.\d+) (\d+\.\d+)$", re.MULTILINE)
"""The kernel log's last time before and after a change that took a link down (ondevice/roce.py)."""
_SILENT = "InfiniBand"
"""Link layer of ports without lines in the kernel log: their profile has no update_carrier, which writes them
(Linux mlx5/core/ipoib/ipoib.c). Only the counter tells of their links."""
_RATE = re.compile(r"^(\d+(?:\.\d+)?) Gb/sec")


DEVICE_MISSING = FailKind(
    "link-device-missing",
    "RDMA device missing",
    meaning="The node does not have this NIC's RDMA device: the card is gone or its driver is not loaded.",
    next_step="Check `lspci` and the driver; reseat the card.",
)
LINK_NOT_UP = FailKind(
    "link-not-up",
    "link is not up",
    meaning="The port has no link.",
    next_step="Check cable and module at {far}, and the port's state on the switch.",
)
RATE_NOT_REPORTED = ErrorKind(
    "link-rate-not-reported",
    "rate not reported",
    meaning="The port's rate cannot be read.",
    next_step=AGAIN,
)
LINK_RATE = FailKind(
    "link-rate",
    "rate",
    meaning="The port runs at another rate than the NIC's.",
    next_step="Clean and reseat cable and module; check the port's speed on the switch.",
)
DOWNS_NOT_REPORTED = ErrorKind(
    "link-downs-not-reported",
    "link_downed not reported",
    meaning="The port does not count how often its link went down.",
    next_step=AGAIN,
)
WENT_DOWN_LATELY = FailKind(
    "link-went-down-lately",
    "link went down",
    meaning="The link went down a short while ago: it flaps, and jobs on it stall or crash. What rackready did to the "
    "port does not count. If somebody else changed its PFC or speed, or restarted the switch, that may be the cause.",
    next_step="If somebody changed the port or the switch, run the gate again later. Else clean and reseat cable and "
    "module, then swap them with those of another port and check whether the flaps follow them.",
)
WENT_DOWN_OFTEN = FailKind(
    "link-went-down-often",
    "link went down",
    meaning="The link went down more often in the last day than the gate set allows.",
    next_step="Clean and reseat cable and module, then swap them with those of another port and check whether the "
    "flaps follow them.",
)
WENT_DOWN_SINCE_BOOT = FailKind(
    "link-went-down-since-boot",
    "link went down",
    meaning="The link of an InfiniBand port went down more often since boot than the gate set allows in a day. The "
    "kernel logs no times there, so work on its cable or switch counts, too.",
    next_step="If it was work on cable or switch, or once that is done, clear the count on the node with "
    "`perfquery -R -C {device} -P 1`. Else clean and reseat cable and module first, then swap them with those of "
    "another port and check whether the flaps follow them.",
)
RETURN_NOT_LOGGED = ErrorKind(
    "link-return-not-logged",
    "end of the outage not in the kernel log",
    meaning="The kernel log shows that the link went down but not that it came back.",
    next_step=AGAIN,
)
LINK_AWAY = FailKind(
    "link-was-away",
    "link was down",
    meaning="The link was down for longer than the gate set allows.",
    next_step=(
        "Clean and reseat cable and module. If a switch was restarted on purpose, raise the gate's input "
        "max_outage_s. The outage counts for {days:g} days, or until the node's next boot."
    ),
)
LINE_UNREADABLE = ErrorKind(
    "link-log-unreadable",
    "line of the kernel log not understood",
    meaning="A line of the kernel log about links cannot be read.",
    next_step=AGAIN,
)

FINDINGS = (
    DEVICE_MISSING,
    LINK_NOT_UP,
    RATE_NOT_REPORTED,
    LINK_RATE,
    DOWNS_NOT_REPORTED,
    WENT_DOWN_LATELY,
    WENT_DOWN_OFTEN,
    WENT_DOWN_SINCE_BOOT,
    RETURN_NOT_LOGGED,
    LINK_AWAY,
    LINE_UNREADABLE,
)


def folder(device: str) -> str:
    """Return the kernel's folder for an RDMA device's port."""
    return f"/sys/class/infiniband/{device}/ports/1"


@dataclass(frozen=True, slots=True)
class Outage:
    """A time without the link, in seconds since boot. ``end`` None: the kernel log does not show that it came back."""

    start: float
    end: float | None
    changed_to: float = 0.0
    """When a change of the port by rackready, which took the link down, was over; 0: it is not the cause."""

    def late(self, grace: float, now: float) -> float:
        """Return how long the outage lasted after the grace, and after rackready's change, s."""
        return (now if self.end is None else self.end) - max(self.start, grace, self.changed_to)


@dataclass(frozen=True, slots=True)
class _Event:
    """A line of the kernel log about a link. ``pci`` includes the function; empty if the line has no address."""

    at: float
    pci: str
    netdev: str
    down: bool


class Links(HostGate):
    """Every compute NIC's link is up at its rate, does not flap, and had no long outage lately."""

    id = "node/host/sanity/links"
    findings = (*reading.FINDINGS, reading.PARTS_NOT_PLACED, *FINDINGS)
    looks = True
    what = "links"
    covers = frozenset({"node", "nic"})

    class Inputs(base.Inputs):
        """Limits on flaps and outages."""

        grace_s: float = Field(
            1800,
            ge=0,
            le=86400,
            description="time after boot in which links may go down, s, at most a day (judgement); "
            f"source of the default: {_GRACE_SOURCE}",
        )
        window_s: float = Field(
            21600,
            gt=0,
            le=_YEAR_S,
            description="time before now in which one later flap is too many, s, at most a year; "
            f"source of the default: {_GRACE_SOURCE}",
        )
        max_outage_s: float = Field(
            30,
            gt=0,
            le=3600,
            description="longest single outage after the grace, s, at most an hour "
            f"(judgement); source: {_AWAY_SOURCE}",
        )
        outage_window_s: float = Field(
            604800,
            gt=0,
            le=_YEAR_S,
            description="time before now in which such an outage counts, s, at most a year; "
            "judgement: after a week a planned restart of a switch no longer matters",
        )
        max_downs: int = Field(
            4,
            ge=0,
            le=1000,
            description="how often a link may have gone down in the last 24 hours, grace included, at most 1000 "
            "(judgement); on an InfiniBand port since boot, because the kernel logs no times there; "
            f"source of the default: {_COUNT_SOURCE}",
        )

    inputs: Inputs

    def wanted(self, facts: NodeFacts) -> WantedValues:
        """Return each port's state and counter, and the kernel log's lines about links."""
        leaves = ("state", "phys_state", "rate", "link_layer", "counters/link_downed")
        return WantedValues(
            (LOG,),
            (
                UPTIME,
                *(f"{folder(nic.rdma_device)}/{leaf}" for nic in facts.nics for leaf in leaves),
                *(f"{CHANGES}/{nic.netdev}" for nic in facts.nics),
            ),
        )

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Compare each link with the plan; a node without compute NICs has nothing to judge."""
        if not facts.nics:
            judge.nothing(NOTE)
            return
        if not placed(judge, facts):
            return
        text = found.kernel_log()
        events = _events(judge, facts.node.name, text or "")
        for nic in facts.nics:
            good = up = self._state(judge, facts.node.name, nic, found)
            away = _outages(
                [event for event in events if (event.pci == nic.pci if event.pci else event.netdev == nic.netdev)],
                found.one(f"{CHANGES}/{nic.netdev}") or "",
            )
            good &= text is not None and self._flaps(judge, facts.node.name, nic, away, found)
            good &= not up or self._longest_outage(judge, facts.node.name, nic, away, found)
            if good:
                judge.measured.add(f"{facts.node.name}/{nic.rdma_device}")

    @staticmethod
    def _state(judge: Judge, node: str, nic: NicFacts, found: Answers) -> bool:
        where = _where(node, nic)
        state = found.one(f"{folder(nic.rdma_device)}/state")
        judge.judged += 1
        if state is None:
            judge.fail(where, DEVICE_MISSING, f"/sys/class/infiniband/{nic.rdma_device}", "not there")
            return False
        if state != "4: ACTIVE":
            phys = found.one(f"{folder(nic.rdma_device)}/phys_state") or "not reported"
            far = f"{nic.switch or 'the switch'} {nic.port}".rstrip()
            judge.fail(where, LINK_NOT_UP, "4: ACTIVE", f"{state} ({phys})", far=far)
            return False
        rate = _RATE.match(found.one(f"{folder(nic.rdma_device)}/rate") or "")
        if rate is None:
            judge.error(
                where, RATE_NOT_REPORTED, f"{nic.rate} Gb/s", found.one(f"{folder(nic.rdma_device)}/rate") or "nothing"
            )
            return False
        if float(rate[1]) != nic.rate:
            judge.fail(where, LINK_RATE, f"{nic.rate} Gb/s", f"{rate[1]} Gb/s")
            return False
        return True

    def _flaps(self, judge: Judge, node: str, nic: NicFacts, away: list[Outage], found: Answers) -> bool:
        where, now = _where(node, nic), _now(found)
        downs = [one.start for one in away if not one.changed_to]
        late = [at for at in downs if at > self.inputs.grace_s and at > now - self.inputs.window_s]
        counter = found.one(f"{folder(nic.rdma_device)}/counters/link_downed") or ""
        if not counter.isdigit():
            judge.error(where, DOWNS_NOT_REPORTED, "a count", counter or "nothing")
            return False
        if not Limit("link_downs_late", Op.LE, 0, "1", _GRACE_SOURCE).holds(judge, where, len(late)):
            actual = f"{len(late)}, the last {late[-1]:.0f} s after boot"
            judge.fail(
                where,
                WENT_DOWN_LATELY,
                f"not in the last {self.inputs.window_s / 3600:g} h, except {self.inputs.grace_s:.0f} s after boot",
                actual,
            )
            return False
        most = sum(at > now - _DAY_S for at in downs)
        silent = found.one(f"{folder(nic.rdma_device)}/link_layer") == _SILENT
        if silent or now < _DAY_S:  # later, a counter without times tells nothing of a day where the log has them
            most = max(most, int(counter) - (len(away) - len(downs)))
        if Limit("link_downs", Op.LE, self.inputs.max_downs, "1", _COUNT_SOURCE).holds(judge, where, most):
            return True
        allowed, actual = f"at most {self.inputs.max_downs} times", f"{most} times"
        if silent:
            judge.fail(where, WENT_DOWN_SINCE_BOOT, f"{allowed} since boot", actual, device=nic.rdma_device)
        else:
            judge.fail(where, WENT_DOWN_OFTEN, f"{allowed} in 24 h", actual)
        return False

    def _longest_outage(self, judge: Judge, node: str, nic: NicFacts, outages: list[Outage], found: Answers) -> bool:
        """Compare the longest outage with the bound.

        One without an end in the log counts up to now, and contradicts a link that is up.
        """
        where, grace, now = _where(node, nic), self.inputs.grace_s, _now(found)
        outages = [one for one in outages if one.end is None or one.end > now - self.inputs.outage_window_s]
        if not outages:
            return True
        longest = max(outages, key=lambda one: one.late(grace, now))
        seconds = max(0.0, longest.late(grace, now))
        limit = Limit("link_outage", Op.LE, self.inputs.max_outage_s, "s", _AWAY_SOURCE)
        if limit.holds(judge, where, seconds):
            return True
        if longest.end is None:
            judge.error(
                where, RETURN_NOT_LOGGED, "Link up after each Link down", f"Link down {longest.start:.0f} s after boot"
            )
            return False
        expected = f"at most {self.inputs.max_outage_s:g} s at a time, except {grace:.0f} s after boot"
        days = self.inputs.outage_window_s / 86400
        judge.fail(
            where,
            LINK_AWAY,
            expected,
            f"{longest.end - longest.start:.0f} s, from {longest.start:.0f} s after boot",
            days=days,
        )
        return False


def _events(judge: Judge, node: str, text: str) -> list[_Event]:
    """Return the kernel log's events of links, in their order; a line that is not understood is an error."""
    out = []
    for line in (line.strip() for line in text.splitlines()):
        match = _LINE.match(line)
        if match is None:
            judge.error(node, LINE_UNREADABLE, "time, driver, device and Link down or up", line[:100] or "nothing")
        else:
            out.append(_Event(float(match["at"]), match["pci"] or "", match["netdev"], match["way"] == "down"))
    return out


def _outages(events: list[_Event], changes: str) -> list[Outage]:
    """Return one NIC's times without a link, in their order. ``changes``: the record of what rackready did to it."""
    spans = [(float(begun), float(over)) for begun, over in _CHANGE.findall(changes)]
    out: list[Outage] = []
    for event in events:
        if event.down:
            out.append(Outage(event.at, None, next((over for begun, over in spans if begun < event.at <= over), 0.0)))
        elif out and out[-1].end is None:
            out[-1] = replace(out[-1], end=event.at)
    return out


def _now(found: Answers) -> float:
    """Return seconds since boot; 0 if unknown, so that every flap counts."""
    text = (found.one(UPTIME) or "").split()
    return float(text[0]) if text and re.fullmatch(r"\d+(\.\d+)?", text[0]) else 0.0


def _where(node: str, nic: NicFacts) -> str:
    return Place(node, nic.rdma_device, f"(rail {nic.rail})")
