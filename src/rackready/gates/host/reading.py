"""What host gates share: which tools and kernel files to read on a node, and the way back from the document to their texts."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackready.design.facts import NodeFacts
from rackready.gates import base
from rackready.gates.base import Command, Gate, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.engine.shipped_script import command, document
from rackready.gates.formats.error import FormatError
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
    next_step="Look at the kernel log (`dmesg`) of the node.",
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
    meaning="The kernel log has no line, so errors before now are lost.",
    next_step="Somebody cleared it (`dmesg --clear`): reboot the node.",
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
    meaning="The document of readings is not whole.",
    next_step=AGAIN,
)
PARTS_NOT_PLACED = ErrorKind(
    "parts-not-placed",
    "parts cannot be found",
    meaning="The platform's profile does not say where GPUs and NICs are, so no part was looked at.",
    next_step="Add what is missing to the platform's profile ({profile}.yml), with its source: `lspci -D` and `ls -l "
    "/sys/class/infiniband` on such a server.",
)

FINDINGS = (TOOL_NOT_RUN, TOOL_MISSING, TOOL_DID_NOT_END, TOOL_FAILED, LOG_EMPTY, FILE_UNREADABLE, READING_UNREADABLE)
"""What reading a node can find."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One program to run on the node."""

    key: str
    argv: tuple[str, ...]
    package: str
    """Package that brings it: the next step when it is missing."""
    timeout_s: float = 20
    keep: str = ""
    """Regular expression: only lines with it are sent back."""
    each: tuple[str, str, str] | None = None
    """(key of another tool, list, field): run once for every entry of that list in its JSON output."""

    def spec(self) -> dict[str, object]:
        """Return it as host_read takes it."""
        out: dict[str, object] = {"key": self.key, "argv": list(self.argv), "timeout_s": self.timeout_s}
        if self.keep:
            out["keep"] = self.keep
        if self.each:
            out["each"] = dict(zip(("of", "list", "field"), self.each, strict=True))
        return out


@dataclass(frozen=True, slots=True)
class Wanted:
    """Everything that one gate reads on one node."""

    tools: tuple[Tool, ...] = ()
    files: tuple[str, ...] = ()
    """Patterns of kernel files."""

    def command(self, node: str, key: str = KEY, stage: int = 0) -> Command:
        """Return the one command that reads it all."""
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
    """What a node answered. Everything that is missing becomes an error of the judge, with what to install or look at."""

    node: str
    wanted: Wanted
    commands: Mapping[str, Mapping[str, Any]]
    files: Mapping[str, Mapping[str, str | None]]
    judge: Judge = field(compare=False)

    def text(self, key: str, *, good: frozenset[int] | None = frozenset({0}), where: str = "") -> str | None:
        """Return a tool's standard output; None after an error was added: missing tool, time-out, an exit code that is not ``good`` (None: any)."""
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
        """Return the lines that a tool kept of the kernel log; None after an error was added: an empty log was cleared, and says of nothing that it was not."""
        text = self.text(key)
        if text is not None and not self.commands[key]["lines"]:
            self.judge.error(self.node, LOG_EMPTY, "the kernel's messages since boot", "none")
            return None
        return text

    def code(self, key: str) -> int:
        """Return the exit code of a tool that `text` accepted."""
        return int(self.commands[key]["exit_code"])

    def repeated(self, key: str) -> list[str]:
        """Return the keys of a tool that was run for each entry of a list."""
        return [name for name in self.commands if name.split(" ", 1)[0] == key and " " in name]

    def matching(self, pattern: str) -> dict[str, str]:
        """Return path -> text of a pattern's files; one that could not be read is an error."""
        out = {}
        for path, text in self.files.get(pattern, {}).items():
            if text is None:
                self.judge.error(self.node, FILE_UNREADABLE, "its text", "an I/O error", path=path)
            else:
                out[path] = text
        return out

    def one(self, path: str) -> str | None:
        """Return a file's text, None when it is not there."""
        return self.files.get(path, {}).get(path)


def answers(judge: Judge, output: Output | None, node: str, wanted: Wanted, what: str) -> Answers | None:
    """Return what a node answered; None after an error was added."""
    if judge.trouble(trouble(output, node, what)) or output is None:
        return None
    try:
        found = document(output, host_read.FORMAT)
        _whole(found)
        commands = {str(key): _answer(item) for key, item in found["commands"].items()}
        files = {
            str(key): {str(path): None if text is None else str(text) for path, text in item.items()}
            for key, item in found["files"].items()
        }
    except (FormatError, KeyError, TypeError, AttributeError, ValueError) as error:
        judge.error(node, READING_UNREADABLE, "a complete document of readings", error, what=what)
        return None
    return Answers(node, wanted, commands, files, judge)


def _whole(found: Mapping[str, Any]) -> None:
    if found.get("digest") != host_read.digest(found["commands"], found["files"]):
        raise FormatError("its digest is not that of its contents")


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
    """Whether the platform's profile says where GPUs and compute NICs are; where it does not, an error names it: no part was looked at."""
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
"""What a bound is called that has no name of its own."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One bound on a metric, with its unit and source."""

    metric: str
    op: Op
    bound: float
    unit: str
    source: str
    label: str = ""
    """What the bound is called; empty: floor, ceiling or identity, as its operator says."""
    derived: bool = False

    def holds(self, judge: Judge, where: str, value: float) -> bool:
        """Record the value and the bound, and say whether it holds."""
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
    """What is read, for messages."""

    @abstractmethod
    def wanted(self, facts: NodeFacts) -> Wanted:
        """Say what to read on the node."""

    @abstractmethod
    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Hold the answers against what is wanted of the node."""

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """One command per node."""
        return [Run.of_node(node, self.wanted(facts.nodes[node]).command(node)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Read the document back, and judge."""
        node, judge = run.nodes[0], Judge()
        found = answers(judge, outputs.get(KEY), node, self.wanted(facts.nodes[node]), self.what)
        if found is not None:
            self.judge_node(judge, facts.nodes[node], found)
            if not judge.errors and not judge.fails:
                judge.measured.add(node)
        return judge.verdict(node)
