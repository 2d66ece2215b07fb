"""Runner of the commands that gates declare, over an injected connection. It leaves the judgement to the gate."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from rackready.drivers.process import check_stop
from rackready.drivers.remote import Answer, UnreachableError
from rackready.gates.base import Command, FinishedRun, Gate, GateFacts, Output, Run
from rackready.gates.engine.schedule import batches
from rackready.gates.engine.shared_outputs import Ask, Readings
from rackready.gates.engine.shipped_script import command as shipped
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.records.sanitize import clean
from rackready.model.outcome import Outcome, Verdict
from rackready.ondevice import listens

_log = logging.getLogger(__name__)

_READY_S = 60.0
_READY_SLICE_S = 10.0
_POLL_S = 0.1
_SERVER_END_S = 10.0
_WAIT_S = 3.0


JUDGEMENT_BROKE = ErrorKind(
    "gate-could-not-judge",
    "{gate} could not judge its output",
    meaning="The gate cannot handle this output. That is a defect of the gate, and not a pass.",
    next_step="Report a bug with the raw output of this record.",
)


class Background(Protocol):
    """A command that runs in the background."""

    def alive(self) -> bool:
        """Return whether it still runs."""

    def end(self) -> None:
        """End it, with everything that it started."""

    def so_far(self) -> Answer:
        """Return its output so far."""


class Connection(Protocol):
    """Connection that runs commands: SSH, or a fake in tests."""

    def run(
        self, node: str, argv: Sequence[str], *, stdin: str = "", env: Mapping[str, str] | None = None, timeout_s: float
    ) -> Answer:
        """Run a command to its end."""

    def start(
        self, node: str, argv: Sequence[str], *, stdin: str = "", env: Mapping[str, str] | None = None, timeout_s: float
    ) -> Background:
        """Start a command and return at once. Raise UnreachableError."""


class BmcConnection(Protocol):
    """Connection to BMCs."""

    def run(self, node: str, argv: Sequence[str], *, timeout_s: float) -> Answer:
        """Send a request to a BMC. Never raise for what the BMC does."""


class ClusterConnection(Protocol):
    """Connection to a Kubernetes cluster."""

    def run(self, node: str, argv: Sequence[str], *, stdin: str, timeout_s: float) -> Answer:
        """Run the MPIJob of a manifest to its end. Never raise for what the cluster does."""


Launcher = Callable[[str, Sequence[str]], AbstractContextManager[tuple[str, ...]]]
"""Lets a head node start processes on its peers while the context lasts; yields options of mpirun."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of one run: outputs, verdict, times. Only an error leads to a second attempt; both are recorded."""

    run: Run
    number: int
    outputs: dict[str, Output]
    verdict: Verdict
    started: datetime
    finished: datetime


Sink = Callable[[Gate, Attempt], None]


@dataclass(frozen=True, slots=True)
class Runner:
    """Runner of gates. ``sink`` receives every finished attempt, for evidence and progress."""

    connection: Connection
    facts: GateFacts
    sink: Sink
    launcher: Launcher | None = None
    workers: int = min(16, 4 * (os.cpu_count() or 4))
    """Number of runs in parallel: as many as this controller can handle."""
    ready_s: float = _READY_S
    bmc: BmcConnection | None = None
    """Connection to the BMCs; None: commands to them fail with that reason."""
    cluster: ClusterConnection | None = None
    """Connection to the Kubernetes cluster; None: jobs for it fail with that reason."""
    wait_s: float = _WAIT_S
    """Pause between two tries of a ``wait`` command, s."""
    readings: Readings | None = None
    """Outputs that a group of gates shares; None: each gate runs its own commands. A second attempt always does."""

    def gate(self, gate: Gate, nodes: Sequence[str]) -> list[FinishedRun]:
        """Run a gate on these nodes, with its follow-ups. Raise Interrupted if the operator stops."""
        done = self._all(gate, gate.plan(self.facts, nodes))
        return done + self._all(gate, gate.follow_up(self.facts, done))

    def _all(self, gate: Gate, runs: Sequence[Run]) -> list[FinishedRun]:
        done: list[FinishedRun] = []
        for batch in batches(runs, self.workers):
            with ThreadPoolExecutor(max_workers=max(1, len(batch))) as pool:
                done += list(pool.map(lambda run: self._one(gate, run), batch))
        return done

    def _one(self, gate: Gate, run: Run) -> FinishedRun:
        verdict = self._attempt(gate, run, 1)
        if verdict.outcome is Outcome.ERROR and gate.retry:  # an error may be transient; a fail is never measured again
            verdict = self._attempt(gate, run, 2)
        return FinishedRun(run, verdict)

    def _attempt(self, gate: Gate, run: Run, number: int) -> Verdict:
        check_stop()
        started = datetime.now(UTC)
        shared = self.readings.of(run, self._ask) if self.readings is not None and number == 1 else None
        outputs = self.outputs(run, gate, shared.ask if shared is not None else None)
        verdict = evaluated(gate, self.facts, run, outputs)
        _log.info("%s on %s: %s, attempt %d", gate.id, run.target, verdict.outcome.value, number)
        begun = min([started, *shared.asked]) if shared is not None else started
        self.sink(gate, Attempt(run, number, outputs, verdict, begun, datetime.now(UTC)))
        return verdict

    def outputs(self, run: Run, gate: Gate | None = None, ask: Ask | None = None) -> dict[str, Output]:
        """Run all commands of a run, stage by stage, and return their outputs. Servers never outlive the run.

        ``gate`` may end a chained run early; ``ask`` runs a command, by default on its node.
        """
        out: dict[str, Output] = {}
        servers: dict[str, tuple[Command, Background]] = {}
        try:
            with self._launch(run) as options:
                for stage in sorted({command.stage for command in run.commands}):
                    here = [_with_launch(command, options) for command in run.commands if command.stage == stage]
                    for command in here:
                        if command.role == "server":
                            self._serve(command, out, servers)
                    self._steps([command for command in here if command.role != "server"], out, ask or self._ask)
                    if run.chained and _broken(
                        run, [out[command.key] for command in here if command.key in out], out, gate
                    ):
                        break
        except UnreachableError as error:
            for command in run.commands:
                out.setdefault(command.key, output_of(command, Answer(None, "", "", 0.0, failure=str(error))))
        finally:
            for key, (command, job) in servers.items():
                out[key] = output_of(command, _finish(job))
        return out

    @contextmanager
    def _launch(self, run: Run) -> Iterator[tuple[str, ...]]:
        if run.launch_from is None or self.launcher is None:
            yield ()
            return
        with self.launcher(run.launch_from, [node for node in run.nodes if node != run.launch_from]) as options:
            yield options

    def _steps(self, commands: Sequence[Command], out: dict[str, Output], ask: Ask) -> None:
        if not commands:
            return
        with ThreadPoolExecutor(max_workers=min(len(commands), self.workers)) as pool:
            answers = pool.map(ask, commands)
            for command, answer in zip(commands, answers, strict=True):
                out[command.key] = output_of(command, answer)

    def _ask(self, command: Command) -> Answer:
        """Run a command on its host or BMC. Repeat a ``wait`` command until it succeeds or times out."""
        if command.via == "bmc":
            if self.bmc is None:
                return Answer(None, "", "", 0.0, failure=f"{command.node}: no connection to its BMC from here")
            return self.bmc.run(command.node, command.argv, timeout_s=command.timeout_s)
        if command.via == "kubernetes":
            return self._in_cluster(command)
        begun = time.monotonic()
        while True:
            check_stop()
            left = max(1.0, command.timeout_s - (time.monotonic() - begun))
            answer = self.connection.run(
                command.node, command.argv, stdin=command.stdin, env=command.env, timeout_s=left
            )
            waited = time.monotonic() - begun
            if command.role != "wait" or answer.exit_code == 0 or waited >= command.timeout_s:
                return replace(answer, seconds=waited) if command.role == "wait" else answer
            time.sleep(min(self.wait_s, max(0.0, command.timeout_s - waited)))

    def _in_cluster(self, command: Command) -> Answer:
        if self.cluster is None:
            return Answer(None, "", "", 0.0, failure=f"{command.node}: no Kubernetes cluster (handover.kind)")
        return self.cluster.run(command.node, command.argv, stdin=command.stdin, timeout_s=command.timeout_s)

    def _serve(self, command: Command, out: dict[str, Output], servers: dict[str, tuple[Command, Background]]) -> None:
        """Start a server and wait until it listens. If it never does, record that; its clients then fail."""
        try:
            job = self.connection.start(
                command.node, command.argv, stdin=command.stdin, env=command.env, timeout_s=command.timeout_s
            )
        except UnreachableError as error:
            out[command.key] = output_of(command, Answer(None, "", "", 0.0, failure=str(error)))
            return
        servers[command.key] = (command, job)
        if command.ready_port is not None and not self._listens(command, job):
            answer = job.so_far()
            words = (answer.stderr.strip() or answer.stdout.strip()).splitlines()
            reason = f"nothing listened on port {command.ready_port} within {self.ready_s:.0f} s" + (
                f"; it printed: {words[-1].strip()}" if words else ""
            )
            del servers[command.key]
            job.end()
            out[command.key] = output_of(command, replace(answer, failure=reason))

    def _listens(self, command: Command, job: Background) -> bool:
        """Return whether the server listens. Poll in slices: the server may end, or the operator stop."""
        deadline = time.monotonic() + self.ready_s
        while (left := deadline - time.monotonic()) > 0:
            check_stop()
            wait_s = min(_READY_SLICE_S, left)
            probe = shipped("probe", command.node, listens, str(command.ready_port), f"{wait_s:.1f}")
            if self.connection.run(probe.node, probe.argv, stdin=probe.stdin, timeout_s=wait_s + 30).exit_code == 0:
                return True
            if not job.alive():
                return False
        return False


def evaluated(gate: Gate, facts: GateFacts, run: Run, outputs: Mapping[str, Output]) -> Verdict:
    """Return a gate's verdict. An exception of the gate becomes an error of this run, so that other runs go on.

    Every verdict is made here, whoever captured the outputs: text of tools is scrubbed and made visible before it is
    recorded or shown.
    """
    try:
        return clean(gate.evaluate(facts, run, outputs))
    except Exception as error:  # noqa: BLE001
        finding = JUDGEMENT_BROKE.found(run.target, "a verdict", f"{error.__class__.__name__}: {error}", gate=gate.id)
        return clean(Verdict(outcome=Outcome.ERROR, findings=[finding]))


def _broken(run: Run, stage: Sequence[Output], out: Mapping[str, Output], gate: Gate | None) -> bool:
    """Return whether a chained run stops after this stage: a command failed, or the gate needs no more (or raised)."""
    if any(output.exit_code != 0 for output in stage):
        return True
    try:
        return gate is not None and gate.ended(run, out)
    except Exception:  # noqa: BLE001 - evaluate reports it; until then nothing more is done to the node
        return True


def _finish(job: Background) -> Answer:
    """Give a server a moment to end by itself if it printed anything, then end it."""
    deadline = time.monotonic() + _SERVER_END_S
    while job.alive() and time.monotonic() < deadline:
        if job.so_far().stdout:
            time.sleep(_POLL_S)
        else:
            break
    answer = job.so_far()
    job.end()
    return answer


def _with_launch(command: Command, options: Sequence[str]) -> Command:
    """Return the command with the options of the site for its launcher: mpirun, or srun after its environment."""
    first = command.argv.index("--") + 1 if command.argv[:1] == ("runuser",) else 0  # runuser -u USER -- COMMAND
    words = enumerate(command.argv[first:], first)
    at = next((index for index, word in words if "=" not in word and word != "env"), first)
    if not options or command.argv[at] not in {"mpirun", "srun"}:
        return command
    return replace(command, argv=(*command.argv[: at + 1], *options, *command.argv[at + 1 :]))


def output_of(command: Command, answer: Answer) -> Output:
    """Return what a command left behind, from the connection's answer."""
    return Output(
        key=command.key,
        node=command.node,
        command=command.typed + (" < script" if command.stdin else ""),
        exit_code=answer.exit_code,
        stdout=answer.stdout,
        stderr=answer.stderr,
        seconds=answer.seconds,
        timed_out=answer.timed_out,
        failure=answer.failure,
    )
