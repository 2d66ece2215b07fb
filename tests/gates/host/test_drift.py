"""What a foreign hand changes on a node and no part tells: programs, environment, names."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rackready.gates.base import GateFacts, Output
from rackready.gates.engine.registry import all_gates, gate
from rackready.gates.host.programs import READING
from rackready.gates.records.node_parts import MEASURING
from rackready.model.nccl import Nccl
from rackready.model.outcome import Outcome, Verdict
from rackready.ondevice import names, trusted_programs
from tests.gates.host.machine import Node, complete_document, facts, sealed
from tests.gates.support import rack

PROGRAMS, ENVIRONMENT, NAMES = "node/host/sanity/programs", "node/host/sanity/environment", "node/host/sanity/names"
Document = dict[str, Any]
SHA = "0" * 64
OWN_BUILD = {
    "path": "/usr/local/bin/ib_write_bw",
    "real": "/usr/local/bin/ib_write_bw",
    "package": None,
    "version": None,
    "wanted": None,
}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def judge(
    node: Node,
    gate_id: str,
    change: Callable[[Document], object] = lambda _found: None,
    known: GateFacts | None = None,
    inputs: Mapping[str, object] | None = None,
) -> Verdict:
    known = known or facts("node01")
    made = gate(gate_id, inputs)
    run = made.plan(known, ["node01"])[0]
    output = node.answer(run.commands[0])
    found = json.loads(output.stdout)
    change(found)
    script: ModuleType | None = {PROGRAMS: trusted_programs, NAMES: names}.get(gate_id)
    held = {key: value for key, value in found.items() if key not in {"format", "digest", "complete"}}
    return made.evaluate(
        known, run, {output.key: replace(output, stdout=complete_document(script, held) if script else sealed(found))}
    )


def said(verdict: Verdict) -> list[tuple[str, str, str, str]]:
    return [(item.where, item.what, item.expected, item.actual) for item in verdict.findings]


def own_build(found: Document) -> None:
    found["files"]["ib_write_bw"] = {**OWN_BUILD, "md5": "1" * 32, "sha256": SHA}


def test_a_program_of_no_package_is_named_and_refused_unless_the_site_declares_it(node: Node) -> None:
    found = judge(node, PROGRAMS, own_build)
    assert found.outcome is Outcome.FAIL
    assert str(found.findings[0]) == (
        "node01 /usr/local/bin/ib_write_bw: ib_write_bw belongs to no package - "
        "Expected: a program of a package, or one that the site declares "
        "Actual: /usr/local/bin/ib_write_bw. Install it from a package, or declare the file in the gate set (inputs "
        "of node/host/sanity/programs: "
        f"`sha256: {{/usr/local/bin/ib_write_bw: {SHA}}}` or `unchecked: [/usr/local/bin/ib_write_bw]`)."
    )
    assert (
        judge(node, PROGRAMS, own_build, inputs={"sha256": {"/usr/local/bin/ib_write_bw": SHA}}).outcome is Outcome.PASS
    )
    taken = judge(node, PROGRAMS, own_build, inputs={"unchecked": ["/usr/local/bin/ib_write_bw"]})
    assert (taken.outcome, taken.note) == (
        Outcome.PASS,
        "/usr/local/bin/ib_write_bw belongs to no package and is accepted unchecked (declared)",
    )


def test_a_declared_file_is_held_to_what_is_declared(node: Node) -> None:
    other = "f" * 64
    found = judge(node, PROGRAMS, own_build, inputs={"sha256": {"/usr/local/bin/ib_write_bw": other}})
    assert said(found) == [
        (
            "node01 /usr/local/bin/ib_write_bw",
            "ib_write_bw is not the file that the site declares",
            f"SHA-256 {other}",
            SHA,
        )
    ]


def test_a_program_is_compared_with_the_sha_256_of_an_rpm(node: Node) -> None:
    def of_rpm(found: Document, wanted: str | None = None) -> None:
        file = found["files"]["smartctl"]
        file.update(wanted=wanted or file["sha256"], package="smartmontools.x86_64")

    assert judge(node, PROGRAMS, of_rpm).outcome is Outcome.PASS
    found = judge(node, PROGRAMS, lambda document: of_rpm(document, SHA))
    assert found.outcome is Outcome.FAIL
    [finding] = found.findings
    assert finding.expected == f"SHA-256 {SHA}, as smartmontools.x86_64 2.19.6-1 ships it"
    assert finding.actual.startswith("SHA-256 ")
    assert "on RHEL `dnf reinstall smartmontools.x86_64`" in str(finding)


def test_a_package_without_checksums_is_an_error(node: Node) -> None:
    found = judge(node, PROGRAMS, lambda found: found["files"]["smartctl"].update(wanted=None))
    assert found.outcome is Outcome.ERROR
    assert said(found) == [
        ("node01 /usr/bin/smartctl", "smartctl cannot be compared", "a checksum in package nccl-tests", "none")
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: (found.pop("files"), found.update(error="dpkg-query is not there")), "dpkg-query is not there"),
        (lambda found: found["files"].clear(), "no program found"),
    ],
)
def test_nothing_compared_is_an_error(node: Node, change: Callable[[Document], object], words: str) -> None:
    found = judge(node, PROGRAMS, change)
    assert (found.outcome, said(found)[0][3]) == (Outcome.ERROR, words)


@pytest.mark.parametrize("gate_id", [PROGRAMS, NAMES])
def test_a_document_that_lost_a_part_is_an_error(node: Node, gate_id: str) -> None:
    made = gate(gate_id)
    run = made.plan(facts("node01"), ["node01"])[0]
    output = node.answer(run.commands[0])
    found = json.loads(output.stdout)
    found["files" if gate_id == PROGRAMS else "resolved"].popitem()
    verdict = made.evaluate(facts("node01"), run, {output.key: replace(output, stdout=json.dumps(found))})
    assert verdict.outcome is Outcome.ERROR
    assert verdict.findings[0].actual == "its digest is not that of its contents"


def test_a_node_that_does_not_answer_is_an_error() -> None:
    for gate_id in (PROGRAMS, ENVIRONMENT, NAMES):
        run = gate(gate_id).plan(facts("node01"), ["node01"])[0]
        key = run.commands[0].key
        lost = Output(key, "node01", "here", None, failure="node01: no route to host")
        assert gate(gate_id).evaluate(facts("node01"), run, {key: lost}).outcome is Outcome.ERROR


SETTINGS = [
    (
        "/etc/nccl.conf",
        "# ours\nNCCL_DEBUG=WARN\nNCCL_NET = Socket",
        [("line 2", "NCCL_DEBUG=WARN"), ("line 3", "NCCL_NET=Socket")],
    ),
    ("/root/.nccl.conf", "NCCL_ALGO=Tree", [("line 1", "NCCL_ALGO=Tree")]),
    ("/etc/environment", 'PATH="/usr/bin"\nLD_PRELOAD="/opt/x.so"', [("line 2", "LD_PRELOAD=/opt/x.so")]),
    (
        "/etc/profile.d/site.sh",
        "if true; then export NCCL_IB_HCA=mlx5_1; fi\nexport CUDA_HOME=/usr/local/cuda",
        [("line 1", "NCCL_IB_HCA=mlx5_1")],
    ),
    (
        "/etc/security/pam_env.conf",
        "CUDA_VISIBLE_DEVICES DEFAULT=0,1\n#NCCL_X DEFAULT=1",
        [("line 1", "CUDA_VISIBLE_DEVICES=0,1")],
    ),
    ("/root/.bashrc", "alias ll='ls -l'\nUCX_TLS=tcp mpirun", [("line 2", "UCX_TLS=tcp")]),
    ("/root/.openmpi/mca-params.conf", "btl = tcp,self", [("line 1", "btl=tcp,self")]),
]


@pytest.mark.parametrize(("path", "text", "expected"), SETTINGS)
def test_a_file_that_sets_a_variable_is_named_with_line_and_value(
    node: Node, path: str, text: str, expected: list[tuple[str, str]]
) -> None:
    node.put(path, text)
    found = judge(node, ENVIRONMENT)
    assert found.outcome is Outcome.FAIL
    assert [(item.where, item.actual) for item in found.findings] == [
        (f"node01 {path} {line}", value) for line, value in expected
    ]


def test_the_words_of_a_refusal(node: Node) -> None:
    node.put("/etc/nccl.conf", "NCCL_NET=Socket")
    assert str(judge(node, ENVIRONMENT).findings[0]) == (
        "node01 /etc/nccl.conf line 1: NCCL_NET is set - Expected: not set: it changes measurements Actual: "
        "NCCL_NET=Socket. Remove it, or declare it with its value in the gate set (inputs of "
        "node/host/sanity/environment: `allow: {NCCL_NET: 'Socket'}`), then run `rackready repair node01 "
        "--reason '...'`."
    )


def test_what_the_site_declares_may_be_set_to_that_value_alone(node: Node) -> None:
    node.put("/etc/nccl.conf", "NCCL_IB_HCA=mlx5")
    assert judge(node, ENVIRONMENT, inputs={"allow": {"NCCL_IB_HCA": "mlx5"}}).outcome is Outcome.PASS
    found = judge(node, ENVIRONMENT, inputs={"allow": {"NCCL_IB_HCA": "mlx5_1"}})
    assert said(found)[0][2:] == ("NCCL_IB_HCA=mlx5_1, as the site declares", "NCCL_IB_HCA=mlx5")


def test_the_traffic_class_of_the_site_s_own_fabric_is_declared_and_no_other_is(node: Node) -> None:
    """Role host_roce writes it, where the driver has no traffic class for all programs."""
    node.put("/etc/nccl.conf", "NCCL_IB_TC=106")
    assert judge(node, ENVIRONMENT).outcome is Outcome.PASS
    node.put("/etc/nccl.conf", "NCCL_IB_TC=96")
    found = said(judge(node, ENVIRONMENT))
    assert found[0][2:] == ("NCCL_IB_TC=106, as the site declares", "NCCL_IB_TC=96")
    known = facts("node01")
    infiniband = replace(known, fabric=known.fabric.model_copy(update={"kind": "infiniband"}))
    assert judge(node, ENVIRONMENT, known=infiniband).outcome is Outcome.FAIL


def test_the_site_s_settings_of_nccl_are_declared_with_these_values_alone(node: Node) -> None:
    known = facts("node01")
    nccl = Nccl(settings={"NCCL_IB_TIMEOUT": 22}, platforms={"dgx_h100": {"NCCL_IB_SL": 1}})
    site = replace(known, fabric=known.fabric.model_copy(update={"nccl": nccl}))
    node.put("/etc/nccl.conf", "# BEGIN rackready\nNCCL_IB_SL=1\nNCCL_IB_TIMEOUT=22\n# END rackready")
    assert judge(node, ENVIRONMENT, known=site).outcome is Outcome.PASS
    assert judge(node, ENVIRONMENT, known=known).outcome is Outcome.FAIL
    node.put("/etc/nccl.conf", "NCCL_IB_TIMEOUT=20")
    assert said(judge(node, ENVIRONMENT, known=site))[0][2:] == (
        "NCCL_IB_TIMEOUT=22, as the site declares",
        "NCCL_IB_TIMEOUT=20",
    )


def test_a_variable_of_a_login_that_no_file_shows_is_named(node: Node) -> None:
    found = judge(
        node,
        ENVIRONMENT,
        lambda found: found["commands"]["env"].update(stdout="HOME=/root\nNCCL_P2P_DISABLE=1\ncomplete\n"),
    )
    assert said(found)[0] == (
        "node01 environment of a login",
        "NCCL_P2P_DISABLE is set",
        "not set: it changes measurements",
        "NCCL_P2P_DISABLE=1",
    )


def test_a_library_in_every_program_is_refused(node: Node) -> None:
    node.put("/etc/ld.so.preload", "# none\n/opt/trace.so")
    assert said(judge(node, ENVIRONMENT)) == [
        ("node01 /etc/ld.so.preload", "library loaded into every program", "none", "/opt/trace.so")
    ]


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("setenv NCCL_NET=Socket", "SetEnv"),
        ("acceptenv NCCL_*", "AcceptEnv"),
        ("acceptenv *", "AcceptEnv"),
        ("acceptenv LD_PRELOAD", "AcceptEnv"),
    ],
)
def test_sshd_lets_no_such_variable_in(node: Node, line: str, where: str) -> None:
    found = judge(
        node, ENVIRONMENT, lambda found: found["commands"]["sshd"].update(stdout=f"acceptenv LC_*\n{line}\ncomplete\n")
    )
    assert [item.what for item in found.findings] == [where]


def test_open_mpi_s_own_file_counts_only_where_it_was_changed(node: Node) -> None:
    """Debian ships settings in it (openmpi-common): those are nobody's doing."""
    node.put("/etc/openmpi/openmpi-mca-params.conf", "mtl = ^ofi\nbtl = tcp,self")
    assert judge(node, ENVIRONMENT).outcome is Outcome.PASS
    told = "??5?????? c /etc/openmpi/openmpi-mca-params.conf\ncomplete\n"
    found = judge(node, ENVIRONMENT, lambda found: found["commands"]["verify"].update(stdout=told))
    assert [item.actual for item in found.findings] == ["mtl=^ofi", "btl=tcp,self"]


def test_a_tool_that_fails_is_an_error(node: Node) -> None:
    found = judge(
        node,
        ENVIRONMENT,
        lambda found: found["commands"]["sshd"].update(exit_code=255, stdout="", stderr="no hostkeys available\n"),
    )
    assert found.outcome is Outcome.ERROR


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda found: found["resolved"].update(node01=[]),
            ("node01", "own name node01 does not resolve", "192.0.2.11", "no address"),
        ),
        (
            lambda found: found["resolved"].update(node01=["198.51.100.7"]),
            ("node01", "own name node01 resolves to another machine", "192.0.2.11", "198.51.100.7"),
        ),
        (
            lambda found: found["hosts"].append(["node04", "198.51.100.7"]),
            ("node01 /etc/hosts", "name node04", "192.0.2.14", "198.51.100.7"),
        ),
        (
            lambda found: found["hosts"].append(["node04", "127.0.0.1"]),
            ("node01 /etc/hosts", "name node04", "192.0.2.14", "127.0.0.1"),
        ),
        (
            lambda found: found.update(
                servers=[{"address": "192.0.2.2", "answer": "REFUSED"}, {"address": "192.0.2.3", "answer": None}]
            ),
            ("node01", "no name server answers", "an answer of one of them",
             "192.0.2.2: REFUSED; 192.0.2.3: no answer"),
        ),
    ],
)  # fmt: skip
def test_a_name_that_leads_astray_is_named(
    node: Node, change: Callable[[Document], object], expected: tuple[str, str, str, str]
) -> None:
    found = judge(node, NAMES, change)
    assert (found.outcome, said(found)) == (Outcome.FAIL, [expected])


def test_names_that_the_site_needs_must_resolve(node: Node) -> None:
    known = replace(facts("node01"), needed=("mirror.example",))
    found = judge(node, NAMES, known=known, inputs={"hosts": {"files": "192.0.2.40"}})
    assert [item.what for item in found.findings] == [
        "name files does not resolve",
        "name mirror.example does not resolve",
    ]
    there = {"mirror.example": ["192.0.2.2"], "files": ["192.0.2.41"]}
    found = judge(
        node,
        NAMES,
        lambda found: found["resolved"].update(there),
        known=known,
        inputs={"hosts": {"files": "192.0.2.40"}},
    )
    assert said(found) == [("node01", "name files", "192.0.2.40", "192.0.2.41")]


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda found: found.update(servers=[]), (
            "no name server in /etc/resolv.conf: names are resolved only by files"
        )),
        (
            lambda found: found["servers"].append({"address": "192.0.2.3", "answer": None}),
            "silent name servers: 192.0.2.3: no answer",
        ),
        (lambda found: found["resolved"].update(node01=["127.0.1.1"]), None),
        (lambda found: found["hosts"].append(["node01", "127.0.1.1"]), None),
        (lambda found: found["hosts"].append(["printer", "not an address"]), None),
    ],
)  # fmt: skip
def test_what_is_no_fault_of_names(node: Node, change: Callable[[Document], object], note: str | None) -> None:
    found = judge(node, NAMES, change)
    assert (found.outcome, found.note) == (Outcome.PASS, note)


def test_every_program_that_a_gate_runs_is_compared() -> None:
    """What a gate runs is trusted: a program that is not in the list would be trusted unseen."""
    known, told = rack(2), {*MEASURING, *READING}
    left_out = {"sh", "bash", "timeout", "nohup", "cat", "true", "touch"}
    strange: dict[str, set[str]] = {}
    for gate_id, kind in all_gates().items():
        for run in kind().plan(known, list(known.nodes)):
            for command in (item for item in run.commands if item.via == "host" and item.node in known.nodes):
                spec = (
                    json.loads(command.argv[-1])
                    if command.stdin and command.argv[-1].startswith('{"commands"')
                    else {"commands": []}
                )
                started = {command.argv[0], *(tool["argv"][0] for tool in spec["commands"])}
                for program in started - told - left_out:
                    strange.setdefault(program, set()).add(gate_id)
    assert strange == {}
