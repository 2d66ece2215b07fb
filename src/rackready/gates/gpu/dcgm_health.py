"""DCGM's background health watches."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackready.gates.base import Command, Gate, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.formats import dcgm_health
from rackready.gates.formats.dcgm_health import Health
from rackready.gates.formats.error import FormatError
from rackready.gates.judge import Judge
from rackready.model.outcome import Verdict

_STEP = "Read `dcgmi health -c`, then run `rackready gate run node/gpu/validation/dcgm-r3`: docs/runbooks/gpu.md."
_SETTLE_S = 60
"""DCGM needs that long from setting the watches of memory, PCIe, NVLink and heat to the first answer about them (dcgmi health --help, flags with *)."""
_DCGM = "Check `systemctl status nvidia-dcgm`, set the watches (`dcgmi health -s a`), then run the gate again."
_SEEN = re.compile(r"^(?P<gpus>\d+) GPUs? found\.", re.MULTILINE)
_ROW = re.compile(r"^\| *\d+ *\| *Name: ", re.MULTILINE)
_SWITCHES = re.compile(r"^\d+ NvSwitch(es)? found", re.MULTILINE)
_UNIT = "rackready-dcgm-health.service"
"""Unit of the role dcgm that sets the watches whenever the host engine starts: how long it stands is how long they watch."""
_ASK = f"""left={_SETTLE_S}
if systemctl is-active --quiet {_UNIT}; then
  since=$(systemctl show --property=ActiveEnterTimestampMonotonic --value {_UNIT})
  now=$(cut -d. -f1 /proc/uptime)
  left=$(({_SETTLE_S} + since / 1000000 - now))
fi
[ "$left" -le {_SETTLE_S} ] || left={_SETTLE_S}
[ "$left" -le 0 ] || sleep "$left"
exec dcgmi health -c -j
"""


class DcgmHealth(Gate):
    """DCGM's health watches (memory, PCIe, NVLink, InfoROM, thermal, power, driver) report every GPU and switch healthy."""

    id = "node/gpu/validation/dcgm-health"
    covers = frozenset({"gpu"})

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002 - the same for all
        """Set all watches (setting them twice changes nothing), give them their time, then ask: sooner, Healthy only means that nothing was watched."""
        return [
            Run(
                id=node,
                target=node,
                nodes=(node,),
                commands=(
                    Command(key="set", node=node, argv=("dcgmi", "health", "-s", "a"), timeout_s=60),
                    Command(key="seen", node=node, argv=("dcgmi", "discovery", "-l"), timeout_s=60),
                    Command(key="check", node=node, argv=("sh", "-c", _ASK), timeout_s=_SETTLE_S + 60, stage=1),
                ),
            )
            for node in nodes
        ]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Name every incident with its entity; the overall word must agree with them."""
        node = run.nodes[0]
        judge = Judge()
        for key, what in (("set", "dcgmi health -s"), ("seen", "dcgmi discovery"), ("check", "dcgmi health -c")):
            if judge.trouble(trouble(outputs.get(key), node, what)):
                return judge.verdict(node)
        set_, check = outputs["set"], outputs["check"]
        if set_.exit_code != 0 or "successfully" not in set_.stdout:
            judge.error(
                node,
                "DCGM health watches could not be set",
                "Health monitor systems set successfully",
                f"{' '.join(set_.stdout.split())[:160]} (exit code {set_.exit_code})",
                _DCGM,
            )
            return judge.verdict(node)
        try:
            found = dcgm_health.parse(check.stdout)
        except FormatError as error:
            judge.error(node, "DCGM health unreadable", "JSON of dcgmi health -c", f"{error} (exit code {check.exit_code})", _DCGM)
            return judge.verdict(node)
        if check.exit_code != 0:
            judge.error(node, "DCGM contradicts itself", "exit code 0 with a report", f"exit code {check.exit_code}", _DCGM)
        if _sees_all(judge, facts, node, outputs["seen"]):
            _judge(judge, facts, node, found)
        return judge.verdict(node)


def _sees_all(judge: Judge, facts: GateFacts, node: str, seen: Output) -> bool:
    """Hold the GPUs that the host engine sees against the platform: the report names only those that are ill."""
    found, rows = _SEEN.search(seen.stdout), _ROW.findall(seen.stdout)
    if found is None or int(found["gpus"]) != len(rows) or not _SWITCHES.search(seen.stdout) or seen.exit_code != 0:
        actual = f"{' '.join(seen.stdout.split())[:160] or 'nothing'} (exit code {seen.exit_code})"
        judge.error(node, "DCGM discovery unreadable", "the GPUs and NVSwitches that were found", actual, _DCGM)
        return False
    wanted = facts.nodes[node].platform.gpus
    if int(found["gpus"]) != wanted:
        step = "See the gate node/gpu/sanity/inventory; the host engine sees what the driver had when it started: restart nvidia-dcgm after a repair."
        judge.fail(node, "GPUs that DCGM watches", wanted, found["gpus"], step)
        return False
    return True


def _judge(judge: Judge, facts: GateFacts, node: str, found: Health) -> None:
    judge.judged += 1
    bad: set[str] = set()
    for incident in found.incidents:
        part = f"gpu{incident.entity}" if incident.group == "GPU" else f"{incident.group} {incident.entity}"
        if incident.health == "Healthy":
            continue
        bad.add(part)
        judge.fail(f"{node} {part}", f"DCGM health: {incident.system}", "Healthy", f"{incident.health}: {incident.text}", _STEP)
    if found.overall != "Healthy" and not bad:
        judge.fail(node, "DCGM health", "Healthy", f"{found.overall}, and no entity is named", _STEP)
    if found.overall == "Healthy" and bad:
        judge.error(node, "DCGM contradicts itself", "an overall word as bad as its incidents", "Healthy with incidents", _DCGM)
    judge.measured.update(f"{node}/gpu{gpu}" for gpu in range(facts.nodes[node].platform.gpus) if f"gpu{gpu}" not in bad)
