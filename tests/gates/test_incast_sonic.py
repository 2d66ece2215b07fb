"""Incast behind SONiC, which counts only queues and priority groups with a buffer."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from rackready.gates.engine.registry import gate
from rackready.model.outcome import Outcome, Verdict
from tests.gates.support import Said, outputs, tells
from tests.gates.test_incast import GATE, HEALTHY, site


def sonic(unmapped: Mapping[str, str], **changed: int) -> Said:
    """Counters of SONiC for the leaf's three ports; ``unmapped``: name of a queue or group -> its kind."""
    own = {f"SAI_PORT_STAT_PFC_{number}_{way}_PKTS": "0" for number in range(8) for way in ("RX", "TX")}
    own |= {f"SAI_PORT_STAT_IF_{way}_{what}": "0" for way in ("IN", "OUT") for what in ("ERRORS", "DISCARDS")}
    lines = []
    for port in ("swp9", "swp17", "swp1"):
        lines += [f"== {port} PORT", json.dumps(own)]
        for number in range(8):
            name = f"{port}:{number}"
            queue = {"SAI_QUEUE_STAT_DROPPED_PACKETS": "0", "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS": "0"}
            group = {"SAI_INGRESS_PRIORITY_GROUP_STAT_DROPPED_PACKETS": str(changed.get(f"group{number}", 0))}
            for kind, counters in (("QUEUE", queue), ("PG", group)):
                shown = {"unmapped": "yes"} if unmapped.get(name) == kind else counters
                lines += [f"== {name} {kind}", json.dumps(shown)]
    return Said("\n".join([*lines, "== ", ""]))


def judged_sonic(unmapped: Mapping[str, str], **changed: int) -> Verdict:
    known = site("sonic")
    run = gate(GATE).plan(known, list(known.nodes))[0]
    leafs = {"before-leaf01": sonic(unmapped), "after-leaf01": sonic(unmapped, **changed)}
    return gate(GATE).evaluate(known, run, outputs(run, {**HEALTHY, **leafs}))


NO_BUFFER = {f"{port}:{one}": "PG" for port in ("swp9", "swp17", "swp1") for one in (1, 2, 5, 6, 7)}
"""Groups that SONiC on NVIDIA's switches does not count."""


def test_queues_and_groups_that_the_fabric_does_not_use_need_no_counters() -> None:
    verdict = judged_sonic(NO_BUFFER)
    assert tells(verdict) == []
    assert verdict.outcome is Outcome.PASS
    assert [one[0] for one in tells(judged_sonic(NO_BUFFER, group3=5))] == ["incast-frames-dropped"] * 3


@pytest.mark.parametrize(
    ("unmapped", "none"),
    [
        ({"swp17:6": "QUEUE"}, "queue 6"),
        ({"swp17:0": "QUEUE"}, "queue 0"),
        ({"swp17:3": "PG"}, "group 3"),
    ],
)
def test_a_queue_or_group_of_the_fabric_without_counters_is_an_error(unmapped: dict[str, str], none: str) -> None:
    verdict = judged_sonic(NO_BUFFER | unmapped)
    assert tells(verdict) == [
        (
            "incast-switch-uncounted",
            "leaf01 swp17 (to node03 rail 1)",
            "counters of groups 0, 3 and queues 0, 3, 6",
            f"none of {none}",
        )
    ]
    assert verdict.outcome is Outcome.ERROR
