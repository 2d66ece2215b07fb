"""Keeps what a node showed at its fault: kernel log, GPUs and NVLinks, stored by hash beside other evidence."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from rackready.drivers.remote import Answer, Remote
from rackready.drivers.ssh.target import node_target
from rackready.evidence.store import EvidenceStore
from rackready.model.problems import RackreadyError, quoted
from rackready.model.site import Site
from rackready.paths import EnvPaths

COMMANDS = (
    ("journalctl", "--dmesg", "--boot", "--no-pager", "--output=short-iso"),
    ("nvidia-smi", "-q", "-x"),
    ("nvidia-smi", "nvlink", "-s"),
)
_TIMEOUT_S = 60.0
_SAME_S = 60.0
"""Outputs of a node count for all its faults of this time, s: one cause makes several within seconds."""
Run = Callable[[str, tuple[str, ...]], Answer]
Proof = dict[str, str]


@dataclass
class Prover:
    """Collects outputs of nodes. One node at a time: it is not in a hurry, its node is drained already."""

    site: Site
    paths: EnvPaths
    store: EvidenceStore
    run: Run | None = None
    _kept: dict[str, tuple[float, list[Proof]]] = field(default_factory=dict)

    def collect(self, node: str) -> list[Proof]:
        """Return command, hash and problem of each output. A node that does not answer is no error: its ticket says so.

        Raises EvidenceError when outputs cannot be stored.
        """
        at, kept = self._kept.get(node, (0.0, []))
        if kept and time.monotonic() - at < _SAME_S:
            return kept
        found = [self._stored(argv, answer) for argv, answer in self._answers(node).items()]
        self._kept = {node: (time.monotonic(), found)}
        return found

    def _answers(self, node: str) -> Mapping[tuple[str, ...], Answer]:
        if self.run is not None:
            return _each(partial(self.run, node))
        try:
            remote = Remote({node: node_target(self.site, node, self.paths.known_hosts)})
        except RackreadyError as error:
            return dict.fromkeys(COMMANDS, Answer(None, "", "", 0.0, failure=quoted(str(error))))
        try:
            return _each(partial(remote.run, node, timeout_s=_TIMEOUT_S))
        finally:
            remote.close()

    def _stored(self, argv: tuple[str, ...], answer: Answer) -> Proof:
        text = answer.stdout + answer.stderr
        problem = answer.failure or ("" if answer.exit_code == 0 else f"exit code {answer.exit_code}")
        return {"command": " ".join(argv), "sha256": self.store.put_raw(text) if text else "", "problem": problem}


def _each(run: Callable[[tuple[str, ...]], Answer]) -> dict[tuple[str, ...], Answer]:
    """Return the answer to each command. Of a program that did not end nothing more is asked: each stays in the driver.

    A node with a GPU off its bus is where `nvidia-smi` hangs.
    """
    found: dict[tuple[str, ...], Answer] = {}
    for argv in COMMANDS:
        hung = next((" ".join(one) for one in found if one[0] == argv[0] and found[one].exit_code is None), "")
        found[argv] = Answer(None, "", "", 0.0, failure=f"not run: `{hung}` gave no answer") if hung else run(argv)
    return found
