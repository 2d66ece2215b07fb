"""The gate on processors: number, CPUs online, SMT, frequency governor and microcode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.formats import lscpu
from rackready.gates.host import reading
from rackready.gates.host.reading import AGAIN, Answers, HostGate, Tool, WantedValues
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge

LSCPU = Tool("lscpu", ("lscpu", "--json"), "util-linux")
SMT = "/sys/devices/system/cpu/smt/control"
GOVERNORS = "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor"
MICROCODE = "/sys/devices/system/cpu/cpu*/microcode/version"
_SHOWN = 8


LSCPU_UNREADABLE = ErrorKind(
    "lscpu-unreadable",
    "lscpu's output is not understood",
    meaning="lscpu printed something other than its document.",
    next_step=AGAIN,
)
CPUS_OFFLINE = FailKind(
    "cpus-offline",
    "CPUs offline",
    meaning="Some CPUs of the node are offline: jobs have fewer cores than they expect.",
    next_step="Read the reason in the kernel log (`dmesg`), then `echo 1 > /sys/devices/system/cpu/cpuN/online`. "
    "If the CPU goes offline again, replace the processor.",
)
CPU_MODEL = FailKind(
    "cpu-model",
    "processor model",
    meaning="The node has other processors than its platform.",
    next_step="Correct the node's platform in the site file, or install the right processors.",
)
SOCKETS = FailKind(
    "cpu-sockets",
    "sockets",
    meaning="The node has another number of processors than its platform.",
    next_step="Read the BMC's event log, then reseat or replace the missing processor.",
)
CORES = FailKind(
    "cpu-cores",
    "cores per socket",
    meaning="The processors have another number of active cores than their model.",
    next_step="Check the BIOS setting for active cores, then the processor.",
)
SMT_NOT_REPORTED = ErrorKind(
    "smt-not-reported",
    "SMT state not reported",
    meaning="The kernel does not report whether hyper-threading is on.",
    next_step="Check the kernel's version.",
)
SMT_SETTING = FailKind(
    "smt-setting",
    "SMT",
    meaning="Hyper-threading is not as the site wants.",
    next_step="Set it in the BIOS (hyper-threading) or with `nosmt` on the kernel command line, and reboot.",
)
NO_GOVERNOR = ErrorKind(
    "frequency-governor-not-reported",
    "frequency governor not reported",
    meaning="The kernel does not control the processors' frequency, so the wanted governor cannot be set.",
    next_step=(
        "Load the cpufreq driver (intel_pstate, amd-pstate), or let the operating system control the frequency (BIOS "
        "setting). If the BIOS must keep control, declare the input `governor: null`."
    ),
)
GOVERNOR_PRESENT = FailKind(
    "frequency-governor-present",
    "frequency governor",
    meaning="The site wants the BIOS to control the frequency, but the kernel does.",
    next_step="Let the BIOS control the frequency (its system profile), or declare the wanted governor.",
)
GOVERNOR = FailKind(
    "frequency-governor",
    "frequency governor",
    meaning="Some CPUs use another frequency governor than the site wants: they may run slower.",
    next_step="Set `base_cpu_governor: {governor}` in the group_vars of the environment and run install: a unit keeps "
    "it over a boot (docs/howto/node-settings.md).",
)
MICROCODE_DIFFERS = FailKind(
    "microcode-differs",
    "microcode",
    meaning="The CPUs of one node have different microcode.",
    next_step="Update the BIOS, or the microcode package, and reboot.",
)

FINDINGS = (
    LSCPU_UNREADABLE,
    CPUS_OFFLINE,
    CPU_MODEL,
    SOCKETS,
    CORES,
    SMT_NOT_REPORTED,
    SMT_SETTING,
    NO_GOVERNOR,
    GOVERNOR_PRESENT,
    GOVERNOR,
    MICROCODE_DIFFERS,
)


def processors(judge: Judge, found: Answers) -> lscpu.Processors | None:
    """Return lscpu's answer; None, with an error, if it cannot be read."""
    text = found.text("lscpu")
    if text is None:
        return None
    try:
        return lscpu.parse(text)
    except FormatError as error:
        judge.error(found.node, LSCPU_UNREADABLE, "its JSON document", error)
        return None


class Cpu(HostGate):
    """Every processor core is there and online, with SMT, frequency governor and microcode as wanted."""

    id = "node/host/sanity/cpu"
    findings = (*reading.FINDINGS, *FINDINGS)
    looks = True
    what = "processors"

    class Inputs(base.Inputs):
        """Settings that a site may choose."""

        governor: str | None = Field(
            "performance",
            description="frequency governor of every core; source of the default: nvidia-tuned, profile generic. "
            "null: the BIOS controls the frequency, and "
            "Linux has no cpufreq policy (PowerEdge servers with CPU Power Management at Maximum Performance)",
        )
        smt: bool | None = Field(None, description="whether SMT is on; null: as in the platform profile")

    inputs: Inputs

    def wanted(self, facts: NodeFacts) -> WantedValues:  # noqa: ARG002 - the same on every node
        """Return lscpu and the kernel's files on SMT, governors and microcode."""
        return WantedValues((LSCPU,), (SMT, GOVERNORS, MICROCODE))

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Compare the processors with the platform profile and with each other."""
        cpus = processors(judge, found)
        if cpus is not None:
            self._count(judge, facts, cpus, self._siblings(facts, found))
        self._smt(judge, facts, found)
        self._governor(judge, facts, found)
        self._microcode(judge, facts, found)

    def _siblings(self, facts: NodeFacts, found: Answers) -> int:
        """Return of how many threads per core one must be online: with `nosmt` the kernel leaves the others offline."""
        parts = facts.platform.host
        if self._wanted_smt(facts) is not False or found.one(SMT) not in {"off", "forceoff"}:
            return 1
        return 2 if parts is None else max(2, parts.threads)

    def _wanted_smt(self, facts: NodeFacts) -> bool | None:
        parts = facts.platform.host
        return self.inputs.smt if self.inputs.smt is not None else None if parts is None else parts.threads > 1

    def _count(self, judge: Judge, facts: NodeFacts, cpus: lscpu.Processors, siblings: int) -> None:
        node, parts = facts.node.name, facts.platform.host
        judge.judged += 1
        judge.metric("cpus_online", node, len(cpus.online), "1")
        kept = siblings > 1 and len(cpus.offline) >= len(cpus.online)
        wanted = cpus.cpus // siblings if kept else cpus.cpus
        whole = len(cpus.online) == wanted and bool(cpus.offline) == kept
        if not whole:
            names = _listed(cpus.offline) or "some"
            judge.fail(node, CPUS_OFFLINE, f"{wanted} online", f"{len(cpus.online)} online, offline: {names}")
        if parts is None:
            judge.remark("model and number of cores are not judged: the platform profile has none")
            return
        if parts.cpu_model not in cpus.model:
            judge.fail(node, CPU_MODEL, parts.cpu_model, cpus.model)
        judge.equal(node, SOCKETS, parts.sockets, cpus.sockets)
        if whole or not cpus.offline:
            judge.equal(node, CORES, parts.cores, cpus.cores)

    def _smt(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        wanted = self._wanted_smt(facts)
        if wanted is None:
            return
        control = found.one(SMT)
        known = {"on": True, "off": False, "forceoff": False, "notsupported": False, "notimplemented": False}
        if control not in known:
            judge.error(facts.node.name, SMT_NOT_REPORTED, f"one of {', '.join(known)} in {SMT}", control or "nothing")
            return
        judge.equal(facts.node.name, SMT_SETTING, "on" if wanted else "off", "on" if known[control] else "off")

    def _governor(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        governors = found.matching(GOVERNORS)
        node = facts.node.name
        if not governors:
            if facts.node.kind == "virtual":
                return
            judge.judged += 1
            if self.inputs.governor is None:
                judge.remark(
                    "the BIOS controls the frequency, as the site declares: Linux has no cpufreq policy, and the "
                    "BIOS's settings are not judged here"
                )
                return
            judge.error(node, NO_GOVERNOR, self.inputs.governor, "no cpufreq policy")
            return
        judge.judged += 1
        if self.inputs.governor is None:
            judge.fail(
                node,
                GOVERNOR_PRESENT,
                "no cpufreq policy: the BIOS controls the frequency",
                f"{_counts(governors)} of {len(governors)} policies",
            )
            return
        wrong = {
            int(path.split("policy")[1].split("/")[0]): value
            for path, value in governors.items()
            if value != self.inputs.governor
        }
        if wrong:
            judge.fail(
                node,
                GOVERNOR,
                self.inputs.governor,
                f"{_counts(wrong)} of {len(governors)} policies (CPU {_listed(frozenset(wrong))})",
                governor=self.inputs.governor,
            )

    @staticmethod
    def _microcode(judge: Judge, facts: NodeFacts, found: Answers) -> None:
        versions = found.matching(MICROCODE)
        if not versions:
            judge.remark("this kernel does not report microcode: not judged")
            return
        judge.judged += 1
        counted = Counter(versions.values()).most_common()
        if len(counted) > 1:
            odd = frozenset(
                int(path.split("/cpu")[2].split("/")[0]) for path, value in versions.items() if value != counted[0][0]
            )
            words = f"{', '.join(f'{value} on {count}' for value, count in counted)} (CPU {_listed(odd)} differ)"
            judge.fail(facts.node.name, MICROCODE_DIFFERS, "one version on all CPUs", words)


def _counts(values: Mapping[Any, str]) -> str:
    """Return how often each value occurs, as text."""
    return ", ".join(f"{value} on {count}" for value, count in sorted(Counter(values.values()).items()))


def _listed(cpus: frozenset[int]) -> str:
    shown = sorted(cpus)
    return ", ".join(str(cpu) for cpu in shown[:_SHOWN]) + (
        f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    )
