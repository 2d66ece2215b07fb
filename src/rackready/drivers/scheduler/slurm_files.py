"""The files of a Slurm cluster on its controller: reads them, and changes rackready's part of them.

The work on the controller is one program, ``ondevice/slurm_files.py``, sent over SSH.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from rackready.drivers.one_file import one_file
from rackready.drivers.program_answer import document
from rackready.drivers.remote import Answer, Runner
from rackready.drivers.scheduler import slurm_checks, slurm_gres, slurm_values
from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.slurm_text import expand_hosts
from rackready.drivers.with_request import ARGV, with_request
from rackready.model.host_list import host_list
from rackready.model.problems import Problem, RackreadyError
from rackready.model.slurm_files import SlurmFiles
from rackready.ondevice import slurm_conf
from rackready.ondevice import slurm_files as program
from rackready.render.slurm_files import GRES, HEAD, NODES, TOPOLOGY

CONTROLLER = "Slurm controller"
"""Its name among the targets of a Remote."""
MAIN, GRES_MAIN, TOPOLOGY_YAML = "slurm.conf", slurm_gres.MAIN, "topology.yaml"
MODULES = tuple(f"rackready.ondevice.{name}" for name in ("slurm_conf", "slurm_copy", "slurm_trial", "slurm_files"))
"""Modules of the program on the controller, each after those that it imports."""
Reload = Literal["restart", "reconfigure", "none"]
_RELEASE = re.compile(r"^slurm(?:-wlm)? (\d+)\.(\d+)")
_WAIT_S = 60.0
"""Longest wait for slurmctld after a reload, s. Judgement: it reads 10,000 nodes in seconds."""
_LOOK_S, _CHANGE_S = 90.0, 600.0
ADDS_BY_RECONFIGURE = (24, 11)
"""From this release `scontrol reconfigure` takes nodes in. 22.05.8 dies of it (tried); 23.02 to 24.05 ask for a restart
(Slurm's faq.shtml)."""
BLOCKS_FROM = (24, 5)
"""From this release topology.conf has BlockSizes (Slurm's RELEASE_NOTES)."""
_FAILED = {
    "no-slurm-conf": ("slurm.conf", "Correct handover.files.folder."),
    "busy": ("no other run at work on the files", "Wait for it, then run again."),
    "changed-meanwhile": ("files as they were read", "Run again: it reads them again."),
    "journal": ("the files as a killed run left them", "Compare them with the kept ones by hand, then run again."),
    "taken-over": (
        "this run's change is still open",
        "Wait for the other run. Then `rackready slurm apply` makes the nodes' files the same again.",
    ),
    "refused": (
        "slurmctld runs with the new files in a trial",
        "Nothing was changed. Correct what it says, in slurm.conf or in the site file.",
    ),
    "not-tried": (
        "a trial of the new files beside slurmctld",
        "Nothing was changed. The controller needs slurmctld and unshare, and handover.user must be root there.",
    ),
    "taken-back": (
        "slurmctld runs with the new files",
        "The old files are back. Read its log on the controller, correct the cause, run again.",
    ),
    "not-closed": (
        "slurmctld runs with the files that the nodes have",
        "The change is still open. Correct what it says; `rackready slurm apply` ends it then.",
    ),
    "os-error": ("the folder and files of slurm.conf can be read and replaced", "Correct that, then run again."),
}


class NoAnswerError(SchedulerError):
    """The controller's answer is missing. The program there may still be at work, or have done all of it."""

    code = SchedulerError.code


class TakenBackError(SchedulerError):
    """slurmctld did not come up with the new files. The controller said that the old ones are back."""

    code = SchedulerError.code


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster's files and daemon as they are. ``known``: nodes that slurmctld knows; ``seen``: digest of the files.

    ``release``: year and month, e.g. (22, 5). ``journal``: a killed run left work behind.
    """

    files: Mapping[str, str]
    seen: str
    release: tuple[int, int]
    answers: bool
    known: frozenset[str]
    journal: bool = False


class Finishing(Runner, Protocol):
    """A runner that can also let a command run to its end when the operator stops."""

    def run(
        self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float, cleaning: bool = False
    ) -> Answer:
        """Run a command to its end; with ``cleaning`` also when the operator stops."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The end of what a killed run began: what was done, and what nodes with files of their own are still to get.

    ``files``: name -> text, None to remove it; ``instead``: what may be there now.
    """

    words: str = ""
    hosts: tuple[str, ...] = ()
    files: Mapping[str, str | None] = field(default_factory=dict)
    instead: Mapping[str, str | None] = field(default_factory=dict)


class SlurmController:
    """The controller of one cluster. Every method raises SchedulerError."""

    def __init__(self, runner: Finishing, where: str, folder: str, unit: str) -> None:
        self._runner = runner
        self.where = where
        self._folder = folder
        self._unit = unit
        self._change: dict[str, str] = {}

    def look(self) -> Cluster:
        """Return the files and what slurmctld knows."""
        found = self._ask({"op": "read"}, _LOOK_S)
        match = _RELEASE.match(found["release"])
        if match is None:
            raise SchedulerError(
                self.where,
                "`slurmctld -V`",
                expected="a release such as slurm 24.11.5",
                actual=found["release"] or "nothing",
                next_step="Install slurmctld on the controller, or correct handover.controller.",
            )
        release = (int(match[1]), int(match[2]))
        return Cluster(
            found["files"], found["seen"], release, found["answers"], frozenset(found["known"]), found["journal"]
        )

    def change(self, files: Mapping[str, str], seen: str, reload: Reload, nodes: Sequence[str]) -> str:
        """Try files, write them and make slurmctld use them; return the folder of the old ones, "" if none changed.

        ``seen``: digest of what was read before; ``nodes``: those that slurmctld must know afterwards. When slurmctld
        does not come up with the files, the old ones are back before this raises.
        """
        asked = {"op": "apply", "files": dict(files), "seen": seen, "reload": reload, "nodes": list(nodes)}
        return str(self._ask(asked, _CHANGE_S)["kept"])

    def begin(
        self, files: Mapping[str, str], seen: str, reload: Reload, nodes: Sequence[str], hosts: Sequence[str]
    ) -> bool:
        """Try and write files; with a restart slurmctld stands still until ``finish`` or ``back``.

        ``hosts``: nodes that get the files before ``finish``. Return whether anything changed. The operator cannot stop
        this, nor the later steps: slurmctld would stand still.
        """
        asked = {"op": "begin", "files": dict(files), "seen": seen, "reload": reload, "nodes": list(nodes)}
        return bool(self._ask({**asked, "hosts": list(hosts)}, _CHANGE_S, whole=True)["result"] == "begun")

    def finish(self, reload: Reload, nodes: Sequence[str]) -> None:
        """Make slurmctld use what ``begin`` wrote. The old files are back only when this raises TakenBackError."""
        self._ask({"op": "finish", "reload": reload, "nodes": list(nodes), **self._change}, _CHANGE_S, whole=True)

    def back(self) -> str:
        """Take what ``begin`` wrote back on the controller, restart slurmctld, and return how that ended."""
        return "; ".join(self._ask({"op": "back", **self._change}, _CHANGE_S, whole=True)["words"])

    def close(self) -> None:
        """End a change once the nodes have its files: slurmctld and slurmd read them. When this raises, it is open."""
        self._ask({"op": "close", **self._change}, _CHANGE_S, whole=True)

    def recover(self) -> Recovered:
        """End what a killed run began on the controller."""
        found = self._ask({"op": "recover"}, _CHANGE_S, whole=True)
        rest = found.get("pending") or {"hosts": [], "files": {}, "instead": {}}
        return Recovered("; ".join(found["words"]), tuple(rest["hosts"]), rest["files"], rest["instead"])

    def _ask(self, asked: dict[str, Any], limit_s: float, *, whole: bool = False) -> dict[str, Any]:
        request = json.dumps({"folder": self._folder, "unit": self._unit, "wait_s": _WAIT_S, **asked})
        source = with_request(one_file(MODULES), request)
        answer = self._runner.run(CONTROLLER, ARGV, stdin=source, timeout_s=limit_s, cleaning=whole)
        found = self._document(answer)
        if found["result"] in _FAILED:
            expected, step = _FAILED[found["result"]]
            kind = TakenBackError if found["result"] == "taken-back" else SchedulerError
            raise kind(
                self.where,
                self._folder,
                expected=expected,
                actual="; ".join(found["words"]) or found["result"],
                next_step=step,
            )
        if found.get("change"):
            self._change = {"change": found["change"]}  # the later steps are of this change alone
        return found

    def _document(self, answer: Answer) -> dict[str, Any]:
        found, actual = document(answer, program.FORMAT)
        if not actual:
            return found
        raise NoAnswerError(
            self.where,
            "Slurm's files",
            expected="an answer from the controller",
            actual=actual,
            next_step="Check that the host answers, has python3, and that handover.user is root there.",
        )


# --- the candidate ----------------------------------------------------------------------------------------------------


def own_lines(files: Mapping[str, str]) -> dict[str, str]:
    """Return node -> its NodeName line in our part of slurm.conf, without its state."""
    lines = [line for line in files.get(NODES, "").splitlines() if line.startswith("NodeName=")]
    return {line.split()[0].removeprefix("NodeName="): re.sub(r" State=DRAIN Reason=.*$", "", line) for line in lines}


def settled(files: Mapping[str, str]) -> frozenset[str]:
    """Return the nodes whose line has no state of ours any more: slurmctld had them, also if it does not answer now."""
    lines = [line.split() for line in files.get(NODES, "").splitlines() if line.startswith("NodeName=")]
    return frozenset(words[0].removeprefix("NodeName=") for words in lines if "State=DRAIN" not in words)


def with_include(text: str, name: str) -> str:
    """Return a file that includes one of ours; the line is added at the end where it is missing."""
    if name in slurm_conf.includes(text):
        return text
    begin = f"{text.rstrip(chr(10))}\n" if text.strip() else ""
    return f"{begin}Include {name}\n"


def settings_of_others(files: Mapping[str, str]) -> dict[str, str]:
    """Return key (lower case) -> value of the settings in slurm.conf that are not ours."""
    return slurm_conf.settings({name: text for name, text in files.items() if name not in {NODES, GRES}})


def extra_lines(files: Mapping[str, str], topology: str, more: Mapping[str, str]) -> list[str]:
    """Return settings that our part needs and nobody wrote yet; ``more``: further ones."""
    set_by_others = settings_of_others(files)
    wanted = (
        {"GresTypes": "gpu"} | ({} if topology == "none" else {"TopologyPlugin": f"topology/{topology}"}) | dict(more)
    )
    return [f"{key}={value}" for key, value in wanted.items() if key.lower() not in set_by_others]


def objections(
    where: str, cluster: Cluster, nodes: Sequence[str], partitions: Sequence[str], wanted: SlurmFiles, imex: str = ""
) -> Iterator[Problem]:
    """Yield why our part cannot stand beside what others wrote. ``imex``: who makes IMEX channels; "": nobody needs."""
    files = {name: text for name, text in cluster.files.items() if name not in {NODES, GRES}}
    found, topology = slurm_conf.settings(files), wanted.topology
    place = f"{where} {MAIN}"
    yield from slurm_values.objections(place, cluster.release, found, topology)
    yield from slurm_values.channels(place, found, imex)
    yield from slurm_values.two_defaults(place, files, wanted)
    if not wanted.classic:
        yield from _configless(where, found)
    theirs = nodes_of_others(files)
    yield from slurm_checks.objections(f"{where} {MAIN}", wanted.checks, found, theirs)
    if both := sorted(set(nodes) & theirs):
        yield Problem.of(
            f"{where} {MAIN}",
            f"NodeName of {host_list(both)}",
            "Remove their lines there: rackready writes them.",
            expected=f"only in {NODES}",
            actual="defined by somebody else",
        )
    if both := sorted(set(partitions) & defined(files[MAIN], files, "PartitionName")):
        yield Problem.of(
            f"{where} {MAIN}",
            f"partition {', '.join(both)}",
            "Give ours another name in handover.files.partitions, or remove that line.",
            expected=f"only in {NODES}",
            actual="defined by somebody else",
        )
    yield from slurm_gres.objections(f"{where} {GRES_MAIN}", files, nodes)
    yield from _unread(where, files)
    yield from _topology(where, cluster, topology)


def _unread(where: str, files: Mapping[str, str]) -> Iterator[Problem]:
    for name in slurm_conf.unread(files):
        if name not in {NODES, GRES}:
            yield Problem.of(
                f"{where} {MAIN}",
                f"Include {name}",
                "Give it such a name there, and include it by that name: rackready must see what others set.",
                expected=f"a file NAME.conf beside {MAIN}",
                actual="no such file was read",
            )


def _configless(where: str, found: Mapping[str, str]) -> Iterator[Problem]:
    if "enable_configless" not in found.get("slurmctldparameters", "").split(","):
        yield Problem.of(
            f"{where} {MAIN}",
            "SlurmctldParameters",
            "Add it, or set handover.files.distribution to classic: rackready then writes the files on every node.",
            expected="enable_configless: nodes fetch the files from the controller",
            actual=found.get("slurmctldparameters") or "not set",
        )


def _topology(where: str, cluster: Cluster, topology: str) -> Iterator[Problem]:
    if topology == "none":
        return
    text = cluster.files.get(TOPOLOGY, "")
    if text.strip() and not text.startswith(HEAD):
        yield Problem.of(
            f"{where} {TOPOLOGY}",
            "written by somebody else",
            "Remove it, or set handover.files.topology to none.",
            expected=f"none, or one that begins with {HEAD.split(':', maxsplit=1)[0]!r}",
            actual=repr(text.splitlines()[0][:80]),
        )
    if TOPOLOGY_YAML in cluster.files:
        yield Problem.of(
            f"{where} {TOPOLOGY_YAML}",
            "Slurm ignores topology.conf beside it",
            "Remove it, or set handover.files.topology to none.",
            expected="absent",
            actual="there",
        )
    if topology == "block" and cluster.release < BLOCKS_FROM:
        yield Problem.of(
            f"{where} topology",
            "blocks",
            "Set handover.files.topology to tree or none, or upgrade Slurm.",
            expected="Slurm 24.05 or later",
            actual=f"{cluster.release[0]}.{cluster.release[1]:02d}",
        )


def nodes_of_others(files: Mapping[str, str]) -> set[str]:
    """Return the nodes that somebody else defines."""
    beside = {name: text for name, text in files.items() if name not in {NODES, GRES}}
    return defined(beside[MAIN], beside, "NodeName")


def defined(text: str, files: Mapping[str, str], key: str) -> set[str]:
    """Return the names that lines of a key define, in a file and those that it includes."""
    out: set[str] = set()
    for found, value in slurm_conf.pairs({**files, MAIN: text}):
        if found == key.lower():
            try:
                out |= expand_hosts(value)
            except RackreadyError:
                continue  # slurmctld itself complains of it in the trial
    return out - {"DEFAULT"}


def reload_for(cluster: Cluster, files: Mapping[str, str]) -> Reload:
    """Return how slurmctld takes the files in: a restart where a reconfigure would not, or would kill it.

    Running jobs survive a restart (tried with 22.05.8).
    """
    before, after = slurm_conf.settings(dict(cluster.files)), slurm_conf.settings({**cluster.files, **files})
    settings_change = any(before.get(key) != after.get(key) for key in ("grestypes", "topologyplugin"))
    nodes_change = set(own_lines(cluster.files)) != set(own_lines(files))
    plugin_change = settings_change or (TOPOLOGY in files and TOPOLOGY not in cluster.files)
    if not cluster.answers or plugin_change or (nodes_change and cluster.release < ADDS_BY_RECONFIGURE):
        return "restart"
    return "reconfigure"
