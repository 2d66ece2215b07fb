"""A host gate never passes if a tool is missing, killed, failing, silent, cut off or prints nonsense."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rackready.gates.base import Gate, GateFacts, Output, Run
from rackready.gates.engine.registry import all_gates, gate
from rackready.model.outcome import Outcome, Verdict
from rackready_sim.programs.hwsim import paths
from tests.gates.host.machine import Node, facts, sealed

GATES = [name for name in all_gates() if "/host/" in name]
Document = dict[str, Any]


@dataclass(frozen=True)
class Healthy:
    """The outputs of a healthy node."""

    gate: Gate
    known: GateFacts
    run: Run
    outputs: Mapping[str, Output]

    def judge(self, change: Callable[[Document], object], key: str) -> Verdict:
        output = self.outputs[key]
        found = copy.deepcopy(json.loads(output.stdout))
        change(found)
        return self.with_output(key, replace(output, stdout=sealed(found)))

    def with_output(self, key: str, output: Output | None) -> Verdict:
        outputs = {name: one for name, one in self.outputs.items() if name != key}
        return self.gate.evaluate(self.known, self.run, outputs if output is None else {**outputs, key: output})

    def readings(self) -> list[str]:
        return [command.key for command in self.run.commands if command.stdin]

    def of_tools(self) -> list[str]:
        """Readings that tell what tools said; the others are documents of scripts of their own."""
        return [key for key in self.readings() if "commands" in json.loads(self.outputs[key].stdout)]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Healthy]]:
    with pytest.MonkeyPatch.context() as patch:
        node, known, found = Node(tmp_path_factory.mktemp("node"), patch), facts("node01"), {}
        for gate_id in GATES:
            made = gate(gate_id)
            run = made.plan(known, ["node01"])[0]
            outputs = {
                command.key: node.answer(command) for command in sorted(run.commands, key=lambda item: item.stage)
            }
            found[gate_id] = Healthy(made, known, run, outputs)
        yield found
        paths.ROOT = Path("/")


def tools(one: Healthy, key: str) -> list[str]:
    return sorted(json.loads(one.outputs[key].stdout)["commands"])


@pytest.mark.parametrize("gate_id", GATES)
def test_an_upper_bound_is_called_a_ceiling_and_a_lower_one_a_floor(healthy: dict[str, Healthy], gate_id: str) -> None:
    one = healthy[gate_id]
    bounds = {(bound.op.value, bound.label) for bound in one.gate.evaluate(one.known, one.run, one.outputs).criteria}
    assert not bounds & {("le", "floor"), ("ge", "ceiling")}


@pytest.mark.parametrize("gate_id", GATES)
def test_the_reading_itself(healthy: dict[str, Healthy], gate_id: str) -> None:
    one = healthy[gate_id]
    for key in one.readings():
        whole = one.outputs[key]
        for output in (
            None,
            replace(whole, failure="node01: SSH to 192.0.2.9:22 failed (timed out)"),
            replace(whole, timed_out=True, exit_code=None),
            replace(whole, exit_code=1),
            *(
                replace(whole, stdout=text)
                for text in (
                    "",
                    "null",
                    "[]",
                    "{}",
                    whole.stdout[: len(whole.stdout) // 2],
                    '{"format": "rackready/host-read/v1"}',
                )
            ),
        ):
            assert one.with_output(key, output).outcome is Outcome.ERROR


@pytest.mark.parametrize("gate_id", GATES)
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("missing", {"missing": True, "exit_code": None, "stdout": ""}),
        ("killed", {"timed_out": True, "exit_code": None, "stdout": ""}),
        ("fails", {"exit_code": 4, "stdout": "", "stderr": "cannot open"}),
        ("nonsense", {"stdout": "Segmentation fault\n"}),
        ("other JSON", {"stdout": '{"a": 1}'}),
    ],
)
def test_a_tool_that_gives_no_answer(healthy: dict[str, Healthy], gate_id: str, name: str, change: Document) -> None:
    one = healthy[gate_id]
    for key in one.of_tools():
        for tool in tools(one, key):
            if tool in {"dmesg", "swapon"} and name in {"nonsense", "other JSON"}:
                continue  # their lines are free text: any line is one
            verdict = one.judge(lambda found, tool=tool: found["commands"][tool].update(change), key)  # type: ignore[misc]
            assert verdict.outcome is not Outcome.PASS, tool
            assert verdict.findings


@pytest.mark.parametrize("gate_id", GATES)
def test_a_tool_that_says_nothing_or_is_cut_off(healthy: dict[str, Healthy], gate_id: str) -> None:
    one = healthy[gate_id]
    for key in one.of_tools():
        for tool in tools(one, key):
            text = json.loads(one.outputs[key].stdout)["commands"][tool]["stdout"]
            if tool in {"dmesg", "swapon", "systemctl", "nvidia-smi", "nvlink"}:
                continue  # a list that ends early cannot be told from a short one, except where every part is counted
            for end in (0, len(text) // 3, len(text) // 2):
                if tool.startswith(("lspci", "dmidecode")) and end:
                    continue  # cut between two structures: the number of parts tells, below
                verdict = one.judge(
                    lambda found, tool=tool, end=end, text=text: found["commands"][tool].update(stdout=text[:end]), key
                )  # type: ignore[misc]
                assert verdict.outcome is not Outcome.PASS, (tool, end)


def test_memory_and_bridges_that_are_cut_off_are_missed(healthy: dict[str, Healthy]) -> None:
    for gate_id, tool in (("node/host/sanity/memory-modules", "dmidecode"), ("node/host/sanity/pcie-acs", "lspci")):
        one = healthy[gate_id]
        text = json.loads(one.outputs["read"].stdout)["commands"][tool]["stdout"]
        for part in range(1, 20):
            end = len(text) * part // 20
            verdict = one.judge(
                lambda found, tool=tool, end=end, text=text: found["commands"][tool].update(stdout=text[:end]), "read"
            )  # type: ignore[misc]
            assert verdict.outcome is not Outcome.PASS, (tool, end)


@pytest.mark.parametrize(
    "gate_id", [name for name in GATES if name not in {"node/host/sanity/iommu", "node/host/sanity/kernel-settings"}]
)
def test_kernel_files_that_are_not_there_never_pass(healthy: dict[str, Healthy], gate_id: str) -> None:
    one = healthy[gate_id]
    for key in one.of_tools():
        if any(json.loads(one.outputs[key].stdout)["files"].values()):
            verdict = one.judge(lambda found: found.update(files={}), key)
            assert verdict.outcome is not Outcome.PASS


def test_a_document_of_which_a_part_was_lost_is_not_believed(healthy: dict[str, Healthy]) -> None:
    one = healthy["node/host/sanity/cpu"]
    found = json.loads(one.outputs["read"].stdout)
    found["files"]["/sys/devices/system/cpu/cpu*/microcode/version"].popitem()
    verdict = one.with_output("read", replace(one.outputs["read"], stdout=json.dumps(found)))
    assert [str(finding) for finding in verdict.findings] == [
        (
            "node01: processors unreadable - Expected: a complete document of readings "
            "Actual: its digest is not that of its contents. "
            "Run the gate again; if that does not help, read its raw output (`rackready report --raw HASH`)."
        )
    ]


TEXTS = [
    (
        "node/host/sanity/clock",
        "chronyc",
        {"missing": True},
        (
            "node01: chronyc is not installed - Expected: the program chronyc Actual: not found. "
            "Install the package chrony (`rackready install`)."
        ),
    ),
    (
        "node/host/sanity/clock",
        "chronyc",
        {"exit_code": 1, "stdout": "506 Cannot talk to daemon\n"},
        (
            "node01: clock daemon - Expected: an answer of chronyd Actual: 506 Cannot talk to daemon. Run `systemctl "
            "status chrony` on the node: it shows why chrony does not run."
        ),
    ),
    (
        "node/host/sanity/clock",
        "chronyc",
        {"stdout": "C0000202,192.0.2.2,3\n"},
        (
            "node01: chronyc's output is not understood - Expected: one line of 14 fields Actual: 3 fields "
            "instead of 14 (chronyc -c tracking). "
            "Run the gate again; if that does not help, read its raw output (`rackready report --raw HASH`)."
        ),
    ),
    (
        "node/host/sanity/clock",
        "chronyc",
        {"stdout": "C0000202,192.0.2.2,3,1700000000.0,-0.002,0.0,0.0,0.0,0.0,0.0,4.0,1.5,64.0,Normal\n"},
        (
            "node01: largest clock error - Expected: at most 3 s Actual: 3.502000 s (offset 0.002000 s, root "
            "dispersion 1.500000 s, root delay 4.000000 s). Check that the node reaches its time servers now "
            "(`chronyc -n sources -v`), and over which path: the possible error grows while none answers."
        ),
    ),
    *(
        (
            "node/host/sanity/clock",
            "chronyc",
            {"stdout": f"{reference},{name},{stratum},1700000000.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,Normal\n"},
            (
                "node01: clock is not synchronised - Expected: a time source that it follows "
                f"Actual: leap status Normal, stratum {stratum}{own}. "
                "Check that the node reaches its time servers (`chronyc -n sources`), and that UDP port 123 is open."
            ),
        )
        for reference, name, stratum, own in (
            ("7F7F0101", "", 10, ", its own clock (reference 7F7F0101, chrony's local mode)"),
            ("C0000202", "192.0.2.2", 16, ""),
            ("00000000", "", 3, ""),
            ("C0000202", "192.0.2.2", 0, ""),
        )
    ),
    (
        "node/host/sanity/disks",
        "smart /dev/nvme4",
        {"exit_code": 2},
        (
            "node01 /dev/nvme4: health of the drive cannot be read - Expected: exit code without bits 0 to 2 "
            "Actual: exit 2. "
            "Run `smartctl -a /dev/nvme4` on the node."
        ),
    ),
    (
        "node/host/sanity/disks",
        "smart /dev/nvme4",
        {"exit_code": 8},
        (
            "node01 /dev/nvme4: smartctl contradicts itself - Expected: exit code and verdict agree "
            "Actual: exit 8, passed True. Run `smartctl -a /dev/nvme4` on the node."
        ),
    ),
    *(
        (
            gate_id,
            "dmesg",
            {"stdout": "", "lines": 0},
            (
                "node01: kernel log is empty - Expected: the kernel's messages since boot Actual: none. Reboot the "
                "node: the log was cleared (`dmesg --clear`)."
            ),
        )
        for gate_id in ("node/host/sanity/memory-errors", "node/host/sanity/links")
    ),
    (
        "node/host/sanity/services",
        "is-active",
        {"stdout": "active\nactive\n"},
        (
            "node01: states of services not understood - Expected: 1 states Actual: 'active active', exit 0. "
            "Run the gate again."
        ),
    ),
    *(
        (
            "node/host/sanity/services",
            "is-active",
            {"exit_code": code, "stdout": "inactive\n"},
            (
                "node01: chrony.service - Expected: active Actual: inactive. Run `systemctl status chrony.service` and "
                "`journalctl -u chrony.service` on the node: they show why."
            ),
        )
        for code in (3, 4)
    ),
    (
        "node/host/sanity/services",
        "is-active",
        {"exit_code": 4, "stdout": ""},
        "node01: states of services not understood - Expected: 1 states Actual: '', exit 4. Run the gate again.",
    ),
    (
        "node/host/sanity/kernel-settings",
        "prlimit",
        {"stdout": "8388608 unlimited\n"},
        (
            "node01: locked memory (memlock) - Expected: unlimited Actual: soft 8388608, hard unlimited (bytes). Run "
            "install again (it writes /etc/security/limits.d), then log in again: RDMA needs locked memory for its "
            "buffers."
        ),
    ),
    (
        "node/host/validation/optics",
        "mlxlink-mlx5_4",
        {"exit_code": 1},
        (
            "node01 mlx5_4 (rail 3): mlxlink contradicts itself - Expected: exit 0 with status 0 Actual: exit 1. "
            "Run the gate again; if that does not help, read its raw output (`rackready report --raw HASH`)."
        ),
    ),
]


@pytest.mark.parametrize(
    ("gate_id", "tool", "change", "text"),
    TEXTS,
    ids=lambda value: value if isinstance(value, str) and "/" in value else None,
)
def test_words(healthy: dict[str, Healthy], gate_id: str, tool: str, change: Document, text: str) -> None:
    verdict = healthy[gate_id].judge(lambda found: found["commands"][tool].update(change), "read")
    assert [str(finding) for finding in verdict.findings] == [text]


@pytest.mark.parametrize("gate_id", ["node/host/sanity/links", "node/host/validation/optics"])
def test_a_node_without_compute_nics_has_nothing_to_judge(healthy: dict[str, Healthy], gate_id: str) -> None:
    one = healthy[gate_id]
    plain = replace(one.known, nodes={"node01": replace(one.known.nodes["node01"], nics=())})
    verdict = one.gate.evaluate(plain, one.run, one.outputs)
    assert (verdict.outcome, verdict.note, verdict.measured) == (
        Outcome.PASS,
        "the platform has no compute NICs: nothing to judge",
        [],
    )


@pytest.mark.parametrize("gate_id", ["node/host/sanity/pcie-acs", "node/host/sanity/iommu"])
def test_a_virtual_machine_has_nothing_to_judge(healthy: dict[str, Healthy], gate_id: str) -> None:
    one = healthy[gate_id]
    node = one.known.nodes["node01"]
    virtual = replace(one.known, nodes={"node01": replace(node, node=node.node.model_copy(update={"kind": "virtual"}))})
    verdict = one.gate.evaluate(virtual, one.run, one.outputs)
    words = (
        "virtual machine: its host needs access control services and the NIC address translation (ATS); not judged here"
    )
    assert (verdict.outcome, verdict.note, verdict.measured) == (Outcome.PASS, words, [])


@pytest.mark.parametrize(
    ("field", "what"),
    [
        ("Rx Power Current [dBm]", "received light"),
        ("Tx Power Current [dBm]", "sent light"),
        ("Temperature [C]", "module temperature"),
    ],
)
def test_a_module_that_is_silent_where_its_siblings_are_not_is_an_error(
    healthy: dict[str, Healthy], field: str, what: str
) -> None:
    def silence(found: Document) -> None:
        tool = found["commands"]["mlxlink-mlx5_4"]
        said = json.loads(tool["stdout"])
        said["result"]["output"]["Module Info"][field] = "N/A"
        tool["stdout"] = json.dumps(said)

    verdict = healthy["node/host/validation/optics"].judge(silence, "read")
    step = "Reseat the module and read it again (`mlxlink -m`); if that does not help, replace the module."
    assert [str(finding) for finding in verdict.findings] == [
        (
            f"node01 mlx5_4 (rail 3): {what} not reported - Expected: a reading with its limits, as 7 modules of the "
            f"same part have Actual: nothing. {step}"
        )
    ]
    assert verdict.outcome is Outcome.ERROR
    assert "node01/mlx5_4" not in verdict.measured


def test_a_load_that_fails_or_a_counter_that_goes_back_is_an_error(healthy: dict[str, Healthy]) -> None:
    one = healthy["node/host/stress/counter-deltas"]
    load = one.outputs["load"]
    assert one.with_output("load", None).outcome is Outcome.ERROR
    failed = one.with_output("load", replace(load, exit_code=226, stdout="Error: GPU 3 failed", stderr=""))
    assert [str(finding) for finding in failed.findings] == [
        (
            "node01: load failed - Expected: exit 0 Actual: exit 226: Error: GPU 3 failed. First run the gates of "
            "the parts that it loads, then `dcgmi diag -r 2 -j` by hand."
        )
    ]
    path = "/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed"
    back = one.judge(lambda found: found["files"][path].update({path: "7"}), "before")
    assert [(finding.where, finding.what, finding.actual) for finding in back.findings] == [
        ("node01 mlx5_0 (rail 1)", "link_downed unreadable", "7 before, 0 after")
    ]
    assert back.outcome is Outcome.ERROR


def nvlink_says(one: Healthy, key: str, *changes: tuple[str, str], first: tuple[str, str] = ("", "")) -> str:
    """Return the healthy node's link output with replaced words; ``first``: only the first occurrence."""
    text: str = json.loads(one.outputs[key].stdout)["commands"]["nvlink"]["stdout"]
    for old, new in changes:
        text = text.replace(old, new)
    return text.replace(*first, 1)


def with_links(one: Healthy, before: str, after: str) -> Verdict:
    changed = {}
    for key, text in (("before", before), ("after", after)):
        found = json.loads(one.outputs[key].stdout)
        found["commands"]["nvlink"]["stdout"] = text
        changed[key] = replace(one.outputs[key], stdout=sealed(found))
    return one.gate.evaluate(one.known, one.run, {**one.outputs, **changed})


BLACKWELL = (
    ("Replay Errors", "Malformed packet Errors"),
    ("Recovery Errors", "Effective Errors"),
    ("CRC Errors", "Symbol Errors"),
)
"""Words of drivers for Blackwell in place of Hopper's."""


def test_nvlink_counters_of_another_name_after_the_load_are_an_error(healthy: dict[str, Healthy]) -> None:
    one = healthy["node/host/stress/counter-deltas"]
    verdict = with_links(one, nvlink_says(one, "before"), nvlink_says(one, "after", ("Replay Errors", "Link Recovery")))
    said = [(finding.where, finding.what) for finding in verdict.findings]
    assert said == [
        (f"node01 gpu{gpu}", f"nvlink_{name} unreadable") for gpu in range(8) for name in ("link_recovery", "replay")
    ]
    assert verdict.outcome is Outcome.ERROR


def test_nvlink_counters_of_blackwell_are_held(healthy: dict[str, Healthy]) -> None:
    one = healthy["node/host/stress/counter-deltas"]
    assert (
        with_links(one, nvlink_says(one, "before", *BLACKWELL), nvlink_says(one, "after", *BLACKWELL)).outcome
        is Outcome.PASS
    )
    grown = nvlink_says(one, "after", *BLACKWELL, first=("Effective Errors: 0", "Effective Errors: 3"))
    verdict = with_links(one, nvlink_says(one, "before", *BLACKWELL), grown)
    assert [(finding.where, finding.what, finding.actual) for finding in verdict.findings] == [
        ("node01 gpu0", "nvlink_effective rose under load", "3")
    ]
    healed = nvlink_says(one, "after", *BLACKWELL, first=("Symbol Errors: 0", "Symbol Errors: 3"))
    assert with_links(one, nvlink_says(one, "before", *BLACKWELL), healed).outcome is Outcome.PASS, (
        "error correction does its work on a healthy link"
    )


def test_nvlinks_that_count_no_faults_or_go_away_under_load_are_said(healthy: dict[str, Healthy]) -> None:
    one = healthy["node/host/stress/counter-deltas"]
    only = [
        nvlink_says(one, key, ("Recovery Errors", "Symbol Errors"), ("Replay Errors", "Total link recovery events"))
        for key in ("before", "after")
    ]
    verdict = with_links(one, *only)
    assert {(finding.what, finding.expected) for finding in verdict.findings} == {
        ("NVLink faults not counted", "a counter of faults on every link")
    }
    lines = nvlink_says(one, "after").splitlines(keepends=True)
    gone = "".join(line for line in lines if "Link 4:" not in line)
    verdict = with_links(one, nvlink_says(one, "before"), gone)
    assert [(finding.where, finding.what, finding.actual) for finding in verdict.findings] == [
        (f"node01 gpu{gpu}", "nvlink_inactive rose under load", "1") for gpu in range(8)
    ]


def test_huge_pages_that_the_command_line_asks_for_but_the_kernel_does_not_show(healthy: dict[str, Healthy]) -> None:
    one = healthy["node/host/sanity/kernel-settings"]
    pattern = "/sys/kernel/mm/hugepages/hugepages-*kB/nr_hugepages"
    verdict = one.judge(lambda found: found["files"].update({pattern: {}}), "read")
    assert [(finding.what, finding.expected, finding.actual) for finding in verdict.findings] == [
        ("huge pages of 2048 kB not reported", "at least 1024", "nothing")
    ]


@pytest.mark.parametrize(("system", "unit"), [("debian12", "chrony.service"), ("el9", "chronyd.service")])
def test_the_time_service_has_the_name_of_the_node_s_system(system: str, unit: str) -> None:
    of_node = facts("node01").nodes["node01"]
    of_node = replace(of_node, software=of_node.software.model_copy(update={"os": system}))
    asked = gate("node/host/sanity/services").wanted(of_node).tools[1]  # type: ignore[attr-defined]
    assert asked.argv == ("systemctl", "is-active", unit)
