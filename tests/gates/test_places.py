"""Places of findings are data: whose a finding is does not depend on how its place is worded."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence

import pytest

from rackready.gates.base import FinishedRun, Run
from rackready.gates.engine import pairs
from rackready.gates.fabric import collective, incast_ends
from rackready.gates.fabric import incast_findings as kinds
from rackready.gates.fabric import latency as ib_latency
from rackready.gates.fabric.collective_findings import NODE_ALONE
from rackready.gates.fabric.rdma_port import NIC_MISSING
from rackready.gates.host.firmware import FIRMWARE_VERSION, _of_node
from rackready.gates.judging.judge import Judge
from rackready.gates.records.offline import facts
from rackready.model.finding_kinds import FindingKind
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.place import Place, part_of

NODES = ("node01", "node02", "node03")


@pytest.mark.parametrize(
    ("text", "node", "part"),
    [
        ("node01", "node01", ""),
        ("node01 gpu2", "node01", "gpu2"),
        ("node01 BIOS of DGXH100", "node01", "BIOS of DGXH100"),
        ("node01 mlx5_0 (rail 3)", "node01", "mlx5_0"),
        ("node01 mlx5_0 -> node02 mlx5_1 (rail 3)", "node01", "mlx5_0"),
        ("node01 enp24s0np0 and leaf01 swp1", "node01", "enp24s0np0"),
        ("node01 gpu2 [it fails with node02]", "node01", "gpu2"),
        ("node01/gpu2", "node01", "gpu2"),
    ],
)
def test_a_place_in_words_is_read_as_old_evidence_has_it(text: str, node: str, part: str) -> None:
    old = {"where": text, "what": "MTU", "expected": "9000", "actual": "1500", "next_step": "Correct it."}
    found = Finding.model_validate(old)
    assert (found.where, found.node, found.part) == (text, node, part)
    assert Finding.model_validate(found.model_dump()) == found


def test_a_place_is_its_words_and_keeps_its_data() -> None:
    place = Place("node01", "mlx5_0", "-> node02 mlx5_1 (rail 3)", nodes=["node02"])
    assert place == "node01 mlx5_0 -> node02 mlx5_1 (rail 3)"
    again = pickle.loads(pickle.dumps(place))  # noqa: S301 - our own
    assert (again, again.node, again.part, again.nodes) == (str(place), "node01", "mlx5_0", ("node02",))
    found = kinds.NOT_FILLED.found(place, "180 Gb/s", "90 Gb/s")
    assert (found.where, found.node, found.part, found.nodes) == (str(place), "node01", "mlx5_0", ["node02"])
    assert (found.unit, found.inside) == ("node01/mlx5_0", "mlx5_0 -> node02 mlx5_1 (rail 3)")


@pytest.mark.parametrize(
    ("target", "part"),
    [
        ("node01", ""),
        ("node01/gpu2", "gpu2"),
        ("node01 mlx5_0 (rail 3)", "mlx5_0 (rail 3)"),
        ("node01/mlx5_0->node02/mlx5_0", None),
        ("node011/gpu2", None),
        ("node02", None),
    ],
)
def test_a_metric_is_the_nodes_own_or_not(target: str, part: str | None) -> None:
    assert part_of(target, "node01") == part


def run(about: Mapping[str, str], nodes: Sequence[str]) -> Run:
    return Run("r", "a run", tuple(nodes), (), about=about)


def of(kind: FindingKind, place: Place, nodes: Sequence[str] = ()) -> Finding:
    words = {"netdev": "eth0", "when": "", "pci": "0", "kind": "BIOS", "gate": "g"}
    return kind.found(place, "one", "other", nodes=nodes, **words)


Rest = dict[str, list[tuple[Outcome, list[str]]]]


def by_node(found: Mapping[str, Sequence[Verdict]]) -> Rest:
    return {node: [(one.outcome, one.blamed) for one in found[node]] for node in sorted(found)}


def fail(*findings: Finding, blamed: Sequence[str] = ()) -> Verdict:
    return Verdict(outcome=Outcome.FAIL, findings=list(findings), blamed=list(blamed))


def incast(finding: Finding) -> Rest:
    return by_node(incast_ends.attribute([FinishedRun(run({"receiver": "node01", "rail": "0"}, NODES), fail(finding))]))


def pair(finding: Finding) -> Rest:
    about = {"first": "node01", "second": "node02", "rail": "0"}
    other = Finding.model_validate({**finding.model_dump(), "node": "node01", "part": "mlx5_9"})
    found = pairs.attribute([FinishedRun(run(about, NODES[:2]), fail(finding, other, blamed=["node02"]))])
    return by_node(found) | {"findings": [(Outcome.FAIL, [one.part]) for one in found["node02"][0].findings]}


def whole_pair(finding: Finding) -> Rest:
    return by_node({node: [pairs.bystander(fail(finding, blamed=["node03"]), node)] for node in NODES})


def together(finding: Finding) -> Rest:
    judge = Judge()
    judge.fails.append(finding)
    collective.conclude(judge, facts("dgx_h100", 3), NODES, rails=True)
    return {"blamed": [(judge.verdict().outcome, judge.verdict().blamed)]}


def group(finding: Finding) -> Rest:
    verdict = fail(finding).model_copy(update={"measured": [node for node in NODES if node != "node02"]})
    return by_node({node: [_of_node(verdict, node)] for node in NODES})


def rails(finding: Finding) -> Rest:
    judge, known = Judge(), facts("dgx_h100", 3)
    judge.fails.append(finding)
    good = ib_latency.IbWriteLat._good(judge, known, NODES[:2], list(range(1, 9)))
    return {"good": [(Outcome.PASS, [str(rail) for rail in good])]}


def nic(rail: int) -> str:
    return next(one.rdma_device for one in facts("dgx_h100", 3).nodes["node02"].nics if one.rail == rail)


CASES: dict[str, tuple[Callable[[Finding], Rest], Finding, Rest]] = {
    "sender of an incast": (
        incast,
        of(kinds.NO_CLASS_BYTES, Place("node02", "mlx5_0", "(rail 0)")),
        {
            "node01": [(Outcome.ERROR, [])],
            "node02": [(Outcome.FAIL, ["node02"])],
        },
    ),
    "both ends of an incast": (
        incast,
        of(kinds.INCAST_SOMETHING_ELSE, Place("node03", "mlx5_0", "-> node01 mlx5_0", nodes=["node01"])),
        {
            "node01": [(Outcome.FAIL, ["node01"])],
            "node03": [(Outcome.FAIL, ["node03"])],
        },
    ),
    "switch port of an incast": (
        incast,
        of(kinds.PORT_ERRORS, Place("leaf01", "swp1", "(to node03 rail 0)", nodes=["node03"])),
        {"node01": [(Outcome.ERROR, [])], "node03": [(Outcome.FAIL, ["node03"])]},
    ),
    "end of a pair": (
        pair,
        of(NIC_MISSING, Place("node02", "mlx5_0", "(rail 0)")),
        {"findings": [(Outcome.FAIL, ["mlx5_0"])], "node02": [(Outcome.FAIL, ["node02"])]},
    ),
    "bystander": (
        whole_pair,
        of(NIC_MISSING, Place("node02", "mlx5_0", "(rail 0)")),
        {
            "node01": [(Outcome.ERROR, [])],
            "node02": [(Outcome.FAIL, ["node02"])],
            "node03": [(Outcome.ERROR, [])],
        },
    ),
    "node of a collective": (
        together,
        of(NODE_ALONE, Place("node02", "launch 1")),
        {"blamed": [(Outcome.FAIL, ["node02"])]},
    ),
    "node of a group": (
        group,
        of(FIRMWARE_VERSION, Place("node02", "BIOS")),
        {
            "node01": [(Outcome.PASS, [])],
            "node02": [(Outcome.FAIL, ["node02"])],
            "node03": [(Outcome.PASS, [])],
        },
    ),
    "rail of a pair": (
        rails,
        of(NIC_MISSING, Place("node02", nic(3), "(rail 3)")),
        {"good": [(Outcome.PASS, [str(rail) for rail in range(1, 9) if rail != 3])]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_whose_a_finding_is_does_not_depend_on_its_words(case: str) -> None:
    judged, finding, wanted = CASES[case]
    found = judged(finding)
    assert {key: found[key] for key in wanted} == wanted
    reworded = finding.model_copy(update={"where": "port of another name, near node01 and node03 (rail 5)"})
    assert judged(reworded) == found
