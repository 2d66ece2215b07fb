"""What a gate is: typed inputs, declared commands, and a pure judgement of their outputs. A gate never opens a connection."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from rackready.design.facts import NodeFacts
from rackready.gates.judging.finding_kinds import KINDS, ErrorKind, Kinds
from rackready.model.outcome import Finding, Metric, Verdict
from rackready.model.problems import RackreadyError
from rackready.model.site import Device, Fabric


class Inputs(BaseModel):
    """Typed inputs of a gate; a key that it does not know is refused, and so is a value of another type: yes and '7' are no numbers, nor is infinity.

    Every number has bounds on both sides. An upper one without a source is judgement, and its description says so: far
    beyond what any site needs, near enough that a slip (MiB for KiB, ms for s) cannot make a gate pass whatever it
    reads, or fail to compute.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _lists(cls, value: object) -> object:
        """YAML and JSON have lists only; a dict's keys and values are looked at as they are."""
        return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Passed:
    """A gate's last pass on a node."""

    at: datetime
    metrics: tuple[Metric, ...] = ()


@dataclass(frozen=True, slots=True)
class GateFacts:
    """What gates know of the site: plain facts, no connection."""

    nodes: Mapping[str, NodeFacts]
    fabric: Fabric
    fleet: int
    """Units that are judged by the same gate: nodes of the site. Sets the number of launches."""
    passed: Mapping[tuple[str, str], Passed] = field(default_factory=dict)
    """(gate, node) -> its last pass, for gates that judge what is new since then."""
    devices: Sequence[Device] = ()
    """What stands in the racks beside nodes and switches: PDUs, power shelves, coolant distribution units."""
    liquid: frozenset[str] = frozenset()
    """Nodes whose rack the site cools with liquid."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Every node of the site -> its address."""
    needed: tuple[str, ...] = ()
    """Names, not addresses, by which the site file calls what nodes need: the package mirror, the scheduler's controller."""
    launcher: Literal["openmpi", "srun", "mpijob"] = "openmpi"
    """How programs are started on several nodes: site.yml gates.launcher."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command on one node.

    Commands of one run go stage by stage; those of one stage run side by side. A server is started in the stage before
    its clients, counts as ready when something listens on ``ready_port`` of its node, and is ended with the run.
    """

    key: str
    node: str
    argv: tuple[str, ...]
    timeout_s: float
    stdin: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    stage: int = 0
    role: Literal["step", "server", "wait"] = "step"
    """``wait``: asked again until it exits with 0 or its time is over, e.g. for a node that boots."""
    ready_port: int | None = None
    via: Literal["host", "bmc"] = "host"
    """``bmc``: a request to the node's (or rack device's) Redfish service, e.g. ("GET", "Chassis/*/Sensors/*"); see gates/bmc/connection.py."""


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement of one target."""

    id: str
    target: str
    nodes: tuple[str, ...]
    commands: tuple[Command, ...]
    claims: frozenset[str] = frozenset()
    """What it needs for itself while it runs, e.g. a node's NIC."""
    launch_from: str | None = None
    """Node that starts processes on the others over SSH (MPI)."""
    chained: bool = False
    """Stages depend on each other: after one in which a command did not end with 0, the later ones are not run."""
    about: Mapping[str, str] = field(default_factory=dict)
    """What evaluate must know again: rail, partner, launches."""

    @classmethod
    def of_node(
        cls,
        node: str,
        *commands: Command,
        claims: frozenset[str] = frozenset(),
        chained: bool = False,
        about: Mapping[str, str] | None = None,
    ) -> Run:
        """Return the measurement of one node by itself, which is what most gates make."""
        return cls(
            id=node, target=node, nodes=(node,), commands=commands, claims=claims, chained=chained, about=about or {}
        )


@dataclass(frozen=True, slots=True)
class Output:
    """What one command left behind. ``exit_code`` is None when it never ended by itself."""

    key: str
    node: str
    command: str
    exit_code: int | None
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    timed_out: bool = False
    failure: str = ""
    """Why there is no result: host unreachable, server never ready; empty when the command ran."""


Outputs = Mapping[str, Output]


@dataclass(frozen=True, slots=True)
class FleetMetric:
    """A metric by which identical units are held against each other."""

    name: str
    effect: float
    """The smallest deviation that is to be found, as a share of the median; half of it is the least that counts as one."""
    sigma: float = 0.01
    """Spread of one launch on one unit, as a share of its value: what noise is believed at least."""
    better: Literal["higher", "lower"] = "higher"
    of: Literal["part", "run"] = "part"
    """What a unit is: the node (target ``node03``) or a part of it (``node03/gpu2``), or a run over several nodes, whose figure is that of all of them."""
    look: str = ""
    """What to look at first where a unit falls behind; empty: what suits every unit of its kind."""


class GateTakenError(RackreadyError):
    """Two gates have one id."""

    def __init__(self, gate_id: str, first: type[Gate], second: type[Gate]) -> None:
        classes = " and ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in (first, second))
        super().__init__(
            f"gate {gate_id} - Expected: one class with this id Actual: {classes}. Give one of them another id."
        )


class Gate(ABC):
    """One gate. The first line of the docstring is what reports print."""

    id: ClassVar[str]
    covers: ClassVar[frozenset[str]] = frozenset()
    """Kinds of parts that a pass of it measures: node, gpu, nvlink, nic, rail, cable."""
    fleet: ClassVar[tuple[FleetMetric, ...]] = ()
    """Metrics that are also held against those of identical units, once they are measured."""
    in_no_set: ClassVar[str] = ""
    """Why no shipped gate set has it; empty when one has."""
    findings: ClassVar[Kinds] = ()
    """Every kind of finding that it can make, beside those that every gate can (gates/judging/common_findings.py): helpers' kinds among them."""
    min_nodes: ClassVar[int] = 1
    retry: ClassVar[bool] = True
    """An error is tried once more; False for what must not be done again without being asked for."""
    since_last_pass: ClassVar[bool] = False
    """It judges what is new since its last pass, which it finds in ``GateFacts.passed``."""
    stops_load: ClassVar[bool] = False
    """A node that does not pass it is put under no load: its cooling, its power or a GPU is in doubt, or nothing measured on it would count."""
    after_fail: ClassVar[bool] = False
    """It measures nodes that failed another gate as well, with good nodes as partners: one visit to the rack is to repair all that is wrong."""
    looks: ClassVar[bool] = False
    """It only reads and loads nothing: safe while jobs run. Every deploy runs it anew, and a pass counts for that deploy alone."""
    Inputs: ClassVar[type[Inputs]] = Inputs

    def __init__(self, inputs: Mapping[str, object] | None = None) -> None:
        """Take the inputs of a gate set; pydantic refuses unknown and wrong ones."""
        self.inputs = self.Inputs.model_validate(dict(inputs or {}))

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Register every gate that has an id. Raises GateTakenError when another gate has it."""
        super().__init_subclass__(**kwargs)
        if "id" in cls.__dict__ and not inspect.isabstract(cls):
            first = REGISTRY.setdefault(cls.id, cls)
            if (first.__module__, first.__qualname__) != (cls.__module__, cls.__qualname__):
                raise GateTakenError(cls.id, first, cls)
            REGISTRY[cls.id] = cls

    @property
    def scope(self) -> str:
        """First part of the id: bmc, node, pair, group, rack, switch or cluster."""
        return self.id.split("/", 1)[0]

    @property
    def single_node(self) -> bool:
        """Whether it measures one node at a time."""
        return self.scope in {"node", "bmc"}

    @property
    def level(self) -> str:
        """Third part of the id: sanity, validation, performance or stress."""
        return self.id.split("/")[2]

    @classmethod
    def title(cls) -> str:
        """First line of the docstring: the text of reports."""
        return inspect.getdoc(cls).split("\n", 1)[0] if cls.__doc__ else cls.id  # type: ignore[union-attr]

    @abstractmethod
    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Declare the runs for these nodes."""

    @abstractmethod
    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge one run's outputs. Pure: the same outputs always give the same verdict."""

    def ended(self, run: Run, outputs: Outputs) -> bool:  # noqa: ARG002 - most runs are run to their end
        """Say after each stage of a chained run whether it has shown enough: its later stages are not run then. Pure, as evaluate."""
        return False

    def tools(self, outputs: Outputs) -> dict[str, str]:  # noqa: ARG002 - most tools do not say
        """Return which versions of which tools made these outputs, as far as they say so."""
        return {}

    def follow_up(self, facts: GateFacts, done: Sequence[Done]) -> list[Run]:  # noqa: ARG002
        """Declare further runs that tell which part of a failed run is at fault. Never a repeat of a failed run."""
        return []

    def acquitted(self, runs: Mapping[str, Collection[str]], slow: Collection[str]) -> frozenset[tuple[str, str]]:  # noqa: ARG002 - most cannot tell
        """Return (target, node) of runs that fall behind their fleet where the node's other runs show that the fault is another's.

        ``runs``: target -> its nodes, of all runs that were compared; ``slow``: targets of those that fall behind.
        """
        return frozenset()

    def attribute(self, facts: GateFacts, done: Sequence[Done]) -> dict[str, list[Verdict]]:  # noqa: ARG002
        """Say which verdicts belong to which node: to every node that took part, unless the gate knows better."""
        out: dict[str, list[Verdict]] = {}
        for item in done:
            for node in item.run.nodes:
                out.setdefault(node, []).append(item.verdict)
        return out


@dataclass(frozen=True, slots=True)
class Done:
    """One run with its verdict."""

    run: Run
    verdict: Verdict
    record: str = ""
    """Id of its evidence record."""


REGISTRY: dict[str, type[Gate]] = {}

NOT_RUN = "Run the gate again; if it stays so, report a bug."
"""Next step where a command has no output. Where outputs are handed in (`gate evaluate`), the one that is missing is asked for instead."""

COMMAND_NOT_RUN = ErrorKind(
    "command-not-run",
    "{command} was not run",
    meaning="The gate has no output of this command, so it cannot judge what the command would have told.",
    next_step=NOT_RUN,
)
COMMAND_COULD_NOT_RUN = ErrorKind(
    "command-could-not-run",
    "{command} could not run",
    meaning="The command never started: the node was not reached, or a server that it needs did not become ready.",
    next_step="Check that {node} answers on SSH, then run the gate again.",
)
COMMAND_DID_NOT_END = ErrorKind(
    "command-did-not-end",
    "{command} did not end",
    meaning="The command ran past its time limit and was killed. A GPU or driver that hangs is a common cause.",
    next_step="Look for Xid errors in the kernel log (`journalctl -k -g Xid`), then run the gate again.",
)
TROUBLE = (COMMAND_NOT_RUN, COMMAND_COULD_NOT_RUN, COMMAND_DID_NOT_END)
"""What ``trouble`` finds: every gate can make these."""

AGAIN = "Run the gate again; if it stays so, read its raw output (`rackready report --raw HASH`)."
"""Next step where an output is not understood. Where outputs are handed in there is no record of them, and no hash (gates/records/offline.py)."""


def is_missing_output(finding: Finding) -> bool:
    """Say whether a finding is that a command has no output: where outputs are handed in, its output was not given."""
    kind = KINDS.get(finding.code)
    return kind is not None and kind.next_step == NOT_RUN


def is_not_understood(finding: Finding) -> bool:
    """Say whether a finding sends its reader to the raw output of a record."""
    kind = KINDS.get(finding.code)
    return kind is not None and kind.next_step == AGAIN


def trouble(output: Output | None, where: str, what: str) -> Finding | None:
    """Return why an output cannot be judged at all, None when the command ran to an end of its own."""
    if output is None:
        return COMMAND_NOT_RUN.found(where, "an output", "none", command=what)
    if output.failure:
        return COMMAND_COULD_NOT_RUN.found(where, "a result", output.failure, command=what, node=output.node)
    if output.timed_out or output.exit_code is None:
        actual = f"still running after {output.seconds:.0f} s, killed"
        return COMMAND_DID_NOT_END.found(where, "an end within its time limit", actual, command=what)
    return None
