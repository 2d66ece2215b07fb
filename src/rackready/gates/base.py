"""Gate, its inputs, commands and outputs. A gate declares commands and judges outputs; it never opens a connection."""

from __future__ import annotations

import inspect
import shlex
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from rackready.design.facts import NodeFacts
from rackready.drivers.scheduler.reserve import PREFIX, USER
from rackready.gates.judging.finding_kinds import KINDS, ErrorKind, Kinds
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.outcome import Finding, Metric, Verdict
from rackready.model.problems import RackreadyError
from rackready.model.site import Device, Fabric

Need = Literal["dcgm", "persistence"]
"""What some gates need, and a site may declare to be off."""


class Inputs(BaseModel):
    """Typed inputs of a gate. Unknown keys and values of another type are refused.

    ``yes`` and ``'7'`` are not numbers, and neither is infinity. Every number has bounds on both sides. An upper bound
    without a source is a judgement, and its description says so: far beyond what any site needs, but low enough that a
    wrong unit (MiB for KiB, ms for s) cannot make a gate pass whatever it reads, or fail to compute.
    """

    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True, strict=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _lists(cls, value: object) -> object:
        """Turn a list into a tuple: YAML and JSON have no tuples. The items of a dict are left as they are."""
        return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class LastPass:
    """A gate's last pass on a node."""

    at: datetime
    metrics: tuple[Metric, ...] = ()


@dataclass(frozen=True, slots=True)
class GateFacts:
    """The site's facts that gates use: plain data, no connection."""

    nodes: Mapping[str, NodeFacts]
    fabric: Fabric
    fleet: int
    """Number of nodes of the site, all judged by the same gate. Sets the number of launches."""
    passed: Mapping[tuple[str, str], LastPass] = field(default_factory=dict)
    """(gate, node) -> its last pass, for gates that judge only changes since then."""
    devices: Sequence[Device] = ()
    """Devices in the racks other than nodes and switches: PDUs, power shelves, coolant distribution units."""
    liquid: frozenset[str] = frozenset()
    """Nodes in liquid-cooled racks."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Every node of the site -> its address."""
    needed: tuple[str, ...] = ()
    """Host names (not addresses) that nodes must resolve: the package mirror, the scheduler's controller."""
    launcher: Literal["openmpi", "srun", "mpijob"] = "openmpi"
    """How programs are started on several nodes (site.yml gates.launcher)."""
    cluster: KubernetesHandover | None = None
    """The Kubernetes cluster that nodes are handed over to: their names there, and the taint that holds them."""
    reservation: str = PREFIX
    """First part of the names of Slurm reservations (site.yml handover.validation_reservation)."""
    job_user: str = USER
    """User of Slurm jobs (site.yml handover.validation_user)."""
    imex_channel: bool = False
    """Whether nodes of an NVLink domain have an IMEX channel of rackready's."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command on one node.

    A run goes stage by stage; the commands of one stage run in parallel. A server starts one stage before its clients,
    is ready when something listens on ``ready_port`` of its node, and is stopped at the end of the run.
    """

    key: str
    node: str
    argv: tuple[str, ...]
    timeout_s: float
    stdin: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    stage: int = 0
    role: Literal["step", "server", "wait"] = "step"
    """``wait``: repeated until it exits with 0 or times out, for example while a node boots."""
    ready_port: int | None = None
    via: Literal["host", "bmc", "kubernetes"] = "host"
    """``bmc``: a request to the Redfish service of the node or rack device, such as ("GET", "Chassis/*/Sensors/*").

    See gates/bmc/connection.py. ``kubernetes``: an MPIJob, whose manifest is ``stdin``; the controller runs it.
    """

    @property
    def typed(self) -> str:
        """The command as one types it, with its environment. One word is the command line of a switch already."""
        words = self.argv[0] if len(self.argv) == 1 else shlex.join(self.argv)
        return " ".join([*(shlex.quote(f"{name}={value}") for name, value in self.env.items()), words])


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement of one target."""

    id: str
    target: str
    nodes: tuple[str, ...]
    commands: tuple[Command, ...]
    claims: frozenset[str] = frozenset()
    """Parts that no other run may use at the same time, for example a node's NIC."""
    launch_from: str | None = None
    """Node that starts processes on the others over SSH (MPI)."""
    chained: bool = False
    """Stages depend on each other: if a command of a stage does not exit with 0, later stages are not run."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Facts for ``evaluate``: rail, partner, launches."""

    @classmethod
    def of_node(
        cls,
        node: str,
        *commands: Command,
        claims: frozenset[str] = frozenset(),
        chained: bool = False,
        about: Mapping[str, str] | None = None,
    ) -> Run:
        """Return the measurement of one node by itself, as most gates make it."""
        return cls(
            id=node, target=node, nodes=(node,), commands=commands, claims=claims, chained=chained, about=about or {}
        )


@dataclass(frozen=True, slots=True)
class Output:
    """Output of one command. ``exit_code`` is None if the command did not end by itself."""

    key: str
    node: str
    command: str
    exit_code: int | None
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    timed_out: bool = False
    failure: str = ""
    """Why there is no result (host unreachable, server never ready); empty if the command ran."""


Outputs = Mapping[str, Output]


@dataclass(frozen=True, slots=True)
class FleetMetric:
    """A metric by which identical units are compared."""

    name: str
    effect: float
    """Smallest deviation to detect, as a share of the median. A unit must deviate by at least half of it."""
    sigma: float = 0.01
    """Assumed spread of one launch on one unit, as a share of its value: the least noise to assume."""
    better: Literal["higher", "lower"] = "higher"
    of: Literal["part", "run"] = "part"
    """What a unit is.

    ``part``: a node (target ``node03``) or a part of it (``node03/gpu2``). ``run``: a run over several nodes; its
    figure counts for all of them.
    """
    look: str = ""
    """First thing to check if a unit falls behind; empty: the default for units of its kind."""


class GateTakenError(RackreadyError):
    """Two gates have the same id."""

    def __init__(self, gate_id: str, first: type[Gate], second: type[Gate]) -> None:
        classes = " and ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in (first, second))
        super().__init__(
            f"gate {gate_id}",
            expected="one class with this id",
            actual=classes,
            next_step="Give one of them another id.",
        )


class Gate(ABC):
    """One gate. Reports print the first line of its docstring."""

    id: ClassVar[str]
    covers: ClassVar[frozenset[str]] = frozenset()
    """Kinds of parts that a pass counts as measured: node, gpu, nvlink, nic, rail, cable."""
    fleet: ClassVar[tuple[FleetMetric, ...]] = ()
    """Metrics that are also compared with those of identical units, once those are measured."""
    in_no_set: ClassVar[str] = ""
    """Why no shipped gate set contains it; empty if one does."""
    findings: ClassVar[Kinds] = ()
    """Every kind of finding that it can report, those of its helpers included.

    Kinds that every gate can report are in gates/judging/common_findings.py.
    """
    min_nodes: ClassVar[int] = 1
    retry: ClassVar[bool] = True
    """Retry once after an error; False if the work must not be repeated without a request."""
    since_last_pass: ClassVar[bool] = False
    """It judges only changes since its last pass (``GateFacts.passed``)."""
    stops_load: ClassVar[bool] = False
    """A node that does not pass it is not loaded.

    Its cooling, power or a GPU is in doubt, or nothing measured on it would count.
    """
    after_fail: ClassVar[bool] = False
    """It also measures nodes that failed another gate, with good nodes as partners.

    So one visit to the rack can repair all faults of a node.
    """
    looks: ClassVar[bool] = False
    """It only reads and is safe while jobs run. Every deploy runs it again; a pass counts for that deploy alone."""
    Inputs: ClassVar[type[Inputs]] = Inputs

    def __init__(self, inputs: Mapping[str, object] | None = None) -> None:
        """Validate the inputs; pydantic refuses unknown and wrong ones."""
        self.inputs = self.Inputs.model_validate(dict(inputs or {}))

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Register every gate that has an id. Raise GateTakenError if another gate has the id."""
        super().__init_subclass__(**kwargs)
        if "id" in cls.__dict__ and not inspect.isabstract(cls):
            first = REGISTRY.setdefault(cls.id, cls)
            if (first.__module__, first.__qualname__) != (cls.__module__, cls.__qualname__):
                raise GateTakenError(cls.id, first, cls)
            REGISTRY[cls.id] = cls

    @property
    def needs(self) -> frozenset[Need]:
        """Return what it uses that a site may declare to be off (``gates/engine/declared_off.py``)."""
        return frozenset()

    @property
    def scope(self) -> str:
        """Return the first part of the id: bmc, node, pair, group, rack, switch or cluster."""
        return self.id.split("/", 1)[0]

    @property
    def single_node(self) -> bool:
        """Return whether it measures one node at a time."""
        return self.scope in {"node", "bmc"}

    @property
    def level(self) -> str:
        """Return the third part of the id: sanity, validation, performance or stress."""
        return self.id.split("/")[2]

    @classmethod
    def title(cls) -> str:
        """Return the first line of the docstring, which reports print."""
        return inspect.getdoc(cls).split("\n", 1)[0] if cls.__doc__ else cls.id  # type: ignore[union-attr]

    @abstractmethod
    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Declare the runs for these nodes."""

    @abstractmethod
    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Return the verdict on one run's outputs. Pure: the same outputs always give the same verdict."""

    def ended(self, run: Run, outputs: Outputs) -> bool:  # noqa: ARG002 - most runs complete all stages
        """Return whether a chained run can stop after this stage. Pure, like ``evaluate``."""
        return False

    def tools(self, outputs: Outputs) -> dict[str, str]:  # noqa: ARG002 - most tools do not report it
        """Return the versions of the tools that made these outputs, as far as the outputs report them."""
        return {}

    def follow_up(self, facts: GateFacts, done: Sequence[FinishedRun]) -> list[Run]:  # noqa: ARG002
        """Declare further runs that find the faulty part of a failed run. Never repeat a failed run."""
        return []

    def acquitted(
        self,
        runs: Mapping[str, Collection[str]],  # noqa: ARG002 - most gates cannot tell
        slow: Collection[str],  # noqa: ARG002
    ) -> frozenset[tuple[str, str]]:
        """Return (target, node) of slow runs for which the node's other runs show that another node is at fault.

        ``runs``: target -> its nodes, of all compared runs. ``slow``: targets of the runs behind their fleet.
        """
        return frozenset()

    def attribute(self, facts: GateFacts, done: Sequence[FinishedRun]) -> dict[str, list[Verdict]]:  # noqa: ARG002
        """Return each node's verdicts: those of all runs that it took part in, unless the gate overrides it."""
        out: dict[str, list[Verdict]] = {}
        for item in done:
            for node in item.run.nodes:
                out.setdefault(node, []).append(item.verdict)
        return out


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """One run with its verdict."""

    run: Run
    verdict: Verdict
    record: str = ""
    """Id of its evidence record, if any."""


REGISTRY: dict[str, type[Gate]] = {}


class Step(StrEnum):
    """Next steps that code tells apart, by member and not by their words."""

    REPORT = "Run the gate again; if that does not help, report a bug."
    READ = "Run the gate again; if that does not help, read its raw output (`rackready report --raw HASH`)."


NOT_RUN = Step.REPORT
"""Next step for a command without output. `gate evaluate` asks for the missing output instead."""

COMMAND_NOT_RUN = ErrorKind(
    "command-not-run",
    "{command} was not run",
    meaning="The gate has no output of this command, so it cannot judge it.",
    next_step=NOT_RUN,
)
COMMAND_COULD_NOT_RUN = ErrorKind(
    "command-could-not-run",
    "{command} could not run",
    meaning="The command did not start: the node was unreachable, or a server that it needs did not become ready.",
    next_step="Do what that says; where it says nothing, check that {node} answers on SSH. Then run the gate again.",
)
COMMAND_DID_NOT_END = ErrorKind(
    "command-did-not-end",
    "{command} did not end",
    meaning="The command exceeded its time limit and was killed. A common cause is a GPU or driver that hangs.",
    next_step="Look for Xid errors in the kernel log (`journalctl -k -g Xid`), then run the gate again.",
)
TROUBLE = (COMMAND_NOT_RUN, COMMAND_COULD_NOT_RUN, COMMAND_DID_NOT_END)
"""The kinds that ``trouble`` returns; every gate can report them."""

AGAIN = Step.READ
"""Next step for an output that is not understood. Outputs of `gate evaluate` have no hash: see records/offline.py."""


def is_missing_output(finding: Finding) -> bool:
    """Return whether a finding reports a command without output (`gate evaluate`: an output that was not given)."""
    kind = KINDS.get(finding.code)
    return kind is not None and kind.next_step is NOT_RUN


def is_not_understood(finding: Finding) -> bool:
    """Return whether the next step of a finding is to read the raw output of a record."""
    kind = KINDS.get(finding.code)
    return kind is not None and kind.next_step is AGAIN


def trouble(output: Output | None, where: str, what: str) -> Finding | None:
    """Return why an output cannot be judged at all; None if the command ended by itself."""
    if output is None:
        return COMMAND_NOT_RUN.found(where, "an output", "none", command=what)
    if output.failure:
        return COMMAND_COULD_NOT_RUN.found(where, "a result", output.failure, command=what, node=output.node)
    if output.timed_out or output.exit_code is None:
        actual = f"still running after {output.seconds:.0f} s, killed"
        return COMMAND_DID_NOT_END.found(where, "an end within its time limit", actual, command=what)
    return None
