"""The BMC's health rollup compared with the health of the parts: a rollup of OK above a bad part cannot be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rackready.gates.base import Gate, GateFacts, Outputs, Run
from rackready.gates.bmc import owner
from rackready.gates.bmc.documents import BAD, BmcAnswer, Document, name, parts
from rackready.gates.bmc.parts_seen import BARE
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.model.place import Place

_TOPS = ("Systems/*", "Chassis/*", "Managers/*")
_PARTS = (
    "Systems/*/Processors/*",
    "Systems/*/Memory/*",
    "Systems/*/Storage/*",
    "Systems/*/Storage/*/Drives/*",
    "Chassis/*/PowerSubsystem",
    "Chassis/*/PowerSubsystem/PowerSupplies/*",
    "Chassis/*/ThermalSubsystem",
    "Chassis/*/ThermalSubsystem/Fans/*",
    "Chassis/*/Sensors/*",
    "Chassis/*/Power",
    "Chassis/*/Thermal",
)
_LISTS = ("PowerSupplies", "Fans", "Temperatures", "Voltages")
_WORDS = BAD | {"OK"}


HEALTH_NOT_SUMMED = ErrorKind(
    "health-not-summed-up",
    "health rollup not reported",
    meaning="The BMC reports no overall health of the server.",
    next_step="Update the BMC's firmware.",
)
SUM_UNKNOWN = ErrorKind(
    "health-sum-unknown",
    "health unknown",
    meaning="The BMC reports the server's overall health in a word that Redfish does not define.",
    next_step="Update the BMC's firmware.",
)
SUM_BAD = FailKind(
    "health-sum-bad",
    "health",
    meaning="The BMC's health rollup reports that some part of the server is not healthy.",
    next_step="Read the BMC's event log and the gates on its power, cooling and parts; repair that part.",
)
SUM_CONTRADICTS = ErrorKind(
    "health-sum-contradicts",
    "health rollup contradicts its parts",
    meaning="The BMC's rollup is healthier than its worst part.",
    next_step="Update the BMC; repair that part.",
)
PART_HEALTH_UNKNOWN = ErrorKind(
    "health-part-unknown",
    "health unknown",
    meaning="A part reports its health in a word that Redfish does not define.",
    next_step="Update the BMC's firmware.",
)
PART_HEALTH = FailKind(
    "health-part-bad",
    "health",
    meaning="A part is not healthy, and no rollup of the BMC covers it.",
    next_step="Repair or replace it; see the gates on power, cooling and parts. Update the BMC: no "
    "rollup includes this part.",
)

FINDINGS = (HEALTH_NOT_SUMMED, SUM_UNKNOWN, SUM_BAD, SUM_CONTRADICTS, PART_HEALTH_UNKNOWN, PART_HEALTH)


class Rollup(Gate):
    """The BMC reports its systems, chassis and managers as healthy, and no part that it lists contradicts that."""

    id = "bmc/health/sanity/rollup"
    findings = (
        *owner.FINDINGS,
        *FINDINGS,
    )
    looks = True

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002
        """Plan one request to each BMC."""
        return [Run.of_node(node, owner.ask(node, *_TOPS, *_PARTS, timeout_s=240)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge rollups and parts.

        A bad rollup is a fail. A bad part below a good rollup is also an error, since others watch the rollup.
        """
        node = run.nodes[0]
        judge = Judge()
        found = owner.server(judge, facts.nodes[node], "health", run, outputs, systems=True, bare=BARE)
        if found is None:
            return judge.verdict(node)
        if unlisted := sorted(found.without_members(BARE)):
            judge.remark(f"drives that the BMC may have were not judged: {', '.join(unlisted)} lists no members")
        tops = [document for trail in _TOPS for document in found.at(trail)]
        parts_ = list(_all_parts(found))
        bad = [part for part in parts_ if _health(part) in BAD]
        self._strange(judge, node, [part for part in parts_ if _health(part) not in {None, *_WORDS}])
        for top in tops:
            self._top(judge, node, top, bad)
        self._judge_uncovered(judge, node, bad, [top for top in tops if _summed(top) is not None or _absent(top)])
        if not judge.judged:
            judge.error(
                Place(node, "BMC"), HEALTH_NOT_SUMMED, "a Health or HealthRollup of a system or chassis", "none"
            )
        return judge.verdict(node)

    @staticmethod
    def _top(judge: Judge, node: str, top: Document, bad: Sequence[Document]) -> None:
        summed = _summed(top)
        where = Place(node, f"{_kind(top)} {name(top)}")
        if summed is None or _absent(top):
            return
        judge.judged += 1
        below = [part for part in bad if _below(part, top)]
        if summed not in _WORDS:
            judge.error(where, SUM_UNKNOWN, "one of OK, Warning, Critical", summed)
        elif summed in BAD:
            what = ", ".join(f"{name(part)} {_health(part)}" for part in below[:3]) or "no part that it names"
            judge.fail(where, SUM_BAD, "OK", f"{summed}: {what}")
        elif below:
            named = ", ".join(f"{name(part)} {_health(part)}" for part in below[:3])
            judge.error(where, SUM_CONTRADICTS, "a rollup as bad as its worst part", f"{summed}, and {named}")
        else:
            judge.measured.add(f"{node}/{_kind(top)}/{name(top)}")

    @staticmethod
    def _strange(judge: Judge, node: str, found: Sequence[Document]) -> None:
        """Report parts whose health is a word that Redfish does not define, each once: both schemas may list one."""
        for what, shown in dict.fromkeys((name(part), str(_health(part))) for part in found):
            judge.judged += 1
            judge.error(Place(node, f"part {what}"), PART_HEALTH_UNKNOWN, "one of OK, Warning, Critical", shown)

    @staticmethod
    def _judge_uncovered(judge: Judge, node: str, bad: Sequence[Document], summed: Sequence[Document]) -> None:
        """Report each bad part that no rollup covers, once: both schemas may list a part."""
        for what, shown in dict.fromkeys(
            (name(part), str(_health(part))) for part in bad if not any(_below(part, top) for top in summed)
        ):
            judge.judged += 1
            judge.fail(Place(node, f"part {what}"), PART_HEALTH, "OK", shown)


def _summed(top: Document) -> object:
    """Return the rollup of a system, chassis or manager, or None."""
    status = top.get("Status")
    if not isinstance(status, Mapping):
        return None
    return next(
        (status[key] for key in ("HealthRollup", "HealthRollUp", "Health") if status.get(key) is not None), None
    )


def _absent(top: Document) -> bool:
    status = top.get("Status")
    return isinstance(status, Mapping) and status.get("State") == "Absent"


def _all_parts(found: BmcAnswer) -> Iterator[Document]:
    for document in found.at(*_PARTS):
        yield document
        for key in _LISTS:
            for part in parts(document, key):
                yield {"@odata.id": document.get("@odata.id", ""), **part}


def _health(document: Document) -> object:
    status = document.get("Status")
    return status.get("Health") if isinstance(status, dict) and status.get("State") != "Absent" else None


def _below(part: Document, top: Document) -> bool:
    return str(part.get("@odata.id", "")).startswith(str(top.get("@odata.id", "?")).rstrip("/") + "/")


def _kind(top: Document) -> str:
    words = str(top.get("@odata.id", "")).strip("/").split("/")
    return {"Systems": "system", "Managers": "manager", "Chassis": "chassis"}.get(
        words[-2] if len(words) > 1 else "", "resource"
    )
