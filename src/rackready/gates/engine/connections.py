"""Connections to the machines that gates run commands on: nodes over SSH, and switches whose counters gates read."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from rackready.drivers.remote import Answer, Remote
from rackready.drivers.ssh.target import SshTarget
from rackready.drivers.switch.base import Session
from rackready.drivers.switch.configure import open_session
from rackready.model.problems import RackreadyError
from rackready.model.site import Site, Switch
from rackready.paths import EnvPaths


class Machines(Remote):
    """Connections to nodes, and one session per switch. Thread-safe: a switch runs one command at a time."""

    def __init__(self, hosts: Mapping[str, SshTarget], site: Site, paths: EnvPaths) -> None:
        super().__init__(hosts)
        self._paths = paths
        self._switches: dict[str, Switch] = {switch.name: switch for switch in site.switches}
        self._sessions: dict[str, Session] = {}
        self._turns = {name: threading.Lock() for name in self._switches}

    def run(
        self,
        node: str,
        argv: Sequence[str],
        *,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        cleaning: bool = False,
    ) -> Answer:
        """Run a command to its end on a node, or a command line (one word) on a switch.

        Never raise for what the machine does.
        """
        if node not in self._switches:
            return super().run(node, argv, stdin=stdin, env=env, timeout_s=timeout_s, cleaning=cleaning)
        begun = time.monotonic()
        try:
            with self._turns[node]:
                code, text = self._session(node).run(*argv, timeout_s=timeout_s)
        except RackreadyError as error:
            self._sessions.pop(node, None)
            return Answer(None, "", "", time.monotonic() - begun, failure=str(error))
        return Answer(code, text, "", time.monotonic() - begun)

    def _session(self, name: str) -> Session:
        if name not in self._sessions:
            self._sessions[name], _ = open_session(self._paths, self._switches[name])
        return self._sessions[name]

    def close(self) -> None:
        """Close every connection."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()
        super().close()
