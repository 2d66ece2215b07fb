"""The gate on the parallel file system: rates of this node, compared with those that the site declares."""

from __future__ import annotations

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.formats import fio
from rackready.gates.host import reading
from rackready.gates.host.reading import AGAIN, Answers, HostGate, Limit, Tool, WantedValues
from rackready.gates.judging.expectation import IMPLAUSIBLE
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Op
from rackready.ondevice.network_mounts import NETWORK

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
            description="lowest read rate of one node, GB/s (10^9 bytes); at most 10^4 (judgement)",
        )
        write_gb_s: float | None = Field(
            None, gt=0, le=10_000, description="lowest write rate of one node, GB/s; at most 10^4 (judgement)"
        )
        kinds: tuple[str, ...] = Field(
            NETWORK,
            min_length=1,
            description="types that count as a network file system, as findmnt names them",
        )
        jobs: int = Field(16, ge=1, le=256, description="files that are transferred side by side")
        size: str = Field("4G", pattern=r"^\d+[MG]$", description="size of each file")

    inputs: Inputs

    def wanted(self, facts: NodeFacts) -> WantedValues:  # noqa: ARG002 - the same on every node
        """Return a write and a read past the page cache; nothing without a declared folder."""
        if self.inputs.directory is None:
            return WantedValues()
        mounted = Tool(
            "mount", ("findmnt", "--noheadings", "--output=FSTYPE", "--target", self.inputs.directory), "util-linux"
        )
        common = (
            f"--directory={self.inputs.directory}", f"--numjobs={self.inputs.jobs}", f"--size={self.inputs.size}",
            "--bs=1M", "--direct=1", "--iodepth=16", "--ioengine=libaio", "--group_reporting", "--output-format=json",
            "--filename_format=rackready.$jobnum.$filenum",
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
        both = Tool("fio", ("fio", *common, *sections), "fio", timeout_s=540)
        return WantedValues((mounted, both))

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Compare both rates with the declared ones."""
        node, inputs = facts.node.name, self.inputs
        if inputs.directory is None or (inputs.read_gb_s is None and inputs.write_gb_s is None):
            judge.judged += 1
            judge.error(node, FILESYSTEM_NOT_DECLARED, "a folder and a rate that the site declares", "none")
            return
        kind = found.text("mount")
        text = found.text("fio")
        if kind is None or text is None:
            return
        try:
            done = fio.parse(text)
        except FormatError as error:
            judge.error(node, FILESYSTEM_FIO_UNREADABLE, "its JSON document", error)
            return
        judge.transport = f"{kind.strip()} at {inputs.directory}"
        judge.judged += 1
        if kind.strip() not in inputs.kinds:
            judge.fail(node, NOT_MOUNTED, f"a network file system at {inputs.directory}", kind.strip() or "nothing")
        self._check_transfer(judge, facts, done)
        for way, rate, bound in (("write", done.write, inputs.write_gb_s), ("read", done.read, inputs.read_gb_s)):
            if bound is not None and not Limit(f"filesystem_{way}", Op.GE, bound, "GB/s", _DECLARED).holds(
                judge, node, rate
            ):
                judge.fail(node, FILESYSTEM_SLOW, f"at least {bound:g} GB/s (declared)", f"{rate:.2f} GB/s", way=way)
        if done.error:
            judge.fail(node, FILESYSTEM_ERROR, "no error", f"errno {done.error}")

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
            if moved < wanted and not done.error:
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
