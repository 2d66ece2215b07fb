"""Host gates on other platforms, virtual machines, declared inputs and links that are not up."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackready.gates.base import GateFacts
from rackready.gates.engine.registry import gate
from rackready.gates.host.reading import Limit
from rackready.gates.judging.judge import Judge
from rackready.gates.records.offline import facts as platform_facts
from rackready.model.outcome import Op, Outcome, Verdict
from tests.gates.host.machine import Node, facts, judged, sealed
from tests.gates.support import Told, tells

Document = dict[str, Any]
Change = Callable[[Document], object]
PORT = "/sys/class/infiniband/mlx5_0/ports/1"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def judge(
    node: Node,
    gate_id: str,
    change: Change = lambda _found: None,
    known: GateFacts | None = None,
    inputs: Mapping[str, object] | None = None,
) -> Verdict:
    known = known or facts("node01")
    made = gate(gate_id, inputs)
    run = made.plan(known, ["node01"])[0]
    output = node.answer(run.commands[0])
    found = copy.deepcopy(json.loads(output.stdout))
    change(found)
    return made.evaluate(known, run, {output.key: replace(output, stdout=sealed(found))})


def link(path: str, text: str | None) -> Change:
    return lambda found: found["files"].update({f"{PORT}/{path}": {} if text is None else {f"{PORT}/{path}": text}})


LOG = "[ {at:12.6f}] mlx5_core 0000:18:00.0 enp24s0np0: Link {way}\n"


def flaps(*times: float, uptime: str | None = "90000.00 1.0") -> Change:
    def change(found: Document) -> None:
        found["commands"]["dmesg"].update(
            stdout="".join(LOG.format(at=at + more, way=way) for at in times for more, way in ((0, "down"), (5, "up")))
        )
        found["files"]["/proc/uptime"] = {} if uptime is None else {"/proc/uptime": uptime}

    return change


WHERE = "node01 mlx5_0 (rail 1)"


@pytest.mark.parametrize(
    "line",
    [
        "[  2000,000000] mlx5_core 0000:18:00,0 enp24s0np0: Link down",
        "[  2000.1] mlx5_core 0000:18:00,0 eth4: Link down",
        "0: Link down",
        "noise",
    ],
)
def test_a_line_on_links_that_nobody_understands_is_an_error(node: Node, line: str) -> None:
    verdict = judge(node, "node/host/sanity/links", lambda found: found["commands"]["dmesg"].update(stdout=f"{line}\n"))
    assert tells(verdict) == [("link-log-unreadable", "node01", "time, driver, device and Link down or up", line)]
    assert verdict.outcome is Outcome.ERROR


def test_a_kernel_without_a_command_line_is_an_error(node: Node) -> None:
    verdict = judge(
        node,
        "node/host/sanity/kernel-settings",
        lambda found: found["files"].update({"/proc/cmdline": {"/proc/cmdline": ""}}),
    )
    assert tells(verdict) == [("kernel-cmdline-not-reported", "node01", "/proc/cmdline", "nothing")]


def test_a_module_whose_speed_only_it_does_not_say_is_an_error(node: Node) -> None:
    def change(found: Document) -> None:
        found["commands"]["dmidecode"]["stdout"] = found["commands"]["dmidecode"]["stdout"].replace(
            "Configured Memory Speed", "Speed then", 1
        )

    verdict = judge(node, "node/host/sanity/memory-modules", change)
    assert tells(verdict) == [
        ("memory-speed-not-reported", "node01", "a speed of every module, as most have", "none of DIMM_P0_A0")
    ]
    assert verdict.outcome is Outcome.ERROR


@pytest.mark.parametrize(
    ("change", "outcome", "finding"),
    [
        (
            link("state", None),
            Outcome.FAIL,
            ("link-device-missing", WHERE, "/sys/class/infiniband/mlx5_0", "not there"),
        ),
        (
            link("state", "1: DOWN"),
            Outcome.FAIL,
            ("link-not-up", WHERE, "4: ACTIVE", "1: DOWN (5: LinkUp)", "far=leaf01 swp1"),
        ),
        (link("rate", "200 Gb/sec (4X HDR)"), Outcome.FAIL, ("link-rate", WHERE, "400 Gb/s", "200 Gb/s")),
        (link("rate", "fast"), Outcome.ERROR, ("link-rate-not-reported", WHERE, "400 Gb/s", "fast")),
        (link("counters/link_downed", None), Outcome.ERROR, ("link-downs-not-reported", WHERE, "a count", "nothing")),
        (
            link("counters/link_downed", "5"),
            Outcome.FAIL,
            ("link-went-down-often", WHERE, "at most 4 times in 24 h", "5 times"),
        ),
        (
            flaps(80000),
            Outcome.FAIL,
            (
                "link-went-down-lately",
                WHERE,
                "not in the last 6 h, except 1800 s after boot",
                "1, the last 80000 s after boot",
            ),
        ),
        (
            flaps(2000, uptime=None),
            Outcome.FAIL,
            (
                "link-went-down-lately",
                WHERE,
                "not in the last 6 h, except 1800 s after boot",
                "1, the last 2000 s after boot",
            ),
        ),
    ],
)
def test_links(node: Node, change: Change, outcome: Outcome, finding: Told) -> None:
    verdict = judge(node, "node/host/sanity/links", change)
    assert tells(verdict) == [finding]
    assert verdict.outcome is outcome
    assert "node01/mlx5_0" not in verdict.measured
    assert "node01/mlx5_3" in verdict.measured


@pytest.mark.parametrize("change", [flaps(100, 900), flaps(50000), link("counters/link_downed", "4")])
def test_links_may_go_down_at_boot_and_long_ago(node: Node, change: Change) -> None:
    assert judge(node, "node/host/sanity/links", change).outcome is Outcome.PASS


def virtual() -> GateFacts:
    known = facts("node01")
    one = known.nodes["node01"]
    return replace(known, nodes={"node01": replace(one, node=one.node.model_copy(update={"kind": "virtual"}))})


@pytest.mark.parametrize("gate_id", ["node/host/sanity/pcie-acs", "node/host/sanity/iommu"])
def test_a_virtual_machine_is_not_judged_by_the_rule_for_bare_metal(node: Node, gate_id: str) -> None:
    node.inject("acs-on")
    verdict = judge(node, gate_id, known=virtual())
    assert verdict.outcome is Outcome.PASS
    assert verdict.note == (
        "virtual machine: its host needs access control services and the NIC address translation (ATS); not judged here"
    )


def test_an_iommu_group_that_cannot_be_read_is_not_taken_for_an_iommu_that_is_off(node: Node) -> None:
    path = "/sys/bus/pci/devices/0000:18:00.0/iommu_group/type"
    verdict = judge(node, "node/host/sanity/iommu", lambda found: found["files"].update({path: {path: None}}))
    assert tells(verdict) == [("file-unreadable", "node01", "its text", "an I/O error", f"path={path}")]
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])
    assert (
        judge(node, "node/host/sanity/iommu", lambda found: found["files"].update({path: {}})).outcome is Outcome.PASS
    ), "no group: the IOMMU is off"


def test_a_platform_without_figures_is_an_error_where_only_they_could_judge(node: Node) -> None:
    known = platform_facts("dgx_b200")
    assert known.nodes["node01"].platform.host is None
    memory = judge(node, "node/host/sanity/memory-modules", known=known)
    assert tells(memory) == [("memory-modules-not-judged", "node01", "a number in the platform profile", "none")]
    assert judge(node, "node/host/sanity/disks", known=known).outcome is Outcome.ERROR
    assert judge(node, "node/host/sanity/disks", known=known, inputs={"drives": 10}).outcome is Outcome.PASS
    cpu = judge(node, "node/host/sanity/cpu", known=known)
    assert (cpu.outcome, cpu.note) == (
        Outcome.PASS,
        "model and number of cores are not judged: the platform profile has none",
    )


GPUS, NICS = "the PCI addresses of its GPUs", "the device names of its compute NICs"


@pytest.mark.parametrize(
    ("platform", "missing"),
    [
        ("r760xa_l4", GPUS),
        ("dgx_a100", NICS),
        ("dgx_b200", f"{GPUS} and {NICS}"),
        ("gb200_nvl72", f"{GPUS} and {NICS}"),
    ],
    ids=["r760xa_l4", "dgx_a100", "dgx_b200", "gb200_nvl72"],
)
@pytest.mark.parametrize(
    "gate_id",
    [f"node/host/sanity/{name}" for name in ("pcie-acs", "iommu", "numa", "links")] + ["node/host/validation/optics"],
)
def test_parts_whose_place_is_not_published_are_not_taken_for_missing_or_good(
    node: Node, gate_id: str, platform: str, missing: str
) -> None:
    known = platform_facts(platform)
    verdict = judge(node, gate_id, lambda found: found["commands"].get("dmesg", {}).update(stdout=""), known=known)
    if not known.nodes["node01"].nics and gate_id.endswith(("links", "optics")):
        assert (verdict.outcome, verdict.note) == (Outcome.PASS, "the platform has no compute NICs: nothing to judge")
        return
    assert tells(verdict) == [
        (
            "parts-not-placed",
            "node01",
            f"their addresses and names in the profile {platform}",
            f"not published: {missing}",
            f"profile={platform}",
        )
    ]
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])


def test_numa_of_a_platform_that_says_neither_nodes_nor_nics_is_an_error(node: Node) -> None:
    known = facts("node01")
    one = known.nodes["node01"]
    bare = replace(one, nics=(), platform=one.platform.model_copy(update={"host": None}))
    verdict = judge(node, "node/host/sanity/numa", known=replace(known, nodes={"node01": bare}))
    wanted = "a number of NUMA nodes, or compute NICs, in the platform profile"
    assert (verdict.outcome, tells(verdict)) == (
        Outcome.ERROR,
        [("numa-not-judged", "node01", wanted, "neither", "platform=dgx_h100")],
    )


@pytest.mark.parametrize(
    ("state", "inputs", "finding"),
    [
        (
            {"model": "Intel(R) Xeon(R) Platinum 8462Y+"},
            {},
            ("cpu-model", "node01", "8480C", "Intel(R) Xeon(R) Platinum 8462Y+"),
        ),
        ({"sockets": 1}, {}, ("cpu-sockets", "node01", "2", "1")),
        ({"cores": 52}, {}, ("cpu-cores", "node01", "56", "52")),
        ({}, {"smt": False}, ("smt-setting", "node01", "off", "on")),
        (
            {},
            {"governor": "schedutil"},
            (
                "frequency-governor",
                "node01",
                "schedutil",
                "performance on 224 of 224 policies (CPU 0, 1, 2, 3, 4, 5, 6, 7 and 216 more)",
                "governor=schedutil",
            ),
        ),
    ],
)
def test_processors(node: Node, state: Document, inputs: Document, finding: Told) -> None:
    node.state["host"]["cpu"].update(state)
    node.save()
    verdict = judge(node, "node/host/sanity/cpu", inputs=inputs)
    assert tells(verdict) == [finding]
    assert verdict.outcome is Outcome.FAIL


@pytest.mark.parametrize(("line", "fails"), [("ro iommu=pt iommu=nopt", True), ("ro iommu=nopt iommu=pt", False)])
def test_the_last_word_of_the_command_line_counts(node: Node, line: str, *, fails: bool) -> None:
    verdict = judge(
        node,
        "node/host/sanity/kernel-settings",
        lambda found: found["files"].update({"/proc/cmdline": {"/proc/cmdline": line}}),
        inputs={"cmdline": ["iommu=pt"]},
    )
    assert tells(verdict) == ([("kernel-cmdline", "node01", "iommu=pt", "iommu=pt iommu=nopt")] if fails else [])


@pytest.mark.parametrize(
    ("inputs", "finding"),
    [
        (
            {"cmdline": ["numa_balancing=disable"]},
            ("kernel-cmdline", "node01", "numa_balancing=disable", "not there"),
        ),
        ({"cmdline": ["iommu=off"]}, ("kernel-cmdline", "node01", "iommu=off", "iommu=pt")),
        ({"hugepages": {2048: 4096}}, ("huge-pages", "node01", "at least 4096", "1024", "size=2048")),
    ],
)
def test_kernel_settings_that_are_declared(node: Node, inputs: Document, finding: Told) -> None:
    verdict = judge(node, "node/host/sanity/kernel-settings", inputs=inputs)
    assert tells(verdict) == [finding]
    assert verdict.outcome is Outcome.FAIL


def test_swap_may_be_allowed(node: Node) -> None:
    node.inject("swap-on")
    assert judge(node, "node/host/sanity/kernel-settings", inputs={"swap": True}).outcome is Outcome.PASS


def test_a_service_may_be_known_to_fail(node: Node) -> None:
    node.inject("service-failed")
    assert judge(node, "node/host/sanity/services", inputs={"may_fail": ["node-agent.service"]}).outcome is Outcome.PASS


def units(*rows: str) -> Change:
    return lambda found: found["commands"]["systemctl"].update(
        stdout=found["commands"]["systemctl"]["stdout"] + "".join(f"{row}\n" for row in rows)
    )


@pytest.mark.parametrize(
    ("row", "finding"),
    [
        (
            "nvidia-dcgm.service loaded activating auto-restart NVIDIA DCGM service",
            (
                "service-restarts",
                "node01",
                "nvidia-dcgm.service running, or stopped on purpose",
                "activating (auto-restart)",
                "name=nvidia-dcgm.service",
            ),
        ),
        (
            "raid.mount loaded failed failed /raid",
            ("mount-failed", "node01", "raid.mount not failed", "failed", "name=raid.mount"),
        ),
    ],
    ids=["restart", "mount"],
)
def test_a_service_that_ends_again_and_again_and_a_mount_that_failed(node: Node, row: str, finding: Told) -> None:
    verdict = judge(node, "node/host/sanity/services", units(row))
    assert (verdict.outcome, tells(verdict), verdict.measured) == (Outcome.FAIL, [finding], [])
    assert (
        judge(node, "node/host/sanity/services", units(row), inputs={"may_fail": [row.split(maxsplit=1)[0]]}).outcome
        is Outcome.PASS
    )


@pytest.mark.parametrize(
    "row",
    [
        "slurmd.service loaded activating start-pre Slurm node daemon",
        "fstrim.service loaded inactive dead Discard unused blocks",
        "auditd.service not-found inactive dead auditd.service",
        "sys-kernel-debug.mount loaded failed failed /sys/kernel/debug",
        "tmp.mount not-found inactive dead tmp.mount",
    ],
    ids=lambda row: str(row).split()[0],
)
def test_what_starts_or_rests_and_the_kernels_own_mounts_raise_no_alarm(node: Node, row: str) -> None:
    assert judge(node, "node/host/sanity/services", units(row)).outcome is Outcome.PASS


def test_parts_that_are_declared_are_held_against_the_declaration(node: Node) -> None:
    verdict = judge(node, "node/host/validation/optics", inputs={"parts": ["MMA4Z00-NS400-FLT"]})
    assert len(verdict.findings) == 8
    assert tells(verdict)[0] == ("module-part-other", WHERE, "MMA4Z00-NS400-FLT (declared)", "MMA4Z00-NS400")
    assert judge(node, "node/host/validation/optics", inputs={"parts": ["MMA4Z00-NS400"]}).outcome is Outcome.PASS


def test_a_drive_is_held_against_a_declared_rate(node: Node) -> None:
    verdict = judge(node, "node/host/performance/disk-bandwidth", inputs={"read_gb_s": 6.0})
    assert [(item.where.split(" (")[0], item.expected) for item in verdict.findings] == [
        ("node01 /dev/nvme0n1", "at least 6 GB/s (declared)"),
        ("node01 /dev/nvme1n1", "at least 6 GB/s (declared)"),
    ]


@pytest.mark.parametrize(
    ("fault", "finding"),
    [
        (
            "link-ber",
            (
                "link-ber-high",
                f"{WHERE} after the load",
                "at most 1e-12",
                "3e-09 (Bad signal integrity)",
                "what=bit error rate after correction",
            ),
        ),
        (
            "optics-hot",
            (
                "module-reading-out-of-limits",
                f"{WHERE} after the load",
                "-10 to 80 C (the module's own alarm thresholds, as mlxlink prints them)",
                "84 C",
                "what=module temperature",
                "step=Check the airflow at this slot, and that the module has the heat sink that its cage needs.",
            ),
        ),
    ],
)
def test_links_and_modules_are_looked_at_again_after_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, finding: tuple[str, ...]
) -> None:
    one = Node(tmp_path, monkeypatch)
    one.inject(fault)
    verdict = judged("node/host/stress/counter-deltas", {"node01": one})
    assert tells(verdict) == [finding]


def test_a_bound_of_many_parts_is_recorded_once_and_another_beside_it() -> None:
    judge = Judge()
    limits = [
        Limit("link_downs", Op.LE, bound, "1", source) for bound, source in ((2, "a"), (2, "a"), (3, "a"), (2, "b"))
    ]
    assert [limit.holds(judge, f"node01 nic{place}", 3) for place, limit in enumerate(limits)] == [
        False,
        False,
        True,
        False,
    ]
    for count in (8, 7):
        judge.count("gpu_count", "node01", count, 8, "profile")
    assert [(item.metric, item.bound, item.source) for item in judge.criteria] == [
        ("link_downs", 2, "a"),
        ("link_downs", 3, "a"),
        ("link_downs", 2, "b"),
        ("gpu_count", 8, "profile"),
    ]
    assert (len(judge.metrics), judge.judged) == (6, 4)
