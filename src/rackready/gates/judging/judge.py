"""Collector of a gate's findings, metrics and bounds. A verdict without a comparison is an error, never a pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.model.outcome import Criterion, Finding, Metric, Op, Outcome, Verdict

VALUE_NOT_REPORTED = ErrorKind(
    "value-not-reported",
    "{value} not reported",
    meaning="The tool did not report a value that the gate compares, so the gate cannot judge it.",
    next_step="Update the driver or the tool that reports it.",
)
NOTHING_JUDGED = ErrorKind(
    "nothing-judged",
    "nothing was judged",
    meaning="The gate ended without a comparison. That is a defect of the gate, and not a pass.",
    next_step="Report a bug: a gate must judge something.",
)


class Judge:
    """Fails, errors, metrics, bounds and measured parts of one run, from which it makes the verdict."""

    def __init__(self) -> None:
        self.fails: list[Finding] = []
        self.errors: list[Finding] = []
        self.metrics: list[Metric] = []
        self.criteria: list[Criterion] = []
        self.measured: set[str] = set()
        self.blamed: set[str] = set()
        self.transport: str | None = None
        self.note: str | None = None
        self.fleet_pending = False
        self.judged = 0
        self._nothing = False
        self._recorded: set[Hashable] = set()

    def fail(
        self,
        where: str,
        kind: FailKind,
        expected: object,
        actual: object,
        /,
        *,
        nodes: Collection[str] = (),
        **values: object,
    ) -> None:
        """Add something that was measured and is not as expected. ``nodes``, ``values``: see ``FindingKind.found``."""
        self.fails.append(kind.found(where, expected, actual, nodes=nodes, **values))

    def error(
        self,
        where: str,
        kind: ErrorKind,
        expected: object,
        actual: object,
        /,
        *,
        nodes: Collection[str] = (),
        **values: object,
    ) -> None:
        """Add something that could not be measured or understood. ``nodes``, ``values``: see ``FindingKind.found``."""
        self.errors.append(kind.found(where, expected, actual, nodes=nodes, **values))

    def trouble(self, finding: Finding | None) -> bool:
        """Add a finding of `trouble` as an error, and return whether there was one."""
        if finding is not None:
            self.errors.append(finding)
        return finding is not None

    def equal(
        self,
        where: str,
        kind: FailKind,
        expected: object,
        actual: object,
        /,
        *,
        nodes: Collection[str] = (),
        **values: object,
    ) -> bool:
        """Return whether a value is as expected. A missing value is an error, another value a fail of this kind."""
        self.judged += 1
        if actual is None:
            self.error(where, VALUE_NOT_REPORTED, expected, "nothing", value=kind.title.format(**values))
            return False
        if actual != expected:
            self.fail(where, kind, expected, actual, nodes=nodes, **values)
            return False
        return True

    def remark(self, note: str) -> None:
        """Add a note to the earlier notes, once."""
        if f"; {note};" not in f"; {self.note};":
            self.note = f"{self.note}; {note}" if self.note else note

    def nothing(self, note: str) -> None:
        """Note that there is nothing to judge here: the verdict passes with this reason and measures no part."""
        self.judged += 1
        self.note = note
        self._nothing = True

    def metric(self, name: str, target: str, value: float, unit: str) -> None:
        """Record a measured number."""
        self.metrics.append(Metric(name=name, target=target, value=value, unit=unit))

    def criterion(self, criterion: Criterion) -> None:
        """Record an applied bound."""
        self.criteria.append(criterion)

    def criterion_once(self, key: Hashable, make: Callable[[], Criterion]) -> None:
        """Record a bound of many parts once. ``key``: everything that the criterion depends on."""
        if key in self._recorded:
            return
        criterion = make()
        self._recorded.add(key)
        if criterion not in self.criteria:
            self.criterion(criterion)

    def count(self, name: str, target: str, value: int, bound: int, source: str) -> None:
        """Record a count that must equal its bound."""
        self.metric(name, target, value, "1")
        self.criterion_once(
            (name, bound, source),
            lambda: Criterion(metric=name, op=Op.EQ, bound=bound, unit="1", label="identity", source=source),
        )

    def verdict(self, where: str = "") -> Verdict:
        """Return the verdict: fail before error before pass, and error when nothing was judged."""
        if not (self.fails or self.errors or self.judged):
            self.error(where or "gate", NOTHING_JUDGED, "at least one measurement compared with a bound", "none")
        outcome = Outcome.FAIL if self.fails else Outcome.ERROR if self.errors else Outcome.PASS
        return Verdict(
            outcome=outcome,
            findings=self.fails + self.errors,
            metrics=self.metrics,
            criteria=self.criteria,
            measured=[] if self._nothing else sorted(self.measured),
            blamed=sorted(self.blamed),
            transport=self.transport,
            fleet_pending=self.fleet_pending,
            note=self.note,
        )
