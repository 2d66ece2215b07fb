"""The gate on the parallel file system: rates of this node, compared with those that the site declares."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.gates import base
from rackready.gates.base import GateFacts, Outputs, Run
from rackready.gates.formats import fio
from rackready.gates.host import reading
from rackready.gates.host.fio_answer import transfer
from rackready.gates.host.reading import AGAIN, Answers, HostGate, Limit, Tool, WantedValues, answers
from rackready.gates.judging.expectation import IMPLAUSIBLE
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Op, Verdict
from rackready.ondevice.network_mounts import NETWORK

MOUNT = "mount"
"""Key of the first stage: what the folder is on."""
_DECLARED = "declared in the gate set"
_UNIT = {"M": 1 << 20, "G": 1 << 30}
"""fio's suffixes of sizes: powers of 1024 (fio(1), kb_base)."""
_CEILING = (
    "derived: 1.02 x the sum of the rates of all network ports of the server (profile): no network file system is "
    "faster"
)


FILESYSTEM_NOT_DECLARED = ErrorKind(
    "filesystem-not-declared",
    "parallel file system cannot be judged",
    meaning="The site declares no folder or no rates of its parallel file system, so there is nothing to compare with.",
    next_step="Declare directory, read_gb_s and write_gb_s for this gate in the gate set, or skip the gate with a "
    "reason (site.yml gates.skip).",
)
FILESYSTEM_FIO_UNREADABLE = ErrorKind(
    "filesystem-fio-unreadable",
    "fio's output is not understood",
    meaning="fio printed something other than its document.",
    next_step=AGAIN,
)
NOT_MOUNTED = FailKind(
    "filesystem-not-mounted",
    "parallel file system",
    meaning="The folder is not on a network file system: the parallel file system is not mounted there.",
    next_step="Mount the parallel file system there, or correct the folder in the gate set. "
    "Declare a type that the gate does not know in the input `kinds`.",
)
FILESYSTEM_SLOW = FailKind(
    "filesystem-slow",
    "parallel file system is slow to {way}",
    meaning="The node reads or writes the parallel file system slower than the site declares.",
    next_step="Compare with other nodes: if only this node is slow, check its network and client, else the servers.",
)
FILESYSTEM_ERROR = FailKind(
    "filesystem-error",
    "parallel file system",
    meaning="Reading or writing the parallel file system gave an error.",
    next_step="Read the client's messages in the kernel log (`dmesg`).",
)
FILESYSTEM_NOT_WHOLE = ErrorKind(
    "filesystem-not-whole",
    "files not transferred completely ({way})",
    meaning="fio transferred fewer bytes than it was told to.",
    next_step="Check whether the folder is full or the client ended fio, then run the gate again.",
)
FILESYSTEM_IMPLAUSIBLE = ErrorKind(
    "filesystem-implausible",
    "{way} rate above the server's network rate",
    meaning="The rate is more than the node's network can carry, so a cache answered.",
    next_step="Check the mount and its options: something on the node answered instead (a cache, another file system).",
)

FINDINGS = (
    FILESYSTEM_NOT_DECLARED,
    FILESYSTEM_FIO_UNREADABLE,
    NOT_MOUNTED,
    FILESYSTEM_SLOW,
    FILESYSTEM_ERROR,
    FILESYSTEM_NOT_WHOLE,
    FILESYSTEM_IMPLAUSIBLE,
)


class ParallelFilesystem(HostGate):
    """The parallel file system is mounted, and this node reads and writes it at the declared rates."""

    id = "node/storage/performance/parallel-filesystem"
    findings = (*reading.FINDINGS, *FINDINGS)
    in_no_set = "it needs the mount and the rates that the site declares; such a site adds it (gates.also)"
    what = "parallel file system"

    class Inputs(base.Inputs):
        """Folder and rates. Without them the gate is an error: skip it if there is no such file system."""

        directory: str | None = Field(
            None,
            min_length=1,
            pattern="^/",
            description="folder on the file system for test files, which the gate removes",
        )
        read_gb_s: float | None = Field(
            None,
            gt=0,
            le=10_000,
            description="lowest read rate of one node while up to 15 others are measured beside it, GB/s (10^9 bytes); "
            "at most 10^4 (judgement)",
        )
        write_gb_s: float | None = Field(
            None,
            gt=0,
            le=10_000,
            description="lowest write rate of one node while up to 15 others are measured beside it, GB/s; "
            "at most 10^4 (judgement)",
        )
        kinds: tuple[str, ...] = Field(
            NETWORK,
            min_length=1,
            description="types that count as a network file system, as findmnt names them",
        )
        jobs: int = Field(16, ge=1, le=256, description="files that are transferred side by side")
        size: str = Field("4G", pattern=r"^\d+[MG]$", description="size of each file")

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Plan the transfer after a look at the mount: without it, fio would fill the node's own disk."""
        if not self._declared():
            return super().plan(facts, nodes)
        return [
            Run.of_node(
                node,
                self._mount().command(node, MOUNT),
                self.wanted(facts.nodes[node]).command(node, stage=1),
                chained=True,
            )
            for node in nodes
        ]

    def ended(self, run: Run, outputs: Outputs) -> bool:
        """Return whether the folder is on no network file system, so that nothing is written there."""
        return self._kind(Judge(), run.nodes[0], outputs) is None

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge the mount, then the transfer."""
        if not self._declared():
            return super().evaluate(facts, run, outputs)
        judge = Judge()
        kind = self._kind(judge, run.nodes[0], outputs)
        if kind is None:
            return judge.verdict(run.nodes[0])
        verdict = super().evaluate(facts, run, outputs)
        return verdict.model_copy(update={"transport": f"{kind} at {self.inputs.directory}"})

    def _declared(self) -> bool:
        rates = (self.inputs.read_gb_s, self.inputs.write_gb_s)
        return self.inputs.directory is not None and any(rate is not None for rate in rates)

    def _mount(self) -> WantedValues:
        argv = ("findmnt", "--noheadings", "--output=FSTYPE", "--target", str(self.inputs.directory))
        return WantedValues((Tool(MOUNT, argv, "util-linux"),))

    def _kind(self, judge: Judge, node: str, outputs: Outputs) -> str | None:
        """Return the type of the network file system; None, with a finding, if there is none."""
        found = answers(judge, outputs.get(MOUNT), node, self._mount(), "mount")
        text = found.text(MOUNT) if found is not None else None
        if text is None:
            return None
        judge.judged += 1
        if text.strip() in self.inputs.kinds:
            return text.strip()
        expected = f"a network file system at {self.inputs.directory}"
        judge.fail(node, NOT_MOUNTED, expected, text.strip() or "nothing")
        return None

    def wanted(self, facts: NodeFacts) -> WantedValues:
        """Return a write and a read past the page cache; nothing where the site declares too little."""
        if not self._declared():
            return WantedValues()
        # All nodes use one folder, so each has files of its own. Slashes and `$` mean something to fio (HOWTO).
        name = re.sub(r"[^A-Za-z0-9.-]", "_", facts.node.name)
        common = (
            f"--directory={self.inputs.directory}", f"--numjobs={self.inputs.jobs}", f"--size={self.inputs.size}",
            "--bs=1M", "--direct=1", "--iodepth=16", "--ioengine=libaio", "--group_reporting", "--output-format=json",
            f"--filename_format=rackready.{name}.$jobnum.$filenum",
        )  # fmt: skip
        sections = (
            "--name=write",
            "--rw=write",
            "--end_fsync=1",
            "--name=read",
            "--stonewall",
            "--rw=read",
            "--unlink=1",
        )
        return WantedValues((Tool("fio", ("fio", *common, *sections), "fio", timeout_s=540),))

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Compare both rates with the declared ones; after an error, they tell nothing."""
        node, inputs = facts.node.name, self.inputs
        if not self._declared():
            judge.judged += 1
            judge.error(node, FILESYSTEM_NOT_DECLARED, "a folder and a rate that the site declares", "none")
            return
        done = transfer(found, "fio", FILESYSTEM_FIO_UNREADABLE)
        if done is None:
            return
        judge.judged += 1
        if done.error:
            judge.fail(node, FILESYSTEM_ERROR, "no error", f"errno {done.error}")
            return
        self._check_transfer(judge, facts, done)
        for way, rate, bound in (("write", done.write, inputs.write_gb_s), ("read", done.read, inputs.read_gb_s)):
            if bound is not None and not Limit(f"filesystem_{way}", Op.GE, bound, "GB/s", _DECLARED).holds(
                judge, node, rate
            ):
                judge.fail(node, FILESYSTEM_SLOW, f"at least {bound:g} GB/s (declared)", f"{rate:.2f} GB/s", way=way)

    def _check_transfer(self, judge: Judge, facts: NodeFacts, done: fio.Transfer) -> None:
        """Add an error for an incomplete transfer, or a rate that the server's network cannot carry."""
        node, inputs = facts.node.name, self.inputs
        wanted = inputs.jobs * int(inputs.size[:-1]) * _UNIT[inputs.size[-1]]
        network = (
            sum(nic.rate for nic in facts.nics)
            + sum(nic.rate for nic in facts.platform.other_nics if nic.role != "oob")
        ) / 8
        ceiling = Limit(
            "filesystem_most", Op.LE, IMPLAUSIBLE * network, "GB/s", _CEILING, label="ceiling", derived=True
        )
        for way, moved, rate in (("write", done.bytes_written, done.write), ("read", done.bytes_read, done.read)):
            judge.judged += 1
            if moved < wanted:
                judge.error(
                    node,
                    FILESYSTEM_NOT_WHOLE,
                    f"{wanted} bytes ({inputs.jobs} of {inputs.size})",
                    f"{moved} bytes",
                    way=way,
                )
            if network and not ceiling.holds(judge, node, rate):
                judge.error(
                    node, FILESYSTEM_IMPLAUSIBLE, f"at most {ceiling.bound:g} GB/s", f"{rate:.2f} GB/s", way=way
                )
