"""Links of the compute NICs: up, at their rate, and neither gone for long nor flapping."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import Field

from rackready.design.facts import NicFacts, NodeFacts
from rackready.gates import base
from rackready.gates.engine.nodes_without_nics import NOTE
from rackready.gates.host import reading
from rackready.gates.host.reading import AGAIN, Answers, HostGate, Limit, Tool, Wanted, placed
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Op

LOG = Tool("dmesg", ("dmesg",), "util-linux", keep=r"mlx5_core .*Link (down|up)$")
_LINE = re.compile(
    r"^\[\s*(?P<at>\d+\.\d+)\] mlx5_core (?:(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) "
    r")?(?P<netdev>[^\s:]+)(?: \([\w ]+\))?: Link (?P<way>down|up)$"
)
"""As netdev_info writes it: driver, PCI address, name of the interface, in brackets what it is called while it has none. The address stays when the interface
is renamed, so it tells the NIC; the name does where no address is logged."""
UPTIME = "/proc/uptime"
_GRACE_SOURCE = "oci-hpc: any flap of the last 6 hours that is later than 30 minutes after boot"
_YEAR_S = 366 * 86400
_COUNT_SOURCE = "Azure node health checks: 5 or more lost carriers of a port in a day"
_AWAY_SOURCE = "NVIDIA's health checks of GB200 and GB300, rdma_linkflap_fatal: one outage of 30 s or more is critical"
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
    next_step="Check cable and module at {far} and the port's state on the switch.",
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
    meaning="The link went down a short while ago: it flaps, and jobs on it stall or end.",
    next_step="Clean and reseat cable and module, then swap them with those of "
    "another port: see whether the flaps move "
    "with them.",
)
WENT_DOWN_OFTEN = FailKind(
    "link-went-down-often",
    "link went down",
    meaning="The link went down more often since boot than the gate set allows.",
    next_step="Clean and reseat cable and module, then swap them with those of "
    "another port: see whether the flaps move "
    "with them.",
)
RETURN_NOT_LOGGED = ErrorKind(
    "link-return-not-logged",
    "link's return not in the kernel log",
    meaning="The kernel log says that the link went down and not that it came back.",
    next_step=AGAIN,
)
LINK_AWAY = FailKind(
    "link-was-away",
    "link was away",
    meaning="The link was away longer than the gate set allows.",
    next_step=(
        "Find out why. Cable and module: clean and reseat them. A switch that was restarted on purpose: raise the "
        "gate's input max_outage_s. It counts for {days:g} days, or until the node's next boot."
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
    RETURN_NOT_LOGGED,
    LINK_AWAY,
    LINE_UNREADABLE,
)


def folder(device: str) -> str:
    """Return the kernel's folder of an RDMA device's port."""
    return f"/sys/class/infiniband/{device}/ports/1"


@dataclass(frozen=True, slots=True)
class Outage:
    """A time without the link, seconds since boot; ``end`` None: the kernel log does not say that it came back."""

    start: float
    end: float | None

    def late(self, grace: float, now: float) -> float:
        """Return how long it lasted after the grace, s."""
        return (now if self.end is None else self.end) - max(self.start, grace)


@dataclass(frozen=True, slots=True)
class _Event:
    """One line of the kernel log on a link. ``pci`` with its function, empty where the line has none."""

    at: float
    pci: str
    netdev: str
    down: bool


class Links(HostGate):
    """Every compute NIC's link is up at its rate; it was not away for long this week, has not gone down often since boot, and not lately."""

    id = "node/host/sanity/links"
    findings = (*reading.FINDINGS, reading.PARTS_NOT_PLACED, *FINDINGS)
    looks = True
    what = "links"
    covers = frozenset({"node", "nic"})

    class Inputs(base.Inputs):
        """When a link that went down counts as flapping."""

        grace_s: float = Field(
            1800,
            ge=0,
            le=86400,
            description="seconds after boot in which links may go down, at most a day (judgement); "
            f"source of the default: {_GRACE_SOURCE}",
        )
        window_s: float = Field(
            21600,
            gt=0,
            le=_YEAR_S,
            description="seconds back from now in which one such flap is too many, at most a year; "
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
            description="seconds back from now in which such an outage counts, at most a year; "
            "judgement: a planned restart of a switch is history in a week",
        )
        max_downs: int = Field(
            4,
            ge=0,
            le=1000,
            description="times that a link may have gone down since boot, grace included, at most 1000 (judgement); "
            f"source of the default: {_COUNT_SOURCE}",
        )

    inputs: Inputs

    def wanted(self, facts: NodeFacts) -> Wanted:
        """Read each port's state and counter, and the kernel log's lines on links."""
        leaves = ("state", "phys_state", "rate", "counters/link_downed")
        return Wanted((LOG,), (UPTIME, *(f"{folder(nic.rdma_device)}/{leaf}" for nic in facts.nics for leaf in leaves)))

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Hold each link against the plan; a node without compute NICs has nothing to judge."""
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
                [event for event in events if (event.pci == nic.pci if event.pci else event.netdev == nic.netdev)]
            )
            good &= text is not None and self._flaps(judge, facts.node.name, nic, [one.start for one in away], found)
            good &= not up or self._away(judge, facts.node.name, nic, away, found)
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

    def _flaps(self, judge: Judge, node: str, nic: NicFacts, downs: list[float], found: Answers) -> bool:
        where = _where(node, nic)
        late = [at for at in downs if at > self.inputs.grace_s and at > _now(found) - self.inputs.window_s]
        counter = found.one(f"{folder(nic.rdma_device)}/counters/link_downed") or ""
        if not counter.isdigit():
            judge.error(where, DOWNS_NOT_REPORTED, "a count", counter or "nothing")
            return False
        if not Limit("link_downs_late", Op.LE, 0, "1", _GRACE_SOURCE).holds(judge, where, len(late)):
            actual = f"{len(late)}, the last {late[-1]:.0f} s after boot"
            judge.fail(
                where,
                WENT_DOWN_LATELY,
                f"not in the last {self.inputs.window_s / 3600:g} h, {self.inputs.grace_s:.0f} s after boot apart",
                actual,
            )
            return False
        most = max(len(downs), int(counter))
        if not Limit("link_downs", Op.LE, self.inputs.max_downs, "1", _COUNT_SOURCE).holds(judge, where, most):
            judge.fail(where, WENT_DOWN_OFTEN, f"at most {self.inputs.max_downs} times since boot", f"{most} times")
            return False
        return True

    def _away(self, judge: Judge, node: str, nic: NicFacts, outages: list[Outage], found: Answers) -> bool:
        """Hold the longest outage against the bound; one that ends nowhere in the log counts up to now, and contradicts a link that is up."""
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
        expected = f"at most {self.inputs.max_outage_s:g} s at a time, {grace:.0f} s after boot apart"
        days = self.inputs.outage_window_s / 86400
        judge.fail(
            where,
            LINK_AWAY,
            expected,
            f"{longest.end - longest.start:.0f} s, from {longest.start:.0f} s after boot on",
            days=days,
        )
        return False


def _events(judge: Judge, node: str, text: str) -> list[_Event]:
    """Return what the kernel logged of links, in its order; a line that is not understood is an error."""
    out = []
    for line in (line.strip() for line in text.splitlines()):
        match = _LINE.match(line)
        if match is None:
            judge.error(node, LINE_UNREADABLE, "time, driver, device and Link down or up", line[:100] or "nothing")
        else:
            out.append(_Event(float(match["at"]), match["pci"] or "", match["netdev"], match["way"] == "down"))
    return out


def _outages(events: list[_Event]) -> list[Outage]:
    """Return the times without a link of one NIC, in their order."""
    out: list[Outage] = []
    for event in events:
        if event.down:
            out.append(Outage(event.at, None))
        elif out and out[-1].end is None:
            out[-1] = Outage(out[-1].start, event.at)
    return out


def _now(found: Answers) -> float:
    """Return seconds since boot; 0 where the kernel does not say, so that every flap counts."""
    text = (found.one(UPTIME) or "").split()
    return float(text[0]) if text and re.fullmatch(r"\d+(\.\d+)?", text[0]) else 0.0


def _where(node: str, nic: NicFacts) -> str:
    return f"{node} {nic.rdma_device} (rail {nic.rail})"
