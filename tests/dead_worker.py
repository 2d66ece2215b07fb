"""Tell a run that lost a worker from one whose tests failed: the worker's other tests never ran."""

from __future__ import annotations

from dataclasses import dataclass

import pytest


@dataclass(slots=True, eq=False)
class DeadWorker:
    """A pytest plug-in of the process that counts."""

    died: bool = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """Note a worker that did not end by itself (pytest-xdist 3.8.0 gives an error for those alone)."""
        del node
        self.died = self.died or bool(error)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End with 2, where pytest-xdist 3.8.0 ends with 1 as after a failed test: scripts/pytest-all repeats those."""
        if self.died:
            session.exitstatus = pytest.ExitCode.INTERRUPTED
