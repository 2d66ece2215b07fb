"""The gate that asks DCGM's background health watches."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackready.format_error import TWICE, FormatError
from rackready.gates.base import Command, Gate, GateFacts, Need, Output, Outputs, Run, trouble
from rackready.gates.formats import dcgm_health
from rackready.gates.formats.dcgm_health import Entity, Health
from rackready.gates.gpu import parts
from rackready.gates.judging import gpu_models
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.model.place import Place

_STEP = "Read `dcgmi health -c`, then run `rackready gate run node/gpu/validation/dcgm-r3`: docs/runbooks/gpu.md."
_SETTLE_S = 60
"""Time that the watches of memory, PCIe, NVLink and heat need from being set to their first answer.

Source: dcgmi health --help, flags with *.
"""
_DCGM = "Check `systemctl status nvidia-dcgm`, set the watches (`dcgmi health -s a`), then run the gate again."
_SEEN = re.compile(r"^(?P<gpus>\d+) GPUs? found(?: \(Active\))?\.", re.MULTILINE)
"""From DCGM 4.5 on with '(Active)' (dcgmi/Query.cpp, DisplayDiscoveredDevices)."""
_ROW = re.compile(r"^\| *\d+ *\| *Name: (?P<name>.*?) *\|?$", re.MULTILINE)
"""Row of a GPU. An Arm server's processors have rows like it after the NVSwitches.

Source: HelperDisplayDiscoveredCpus in dcgmi/Query.cpp.
"""
_SWITCHES = re.compile(r"^(?P<switches>\d+) NvSwitch(?:es)? found", re.MULTILINE)
_GROUPS = {"gpus": "g", "switches": "s"}
"""Groups of entities that are watched separately, as dcgmi names them.

All entities at once (a) is an option of its command line for which the host engine of 3.3 to 4.6 has no group: it
answers 'The Group is not found' (verifyAndUpdateGroupId in DcgmGroupManager).
"""
_UNIT = "rackready-dcgm-health.service"
"""Unit of the role dcgm that sets the watches whenever the host engine starts: they watch since it became active."""
_WAIT = f"""left={_SETTLE_S}
if systemctl is-active --quiet {_UNIT}; then
  since=$(systemctl show --property=ActiveEnterTimestampMonotonic --value {_UNIT})
  now=$(cut -d. -f1 /proc/uptime)
  left=$(({_SETTLE_S} + since / 1000000 - now))
fi
[ "$left" -le {_SETTLE_S} ] || left={_SETTLE_S}
[ "$left" -le 0 ] || sleep "$left"
"""


WATCHES_NOT_SET = ErrorKind(
    "dcgm-watches-not-set",
    "DCGM health watches of its {name} could not be set",
    meaning="DCGM did not turn on its health watches, so it would report nothing.",
    next_step=_DCGM,
)
HEALTH_UNREADABLE = ErrorKind(
    "dcgm-health-unreadable",
    "DCGM health unreadable",
    meaning="DCGM's health report is not complete.",
    next_step=_DCGM,
)
HEALTH_EXIT_CODE = ErrorKind(
    "dcgm-health-exit-code",
    "DCGM contradicts itself",
    meaning="DCGM gave a report and still ended with an error.",
    next_step=_DCGM,
)
WATCHED_GPUS_MORE = FailKind(
    "dcgm-watches-too-many-gpus",
    "GPUs that DCGM watches",
    meaning="DCGM watches more GPUs than the platform has.",
    next_step=parts.MORE,
)
WATCHED_GPUS_MISSING = FailKind(
    "dcgm-watches-too-few-gpus",
    "GPUs that DCGM watches",
    meaning="DCGM does not watch all GPUs of the node, so it does not see faults of the others.",
    next_step="See gate node/gpu/sanity/inventory. The host engine sees the GPUs that the driver had when it started: "
    "restart nvidia-dcgm after a repair.",
)
WATCHED_SWITCHES = FailKind(
    "dcgm-watches-nvswitches",
    "NVSwitches that DCGM watches",
    meaning="DCGM does not watch all NVSwitches of the node, so it does not see faults of their links.",
    next_step="Check libnvidia-nscq (it must be the driver's version) and `systemctl status nvidia-fabricmanager`, "
    "then restart nvidia-dcgm: docs/runbooks/nvlink-down.md.",
    runbook="docs/runbooks/nvlink-down.md",
)
DISCOVERY_UNREADABLE = ErrorKind(
    "dcgm-discovery-unreadable",
    "DCGM discovery unreadable",
    meaning="DCGM's list of what it watches cannot be read.",
    next_step=_DCGM,
)
HEALTH_UNNAMED = FailKind(
    "dcgm-health-bad-unnamed",
    "DCGM health",
    meaning="DCGM reports that something is unhealthy, but not which part.",
    next_step=_STEP,
    runbook="docs/runbooks/gpu.md",
)
HEALTH_OVERALL_CONTRADICTS = ErrorKind(
    "dcgm-health-overall-contradicts",
    "DCGM contradicts itself",
    meaning="DCGM's summary contradicts its reports about single parts.",
    next_step=_DCGM,
)
HEALTH_INCIDENT = FailKind(
    "dcgm-health-incident",
    "DCGM health: {system}",
    meaning="DCGM reports an incident on this part.",
    next_step=_STEP,
    runbook="docs/runbooks/gpu.md",
)
HEALTHY_ENTITY_LISTED = ErrorKind(
    "dcgm-health-healthy-listed",
    "DCGM contradicts itself",
    meaning="DCGM lists a part as unhealthy and reports it as healthy.",
    next_step=_DCGM,
)
HEALTH_NO_INCIDENT = FailKind(
    "dcgm-health-no-incident",
    "DCGM health",
    meaning="DCGM reports this part as unhealthy, but not why.",
    next_step=_STEP,
    runbook="docs/runbooks/gpu.md",
)
HEALTH_ENTITY_CONTRADICTS = ErrorKind(
    "dcgm-health-entity-contradicts",
    "DCGM contradicts itself",
    meaning="DCGM's health of this part contradicts its worst incident.",
    next_step=_DCGM,
)

FINDINGS = (
    WATCHES_NOT_SET,
    HEALTH_UNREADABLE,
    HEALTH_EXIT_CODE,
    WATCHED_GPUS_MORE,
    WATCHED_GPUS_MISSING,
    WATCHED_SWITCHES,
    DISCOVERY_UNREADABLE,
    HEALTH_UNNAMED,
    HEALTH_OVERALL_CONTRADICTS,
    HEALTH_INCIDENT,
    HEALTHY_ENTITY_LISTED,
    HEALTH_NO_INCIDENT,
    HEALTH_ENTITY_CONTRADICTS,
)


class DcgmHealth(Gate):
    """DCGM's health watches (memory, PCIe, NVLink, InfoROM, heat, power, driver) report healthy GPUs and NVSwitches."""

    id = "node/gpu/validation/dcgm-health"
    findings = (*gpu_models.FINDINGS, *FINDINGS)
    covers = frozenset({"gpu"})

    @property
    def needs(self) -> frozenset[Need]:
        """Return DCGM, whose host engine it asks."""
        return frozenset({"dcgm"})

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Return one run per node: set all watches, wait until they have had their time, then ask.

        Setting them twice changes nothing. Sooner, Healthy only means that nothing was watched.
        """
        return [self._run(facts, node) for node in nodes]

    @staticmethod
    def _run(facts: GateFacts, node: str) -> Run:
        groups = [(name, _GROUPS[name]) for name in _watched(facts, node)]
        set_ = [
            Command(key=f"set-{name}", node=node, argv=("dcgmi", "health", "-g", group, "-s", "a"), timeout_s=60)
            for name, group in groups
        ]
        seen = Command(key="seen", node=node, argv=("dcgmi", "discovery", "-l"), timeout_s=60)
        check = [
            Command(
                key=f"check-{name}",
                node=node,
                argv=("sh", "-c", f"{_WAIT}exec dcgmi health -g {group} -c -j\n"),
                timeout_s=_SETTLE_S + 60,
                stage=1,
            )
            for name, group in groups
        ]
        return Run.of_node(node, *set_, seen, *check)

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Fail for every incident, with its entity; the overall health of each group must agree with them."""
        node = run.nodes[0]
        judge = Judge()
        groups = _watched(facts, node)
        for key, what in (
            *((f"set-{name}", "dcgmi health -s") for name in groups),
            ("seen", "dcgmi discovery"),
            *((f"check-{name}", "dcgmi health -c") for name in groups),
        ):
            if judge.trouble(trouble(outputs.get(key), node, what)):
                return judge.verdict(node)
        if not all([_was_set(judge, node, name, outputs[f"set-{name}"]) for name in groups]):  # noqa: C419 - judge every group
            return judge.verdict(node)
        found = {name: _report(judge, node, outputs[f"check-{name}"]) for name in groups}
        if _sees_all(judge, facts, node, outputs["seen"]):
            for name, health in found.items():
                if health is not None:
                    _judge(judge, facts, node, name, health)
        if facts.nodes[node].platform.nvswitch and "switches" not in groups:
            judge.note = "NVSwitches are not watched: this server's host engine does not see them"
        return judge.verdict(node)


def _watched(facts: GateFacts, node: str) -> tuple[str, ...]:
    """Return the groups of entities that are watched on a node."""
    return ("gpus", "switches") if facts.nodes[node].platform.nvswitches else ("gpus",)


def _was_set(judge: Judge, node: str, name: str, output: Output) -> bool:
    if output.exit_code == 0 and "successfully" in output.stdout:
        return True
    actual = f"{' '.join(output.stdout.split())[:160]} (exit code {output.exit_code})"
    judge.error(node, WATCHES_NOT_SET, "Health monitor systems set successfully", actual, name=name)
    return False


def _report(judge: Judge, node: str, check: Output) -> Health | None:
    try:
        found = dcgm_health.parse(check.stdout)
    except FormatError as error:
        judge.error(node, HEALTH_UNREADABLE, "JSON of dcgmi health -c", f"{error} (exit code {check.exit_code})")
        return None
    if check.exit_code != 0:
        judge.error(node, HEALTH_EXIT_CODE, "exit code 0 with a report", f"exit code {check.exit_code}")
    return found


def _sees_all(judge: Judge, facts: GateFacts, node: str, seen: Output) -> bool:
    """Compare the GPUs and NVSwitches that DCGM sees with the platform: its reports name only unhealthy ones."""
    listed = _listed(judge, node, seen)
    platform, wanted = facts.nodes[node].platform, facts.nodes[node].gpu.product_name
    judge.judged += 1
    if listed is None or not gpu_models.require_model(
        judge, node, "DCGM watches", [(node, name) for name in listed[0]], [wanted]
    ):
        return False
    gpus, switches = len(listed[0]), listed[1]
    if gpus != platform.gpus:
        judge.fail(node, WATCHED_GPUS_MORE if gpus > platform.gpus else WATCHED_GPUS_MISSING, platform.gpus, gpus)
        return False
    if platform.nvswitches and switches != int(platform.nvswitches.value):
        judge.fail(node, WATCHED_SWITCHES, int(platform.nvswitches.value), switches)
        return False
    return True


def _listed(judge: Judge, node: str, seen: Output) -> tuple[list[str], int] | None:
    """Return the GPU models and the number of NVSwitches on DCGM's list; None, with an error, if it is damaged."""
    found, switches = _SEEN.findall(seen.stdout), _SWITCHES.search(seen.stdout)
    rows = _ROW.findall(seen.stdout, 0, switches.start()) if switches else []
    if len(found) == 1 and int(found[0]) == len(rows) and switches is not None and seen.exit_code == 0:
        return rows, int(switches["switches"])
    said = (
        f"{len(found)} lists of GPUs: {TWICE}" if len(found) > 1 else " ".join(seen.stdout.split())[:160] or "nothing"
    )
    judge.error(
        node, DISCOVERY_UNREADABLE, "the GPUs and NVSwitches that were found", f"{said} (exit code {seen.exit_code})"
    )
    return None


def _judge(judge: Judge, facts: GateFacts, node: str, name: str, found: Health) -> None:
    judge.judged += 1
    for entity in found.entities:
        _entity(judge, Place(node, _part(entity)), entity)
    bad = {_part(entity) for entity in found.entities}
    least = dcgm_health.worst(word for entity in found.entities for word in (entity.health, entity.worst_incident))
    if found.overall != "Healthy" and not bad:
        judge.fail(node, HEALTH_UNNAMED, "Healthy", f"{found.overall}, and no entity is named")
    if dcgm_health.worst((found.overall, least)) != found.overall:
        judge.error(
            node,
            HEALTH_OVERALL_CONTRADICTS,
            f"an overall health as bad as that of the worst entity: {least}",
            found.overall,
        )
    if name == "gpus":
        judge.measured.update(
            f"{node}/gpu{gpu}" for gpu in range(facts.nodes[node].platform.gpus) if f"gpu{gpu}" not in bad
        )


def _part(entity: Entity) -> str:
    return f"gpu{entity.name}" if entity.group == "GPU" else f"{entity.group} {entity.name}"


def _entity(judge: Judge, where: str, entity: Entity) -> None:
    """Fail for every incident of an entity, or for its own health if no incident explains it.

    DCGM lists only entities with incidents.
    """
    for incident in entity.incidents:
        if incident.health != "Healthy":
            judge.fail(where, HEALTH_INCIDENT, "Healthy", f"{incident.health}: {incident.text}", system=incident.system)
    if entity.worst_incident == entity.health == "Healthy":
        judge.error(where, HEALTHY_ENTITY_LISTED, "only entities with incidents", "an entity that is Healthy")
    elif entity.worst_incident == "Healthy":
        judge.fail(where, HEALTH_NO_INCIDENT, "Healthy", f"{entity.health}, and no incident is named")
    elif entity.health != entity.worst_incident:
        judge.error(
            where,
            HEALTH_ENTITY_CONTRADICTS,
            f"a health as bad as its worst incident: {entity.worst_incident}",
            entity.health,
        )
