"""The gate on environment variables that change a measurement, set by a file or a login."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.design.qos import qos_facts
from rackready.gates import base
from rackready.gates.base import GateFacts, Outputs, Run
from rackready.gates.host import reading
from rackready.gates.host.reading import AGAIN, KEY, Answers, HostGate, Tool, WantedValues, answers
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.commands import repair
from rackready.model.network import Fabric
from rackready.model.outcome import Verdict
from rackready.model.place import Place

_END = "complete"
"""Last line of each list, so that one that was cut off is noticed."""
SESSION = Tool("env", ("sh", "-c", f"env && echo {_END}"), "coreutils")
SSHD = Tool(
    "sshd",
    ("sh", "-c", f"sshd -T && echo {_END}"),
    "openssh-server",
    keep=rf"^(setenv|acceptenv|permituserenvironment)\b|^{_END}$",
)
PACKAGED = Tool(
    "verify", ("sh", "-c", f"dpkg --verify openmpi-common || rpm --verify openmpi; echo {_END}"), "dpkg or rpm"
)
NCCL = ("/etc/nccl.conf", "/root/.nccl.conf", "/home/*/.nccl.conf")
PACKAGED_MCA = ("/etc/openmpi/openmpi-mca-params.conf", "/etc/openmpi-x86_64/openmpi-mca-params.conf")
"""Open MPI's own file, in Debian and in the RHEL family."""
MCA = (*PACKAGED_MCA, "/root/.openmpi/mca-params.conf", "/home/*/.openmpi/mca-params.conf")
UCX = ("/etc/ucx/ucx.conf",)
PRELOAD = "/etc/ld.so.preload"
SHELL = (
    "/etc/environment", "/etc/environment.d/*.conf", "/etc/security/pam_env.conf", "/etc/profile",
    "/etc/profile.d/*.sh", "/etc/bash.bashrc", "/root/.bashrc", "/root/.bash_profile", "/root/.profile",
    "/root/.pam_environment", "/root/.ssh/environment",
)  # fmt: skip
PREFIXES = ("NCCL_", "UCX_", "UCC_", "OMPI_", "PMIX_", "PRTE_", "CUDA_")
NAMES = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT")
HARMLESS = frozenset({"CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_DIR", "CUDA_VERSION"})
"""Variables with the toolkit's location or version only."""
_SETTING = re.compile(r"^\s*([A-Za-z_]\w*)\s*=\s*(.*?)\s*$")
"""NAME = value, as in parameter files of NCCL (src/misc/param.cc), UCX and Open MPI, one per line."""
_SHELL = re.compile(r"(?:^|[\s;&({])([A-Za-z_]\w*)(?:=|\s+(?:DEFAULT|OVERRIDE)=)(\"[^\"]*\"|'[^']*'|[^\s;&)}]*)")
"""Anywhere in a line: VAR=value, and VAR DEFAULT=value OVERRIDE=value as in pam_env.conf(5)."""
_STEP = (
    "Remove it, or declare it with its value in the gate set (inputs of node/host/sanity/environment: `allow: "
    "{{{name}: '{value}'}}`), then run "
    f"{repair('{node}')}."
)


SETTING_FOUND = FailKind(
    "environment-setting",
    "{name} is set",
    meaning="The node sets a variable that changes measurements.",
    next_step=_STEP,
)
PRELOAD_FOUND = FailKind(
    "environment-preload",
    "library loaded into every program",
    meaning="A library is loaded into every program of the node and may change measurements.",
    next_step="Remove it: this library is loaded into every program of the node, also into those that measure.",
)
LIST_CUT_OFF = ErrorKind(
    "environment-list-cut-off",
    "list of {key} cut off",
    meaning="A list of the node's settings is not complete, so a setting may be missed.",
    next_step=AGAIN,
)
SSHD_SETS = FailKind(
    "sshd-sets-environment",
    "SetEnv",
    meaning="The SSH server sets a variable that changes measurements.",
    next_step="Remove it from sshd's configuration (`sshd -T | grep -i {key}`): gates log in over SSH.",
)
SSHD_ACCEPTS = FailKind(
    "sshd-accepts-environment",
    "AcceptEnv",
    meaning="The SSH server accepts from clients a variable that changes measurements.",
    next_step="Remove it from sshd's configuration (`sshd -T | grep -i {key}`): gates log in over SSH.",
)

FINDINGS = (SETTING_FOUND, PRELOAD_FOUND, LIST_CUT_OFF, SSHD_SETS, SSHD_ACCEPTS)


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable and its value. ``where``: file and line that set it."""

    where: str
    name: str
    value: str


class Environment(HostGate):
    """No file and no login of the node sets a variable that changes a measurement, unless the site declares it."""

    id = "node/host/sanity/environment"
    findings = (*reading.FINDINGS, *FINDINGS)
    looks = True
    what = "environment"

    class Inputs(base.Inputs):
        """Variables that the site sets on purpose."""

        allow: dict[str, str] = Field(
            {},
            description="variable (NCCL_IB_HCA, or an Open MPI parameter such as btl) -> its only accepted value",
        )

    inputs: Inputs

    def wanted(self, facts: NodeFacts) -> WantedValues:  # noqa: ARG002 - the same on every node
        """Return the environment of a login, sshd's settings, and every file that sets variables."""
        return WantedValues((SESSION, SSHD, PACKAGED), (*NCCL, *MCA, *UCX, *SHELL, PRELOAD))

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Read the document and judge the answers; what the fabric declares for NCCL is allowed."""
        node, judge = run.nodes[0], Judge()
        found = answers(judge, outputs.get(KEY), node, self.wanted(facts.nodes[node]), self.what)
        if found is not None:
            allow = {**fabric_allows(facts.fabric, facts.nodes[node].platform.id), **self.inputs.allow}
            self.judge_settings(judge, facts.nodes[node], found, allow)
            if not judge.errors and not judge.fails:
                judge.measured.add(node)
        return judge.verdict(node)

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Judge a node without what its fabric allows."""
        self.judge_settings(judge, facts, found, self.inputs.allow)

    def judge_settings(self, judge: Judge, facts: NodeFacts, found: Answers, allow: Mapping[str, str]) -> None:
        """Fail for every setting that is not declared, once each, with the file that sets it."""
        node = facts.node.name
        session, sshd, changed = (_complete_list(judge, found, tool) for tool in (SESSION, SSHD, PACKAGED))
        if session is None or sshd is None or changed is None:
            return
        settings = [item for item in self._files(found, changed) if allow.get(item.name) != item.value]
        named = {item.name for item in settings}
        live = (
            Setting("environment of a login", name, value) for name, value in _variables(session) if name not in named
        )
        settings += [item for item in live if allow.get(item.name) != item.value]
        judge.judged += 1
        for item in settings:
            declared = allow.get(item.name)
            expected = (
                f"{item.name}={declared}, as the site declares"
                if declared is not None
                else "not set: it changes measurements"
            )
            judge.fail(
                Place(node, item.where),
                SETTING_FOUND,
                expected,
                f"{item.name}={item.value}",
                name=item.name,
                value=item.value,
            )
        self._preload(judge, node, found)
        _sshd(judge, node, sshd)

    @staticmethod
    def _files(found: Answers, changed: str) -> Iterator[Setting]:
        for pattern in SHELL:
            for path, text in found.matching(pattern).items():
                yield from (item for item in _settings(path, text, _SHELL) if changes(item.name))
        for pattern in (*NCCL, *UCX):
            for path, text in found.matching(pattern).items():
                yield from _settings(path, text)
        for pattern in MCA:
            for path, text in found.matching(pattern).items():
                # the package's own file counts only if it was changed
                if path not in PACKAGED_MCA or any(line.split()[-1:] == [path] for line in changed.splitlines()):
                    yield from _settings(path, text)

    @staticmethod
    def _preload(judge: Judge, node: str, found: Answers) -> None:
        text = found.matching(PRELOAD).get(PRELOAD, "")
        loaded = [word for line in text.splitlines() for word in line.split("#")[0].replace(":", " ").split()]
        judge.judged += 1
        if loaded:
            judge.fail(Place(node, PRELOAD), PRELOAD_FOUND, "none", ", ".join(loaded))


def _complete_list(judge: Judge, found: Answers, tool: Tool) -> str | None:
    """Return a tool's list; None, with an error, if the tool failed or its list was cut off."""
    text = found.text(tool.key)
    if text is None:
        return None
    *lines, last = text.splitlines() or [""]
    if last != _END:
        judge.error(found.node, LIST_CUT_OFF, f"a list that ends with {_END}", last[:60] or "nothing", key=tool.key)
        return None
    return "\n".join(lines)


def fabric_allows(fabric: Fabric, platform: str) -> dict[str, str]:
    """Return what role host_roce writes for NCCL: the site's settings, and the traffic class.

    It writes the class where the driver has none for all programs.
    """
    traffic = {"NCCL_IB_TC": str(qos_facts(fabric.qos).tos)} if fabric.kind == "roce" else {}
    return {**fabric.nccl.of(platform), **traffic}


def changes(name: str) -> bool:
    """Return whether a variable changes measurements."""
    return name in NAMES or (name.startswith(PREFIXES) and name not in HARMLESS)


def _variables(session: str) -> list[tuple[str, str]]:
    rows = (line.partition("=") for line in session.splitlines())
    return [(name, value) for name, mark, value in rows if mark and changes(name)]


def _settings(path: str, text: str, pattern: re.Pattern[str] = _SETTING) -> Iterator[Setting]:
    for number, line in enumerate(text.splitlines(), 1):
        for name, value in pattern.findall(line.split("#")[0]):
            yield Setting(f"{path} line {number}", name, value.strip("\"'"))


def _sshd(judge: Judge, node: str, text: str) -> None:
    """Fail for variables that sshd sets for every login or accepts from a client."""
    judge.judged += 1
    for line in text.splitlines():
        key, _, value = line.strip().partition(" ")
        if key.lower() == "setenv" and any(changes(word.partition("=")[0]) for word in value.split()):
            judge.fail(Place(node, "sshd"), SSHD_SETS, "no variable that changes measurements", value, key=key)
        elif key.lower() == "acceptenv" and any(_accepts(pattern) for pattern in value.split()):
            judge.fail(Place(node, "sshd"), SSHD_ACCEPTS, "no variable that changes measurements", value, key=key)


def _accepts(pattern: str) -> bool:
    probes: Mapping[str, None] = dict.fromkeys(
        [*NAMES, *(f"{prefix}{rest}" for prefix in PREFIXES for rest in ("NET", "DEBUG", "VISIBLE_DEVICES", "TLS"))]
    )
    return changes(pattern.rstrip("*?")) or any(fnmatch.fnmatch(name, pattern) for name in probes)
