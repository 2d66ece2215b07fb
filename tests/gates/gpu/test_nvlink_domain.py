"""The gate of an NVLink domain that spans servers (NVL72): one cluster and clique, a healthy fabric, IMEX between all nodes; word for word."""  # noqa: E501

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rackready.gates.base import FinishedRun, Output
from rackready.gates.engine.registry import gate
from rackready.gates.engine.site_facts import site_facts
from rackready.gates.fabric import domains
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from tests.gates.captured import evaluate
from tests.gates.support import Told, tells, text
from tests.unit.design.written import change, example, parse

TRAY = text("smi/gb200_tray_healthy.xml")
OTHER = TRAY.replace("<uuid>GPU-0", "<uuid>GPU-1")
"""The same of another tray: GPUs of its own."""


def imex(size: int = 2, hosts: list[str] | None = None, **changed: Any) -> str:
    hosts = hosts or [f"198.19.0.{index + 1}" for index in range(size)]
    ends = {str(at): {"host": host, "status": "CONNECTED", "changed": True} for at, host in enumerate(hosts)}
    nodes = {
        str(at): {
            "status": "READY",
            "host": host,
            "hostName": "",
            "connections": copy.deepcopy(ends),
            "version": "580.173.02",
        }
        for at, host in enumerate(hosts)
    }
    return json.dumps({"nodes": nodes, "timestamp": "11/22/2026 00:37:39.905", "status": "UP"} | changed)


def lonely(member: str, other: str) -> str:
    """A member that does not list its connection to another."""
    found = json.loads(imex())
    del found["nodes"][member]["connections"][other]
    return json.dumps(found)


def domain(texts: dict[str, str], codes: Mapping[str, int] | None = None, *, channel: bool = False) -> Verdict:
    known = replace(facts("gb200_nvl72", 2), imex_channel=channel)
    known = replace(known, nodes={name: replace(of, driver="580.173.02") for name, of in known.nodes.items()})
    found = gate("rack/gpu/validation/nvlink-domain", {"nodes": 2})
    run = found.plan(known, list(known.nodes))[0]
    healthy = {
        "smi-node01": TRAY,
        "smi-node02": OTHER,
        "imex-node01": imex(),
        "imex-node02": imex(),
        "address-node01": "198.19.0.1 198.18.1.1 fd00::1 \n",
        "address-node02": "198.19.0.2 198.18.1.2 fd00::2 \n",
        "channel-node01": "",
        "channel-node02": "",
    }
    outputs = {
        command.key: Output(
            command.key,
            command.node,
            "x",
            (codes or {}).get(command.key, 0),
            {**healthy, **texts}[command.key],
            seconds=1.0,
        )
        for command in run.commands
    }
    return found.evaluate(known, run, outputs)


def test_a_node_without_the_channel_of_all_jobs_fails() -> None:
    """CUDA cannot import another node's memory there; where Slurm makes channels for each job, none is looked for."""
    assert tells(domain({}, channel=True)) == []
    verdict = domain({}, {"channel-node02": 1}, channel=True)
    device = "device /dev/nvidia-caps-imex-channels/channel0"
    assert tells(verdict) == [("imex-channel-absent", "node02", device, "not there")]
    assert verdict.outcome is Outcome.FAIL
    assert tells(domain({}, {"channel-node02": 1})) == []


def test_a_healthy_domain_passes() -> None:
    verdict = domain({})
    assert tells(verdict) == []
    assert len(verdict.measured) == 8


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (
            {"smi-node02": OTHER.replace("<cliqueId>2<", "<cliqueId>3<", 1)},
            (
                "nvlink-domain-other",
                "node02 gpu0",
                "ClusterUUID 00000001-0000-0000-0000-000000000001, clique 2",
                "00000001-0000-0000-0000-000000000001, clique 3",
                "rack=rack",
            ),
        ),
        (
            {
                "smi-node02": OTHER.replace(
                    "00000001-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000000", 1
                )
            },
            (
                "nvlink-domain-not-joined",
                "node02 gpu0",
                "a ClusterUUID and a clique",
                "00000000-0000-0000-0000-000000000000, clique 2",
            ),
        ),
        (
            {"smi-node02": OTHER.replace("<route_unhealthy>False<", "<route_unhealthy>True<", 1)},
            ("fabric-health-part-bad", "node02 gpu0", "False", "True", "what=route unhealthy", "step=2"),
        ),
        ({"imex-node01": imex(status="DEGRADED")}, ("imex-down", "node01", "UP", "DEGRADED")),
        (
            {"imex-node01": imex().replace('"READY"', '"UNAVAILABLE"', 1)},
            ("imex-member-not-ready", "node01", "READY", "UNAVAILABLE", "host=198.19.0.1"),
        ),
        (
            {"imex-node01": imex().replace('"CONNECTED"', '"DISCONNECTED"', 1)},
            (
                "imex-not-connected",
                "node01",
                "CONNECTED to every member",
                "198.19.0.1: DISCONNECTED",
                "host=198.19.0.1",
            ),
        ),
        (
            {"imex-node01": lonely("0", "1")},
            ("imex-not-connected", "node01", "CONNECTED to every member", "198.19.0.2: none", "host=198.19.0.1"),
        ),
        (
            {"imex-node01": imex().replace("580.173.02", "580.95.05", 1)},
            ("imex-version", "node01", "580.173.02", "580.95.05", "host=198.19.0.1"),
        ),
    ],
)
def test_a_domain_that_is_not_one(texts: dict[str, str], says: Told) -> None:
    verdict = domain(texts)
    assert tells(verdict) == [says]
    assert verdict.outcome is Outcome.FAIL
    assert verdict.blamed == [says[1].split(maxsplit=1)[0]]


@pytest.mark.parametrize(
    "short",
    [imex(1), imex().replace('"READY", "host": "198.19.0.2"', '"READY", "host": "198.19.0.1"')],
    ids=["one", "one twice"],
)
def test_a_member_that_is_not_there_is_counted_and_named(short: str) -> None:
    verdict = domain({"imex-node01": short})
    assert tells(verdict) == [
        ("imex-members-missing", "node01", "2", "1"),
        ("imex-members-other", "node01", "node01, node02", "none is node02", "target=rack"),
    ]
    assert (verdict.outcome, verdict.blamed) == (Outcome.FAIL, ["node01"])


def test_two_domains_with_nodes_of_other_racks_are_not_one() -> None:
    """Each is up, ready and connected: only whose they are tells them from the rack's own."""
    verdict = domain(
        {
            "imex-node01": imex(hosts=["198.19.0.1", "198.19.9.9"]),
            "imex-node02": imex(hosts=["198.19.0.2", "198.19.9.8"]),
        }
    )
    assert tells(verdict) == [
        ("imex-members-other", "node01", "node01, node02", "198.19.9.9 is none of them, none is node02", "target=rack"),
        ("imex-members-other", "node02", "node01, node02", "198.19.9.8 is none of them, none is node01", "target=rack"),
    ]
    assert (verdict.outcome, verdict.blamed) == (Outcome.FAIL, ["node01", "node02"])


@pytest.mark.parametrize(
    "hosts",
    [["198.18.1.1", "198.18.1.2"], ["node01", "node02.example"], ["fd00:0::1", "FD00::2"]],
    ids=["another network", "names", "IPv6"],
)
def test_a_domain_may_use_any_address_of_its_nodes(hosts: list[str]) -> None:
    verdict = domain({f"imex-{node}": imex(hosts=hosts) for node in ("node01", "node02")})
    assert tells(verdict) == []
    assert verdict.outcome is Outcome.PASS


def test_addresses_and_versions_that_are_not_told_are_errors() -> None:
    verdict = domain({"address-node02": "hostname: invalid option -- 'I'"})
    said = "hostname: invalid option -- 'I' (exit code 0)"
    assert tells(verdict) == [("imex-addresses-unreadable", "node02", "addresses", said)]
    assert verdict.outcome is Outcome.ERROR
    verdict = domain({"imex-node01": imex().replace("580.173.02", "", 1)})
    assert tells(verdict) == [("imex-version-not-reported", "node01", "580.173.02", "nothing", "host=198.19.0.1")]
    assert verdict.outcome is Outcome.ERROR


def test_who_differs_is_named_also_behind_a_gpu_without_a_domain() -> None:
    first, *others = OTHER.split("<gpu id=")
    others[0] = others[0].replace("00000001-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000000")
    others[2] = others[2].replace("<cliqueId>2<", "<cliqueId>3<")
    verdict = domain({"smi-node02": "<gpu id=".join([first, *others])})
    assert tells(verdict) == [
        (
            "nvlink-domain-not-joined",
            "node02 gpu0",
            "a ClusterUUID and a clique",
            "00000000-0000-0000-0000-000000000000, clique 2",
        ),
        (
            "nvlink-domain-other",
            "node02 gpu2",
            "ClusterUUID 00000001-0000-0000-0000-000000000001, clique 2",
            "00000001-0000-0000-0000-000000000001, clique 3",
            "rack=rack",
        ),
    ]
    assert verdict.blamed == ["node02"]


def test_a_tray_that_is_named_keeps_the_others_of_its_rack_waiting_and_servers_without_such_a_domain_have_nothing_to_judge() -> (  # noqa: E501
    None
):
    known = facts("gb200_nvl72", 3)
    known = replace(known, nodes={**known.nodes, "node04": facts("dgx_h100", 4).nodes["node04"]})
    found = gate("rack/gpu/validation/nvlink-domain", {"nodes": 3})
    (run,) = found.plan(known, list(known.nodes))
    bad = Verdict(outcome=Outcome.FAIL, blamed=["node02"])
    by_node = found.attribute(known, [FinishedRun(run, bad)])
    assert {node: (said.outcome, said.note, tells(said)) for node, [said] in by_node.items()} == {
        node: (
            Outcome.NOT_RUN,
            None,
            [
                (
                    "gate-not-run",
                    node,
                    "a measurement",
                    "node02 of its NVLink domain did not pass",
                    f"gate={found.id}",
                    "step=Repair that first.",
                )
            ],
        )
        for node in ("node01", "node03")
    } | {
        "node02": (Outcome.FAIL, None, []),
        "node04": (Outcome.PASS, "its NVLinks end inside the server: nothing to judge", []),
    }
    all_of_them = found.attribute(known, [FinishedRun(run, Verdict(outcome=Outcome.ERROR))])
    assert [all_of_them[node][0].outcome for node in run.nodes] == [Outcome.ERROR] * 3


def test_two_halves_of_a_rack_blame_neither() -> None:
    verdict = domain({"smi-node02": OTHER.replace("<cliqueId>2<", "<cliqueId>3<")})
    halves = "; ".join(f"4 in ClusterUUID 00000001-0000-0000-0000-000000000001, clique {clique}" for clique in (2, 3))
    assert tells(verdict) == [("nvlink-domain-split", "rack", "8 GPUs in one", halves)]
    assert (verdict.outcome, verdict.blamed) == (Outcome.FAIL, [])


@pytest.mark.parametrize(
    "broken", ["", "IMEX not running", imex()[:80], json.dumps({"status": "UP"}), imex(status="SIDEWAYS")]
)
def test_an_imex_that_does_not_answer_is_an_error(broken: str) -> None:
    assert domain({"imex-node01": broken}).outcome is Outcome.ERROR


def test_a_gpu_without_a_health_mask_is_an_error() -> None:
    """Fabric state and status say nothing of links that run degraded."""
    mask = TRAY.split("<health>", 1)[1].split("</health>", 1)[0]
    verdict = domain({"smi-node02": OTHER.replace(mask, "", 1)})
    wanted = ("nvlink-domain-health-not-reported", "node02 gpu0", "the health mask of its NVLink domain", "nothing")
    assert tells(verdict) == [wanted]
    assert verdict.outcome is Outcome.ERROR
    assert "node02/gpu0" not in verdict.measured


def test_a_domain_of_the_wrong_size_is_an_error() -> None:
    known = facts("gb200_nvl72", 2)
    found = gate("rack/gpu/validation/nvlink-domain")
    run = found.plan(known, list(known.nodes))[0]
    texts = {
        "smi-node01": TRAY,
        "smi-node02": OTHER,
        "imex-node01": imex(18),
        "imex-node02": imex(18),
        "address-node01": "198.19.0.1",
        "address-node02": "198.19.0.2",
    }
    verdict = evaluate(found, known, run, texts, 0)
    assert verdict.outcome is not Outcome.PASS
    assert "NVLink domain incomplete" in {finding.what for finding in verdict.findings}


WIDE = [{"name": "wide", "nodes": ["r01-c[01-09]", "r02-c[01-09]"], "across_racks": True}]
HALVES = [{"name": "low", "nodes": ["r01-c[01-09]"]}, {"name": "high", "nodes": ["r01-c[10-18]"]}]
TRAYS = [f"r01-c{tray:02}" for tray in range(1, 19)]


@pytest.mark.parametrize(
    ("declared", "nodes", "runs"),
    [
        (
            WIDE,
            [f"r0{rack}-c{tray:02}" for rack in (1, 2) for tray in range(1, 10)],
            [("domain wide", "wide", 18, 18)],
        ),
        (HALVES, TRAYS, [("domain low", "low", 9, 9), ("domain high", "high", 9, 9)]),
        ([], TRAYS, [("r01", "r01", 18, 18)]),
        # A rack with the name of a domain elsewhere: runs are told apart by their ids.
        (
            [{"name": "r02", "nodes": ["r01-c[01-09]"]}],
            [*TRAYS[:9], *(f"r02-c{tray:02}" for tray in range(1, 19))],
            [("domain r02", "r02", 9, 9), ("r02", "r02", 18, 18)],
        ),
    ],
)
def test_domains_are_those_of_the_site_file(
    declared: list[dict[str, Any]], nodes: list[str], runs: list[tuple[str, str, int, int]]
) -> None:
    document = example("gb200-nvl72-8-racks")
    change("nvlink_domains", declared)(document)
    known = site_facts(parse(document), nodes)
    planned = gate("rack/gpu/validation/nvlink-domain").plan(known, nodes)
    sizes = [domains.size(known.nodes[run.nodes[0]])[0] for run in planned]
    assert [(run.id, run.target, len(run.nodes), size) for run, size in zip(planned, sizes, strict=True)] == runs
    assert domains.groups(known, nodes) == [run.nodes for run in planned]


def test_a_domain_is_whole_with_the_nodes_that_the_site_file_names() -> None:
    """A domain of 2 trays needs no input of the gate: IMEX's list has these two."""
    known = facts("gb200_nvl72", 2)
    known = replace(
        known,
        nodes={
            name: replace(of, driver="580.173.02", domain="pair", domain_nodes=2) for name, of in known.nodes.items()
        },
    )
    found = gate("rack/gpu/validation/nvlink-domain")
    run = found.plan(known, list(known.nodes))[0]
    texts = {
        "smi-node01": TRAY,
        "smi-node02": OTHER,
        "imex-node01": imex(),
        "imex-node02": imex(),
        "address-node01": "198.19.0.1",
        "address-node02": "198.19.0.2",
    }
    assert tells(evaluate(found, known, run, texts, 0)) == []


def test_servers_whose_domain_is_their_own_are_left_out() -> None:
    known = facts("dgx_h100", 2)
    assert gate("rack/gpu/validation/nvlink-domain").plan(known, list(known.nodes)) == []


def test_one_trays_report_for_two_nodes_is_an_error() -> None:
    verdict = domain({"smi-node02": TRAY})
    wanted = (
        "nvlink-domain-gpu-twice",
        "node01, node02",
        "different GPUs on every node",
        "GPU-00000000-0000-0000-0000-000000000000 and 3 more on each of them",
    )
    assert (tells(verdict), verdict.outcome, verdict.measured) == (
        [wanted],
        Outcome.ERROR,
        [],
    )
