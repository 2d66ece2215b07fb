"""Conditions that only `rackready watch` sees, and those of the watch itself.

Prometheus learns of them by rackready's own metrics (`rackready export metrics`).
"""

from __future__ import annotations

from dataclasses import dataclass

from rackready.design.monitoring.condition import Act, Condition, Scope, Severity

FAULT = "rackready_node_watch_fault"
"""One series for each fault that watch found and nobody closed, with labels ``condition`` and ``part``."""
_GUIDE = "NVIDIA Fabric Manager user guide, appendix D"
_OWN = "rackready watch"
_TRAINED_S = 60
"""How long NVLinks may be inactive: a reset of a GPU or a start of the fabric manager trains them again. Judgement:
none of the vendor's guides gives a time, and a node whose links are back needs no drain."""
_BMC = "Read the BMC's event log, then do what the entry asks for. See docs/howto/watch.md."


@dataclass(frozen=True, slots=True)
class _Seen:
    """A condition that watch alone sees."""

    id: str
    severity: Severity
    meaning: str
    expected: str
    next_step: str
    source: str
    watch: Act
    job_lost: bool = False
    hold_s: int = 0

    def condition(self) -> Condition:
        """Return it with the query of its alert."""
        return Condition(
            id=self.id,
            severity=self.severity,
            scope=Scope.NODE,
            meaning=self.meaning,
            expr=f'{FAULT}{{condition="{self.id}"}} == 1',
            unit="boolean",
            expected=self.expected,
            actual="found on {{ $labels.part }}",
            next_step=self.next_step,
            source=self.source,
            watch=self.watch,
            job_lost=self.job_lost,
            hold_s=self.hold_s,
        )


_SEEN = (
    _Seen(
        "NvswitchSxidFatal",
        Severity.CRITICAL,
        "An NVSwitch reported a fatal error: NVLink traffic of all GPUs behind it may have stopped.",
        "no fatal SXid",
        "Drain the node, then power it off and on. See docs/runbooks/nvlink-down.md.",
        _GUIDE,
        Act.DRAIN,
        job_lost=True,
    ),
    _Seen(
        "NvswitchSxidUnlisted",
        Severity.WARNING,
        "An NVSwitch reported an error that the vendor's guide does not list.",
        "no such SXid",
        "Look the SXid up in the Fabric Manager guide, appendix D.",
        _GUIDE,
        Act.TICKET,
    ),
    _Seen(
        "NvlinkInactive",
        Severity.CRITICAL,
        "NVLinks of a GPU are inactive: it slows every collective.",
        "all links of the GPU's model",
        "Drain the node. See docs/runbooks/nvlink-down.md.",
        "nvidia-smi nvlink -s; the GPU's profile; the time is our judgement",
        Act.DRAIN,
        hold_s=_TRAINED_S,
    ),
    _Seen(
        "BmcLeak",
        Severity.CRITICAL,
        "The BMC logged a coolant leak.",
        "no leak",
        f"Drain the node and find the leak before the node is used. {_BMC}",
        "DMTF DSP0268: LogEntry",
        Act.DRAIN,
    ),
    _Seen(
        "BmcEventCritical",
        Severity.CRITICAL,
        "The BMC logged a critical event.",
        "no critical entry",
        _BMC,
        "DMTF DSP0268: LogEntry, Severity",
        Act.TICKET,
    ),
    _Seen(
        "NodeDrifted",
        Severity.WARNING,
        "Driver or GPUs of the node are not those that it was certified with.",
        "the driver and the GPUs of its last evidence",
        "Run `rackready drift --limit NODE`.",
        "the fingerprint of the node's last evidence",
        Act.TICKET,
    ),
)

WATCH_CONDITIONS = (
    *(item.condition() for item in _SEEN),
    Condition(
        id="NodeNotWatched",
        severity=Severity.WARNING,
        scope=Scope.NODE,
        meaning="rackready watch has no stream from a node in production: its faults are not seen.",
        expr="rackready_node_watched == 0",
        unit="boolean",
        expected="1",
        actual="{{ $value }}",
        next_step="`rackready watch status` gives the reason.",
        source=_OWN,
        for_s=120,
    ),
    Condition(
        id="WatchSilent",
        severity=Severity.CRITICAL,
        scope=Scope.SITE,
        meaning="rackready watch does not run any more: no fault is drained.",
        # The age when the metrics were written, both from one file: by the clock of Prometheus an hour of the timer
        # would count (RackreadyMetricsOld allows it).
        expr="rackready_metrics_timestamp_seconds - rackready_watch_beat_timestamp_seconds > 300",
        unit="s",
        expected="at most 300 s",
        actual="{{ $value | humanizeDuration }}",
        next_step="On the controller: `systemctl status rackready-watch@ENV`.",
        source=f"{_OWN} writes a sign of life every 10 s; the threshold is our judgement",
        for_s=300,
    ),
    Condition(
        id="WatchStorm",
        severity=Severity.CRITICAL,
        scope=Scope.SITE,
        meaning="So many nodes have faults that rackready watch drains nothing more.",
        expr="rackready_watch_storm == 1",
        unit="boolean",
        expected="0",
        actual="{{ $value }}",
        next_step="Find the common cause (`rackready watch status` lists nodes), then `rackready watch clear-storm`.",
        source=_OWN,
    ),
    Condition(
        id="TicketsWaiting",
        severity=Severity.WARNING,
        scope=Scope.SITE,
        meaning="Repair tickets could not be posted to the webhook.",
        expr="rackready_watch_tickets_waiting > 0",
        unit="tickets",
        expected="0",
        actual="{{ $value }}",
        next_step="`rackready ticket list` shows them. Check watch.webhook of the site file and the receiver.",
        source=_OWN,
        for_s=600,
    ),
)
