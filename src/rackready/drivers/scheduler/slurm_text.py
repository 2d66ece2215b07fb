"""Parsers for the output of `scontrol show node -o` and `squeue` (Slurm 22.05 and later): pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rackready.drivers.scheduler.base import PREFIX, Job, NotOursError, SchedulerError, SchedulerNode
from rackready.model.host_list import host_list

_AUTHOR = re.compile(r"\[(?P<by>[^\[\]@\s]+)@\d{4}-\d\d-\d\dT[\d:]+\]")
"""Author and time of a reason, which Slurm appends to the text."""

_DOWN = frozenset({"DOWN", "FAIL", "NOT_RESPONDING", "UNKNOWN"})
_STOPS = _DOWN | {"DRAIN", "FUTURE", "INVAL", "POWERED_DOWN", "POWERING_DOWN", "REBOOT", "PLANNED_DOWN"}


def parse_node(line: str) -> SchedulerNode:
    """Return the node of one line. Raises SchedulerError for any other text."""
    name, state = field_of(line, "NodeName"), field_of(line, "State")
    if not name or not state:
        shown = " ".join(line.split())[:200] or "nothing"
        raise SchedulerError(
            "`scontrol show node`",
            expected="NodeName=... State=...",
            actual=shown,
            next_step="Run it on the controller; its release may print another format.",
        )
    words = state_words(state)
    reason, by = _reason(line)
    return SchedulerNode(name, state, not words & _STOPS, "DRAIN" in words, bool(words & _DOWN), reason, by)


JOB_FORMAT = "%i|%u|%P|%T|%j"
"""Id, user, partition, state, name; the name is last because it may contain anything."""

_NOT_STARTED = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"})


PLACED_FORMAT = f"%N|{JOB_FORMAT}"
"""The same with the nodes before it, as a host list, for questions about several nodes."""

_LONGEST_LIST = 100_000
"""The most nodes of one host list, more than any cluster has: a damaged number must not fill the memory."""


def parse_placed(text: str) -> list[tuple[Job, frozenset[str]]]:
    """Return the started jobs of a `squeue` in PLACED_FORMAT by id, with their nodes. Raises SchedulerError."""
    placed = []
    for line in text.splitlines():
        hosts, _, rest = line.partition("|")
        # a line without a bar has another format: parse_jobs refuses it
        placed += [(job, expand_hosts(hosts)) for job in parse_jobs(rest or line)]
    return sorted(placed, key=lambda pair: _order(pair[0]))


def expand_hosts(text: str) -> frozenset[str]:
    """Return the names of a host list such as node[01-03,7],login1. Raises SchedulerError for any other text."""
    if re.fullmatch(r"(?:[^\[\]]|\[[^\[\]]+\])*", text) is None:
        raise _no_hosts(text)
    names: set[str] = set()
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        found = [""]
        for plain, ranges in re.findall(r"([^\[]+)|\[([^\]]*)\]", part):
            words = [plain] if plain else [number for item in ranges.split(",") for number in _numbers(item, text)]
            found = [head + word for head in found for word in words]
        names.update(found)
    return frozenset(names)


def _numbers(item: str, text: str) -> list[str]:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", item)
    if match is None or int(match[2] or match[1]) - int(match[1]) > _LONGEST_LIST:
        raise _no_hosts(text)
    return [f"{number:0{len(match[1])}d}" for number in range(int(match[1]), int(match[2] or match[1]) + 1)]


def _no_hosts(text: str) -> SchedulerError:
    expected, step = (
        "a host list such as node[01-04]",
        "Run it on the controller; its release may print another format.",
    )
    return SchedulerError("`squeue`", expected=expected, actual=f"{text[:200]!r}", next_step=step)


def parse_jobs(text: str) -> list[Job]:
    """Return the started jobs of `squeue --noheader` in JOB_FORMAT by id. Raises SchedulerError for any other line."""
    found = []
    for line in text.splitlines():
        fields = line.split("|", 4)
        if len(fields) != len(JOB_FORMAT.split("|")):
            raise SchedulerError(
                "`squeue`",
                expected=f"lines of {JOB_FORMAT}",
                actual=f"{line[:200]!r}",
                next_step="Run it on the controller; its release may print another format.",
            )
        job, user, partition, state, name = fields
        if state not in _NOT_STARTED:
            found.append(Job(job, user, partition, name))
    return sorted(found, key=_order)


def _order(job: Job) -> list[int]:
    return [int(part) if part.isdigit() else 0 for part in job.id.split("_")]


SLURMDBD = "accounting_storage/slurmdbd"
"""Value of AccountingStorageType with accounting: QOS are records of slurmdbd (sacctmgr(1))."""


def accounting_of(config: str) -> str:
    """Return AccountingStorageType of `scontrol show config`, e.g. accounting_storage/none."""
    match = re.search(r"^AccountingStorageType\s*=\s*(\S+)", config, re.MULTILINE)
    return match[1] if match else "not shown"


def configless_of(config: str) -> bool:
    """Return whether `scontrol show config` says that slurmctld sends its files to slurmd (`slurmd --conf-server`).

    slurmctld looks for the word in any case (Slurm's src/slurmctld/proc_req.c, configless_setup).
    """
    match = re.search(r"^SlurmctldParameters\s*=\s*(\S+)", config, re.MULTILINE)
    return match is not None and "enable_configless" in match[1].lower()


OF_SLURMCTLD = frozenset({"Not responding", "Node unexpectedly rebooted", "ResumeTimeout reached"})
"""Reasons of nodes that slurmctld itself sets down, without a drain (Slurm, ping_nodes.c, node_mgr.c, power_save.c).

It signs them with SlurmUser's name. Where that is root, people sign so, too: only both together are slurmctld's own. It
adds its text behind " : " to somebody else's, and signs the whole.
"""


_REGISTRATION = re.compile(
    r"Low (?:socket\*core\*thread count|CPUs|TmpDisk|RealMemory(?: \(reported:\d+ < [\d.]+% of configured:\d+\))?)"
    r"|\S+ count reported lower than configured \(\d+ < \d+\)"
)
"""slurmctld's reasons for a node that registered with less than its line says (Slurm 22.05 to 26.05:
src/slurmctld/node_mgr.c, validate_node_specs; gres.c). It joins them with a comma and drains the node. Later releases
write them over any other reason, also over ours, with SlurmUser as the author.
"""
_INVALID = frozenset({"INVAL", "INVALID_REG"})
"""Words of a node's state while its last registration was refused (NODE_STATE_INVALID_REG)."""


def of_slurmctld(now: SchedulerNode) -> bool:
    """Return whether all of a node's reason is slurmctld's own text, and its cause is gone.

    A drain counts only when the node registered with less than its line says, and does so no more.
    """
    if not now.drained:
        return OF_SLURMCTLD.issuperset(now.reason.split(" : "))
    return of_registration(now.reason) and not state_words(now.state) & _INVALID


def of_registration(reason: str) -> bool:
    """Return whether a reason is only slurmctld's texts for a registration with too little."""
    texts = [text for part in reason.split(" : ") if part not in OF_SLURMCTLD for text in part.split(", ")]
    return bool(texts) and all(_REGISTRATION.fullmatch(text) for text in texts)


def not_ours(now: SchedulerNode, *, replaced: bool) -> NotOursError:
    """Return the refusal to resume a node. ``replaced``: slurmctld wrote its reason, maybe over a person's."""
    why = "rackready never undoes somebody else's drain: when it is settled"
    if replaced:
        why = "slurmctld writes this over any reason, and no drain of rackready's is on record: if nobody holds it back"
    return NotOursError(
        now.name,
        f"drained in Slurm by {now.by or 'somebody'}",
        expected=f"a reason that begins with '{PREFIX}'",
        actual=f"{now.reason or 'no reason'!r}. {why}, `scontrol update NodeName={now.name} State=RESUME`",
    )


def slurm_user_of(where: str, config: str) -> frozenset[str]:
    """Return SlurmUser of `scontrol show config` as reasons are signed, by name or by number. Raises SchedulerError."""
    match = re.search(r"^SlurmUser\s*=\s*([^\s()]+)\((\d+)\)", config, re.MULTILINE)
    if match is None:
        raise SchedulerError(
            where,
            "`scontrol show config`",
            expected="SlurmUser = slurm(64030)",
            actual=" ".join(config.split())[:120] or "nothing",
            next_step="Check that slurmctld runs there.",
        )
    return frozenset(match.groups())


RESERVED, _ADDED = frozenset({"MAINT", "IGNORE_JOBS"}), frozenset({"SPEC_NODES", "ALL_NODES"})
"""Flags of a reservation of ours, and those that Slurm adds for the nodes that it names (scontrol(1), Flags)."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Who may use a reservation, on which nodes, and how, as `scontrol show reservation` says it."""

    users: str
    nodes: frozenset[str]
    flags: frozenset[str]

    def __str__(self) -> str:
        return f"Users={self.users} Nodes={host_list(sorted(self.nodes))} Flags={','.join(sorted(self.flags))}"

    def same(self, ours: Reservation) -> bool:
        """Return whether it is exactly as we make it: flags that Slurm adds do not count."""
        return (self.users, self.nodes, self.flags - _ADDED) == (ours.users, ours.nodes, ours.flags)


def parse_reservation(text: str, name: str) -> Reservation | None:
    """Return one reservation of `scontrol show reservation --oneliner`; None when it is not there."""
    lines = [line for line in text.splitlines() if field_of(line, "ReservationName") == name]
    if not lines:
        return None
    flags = frozenset(filter(None, field_of(lines[0], "Flags").split(",")))
    return Reservation(field_of(lines[0], "Users"), expand_hosts(field_of(lines[0], "Nodes")), flags)


def parse_reservations(text: str, begin: str) -> dict[str, Reservation]:
    """Return name -> reservation of `scontrol show reservation --oneliner`, of those whose names begin so."""
    names = [field_of(line, "ReservationName") for line in text.splitlines()]
    found = {name: parse_reservation(text, name) for name in names if name.startswith(begin)}
    return {name: one for name, one in found.items() if one is not None}


def state_words(state: str) -> set[str]:
    """Return base state and flags of a state such as IDLE+DRAIN or DOWN*+DRAIN (the star: slurmd does not answer)."""
    return set(state.replace("*", "+NOT_RESPONDING").upper().split("+"))


def field_of(line: str, key: str) -> str:
    """Return the value of a key in a line of scontrol; empty where it has none."""
    match = re.search(rf"(?:^|\s){key}=(\S+)", line)
    return match[1] if match else ""


def _reason(line: str) -> tuple[str, str]:
    """Return reason and author. The reason is free text near the end of the line, followed by author and time."""
    match = re.search(r"\sReason=(.*)$", line, re.DOTALL)
    if match is None:
        return "", ""
    author = _AUTHOR.search(match[1])
    return (match[1].strip(), "") if author is None else (match[1][: author.start()].strip(), author["by"])
