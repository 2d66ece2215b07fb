"""A connection that answers from a table, for tests of the runner and the phase."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rackready.drivers.remote import Answer, UnreachableError
from tests.gates.support import port, ports

Reply = Answer | Callable[[str, Sequence[str]], Answer]


def answered(stdout: str = "", stderr: str = "", code: int | None = 0, **more: object) -> Answer:
    return Answer(code, stdout, stderr, 0.1, **more)  # type: ignore[arg-type]


@dataclass
class FakeJob:
    """A server: runs until it is ended."""

    answer: Answer
    running: bool = True
    ended: int = 0

    def alive(self) -> bool:
        return self.running

    def wait(self, timeout_s: float) -> Answer:
        del timeout_s
        return self.answer

    def end(self) -> None:
        self.running = False
        self.ended += 1

    def so_far(self) -> Answer:
        return self.answer


@dataclass
class FakeConnection:
    """``replies``: key -> answer of a command whose words contain the key. Unknown commands are a bug of the test."""

    replies: Mapping[str, Reply]
    dead: frozenset[str] = frozenset()
    listening: bool = True
    server: Answer = field(default_factory=answered)
    calls: list[tuple[str, str]] = field(default_factory=list)
    jobs: list[FakeJob] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(
        self, node: str, argv: Sequence[str], *, stdin: str = "", env: Mapping[str, str] | None = None, timeout_s: float
    ) -> Answer:
        del env, timeout_s
        words = " ".join(argv) + " " + stdin.strip().split("\n", 1)[0]
        with self.lock:
            self.calls.append((node, words))
        if node in self.dead:
            return answered(code=None, failure=f"{node}: SSH to 192.0.2.9:22 failed (timed out)", reached=False)
        if "something listens" in words:
            return answered(code=0 if self.listening else 1)
        for key, reply in self.replies.items():
            if key in words:
                return reply(node, argv) if callable(reply) else reply
        raise AssertionError(f"no reply for {words!r}")

    def start(
        self, node: str, argv: Sequence[str], *, stdin: str = "", env: Mapping[str, str] | None = None, timeout_s: float
    ) -> FakeJob:
        del stdin, env, timeout_s
        if node in self.dead:
            raise UnreachableError(f"{node}: SSH failed")
        with self.lock:
            self.calls.append((node, "server " + " ".join(argv)))
            self.jobs.append(FakeJob(self.server))
            return self.jobs[-1]


def links(node: str, argv: Sequence[str]) -> Answer:
    """Answer rdma_counters with every port up, whose count of bytes sent stands still."""
    del node
    devices = {device: port() for device in argv[2:]}
    return answered(ports(devices))
