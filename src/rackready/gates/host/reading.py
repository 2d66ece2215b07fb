"""Shared code of host gates: the tools and kernel files to read on a node, and their texts from the document."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Command, Gate, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.engine.shipped_script import command, document
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Criterion, Op, Verdict
from rackready.ondevice import host_read

KEY = "read"
AGAIN = base.AGAIN


TOOL_NOT_RUN = ErrorKind(
    "tool-not-run",
    "{name} was not run",
    meaning="A program's output is missing from the reading.",
    next_step=AGAIN,
)
TOOL_MISSING = ErrorKind(
    "tool-not-installed",
    "{name} is not installed",
    meaning="A program that the gate needs is not on the node.",
    next_step="Install the package {package} (`rackready install`).",
)
TOOL_DID_NOT_END = ErrorKind(
    "tool-did-not-end",
    "{name} did not end",
    meaning="A program of the reading ran past its time limit and was killed.",
    next_step="Read the kernel log (`dmesg`) of the node.",
)
TOOL_FAILED = ErrorKind(
    "tool-failed",
    "{name} failed",
    meaning="A program of the reading ended with an error.",
    next_step="Run `{line}` on the node.",
)
LOG_EMPTY = ErrorKind(
    "kernel-log-empty",
    "kernel log is empty",
    meaning="The kernel log has no lines, so past errors are lost.",
    next_step="Reboot the node: the log was cleared (`dmesg --clear`).",
)
FILE_UNREADABLE = ErrorKind(
    "file-unreadable",
    "{path} cannot be read",
    meaning="A file of the node cannot be read.",
    next_step=AGAIN,
)
READING_UNREADABLE = ErrorKind(
    "reading-unreadable",
    "{what} unreadable",
    meaning="The document of readings is not complete.",
    next_step=AGAIN,
)
PARTS_NOT_PLACED = ErrorKind(
    "parts-not-placed",
    "location of parts unknown",
    meaning="The platform profile has no addresses of GPUs and NICs, so no part was judged.",
    next_step="Add them to the platform profile ({profile}.yml), with their source: `lspci -D` and `ls -l "
    "/sys/class/infiniband` on such a server.",
)

FINDINGS = (TOOL_NOT_RUN, TOOL_MISSING, TOOL_DID_NOT_END, TOOL_FAILED, LOG_EMPTY, FILE_UNREADABLE, READING_UNREADABLE)
"""Findings of reading a node."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program to run on the node."""

    key: str
    argv: tuple[str, ...]
    package: str
    """Package that contains it, for the next step if it is missing."""
    timeout_s: float = 20
    keep: str = ""
    """Regular expression: only matching lines are returned."""
    each: tuple[str, str, str] | None = None
    """(key of another tool, list, field): run once for every entry of that list in its JSON output."""

    def spec(self) -> dict[str, object]:
        """Return the tool as input of host_read."""
        out: dict[str, object] = {"key": self.key, "argv": list(self.argv), "timeout_s": self.timeout_s}
        if self.keep:
            out["keep"] = self.keep
        if self.each:
            out["each"] = dict(zip(("of", "list", "field"), self.each, strict=True))
        return out


@dataclass(frozen=True, slots=True)
class WantedValues:
    """Everything that a gate reads on a node."""

    tools: tuple[Tool, ...] = ()
    files: tuple[str, ...] = ()
    """Patterns of kernel files."""

    def command(self, node: str, key: str = KEY, stage: int = 0) -> Command:
        """Return the command that reads all of it."""
        text = json.dumps({"commands": [tool.spec() for tool in self.tools], "files": list(self.files)}, sort_keys=True)
        return command(
            key,
            node,
            host_read,
            text,
            timeout_s=30 + sum(tool.timeout_s * (16 if tool.each else 1) for tool in self.tools),
            stage=stage,
        )


@dataclass(frozen=True, slots=True)
class Answers:
    """A node's answers. Everything that is missing becomes an error of the judge, with a next step."""

    node: str
    wanted: WantedValues
    commands: Mapping[str, Mapping[str, Any]]
    files: Mapping[str, Mapping[str, str | None]]
    judge: Judge = field(compare=False)

    def text(self, key: str, *, good: frozenset[int] | None = frozenset({0}), where: str = "") -> str | None:
        """Return a tool's standard output; None, with an error, if it failed.

        It failed if it is missing, timed out, or has an exit code that is not in ``good`` (None: any).
        """
        tool = next(tool for tool in self.wanted.tools if tool.key == key.split(" ", 1)[0])
        found = self.commands.get(key)
        where = where or self.node
        name = tool.argv[0]
        if found is None:
            self.judge.error(where, TOOL_NOT_RUN, "its output", "nothing", name=name)
        elif found["missing"]:
            self.judge.error(where, TOOL_MISSING, f"the program {name}", "not found", name=name, package=tool.package)
        elif found["timed_out"]:
            self.judge.error(where, TOOL_DID_NOT_END, f"an end within {tool.timeout_s:g} s", "killed", name=name)
        elif found["exit_code"] is None or (good is not None and found["exit_code"] not in good):
            said = (found["stderr"].strip() or found["stdout"].strip()).splitlines()
            words = f"exit {found['exit_code']}" + (f": {said[-1].strip()}" if said else "")
            self.judge.error(where, TOOL_FAILED, "exit 0", words, name=name, line=" ".join(found["argv"]))
        else:
            return str(found["stdout"])
        return None

    def kernel_log(self, key: str = "dmesg") -> str | None:
        """Return the lines that a tool kept of the kernel log; None, with an error, if it failed or the log is empty.

        An empty log was cleared, so it does not prove that nothing happened.
        """
        text = self.text(key)
        if text is not None and not self.commands[key]["lines"]:
            self.judge.error(self.node, LOG_EMPTY, "the kernel's messages since boot", "none")
            return None
        return text

    def code(self, key: str) -> int:
        """Return the exit code of a tool that `text` accepted."""
        return int(self.commands[key]["exit_code"])

    def repeated(self, key: str) -> list[str]:
        """Return the keys of the answers of a tool that ran for each entry of a list."""
        return [name for name in self.commands if name.split(" ", 1)[0] == key and " " in name]

    def matching(self, pattern: str) -> dict[str, str]:
        """Return path -> text of a pattern's files; an unreadable file is an error."""
        out = {}
        for path, text in self.files.get(pattern, {}).items():
            if text is None:
                self.judge.error(self.node, FILE_UNREADABLE, "its text", "an I/O error", path=path)
            else:
                out[path] = text
        return out

    def one(self, path: str) -> str | None:
        """Return a file's text; None if it does not exist."""
        return self.files.get(path, {}).get(path)


def answers(judge: Judge, output: Output | None, node: str, wanted: WantedValues, what: str) -> Answers | None:
    """Return a node's answers; None, with an error, if there are none."""
    if judge.trouble(trouble(output, node, what)) or output is None:
        return None
    try:
        found = document(output, host_read.FORMAT)
        if found.get("digest") != host_read.digest(found["commands"], found["files"]):
            raise FormatError("its digest is not that of its contents")  # noqa: TRY301 - reported like any damage
        commands = {str(key): _answer(item) for key, item in found["commands"].items()}
        files = {
            str(key): {str(path): None if text is None else str(text) for path, text in item.items()}
            for key, item in found["files"].items()
        }
    except (FormatError, KeyError, TypeError, AttributeError, ValueError) as error:
        judge.error(node, READING_UNREADABLE, "a complete document of readings", error, what=what)
        return None
    return Answers(node, wanted, commands, files, judge)


def _answer(item: Mapping[str, Any]) -> dict[str, Any]:
    code = item["exit_code"]
    return {
        "argv": [str(word) for word in item["argv"]],
        "exit_code": None if code is None else int(code),
        "stdout": str(item["stdout"]),
        "stderr": str(item["stderr"]),
        "missing": bool(item["missing"]),
        "timed_out": bool(item["timed_out"]),
        "lines": item.get("lines"),
    }


def placed(judge: Judge, facts: NodeFacts) -> bool:
    """Return whether the platform profile has the addresses of GPUs and compute NICs; else add an error."""
    missing = facts.platform.unpublished()
    if missing:
        judge.judged += 1
        profile = facts.platform.id
        judge.error(
            facts.node.name,
            PARTS_NOT_PLACED,
            f"their addresses and names in the profile {profile}",
            f"not published: {' and '.join(missing)}",
            profile=profile,
        )
    return not missing


LABELS: Mapping[Op, str] = {Op.GE: "floor", Op.LE: "ceiling", Op.EQ: "identity"}
"""Labels of bounds without one of their own."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on a metric, with its unit and source."""

    metric: str
    op: Op
    bound: float
    unit: str
    source: str
    label: str = ""
    """Label of the bound; empty: floor, ceiling or identity, by its operator."""
    derived: bool = False

    def holds(self, judge: Judge, where: str, value: float) -> bool:
        """Record the value and the bound. Return whether the bound holds."""
        judge.judged += 1
        judge.metric(self.metric, where, value, self.unit)
        judge.criterion_once(self, self._criterion)
        if self.op is Op.EQ:
            return value == self.bound
        return value <= self.bound if self.op is Op.LE else value >= self.bound

    def _criterion(self) -> Criterion:
        label = self.label or LABELS[self.op]
        return Criterion(
            metric=self.metric,
            op=self.op,
            bound=self.bound,
            unit=self.unit,
            label=label,
            source=self.source,
            derived=self.derived,
        )


class HostGate(Gate):
    """A gate of one node that reads everything with one command."""

    covers = frozenset({"node"})
    what = "host reading"
    """Name of the reading in messages."""

    @abstractmethod
    def wanted(self, facts: NodeFacts) -> WantedValues:
        """Return what to read on the node."""

    @abstractmethod
    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Judge the node's answers."""

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Return one command per node."""
        return [Run.of_node(node, self.wanted(facts.nodes[node]).command(node)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Read the document and judge the answers."""
        node, judge = run.nodes[0], Judge()
        found = answers(judge, outputs.get(KEY), node, self.wanted(facts.nodes[node]), self.what)
        if found is not None:
            self.judge_node(judge, facts.nodes[node], found)
            if not judge.errors and not judge.fails:
                judge.measured.add(node)
        return judge.verdict(node)
