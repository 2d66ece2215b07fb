"""A BMC's answers as gates read them: documents by trail, with states and health in Redfish's words.

It fails closed: an unread document, a word that Redfish does not define and a part without a state are errors. The
words are those of DSP0268, Resource.Status.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rackready.drivers.redfish_read import FORMAT, digest
from rackready.format_error import FormatError
from rackready.gates.base import AGAIN, NOT_RUN, Command, Output, Outputs, Run
from rackready.gates.bmc import schema
from rackready.gates.engine.shipped_script import document
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Finding
from rackready.model.place import Place

Document = Mapping[str, Any]
KEY = "redfish"
TIMEOUT_S = 120.0
"""How long a BMC may take to answer one command, s. Judgement: some take seconds for a request, and a command makes
dozens."""
BAD = frozenset({"Warning", "Critical"})
_HEALTH = BAD | {"OK"}
_WORKING = frozenset({"Enabled", "StandbySpare", "Qualified", "InTest"})
_ABSENT = frozenset({"Absent"})
_BROKEN = frozenset({"UnavailableOffline", "Degraded"})
_IDLE = frozenset({"Disabled", "StandbyOffline", "Deferring", "Quiesced", "Starting", "Updating"})
"""Neither broken nor in use (DSP0268, Resource.State): whether that is right depends on the part."""
_STATES = _WORKING | _ABSENT | _BROKEN | _IDLE
_SWITCH_ON = "Switch it on, or wait until it has started, then run the gate again."
_OLD = "The answer comes from another version of rackready: run the gate again."


BMC_UNREADABLE = ErrorKind(
    "bmc-unreadable",
    "{what} unreadable",
    meaning="The BMC's answer is not one complete document.",
    next_step=AGAIN,
)
BMC_NOT_ALL_ASKED = ErrorKind(
    "bmc-not-all-asked",
    "{what}: not everything was asked",
    meaning="The stored answers lack questions that today's gate asks.",
    next_step=_OLD,
)
BMC_LINK_UNREAD = ErrorKind(
    "bmc-link-unread",
    "{what}: {address} unread",
    meaning="The BMC links to a resource and does not deliver it.",
    next_step="Update or restart the BMC, then run the gate again.",
)
BMC_NOT_ASKED = ErrorKind(
    "bmc-not-asked",
    "{what} not asked",
    meaning="The gate has no answer from the BMC.",
    next_step=NOT_RUN,
)
BMC_NOT_REACHED = ErrorKind(
    "bmc-not-reached",
    "{what} not reported",
    meaning="The BMC does not answer, so nothing that it monitors is known.",
    next_step="Check that the BMC of {node} answers (bmc.address, its cable, user and password in the "
    "site file), then run the gate again.",
)
BMC_LATE = ErrorKind(
    "bmc-late",
    "{what} not reported",
    meaning="The BMC does not answer in time: it hangs or is overloaded.",
    next_step="Restart the BMC, then run the gate again.",
)
STATE_UNKNOWN = ErrorKind(
    "part-state-unknown",
    "{what} state unknown",
    meaning="The BMC reports a part's state in a word that Redfish does not define, or reports none.",
    next_step="Update the BMC's firmware.",
)
NOT_IN_USE = ErrorKind(
    "part-not-in-use",
    "{what} not in use",
    meaning="The part is switched off, so it cannot be known good.",
    next_step=_SWITCH_ON,
)
HEALTH_NOT_REPORTED = ErrorKind(
    "part-health-not-reported",
    "{what} health not reported",
    meaning="The BMC does not report whether the part is healthy.",
    next_step="Update the BMC's firmware.",
)
SENSOR_STATE_UNKNOWN = ErrorKind(
    "sensor-state-unknown",
    "sensor state unknown",
    meaning="The BMC reports the sensor's state in a word that Redfish does not define.",
    next_step="Update the BMC's firmware.",
)
SENSOR_HEALTH_UNKNOWN = ErrorKind(
    "sensor-health-unknown",
    "sensor health unknown",
    meaning="The BMC reports the sensor's health in a word that Redfish does not define.",
    next_step="Update the BMC's firmware.",
)

READING = (BMC_UNREADABLE, BMC_NOT_ALL_ASKED, BMC_LINK_UNREAD, BMC_NOT_ASKED, BMC_NOT_REACHED, BMC_LATE)
"""Findings of reading a BMC."""
PART = (STATE_UNKNOWN, NOT_IN_USE, HEALTH_NOT_REPORTED)
"""Findings of ``works``, beside the fault that it is given."""
SENSOR = (SENSOR_STATE_UNKNOWN, SENSOR_HEALTH_UNKNOWN)
"""Findings of ``healthy``, beside the fault that it is given."""


def ask(node: str, *trails: str, key: str = KEY, timeout_s: float = TIMEOUT_S, stage: int = 0) -> Command:
    """Return the command that gathers from a BMC what these trails lead to (see drivers.redfish_read)."""
    return Command(key=key, node=node, argv=("GET", *trails), timeout_s=timeout_s, stage=stage, via="bmc")


@dataclass(frozen=True, slots=True)
class BmcAnswer:
    """One gathered answer. ``no_members``: the unread collections that have no list of members."""

    documents: Mapping[str, Document]
    trails: Mapping[str, Sequence[str]]
    unread: Mapping[str, str]
    no_members: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        documents: Mapping[str, Document],
        trails: Mapping[str, Sequence[str]],
        unread: Mapping[str, str],
        no_members: Collection[str] = (),
    ) -> BmcAnswer:
        """Return what was gathered.

        A resource with a property that gates read and that is not of Redfish's type counts as unread: it cannot be
        judged.
        """
        odd = {address: why for address, item in documents.items() if (why := schema.odd(item))}
        kept = {address: item for address, item in documents.items() if address not in odd}
        return cls(kept, trails, {**unread, **odd}, frozenset(no_members))

    def at(self, *trails: str) -> Iterator[Document]:
        """Yield every document to which one of the trails led, once."""
        for address in dict.fromkeys(address for trail in trails for address in self.trails.get(trail, [])):
            if address in self.documents:
                yield self.documents[address]

    def has(self, trail: str) -> bool:
        """Return whether a trail led anywhere."""
        return bool(self.trails.get(trail))

    def without_members(self, ends: tuple[str, ...]) -> list[str]:
        """Return the unread collections without a list of members whose addresses end so."""
        return [address for address in self.no_members if ends and address.rstrip("/").endswith(ends)]


def read_answer(  # noqa: PLR0913
    judge: Judge,
    node: str,
    what: str,
    run: Run,
    outputs: Outputs,
    key: str = KEY,
    *,
    spared: Collection[str] = (),
    bare: tuple[str, ...] = (),
) -> BmcAnswer | None:
    """Return the BMC's answer, or None when it cannot be judged; every unread part is then an error already.

    An answer that lacks questions of this gate comes from another version of rackready, and would look as if the parts
    did not exist. ``spared``: trails that may be missing, because the caller can do without them. ``bare``:
    ends of addresses of collections that may be without members, because the caller says then what it did not compare.
    """
    output = outputs.get(key)
    if judge.trouble(_trouble(output, node, what)) or output is None:
        return None
    try:
        found = parse(output)
    except FormatError as error:
        judge.error(Place(node, "BMC"), BMC_UNREADABLE, "a complete document of the BMC's answer", error, what=what)
        return None
    asked = [trail for command in run.commands if command.key == key for trail in command.argv[1:]]
    if lacking := [trail for trail in asked if trail not in found.trails and trail not in spared]:
        actual = f"{len(lacking)} not asked, {lacking[0]} first"
        judge.error(
            Place(node, "BMC"),
            BMC_NOT_ALL_ASKED,
            f"answers to all {len(asked)} questions of today's gate",
            actual,
            what=what,
        )
        return None
    spared_too = found.without_members(bare)
    for address, why in found.unread.items():
        if address in spared_too:
            continue
        judge.error(
            Place(node, "BMC"),
            BMC_LINK_UNREAD,
            "a document, since the BMC links to it",
            why,
            what=what,
            address=address,
        )
    return found


def parse(output: Output) -> BmcAnswer:
    """Return the gathered answer of an output. Raises FormatError when it is incomplete."""
    found = document(output, FORMAT)
    if (
        found.get("complete") is not True or output.exit_code != 0
    ):  # an error document, which a gatherer never prints, would pass the check
        raise FormatError("the document is not complete")
    if found.get("digest") != digest(found):
        raise FormatError("its digest is not that of its contents")
    documents, trails, unread = (found.get(key) for key in ("documents", "trails", "unread"))
    if not isinstance(documents, dict) or not isinstance(trails, dict) or not isinstance(unread, dict):
        raise FormatError("documents, trails or unread missing")
    # An earlier release did not store it: why an address is unread is unknown then.
    no_members = found.get("no_members", [])
    if not isinstance(no_members, list) or any(address not in unread for address in no_members):
        raise FormatError("no_members that is not a list of unread addresses")
    if any(not isinstance(item, dict) or item.get("@odata.id") != address for address, item in documents.items()):
        raise FormatError("a resource that is not a JSON object, or does not have its own address")
    if any(not isinstance(ends, list) or any(not isinstance(end, str) for end in ends) for ends in trails.values()):
        raise FormatError("a trail that is not a list of addresses")
    lost = [
        address for ends in trails.values() for address in ends if address not in documents and address not in unread
    ]
    if lost:
        message = f"{lost[0]} was found and is missing from the document"
        raise FormatError(message)
    return BmcAnswer.of(documents, trails, unread, no_members)


def _trouble(output: Output | None, node: str, what: str) -> Finding | None:
    where = Place(node, "BMC")
    if output is None:
        return BMC_NOT_ASKED.found(where, "an answer", "none", what=what)
    if output.failure:
        return BMC_NOT_REACHED.found(where, "an answer over Redfish", output.failure.rstrip("."), what=what, node=node)
    if output.timed_out or output.exit_code is None:
        actual = f"none after {output.seconds:.0f} s"
        return BMC_LATE.found(where, "an answer in time", actual, what=what)
    return None


def name(document: Document) -> str:
    """Return a part's name: its Id, or its Name, with its number where a document holds several.

    HPE names both supplies alike.
    """
    if document.get("Id"):
        return str(document["Id"])
    called = str(document.get("Name") or document.get("FanName") or "part")
    member = document.get("MemberId")
    return f"{called} #{member}" if member is not None else called


def numeric(value: Any) -> float | None:  # noqa: ANN401 - JSON
    """Return a number, or None for anything else (a boolean is not a number)."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value == value else None  # noqa: PLR0124 - NaN


def parts(document: Document, key: str) -> list[Document]:
    """Return the parts that a document holds in a list (older schemas), or none."""
    found = document.get(key)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def absent(document: Document) -> bool:
    """Return whether a part reports that it is absent."""
    return _status(document).get("State") in _ABSENT


def works(
    judge: Judge,
    where: str,
    what: str,
    document: Document,
    fault: FailKind,
    *,
    idle: Collection[str] = (),
    **values: str,
) -> bool:
    """Judge a part's state and health; return False when it failed, is not in use, or reports neither.

    ``fault`` (with its ``values``) is the finding where it does not work. ``idle``: the unused states that are right
    for this part (a spare supply, an outlet that feeds nothing). A part in any other unused state is an error: it
    cannot be known good.
    """
    judge.judged += 1
    status = _status(document)
    now, health = status.get("State"), status.get("Health")
    if (
        (now is None and health is None)
        or (now is not None and now not in _STATES)
        or (health is not None and health not in _HEALTH)
    ):
        judge.error(where, STATE_UNKNOWN, "a State and a Health of Redfish", f"State {now}, Health {health}", what=what)
        return False
    if health in {"Warning", "Critical"} or now in _ABSENT | _BROKEN:
        judge.fail(
            where, fault, "State Enabled, Health OK", f"State {now}, Health {health}{_conditions(status)}", **values
        )
        return False
    if now in _IDLE and now not in idle:
        judge.error(where, NOT_IN_USE, "State Enabled, Health OK", f"State {now}, Health {health}", what=what)
        return False
    if health is None:
        judge.error(where, HEALTH_NOT_REPORTED, "Health OK", f"State {now}, no Health", what=what)
        return False
    return True


def healthy(judge: Judge, where: str, sensor: Document, fault: FailKind) -> bool:
    """Judge the health of a sensor that has a reading; ``fault`` is the finding where it is not OK.

    Many sensors report no health, so none is not a fault. A word that Redfish does not define is an error.
    """
    status = _status(sensor)
    health, now = status.get("Health"), status.get("State")
    if strange(sensor):
        judge.error(where, SENSOR_STATE_UNKNOWN, "a State of Redfish", now)
        return False
    if health in {None, "OK"}:
        return True
    shown = f"State {status.get('State')}, Health {health}{_conditions(status)}"
    if health in _HEALTH:
        judge.fail(where, fault, "Health OK", shown)
    else:
        judge.error(where, SENSOR_HEALTH_UNKNOWN, "one of OK, Warning, Critical", shown)
    return False


def well(document: Document) -> bool:
    """Return whether a part reports that it is in use and healthy."""
    status = _status(document)
    return status.get("State") == "Enabled" and status.get("Health") == "OK"


def state(document: Document) -> str | None:
    """Return the State that a part reports, or None."""
    found = _status(document).get("State")
    return found if isinstance(found, str) else None


def strange(document: Document) -> bool:
    """Return whether a part reports a State that Redfish does not define."""
    return state(document) not in {None, *_STATES}


def resting(document: Document) -> bool:
    """Return whether a sensor is switched off or unusable, and so has no reading."""
    return state(document) in _ABSENT | _IDLE | {"UnavailableOffline"}


def _status(document: Document) -> Document:
    found = document.get("Status")
    return found if isinstance(found, dict) else {}


def _conditions(status: Document) -> str:
    """Return the BMC's first message about a bad state."""
    said = [str(item.get("Message") or item.get("MessageId") or "") for item in parts(status, "Conditions")]
    return f" ({said[0]})" if said and said[0] else ""
