"""Slurm through `scontrol` on its controller, over SSH: drain and resume nodes of an existing cluster."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from rackready.drivers.scheduler import slurm_idle, slurm_key, slurm_step
from rackready.drivers.scheduler.base import (
    Job,
    JobsUnknownError,
    SchedulerAdapter,
    SchedulerError,
    SchedulerNode,
    UnknownNodeError,
    reason_text,
)
from rackready.drivers.scheduler.slurm_release import Release, of_config
from rackready.drivers.scheduler.slurm_text import (
    JOB_FORMAT,
    PLACED_FORMAT,
    RESERVED,
    SLURMDBD,
    Reservation,
    accounting_of,
    configless_of,
    not_ours,
    of_slurmctld,
    parse_jobs,
    parse_node,
    parse_placed,
    parse_reservation,
    parse_reservations,
    slurm_user_of,
    state_words,
)

Runner = Callable[[str], tuple[int, str, str]]
"""Runs one command line on the controller: exit code, standard output, standard error."""

_REGISTER_S = 60.0
_ASKED_AT_ONCE = 500
"""Nodes per command: their names fit the line, and the operator can stop between two commands. Our judgement."""
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
"""Words of a node's state while jobs run or end on it (scontrol(1), NODE STATE CODES)."""

_INVALID_STATE = "Invalid node state"
"""Begins what `scontrol update` prints for ESLURM_INVALID_NODE_STATE (Slurm's slurm_errno.c)."""


class _StateError(SchedulerError):
    """Slurm refused a change that does not fit the node's present state."""


class SlurmAdapter(SchedulerAdapter):
    """One Slurm cluster. ``where`` names the controller in messages; ``patience_s``: seconds for a node to register."""

    def __init__(
        self, run: Runner, where: str, *, close: Callable[[], None] = lambda: None, patience_s: float = _REGISTER_S
    ) -> None:
        self._run = run
        self._where = where
        self._close = close
        self._patience_s = patience_s

    def show(self, node: str) -> SchedulerNode:
        """Return Slurm's state of a node. Raises UnknownNodeError when slurm.conf does not name it."""
        return parse_node(self._shown(node))

    def step_options(self, gpus: Mapping[str, int]) -> tuple[str, ...]:
        """Return the options of srun for one process on each GPU of these nodes. Raises SchedulerError."""
        found = {node: slurm_step.parse_equipment(node, self._shown(node)) for node in gpus}
        return slurm_step.options(self._where, found, gpus)

    def _shown(self, node: str) -> str:
        code, out, err = self._run(f"scontrol show node {shlex.quote(node)} --oneliner")
        text = " ".join((err or out).split())
        if code != 0 and f"Node {node} not found" not in text:  # not the shell's "scontrol: command not found"
            raise SchedulerError(
                node,
                f"`scontrol show node` on {self._where}",
                expected="the node's state",
                actual=text,
                next_step="Check that slurmctld runs there.",
            )
        if code != 0:
            raise UnknownNodeError(
                node,
                f"unknown to Slurm on {self._where}",
                expected="a NodeName line for it in slurm.conf",
                actual=text,
                next_step="Add it, then run again.",
            )
        return out

    def drain(self, node: str, reason: str) -> bool:
        """Drain with our reason. A node that somebody else drained is left alone: no job starts on it anyway."""
        now, wanted = self.show(node), reason_text(reason)
        # Whose drain it is shows the prefix; the rest is compared as a value, and replaced where it differs.
        if now.drained and (not now.ours or now.reason == wanted):
            return False
        self._update(node, f"State=DRAIN Reason={shlex.quote(wanted)}")
        return True

    def release(self, node: str, *, drained_by_us: bool = False) -> bool:
        """Resume a node that rackready drained, or that slurmctld itself set down.

        ``drained_by_us``: whether rackready drained it last, as far as the ledger knows. Only then a drain whose reason
        slurmctld replaced is ours, since it replaces that of a person, too.
        """
        now = self._registered(node)
        if now.usable:
            return False
        if (now.drained or now.reason) and not now.ours:
            replaced = self.wrote(now)
            if not replaced or (now.drained and not drained_by_us):
                raise not_ours(now, replaced=replaced)
        return self._resume(node)

    def wrote(self, now: SchedulerNode) -> bool:
        """Return whether slurmctld itself wrote all of a node's reason, and its cause is gone."""
        if not of_slurmctld(now):
            return False
        code, out, err = self._run("scontrol show config")
        return now.by in slurm_user_of(self._where, out if code == 0 else err or out)

    def jobs(self, node: str) -> list[Job]:
        """Return the jobs that `squeue` reports on a node, hidden partitions included. Raises JobsUnknownError.

        squeue leaves out jobs that the user may not see (PrivateData); the node's own state shows that there are some.
        """
        code, out, err = self._run(
            f"squeue --all --noheader --nodelist={shlex.quote(node)} --format={shlex.quote(JOB_FORMAT)}"
        )
        if code != 0:
            actual = " ".join((err or out).split())
            raise JobsUnknownError(
                node,
                f"`squeue --nodelist` on {self._where}",
                expected="the node's jobs",
                actual=actual,
                next_step="Check that slurmctld runs there.",
            )
        found = parse_jobs(out)
        if not found and state_words(state := self.show(node).state) & _BUSY:
            raise JobsUnknownError(
                node,
                f"jobs on {self._where}",
                expected="squeue and scontrol agree",
                actual=f"squeue shows no job, scontrol reports {state}",
                next_step="Run again when no job starts or ends; if it stays so, let the user of handover see all "
                "jobs (PrivateData in slurm.conf).",
            )
        return found

    def jobs_of(self, nodes: Sequence[str]) -> Iterator[tuple[str, list[Job] | SchedulerError]]:
        """Yield jobs from one `squeue` and one `scontrol` for many nodes.

        A node on which the two may disagree is asked for alone: that gives its error.
        """
        for start in range(0, len(nodes), _ASKED_AT_ONCE):
            some = nodes[start : start + _ASKED_AT_ONCE]
            known = self._jobs_of_all(some) if len(some) > 1 else {}
            for node in some:
                yield from [(node, known[node])] if node in known else super().jobs_of([node])

    def _jobs_of_all(self, nodes: Sequence[str]) -> dict[str, list[Job]]:
        """Return the jobs of those nodes on which both programs agree."""
        names = shlex.quote(",".join(nodes))
        code, out, _ = self._run(f"squeue --all --noheader --nodelist={names} --format={shlex.quote(PLACED_FORMAT)}")
        _, states, _ = self._run(f"scontrol show node {names} --oneliner")
        if code != 0:
            return {}
        try:
            placed = parse_placed(out)
            shown = {node.name: state_words(node.state) for node in map(parse_node, states.splitlines())}
        except SchedulerError:
            return {}
        found = {node: [job for job, places in placed if node in places] for node in nodes}
        return {node: jobs for node, jobs in found.items() if jobs or (node in shown and not shown[node] & _BUSY)}

    def not_idle(self, nodes: Sequence[str], within_s: float) -> Iterator[tuple[str, str | SchedulerError]]:
        """Yield as the base does: a node is idle in state IDLE, without a job, and without a reservation until then."""
        bookings = slurm_idle.parse_bookings(self._reservations(self._where))
        reserved = slurm_idle.booked(bookings, self._clock(), within_s)
        for start in range(0, len(nodes), _ASKED_AT_ONCE):
            some = nodes[start : start + _ASKED_AT_ONCE]
            states = slurm_idle.shown(self._run, shlex.quote(",".join(some)))
            yield from slurm_idle.merged(self.jobs_of(some), states, reserved)

    def _clock(self) -> datetime:
        """Return the controller's local time."""
        _, out, err = self._run(slurm_idle.CLOCK)
        try:
            return datetime.fromisoformat(out.strip())
        except ValueError as error:
            raise SchedulerError(
                self._where,
                f"`{slurm_idle.CLOCK}`",
                expected="its local time",
                actual=" ".join((err or out).split()) or "nothing",
                next_step="Log in as the user of handover and run it.",
            ) from error

    def requeue(self, node: str) -> list[str]:
        """Requeue the batch jobs of a node (scontrol(1), requeue). Others, and those that forbid it, are left."""
        told = []
        for job in self.jobs(node):
            code, out, err = self._run(f"scontrol requeue {shlex.quote(job.id)}")
            end = "requeued" if code == 0 else f"not requeued: {' '.join((err or out).split())}"
            told.append(f"job {job.id} ({job.user}, {job.name}) {end}")
        return told

    def how_to_end(self, jobs: Sequence[Job]) -> str:
        """Return the sentence that says what to do about jobs that do not end."""
        return f"wait and run again, or end them with `scancel {' '.join(job.id for job in jobs)}`."

    def joined_by(self) -> tuple[Release, bool]:
        """Return slurmctld's release, and whether it sends slurmd its configuration. Raises SchedulerError."""
        code, out, err = self._run("scontrol show config")
        return of_config(self._where, out if code == 0 else err or out), configless_of(out)

    def require_munge_key(self, key: bytes, place: str) -> None:
        """Raise SchedulerError if the controller has another key. ``place``: that of ``key``, for the message."""
        slurm_key.require(self._where, place, key, self._run(slurm_key.COMMAND))

    def require_qos(self, name: str) -> None:
        """Raise SchedulerError unless the cluster has accounting, and a QOS of this name."""
        code, out, err = self._run("scontrol show config")
        storage = accounting_of(out) if code == 0 else " ".join((err or out).split())
        if storage != SLURMDBD:
            raise SchedulerError(
                self._where,
                f"QOS {name}",
                expected=f"AccountingStorageType = {SLURMDBD}",
                actual=storage,
                next_step="Slurm has QOS only with accounting: set it up, or remove handover.validation_qos.",
            )
        code, out, err = self._run(f"sacctmgr --noheader --parsable2 show qos where name={name} format=name")
        if code != 0 or name not in out.split():
            raise SchedulerError(
                self._where,
                f"`sacctmgr show qos where name={name}`",
                expected=name,
                actual=" ".join((err or out).split()) or "nothing",
                next_step=f"Create it (`sacctmgr add qos {name}`) and let root use it, or correct "
                "handover.validation_qos.",
            )

    def reserve(self, name: str, nodes: list[str], user: str) -> None:
        """Reserve nodes for ``user`` until the reservation is deleted. Raises SchedulerError for one of the same name.

        Those that killed runs left are ended before (``leftovers``).
        """
        found = self._reservation(name)
        if found is not None:
            ours = Reservation(user, frozenset(nodes), RESERVED)
            raise SchedulerError(
                name,
                f"a reservation on {self._where}",
                expected=f"none, or one that a killed run left, such as {ours}",
                actual=found,
                next_step="Nothing was started. Give ours another name (handover.validation_reservation), or "
                f"delete that one when nobody needs it: `scontrol delete ReservationName={name}`.",
            )
        what = (
            f"Users={shlex.quote(user)} StartTime=now Duration=UNLIMITED Flags=MAINT,IGNORE_JOBS "
            f"Nodes={shlex.quote(','.join(nodes))}"
        )
        self._must(f"scontrol create reservation ReservationName={shlex.quote(name)} {what}", name)

    def leftovers(self, nodes: Sequence[str], prefix: str, user: str) -> dict[str, frozenset[str]]:
        """Return name -> nodes of the reservations on any of these nodes that are exactly as ``reserve`` makes them.

        Their names are the prefix with one of their nodes. Raises SchedulerError.
        """
        seen = parse_reservations(self._reservations(", ".join(nodes)), f"{prefix}-")
        return {
            name: one.nodes
            for name, one in seen.items()
            if name.removeprefix(f"{prefix}-") in one.nodes
            and not one.nodes.isdisjoint(nodes)
            and one.same(Reservation(user, one.nodes, RESERVED))
        }

    def _reservation(self, name: str) -> Reservation | None:
        return parse_reservation(self._reservations(name), name)

    def _reservations(self, place: str) -> str:
        code, out, err = self._run(slurm_idle.RESERVATIONS)
        if code == 0:
            return out
        raise SchedulerError(
            place,
            f"`scontrol show reservation` on {self._where}",
            expected="the reservations",
            actual=" ".join((err or out).split()),
            next_step="Check that slurmctld runs there.",
        )

    def unreserve(self, name: str) -> None:
        """Delete a reservation. It is no error when somebody else deleted it at the same time."""
        try:
            self._must(f"scontrol delete ReservationName={shlex.quote(name)}", name)
        except SchedulerError:
            if self._reservation(name) is not None:
                raise

    def resume(self, node: str) -> None:
        """Resume a node that we drained, inside its reservation. Raises SchedulerError when it does not come back."""
        self._update(node, "State=RESUME")
        deadline = time.monotonic() + self._patience_s
        while (now := self.show(node)).drained or now.down:
            if time.monotonic() > deadline:
                expected = f"neither drained nor down within {self._patience_s:.0f} s"
                raise SchedulerError(
                    node,
                    "resumed in Slurm",
                    expected=expected,
                    actual=now.state,
                    next_step="Look at slurmd on the node: `journalctl -u slurmd`.",
                )
            time.sleep(1.0)

    def _must(self, command: str, where: str) -> None:
        code, out, err = self._run(command)
        if code != 0:
            actual = " ".join((err or out).split())
            raise SchedulerError(
                where,
                f"`{command}` on {self._where}",
                expected="accepted",
                actual=actual,
                next_step="It needs a Slurm operator's rights.",
            )

    def close(self) -> None:
        """End the SSH session."""
        self._close()

    def _resume(self, node: str) -> bool:
        """Resume a node. A node that has just come back by itself rejects RESUME: treat that as success."""
        try:
            self._update(node, "State=RESUME")
        except _StateError:
            if self.show(node).usable:
                return False
            raise
        return self._must_be_usable(node)

    def _registered(self, node: str) -> SchedulerNode:
        """Wait until the node's slurmd has registered, and return the node's state."""
        deadline = time.monotonic() + self._patience_s
        while (
            (now := self.show(node)).down and "NOT_RESPONDING" in state_words(now.state) and time.monotonic() < deadline
        ):
            time.sleep(1.0)
        return now

    def _must_be_usable(self, node: str) -> bool:
        deadline = time.monotonic() + self._patience_s
        while not (now := self.show(node)).usable:
            if time.monotonic() > deadline:
                why = f", {now.reason}" if now.reason else ""
                expected = f"IDLE within {self._patience_s:.0f} s"
                raise SchedulerError(
                    node,
                    "resumed in Slurm",
                    expected=expected,
                    actual=f"{now.state}{why}",
                    next_step="Look at slurmd on the node: `journalctl -u slurmd`.",
                )
            time.sleep(1.0)
        return True

    def _update(self, node: str, change: str) -> None:
        code, out, err = self._run(f"scontrol update NodeName={shlex.quote(node)} {change}")
        if code != 0:
            actual = " ".join((err or out).split())
            message = (
                f"{node}: `scontrol update {change}` on {self._where} - Expected: accepted Actual: {actual}. "
                "It needs a Slurm operator's rights."
            )
            raise (_StateError if _INVALID_STATE in actual else SchedulerError)(message)
