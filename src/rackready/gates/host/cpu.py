"""Processors: as many as were bought, all online, SMT and frequency governor as wanted, one microcode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.gates import base
from rackready.gates.formats import lscpu
from rackready.gates.formats.error import FormatError
from rackready.gates.host.reading import AGAIN, Answers, HostGate, Tool, Wanted
from rackready.gates.judge import Judge

LSCPU = Tool("lscpu", ("lscpu", "--json"), "util-linux")
SMT = "/sys/devices/system/cpu/smt/control"
GOVERNORS = "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor"
MICROCODE = "/sys/devices/system/cpu/cpu*/microcode/version"
_SHOWN = 8


def processors(judge: Judge, found: Answers) -> lscpu.Processors | None:
    """Return what lscpu says; None after an error was added."""
    text = found.text("lscpu")
    if text is None:
        return None
    try:
        return lscpu.parse(text)
    except FormatError as error:
        judge.error(found.node, "lscpu's output is not understood", "its JSON document", error, AGAIN)
        return None


class Cpu(HostGate):
    """Every processor core is there and online, with SMT, frequency governor and microcode as wanted."""

    id = "node/host/sanity/cpu"
    looks = True
    what = "processors"

    class Inputs(base.Inputs):
        """What a site may choose differently."""

        governor: str | None = Field(
            "performance",
            description="frequency governor of every core; source of the default: nvidia-tuned, profile generic. null: the BIOS keeps frequency control, and "
            "Linux has no cpufreq policy (PowerEdge servers with CPU Power Management at Maximum Performance)",
        )
        smt: bool | None = Field(None, description="whether SMT is on; null: as the platform is shipped (its profile)")

    inputs: Inputs

    def wanted(self, facts: NodeFacts) -> Wanted:  # noqa: ARG002 - the same on every node
        """Read lscpu and the kernel's files on SMT, governors and microcode."""
        return Wanted((LSCPU,), (SMT, GOVERNORS, MICROCODE))

    def hold(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Hold processors against the platform's profile and each other."""
        cpus = processors(judge, found)
        if cpus is not None:
            self._count(judge, facts, cpus, self._siblings(facts, found))
        self._smt(judge, facts, found)
        self._governor(judge, facts, found)
        self._microcode(judge, facts, found)

    def _siblings(self, facts: NodeFacts, found: Answers) -> int:
        """Return of how many threads of a core one is to be online: with `nosmt` the kernel leaves the others offline."""
        parts = facts.platform.host
        if self._wish(facts) is not False or found.one(SMT) not in {"off", "forceoff"}:
            return 1
        return 2 if parts is None else max(2, parts.threads)

    def _wish(self, facts: NodeFacts) -> bool | None:
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
            step = "Read why in the kernel log (`dmesg`), then `echo 1 > /sys/devices/system/cpu/cpuN/online`; if it goes off again, replace the processor."
            judge.fail(node, "CPUs offline", f"{wanted} online", f"{len(cpus.online)} online, offline: {names}", step)
        if parts is None:
            judge.remark("neither model nor number of cores is judged: the platform's profile has none")
            return
        step = "Correct the node's platform in the site file, or have the right processors built in."
        if parts.cpu_model not in cpus.model:
            judge.fail(node, "processor model", parts.cpu_model, cpus.model, step)
        judge.equal(node, "sockets", parts.sockets, cpus.sockets, "A processor is not seen: read the BMC's event log, reseat or replace it.")
        if whole or not cpus.offline:
            judge.equal(node, "cores per socket", parts.cores, cpus.cores, "Cores are switched off: check the BIOS's active cores, then the processor.")

    def _smt(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        wish = self._wish(facts)
        if wish is None:
            return
        control = found.one(SMT)
        known = {"on": True, "off": False, "forceoff": False, "notsupported": False, "notimplemented": False}
        if control not in known:
            judge.error(facts.node.name, "SMT state not reported", f"one of {', '.join(known)} in {SMT}", control or "nothing", "Check the kernel's version.")
            return
        step = "Set it in the BIOS (hyper-threading) or with `nosmt` on the kernel command line, and reboot."
        judge.equal(facts.node.name, "SMT", "on" if wish else "off", "on" if known[control] else "off", step)

    def _governor(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        governors = found.matching(GOVERNORS)
        node = facts.node.name
        if not governors:
            if facts.node.kind == "virtual":
                return
            judge.judged += 1
            if self.inputs.governor is None:
                judge.remark("the BIOS keeps frequency control, as the site says: Linux has no cpufreq policy, and what the BIOS does is not judged here")
                return
            step = (
                "Load the cpufreq driver (intel_pstate, amd-pstate), or have the BIOS give frequency control to the operating system; "
                "where the BIOS is to keep it, the site declares input governor: null."
            )
            judge.error(node, "frequency governor not reported", self.inputs.governor, "no cpufreq policy", step)
            return
        judge.judged += 1
        if self.inputs.governor is None:
            step = "Have the BIOS keep frequency control (its system profile), or declare the governor that the site wants."
            judge.fail(
                node, "frequency governor", "no cpufreq policy: the BIOS keeps frequency control", f"{_on(governors)} of {len(governors)} policies", step
            )
            return
        wrong = {int(path.split("policy")[1].split("/")[0]): value for path, value in governors.items() if value != self.inputs.governor}
        if wrong:
            step = f"`cpupower frequency-set -g {self.inputs.governor}`, and let tuned or a unit set it at boot."
            judge.fail(node, "frequency governor", self.inputs.governor, f"{_on(wrong)} of {len(governors)} policies (CPU {_listed(frozenset(wrong))})", step)

    @staticmethod
    def _microcode(judge: Judge, facts: NodeFacts, found: Answers) -> None:
        versions = found.matching(MICROCODE)
        if not versions:
            judge.remark("microcode is not reported by this kernel and not judged")
            return
        judge.judged += 1
        counted = Counter(versions.values()).most_common()
        if len(counted) > 1:
            odd = frozenset(int(path.split("/cpu")[2].split("/")[0]) for path, value in versions.items() if value != counted[0][0])
            words = f"{', '.join(f'{value} on {count}' for value, count in counted)} (CPU {_listed(odd)} differ)"
            judge.fail(facts.node.name, "microcode", "one version on all CPUs", words, "Update the BIOS, or the microcode package, and reboot.")


def _on(values: Mapping[Any, str]) -> str:
    """Return on how many each of the values is, for people."""
    return ", ".join(f"{value} on {count}" for value, count in sorted(Counter(values.values()).items()))


def _listed(cpus: frozenset[int]) -> str:
    shown = sorted(cpus)
    return ", ".join(str(cpu) for cpu in shown[:_SHOWN]) + (f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else "")
