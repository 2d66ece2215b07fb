"""Why the agent does not do what an order says."""

from __future__ import annotations

_FULL_STEP = "Free disk space on the node below {folder}, then run the phase again on the controller."


class PullProblem(Exception):  # noqa: N818 - it is a finding about the node, not a programming error
    """A refusal: ``code`` for programs, and where, Expected, Actual and next step for people."""

    def __init__(self, code: str, where: str, expected: str, actual: str, next_step: str) -> None:
        self.code, self.where, self.expected = code, where, expected
        self.actual, self.next_step = actual.strip().rstrip("."), next_step
        super().__init__(f"{where} - Expected: {expected} Actual: {self.actual}. {next_step}")

    def document(self) -> dict[str, str]:
        """Return the refusal as the report has it."""
        return {
            "code": self.code,
            "where": self.where,
            "expected": self.expected,
            "actual": self.actual,
            "next_step": self.next_step,
        }


def disk_full(node: str, folder: object, expected: str, actual: str) -> PullProblem:
    """Return the refusal of a node without room."""
    return PullProblem("disk-full", f"{node}: disk", expected, actual, _FULL_STEP.format(folder=folder))
