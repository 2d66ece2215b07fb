"""One run of the agent: order, checks, release, play, report."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from .fetch import get
from .order import OF_ITS_TIME, Claimed, PullOrder, checked, guess, opened
from .places import Config, Places, read_config, read_state, write_state
from .play import clean, play, python_of
from .problem import PullProblem
from .release import prepared
from .report import agent_digest, discard, ended_by, host_key, reserve, send_all, store
from .standing import keep, read, standing

REFUSED = 3
"""Exit code of a refusal, a failed play or a controller that does not answer. 1 is Python's own, also for an agent
whose files are damaged, which its unit must count as failed."""
BUSY = 75
"""Exit code where another run holds the lock (EX_TEMPFAIL)."""
_ROUNDS = 5
_LARGEST_ORDER = 1 << 20


def run(places: Places, wait_s: float = 0.0) -> int:
    """Do what the present order says, once, and send what is to be reported. Return the exit code."""
    try:
        places.make()
        with _alone(places, wait_s):
            return _Run(places).go()
    except PullProblem as problem:
        say(str(problem))
        return BUSY if problem.code == "busy" else REFUSED
    except OSError as error:  # of the agent's own files; a play without a report is done again
        said, step = f"{error.strerror} ({error.filename})", f"Look at the node's disk below {places.state}."
        say(str(PullProblem("disk", "agent", "a disk that can be written", said, step)))
        return REFUSED


def say(line: str) -> None:
    """Write one line to the journal."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@contextmanager
def _alone(places: Places, wait_s: float) -> Iterator[None]:
    """Hold the agent's lock. Raises PullProblem when another run holds it for longer than ``wait_s``."""
    descriptor = os.open(places.state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + wait_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise _busy(descriptor) from None
                time.sleep(0.2)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _busy(descriptor: int) -> PullProblem:
    holder = os.pread(descriptor, 32, 0).decode(errors="replace") or "unknown"
    step = "Wait for its end: `systemctl status rackready-pull.service`."
    return PullProblem("busy", "agent", "no other run on this node", f"process {holder} is at work", step)


class _Run:
    """One run under the lock."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.config: Config = read_config(places)
        self.key: Path = host_key(places, self.config)
        self.agent = agent_digest()

    def go(self) -> int:
        for name in clean(self.places):
            say(f"{self.config.node}: ended what an earlier run left: {name}")
        self._settle()
        self._send()
        code, before = 0, b""
        for _ in range(_ROUNDS):
            envelope = self._fetched()
            if envelope is None or envelope == before:
                return code
            before = envelope
            code = max(code, self._round(envelope))
            self._send()
        return code

    def _settle(self) -> None:
        """Mark an order as done whose report is written: a run was killed between the two."""
        state = read_state(self.places, self.config.site)
        last, ended = int(state.get("sequence", 0)), ended_by(self.places, self.config.site)
        if ended > last or (ended == last and state.get("state") == "begun"):
            self._done(ended)

    def _send(self) -> None:
        for problem in send_all(self.places, self.config):
            say(problem)

    def _fetched(self) -> bytes | None:
        node = self.config.node
        envelope = get(f"{self.config.url}/orders/{node}.json", node, _LARGEST_ORDER)
        if envelope is None:
            say(f"{node}: the controller has no order for this node")
        return envelope

    def _round(self, envelope: bytes) -> int:
        """Do what one order says; a refusal is reported, too. One that was done is compared, with all that stand."""
        state, claimed = read_state(self.places, self.config.site), guess(envelope)
        if _is_done(state, claimed.sequence):
            return self._compared(envelope, state, claimed)
        began = time.time()
        report, final, played = self._report(claimed, claimed.mode, began), False, False
        try:
            order = checked(opened(envelope, self.places, self.config), self.config, state, began)
            final = True  # whatever is reported of it from here on, the controller ends it
            if claimed.mode == "check" and state.get("sequence") != order.sequence:
                self._note(order, "done")  # before anything else: what an older order says is never applied now
                keep(self.places, order, envelope)
            document = prepared(self.places, self.config, order)
            python = python_of(self.config.node, document["python"])
            if claimed.mode == "apply":
                self._tell_again(state, order)
                reserve(self.places, self.config.node)
                keep(self.places, order, envelope)
                self._note(order, "begun")
            played = claimed.mode == "apply"
            self._played(report, order, document, python)
        except PullProblem as problem:
            report["failure"] = problem.document()
            final = final or problem.code in OF_ITS_TIME
        return self._end(report, final=final, played=played)

    def _compared(self, envelope: bytes, state: dict[str, Any], claimed: Claimed) -> int:
        """Compare the node with the order of each phase that stands. One that cannot be used holds no other back."""
        began = time.time()
        try:
            order = checked(opened(envelope, self.places, self.config), self.config, state, began)
        except PullProblem as problem:
            return self._end(self._report(claimed, "check", began) | {"failure": problem.document()}, final=False)
        keep(self.places, order, envelope)  # once more: an agent before this one kept none
        found = standing(self.places, self.config, order)
        return max([self._comparison(one, order.phases) for one in found.values()])

    def _comparison(self, envelope: bytes, phases: tuple[str, ...]) -> int:
        report = self._report(guess(envelope), "check", time.time())
        try:
            order = replace(read(envelope, self.places, self.config), phases=phases)
            document = prepared(self.places, self.config, order)
            self._played(report, order, document, python_of(self.config.node, document["python"]))
        except PullProblem as problem:
            report["failure"] = problem.document()
        return self._end(report, final=True)

    def _played(self, report: dict[str, Any], order: PullOrder, document: dict[str, Any], python: str) -> None:
        mode, report["release"] = report["mode"], order.release
        say(f"{self.config.node}: {order.phase}: {mode} of order {order.sequence}, release {order.release[:12]}")
        report.update(play(self.places, self.config, order, document, mode, python))

    def _end(self, report: dict[str, Any], *, final: bool, played: bool = False) -> int:
        """Keep the report, then the state: killed between the two, the next run finds the report.

        An order to apply whose report is final is not tried again, also one that was refused before its play: the
        controller may have that report already, and takes it that nothing of the order happens any more.
        """
        report["ended"] = time.time()
        try:
            store(self.places, self.key, report, final=final)
            if final and report["mode"] == "apply":
                self._done(report["sequence"])
        except OSError as error:
            if played:
                raise  # its space was kept: the disk itself is broken
            discard(self.places, report)
            say(f"{self.config.node}: its report cannot be written, so the controller gets none: {error.strerror}")
        if report["failure"]:
            say(str(PullProblem(**report["failure"])))
        words = "refused" if report["failure"] else f"ended with {report['exit_code']}"
        say(f"{self.config.node}: {report['mode']} of order {report['sequence']} {words}")
        return REFUSED if report["failure"] or report["exit_code"] else 0

    def _report(self, claimed: Claimed, mode: str, began: float) -> dict[str, Any]:
        return {
            "version": 1,
            "site": self.config.site,
            "node": self.config.node,
            "sequence": claimed.sequence,
            "phase": claimed.phase,
            "release": "",
            "mode": mode,
            "agent": self.agent,
            "began": began,
            "exit_code": -1,
            "timed_out": False,
            "sealed": "",
            "failure": None,
        }

    def _done(self, sequence: int) -> None:
        """Note that an order to apply is over."""
        state = read_state(self.places, self.config.site)
        before = state if state.get("sequence") == sequence else {"mode": "apply", "release": ""}
        write_state(self.places, **{**before, "site": self.config.site, "sequence": sequence, "state": "done"})

    def _tell_again(self, state: dict[str, Any], order: PullOrder) -> None:
        if state.get("sequence") == order.sequence:
            say(f"{self.config.node}: order {order.sequence} was started and not ended here: it continues")

    def _note(self, order: PullOrder, state: str) -> None:
        values = {"site": self.config.site, "sequence": order.sequence, "mode": order.mode, "release": order.release}
        write_state(self.places, **values, state=state)


def _is_done(state: dict[str, Any], sequence: int) -> bool:
    return bool(state.get("sequence") == sequence and state.get("state") == "done")
