"""Gates of links and neighbours: NVLink, affinity; word for word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest

from rackready.format_error import FormatError
from rackready.gates.engine.registry import gate
from rackready.gates.formats import smi_topo
from rackready.gates.records import offline
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from tests.gates.captured import evaluate
from tests.gates.support import Told, tells, text, told

S = "node/gpu/sanity/"
BLACKWELL = {
    "Tx packets": "1733", "Rx packets": "1731", "Malformed packet Errors": "0", "Buffer overrun Errors": "0", "Rx Errors": "0", "Rx remote Errors": "0",  # noqa: E501
    "Rx General Errors": "0", "Local link integrity Errors": "0", "Tx discards": "0", "Link recovery successful events": "0",  # noqa: E501
    "Link recovery failed events": "0", "Total link recovery events": "0", "Effective Errors": "0", "Effective BER": "15e-255", "Symbol Errors": "0",  # noqa: E501
    "Symbol BER": "15e-255", "FEC Errors - 0": "36140749276", "FEC Errors - 1": "40",
}  # fmt: skip


def judge(
    gate_id: str,
    texts: dict[str, str],
    platform: str = "dgx_h100",
    inputs: dict[str, object] | None = None,
    exit_code: int = 0,
) -> Verdict:
    known = facts(platform, 1)
    found = gate(gate_id, inputs)
    return evaluate(found, known, found.plan(known, ["node01"])[0], texts, exit_code)


H100, GB200 = "NVIDIA H100 80GB HBM3", "NVIDIA GB200"


def links(gpus: int, line: Callable[[int, int], str], model: str = H100) -> str:
    out = []
    for gpu in range(gpus):
        out += [
            f"GPU {gpu}: {model} (UUID: GPU-{gpu:08d})",
            *(f"\t Link {link}: {line(gpu, link)}" for link in range(18)),
        ]
    return "\n".join(out) + "\n"


def counters(gpus: int, of: dict[str, str], changed: dict[tuple[int, int], dict[str, str]], model: str = H100) -> str:
    out = []
    for gpu in range(gpus):
        out.append(f"GPU {gpu}: {model} (UUID: GPU-{gpu:08d})")
        out += [
            f"\t Link {link}: {name}: {value}"
            for link in range(18)
            for name, value in {**of, **changed.get((gpu, link), {})}.items()
        ]
    return "\n".join(out) + "\n"


HOPPER = {"Replay Errors": "0", "Recovery Errors": "0", "CRC Errors": "0"}


@pytest.mark.parametrize(
    ("changed", "says", "outcome"),
    [
        ({}, [], Outcome.PASS),
        (
            {"Replay Errors": "3"},
            [("nvlink-errors", "node01 gpu1 nvlink4", "0 since the driver was loaded", "3", "name=Replay Errors")],
            Outcome.FAIL,
        ),
        ({"CRC Errors": "40"}, [], Outcome.PASS),
        (
            {"Replay Errors": "many"},
            [("nvlink-counter-unreadable", "node01 gpu1 nvlink4", "a whole number", "many", "name=Replay Errors")],
            Outcome.ERROR,
        ),
    ],
)
def test_error_counters_of_hopper(changed: dict[str, str], says: list[str], outcome: Outcome) -> None:
    texts = {"status": links(8, lambda _gpu, _link: "26.562 GB/s"), "errors": counters(8, HOPPER, {(1, 4): changed})}
    verdict = judge(f"{S}nvlink", texts)
    assert (tells(verdict), verdict.outcome) == (says, outcome)
    assert len(verdict.measured) == 8 * 18 - len(says)


@pytest.mark.parametrize(
    ("changed", "what", "outcome"),
    [
        ({}, [], Outcome.PASS),
        ({"Link recovery failed events": "1"}, ["NVLink Link recovery failed events"], Outcome.FAIL),
        ({"Effective BER": "2e-12"}, ["NVLink effective bit error rate"], Outcome.FAIL),
        ({"Effective BER": "10e-13"}, [], Outcome.PASS),
        ({"Symbol BER": "3e-9"}, [], Outcome.PASS),
        ({"Effective BER": "good"}, ["NVLink Effective BER unreadable"], Outcome.ERROR),
        ({"FEC Errors - 0": "99999999999"}, [], Outcome.PASS),
        ({"Link recovery successful events": "2"}, [], Outcome.PASS),
    ],
)
def test_error_counters_of_blackwell(changed: dict[str, str], what: list[str], outcome: Outcome) -> None:
    texts = {
        "status": links(4, lambda _gpu, _link: "53.125 GB/s", GB200),
        "errors": counters(4, BLACKWELL, {(1, 4): changed}, GB200),
    }
    verdict = judge(f"{S}nvlink", texts, "gb200_nvl72")
    assert ([finding.what for finding in verdict.findings], verdict.outcome) == (what, outcome)


def test_a_counter_that_nobody_knows_is_an_error_when_it_counts() -> None:
    status = links(8, lambda _gpu, _link: "26.562 GB/s")
    for value, outcome in (("0", Outcome.PASS), ("7", Outcome.ERROR)):
        texts = {"status": status, "errors": counters(8, {**HOPPER, "Quantum Errors": value}, {})}
        assert judge(f"{S}nvlink", texts).outcome is outcome


def test_links_that_are_down_or_slow_are_named() -> None:
    status = links(
        8,
        lambda gpu, link: (
            "<inactive>" if (gpu, link) == (2, 4) else "19.922 GB/s" if (gpu, link) == (5, 0) else "26.562 GB/s"
        ),
    )
    verdict = judge(f"{S}nvlink", {"status": status, "errors": counters(8, HOPPER, {})})
    assert tells(verdict) == [
        ("nvlink-inactive", "node01 gpu2", "18 links active", "17 (inactive or not listed: 4)"),
        (
            "nvlink-speed",
            "node01 gpu5 nvlink0",
            "26.562 GB/s (NVIDIA Health Validation, check nvlink_bandwidth_count_speed)",
            "19.922 GB/s",
        ),
    ]


ALL_INACTIVE = "Unable to retrieve NVLink information as all links are inActive"
HANDLE = "Unable to determine the device handle for GPU{}: GPU is lost.  Reboot the system to recover this GPU\n"


def refused(report: str, gpu: int, words: str) -> str:
    """A report in which NVML gives no links of a GPU: one line stands in place of them."""
    head, rest = report.split(f"GPU {gpu}: ", 1)
    heading, _, links_ = rest.partition("\n")
    _, sign, others = links_.partition(f"GPU {gpu + 1}: ")
    return f"{head}GPU {gpu}: {heading}\n{words}\n{sign}{others}"


@pytest.mark.parametrize(
    "words",
    [
        ALL_INACTIVE,
        "Unable to retrieve Nvlink information as all links are inActive",
        "Unable to retrieve NVLink information: Unknown Error",
    ],
)
@pytest.mark.parametrize("sign", ["NVML: ", "NVML:", "\t NVML: "])
@pytest.mark.parametrize("code", [0, 255])
def test_a_gpu_whose_links_nvml_does_not_give_fails_by_name(words: str, sign: str, code: int) -> None:
    status, errors = links(8, lambda _gpu, _link: "26.562 GB/s"), counters(8, HOPPER, {})
    verdict = judge(
        f"{S}nvlink",
        {"status": refused(status, 6, sign + words), "errors": refused(errors, 6, sign + words)},
        exit_code=code,
    )
    wanted = ("nvlink-none-active", "node01 gpu6", "18 links active", f"NVML: {words}")
    assert (tells(verdict), verdict.outcome, len(verdict.measured)) == (
        [wanted],
        Outcome.FAIL,
        7 * 18,
    )


def test_counters_that_nvml_does_not_give_are_an_error_of_their_gpu() -> None:
    status, errors = links(8, lambda _gpu, _link: "26.562 GB/s"), counters(8, HOPPER, {})
    verdict = judge(
        f"{S}nvlink",
        {"status": status, "errors": refused(errors, 2, "NVML: Unable to get error counters: Unknown Error")},
    )
    wanted = (
        "nvlink-errors-not-reported",
        "node01 gpu2",
        "its links",
        "NVML: Unable to get error counters: Unknown Error",
    )
    assert (tells(verdict), verdict.outcome, len(verdict.measured)) == (
        [wanted],
        Outcome.ERROR,
        7 * 18,
    )


def test_links_beside_a_refusal_to_give_them_are_an_error() -> None:
    status = links(8, lambda _gpu, _link: "26.562 GB/s").replace("\t Link 3: 26.562 GB/s", f"NVML: {ALL_INACTIVE}", 1)
    verdict = judge(f"{S}nvlink", {"status": status, "errors": counters(8, HOPPER, {})})
    said = "GPU 0 has links, and NVML's refusal to give them (exit code 0)"
    wanted = ("nvlink-unreadable", "node01", "GPUs and their links", said, "what=nvidia-smi nvlink -s")
    assert (tells(verdict), verdict.outcome) == ([wanted], Outcome.ERROR)


@pytest.mark.parametrize("printed", ["5: 0000:C3:00.0", " 0000:C3:00.0", "0000:C3:00.0"])
def test_a_gpu_that_does_not_answer_fails_by_name(printed: str) -> None:
    said = HANDLE.format(printed)
    verdict = judge(f"{S}nvlink", {"status": said, "errors": said}, exit_code=15)
    words = said.split(": ", 2 if printed.startswith("5") else 1)[-1].strip().rstrip(".").replace("  ", " ")
    actual = f"0000:C3:00.0: {words}" if printed.startswith("5") else words
    assert told(verdict.findings[0]) == ("nvlink-gpu-lost", "node01 gpu5", "a GPU that answers", actual)
    assert (verdict.outcome, verdict.measured) == (Outcome.FAIL, [])


@pytest.mark.parametrize(
    ("shown", "gpus", "says"),
    [
        (
            7,
            8,
            (
                "nvlink-gpus-missing",
                "node01",
                f"8 ({', '.join(f'GPU {gpu}' for gpu in range(8))})",
                f"7 ({', '.join(f'GPU {gpu}' for gpu in range(7))})",
            ),
        ),
        (2, 1, ("nvlink-gpus-too-many", "node01", "1 (GPU 0)", "2 (GPU 0, GPU 1)")),
    ],
)
def test_fewer_and_more_gpus_are_told_apart(shown: int, gpus: int, says: Told) -> None:
    known = offline.facts(offline.platform_of("dgx_h100", gpus))
    found = gate(f"{S}nvlink")
    texts = {"status": links(shown, lambda _gpu, _link: "26.562 GB/s"), "errors": counters(shown, HOPPER, {})}
    verdict = evaluate(found, known, found.plan(known, ["node01"])[0], texts, 0)
    assert (told(verdict.findings[0]), verdict.outcome) == (says, Outcome.FAIL)


def test_one_gpu_of_another_number_is_named() -> None:
    """The links of GPU 7 alone, as -i 7 prints them."""
    known = offline.facts(offline.platform_of("dgx_h100", 1))
    found = gate(f"{S}nvlink")
    texts = {"status": links(1, lambda _gpu, _link: "26.562 GB/s"), "errors": counters(1, HOPPER, {})}
    verdict = evaluate(
        found,
        known,
        found.plan(known, ["node01"])[0],
        {key: text_.replace("GPU 0:", "GPU 7:") for key, text_ in texts.items()},
        0,
    )
    wanted = ("nvlink-gpus-other", "node01", "1 (GPU 0)", "1 (GPU 7)")
    assert (told(verdict.findings[0]), verdict.outcome) == (wanted, Outcome.FAIL)


def test_old_drivers_print_whole_gigabytes() -> None:
    old = "\n".join(
        f"GPU {gpu}: A100-SXM4-80GB (UUID: GPU-{gpu})\n" + "\n".join(f"\t Link {link}: 25 GB/s" for link in range(12))
        for gpu in range(8)
    )
    errors = "\n".join(
        f"GPU {gpu}: A100-SXM4-80GB (UUID: GPU-{gpu})\n"
        + "\n".join(f"\t Link {link}: {name}: 0" for link in range(12) for name in HOPPER)
        for gpu in range(8)
    )
    assert judge(f"{S}nvlink", {"status": old, "errors": errors}, "dgx_a100").outcome is Outcome.PASS


def test_counters_of_another_machine_prove_nothing_of_these_links() -> None:
    status, own = links(8, lambda _gpu, _link: "26.562 GB/s"), counters(8, HOPPER, {})
    wanted = ("nvlink-errors-other-gpus", "node01", "the UUIDs of nvidia-smi nvlink -s")
    all_others = "gpu0 GPU-90000000 for GPU-00000000, gpu1 GPU-90000001 for GPU-00000001 and 6 more"
    for errors, said in (
        (own.replace("GPU-0", "GPU-9"), all_others),
        (own.replace("GPU-00000005", "GPU-x"), "gpu5 GPU-x for GPU-00000005"),
    ):
        verdict = judge(f"{S}nvlink", {"status": status, "errors": errors})
        assert (tells(verdict), verdict.outcome, verdict.measured) == (
            [(*wanted, said)],
            Outcome.ERROR,
            [],
        )


def test_links_of_another_model_are_not_judged() -> None:
    verdict = judge(
        f"{S}nvlink",
        {
            "status": links(8, lambda _gpu, _link: "26.562 GB/s", "NVIDIA H800"),
            "errors": counters(8, HOPPER, {}, "NVIDIA H800"),
        },
    )
    wanted = ("gpus-of-another-model", "node01", H100, "NVIDIA H800 (8 on node01)", "what=nvidia-smi nvlink reports")
    assert (tells(verdict), verdict.outcome, verdict.measured) == (
        [wanted],
        Outcome.ERROR,
        [],
    )


@pytest.mark.parametrize(
    ("of", "said"),
    [({"CRC Errors": "0"}, "CRC Errors"), ({"Tx packets": "9", "Symbol Errors": "0"}, "Symbol Errors, Tx packets")],
)
def test_a_link_that_counts_no_faults_is_an_error(of: dict[str, str], said: str) -> None:
    verdict = judge(
        f"{S}nvlink", {"status": links(8, lambda _gpu, _link: "26.562 GB/s"), "errors": counters(8, of, {})}
    )
    wanted = ("nvlink-faults-not-counted", "node01 gpu0 nvlink0", "a counter of faults on every active link", said)
    assert (told(verdict.findings[0]), verdict.outcome, verdict.measured) == (wanted, Outcome.ERROR, [])


def test_a_gpu_without_nvlink_has_nothing_to_judge() -> None:
    verdict = judge(f"{S}nvlink", {}, "sys_521ge_l40s")
    assert (verdict.outcome, verdict.note) == (Outcome.PASS, "GPU l40s has no NVLink: nothing to judge")
    assert verdict.measured == [], "nothing was asked, and nothing was measured"


TOPO = text("topo/dgx_h100_healthy.txt")


@pytest.mark.parametrize(
    ("unnamed", "kept", "names", "measured"),
    [
        (0, 0, "its compute NICs (`nics`)", 0),
        (8, 8, "the device names of its 8 compute NICs (`rdma_device`)", 0),
        (1, 8, "the device names of its 8 compute NICs (`rdma_device`)", 14),
    ],
    ids=["no NICs", "no names", "one has no name"],
)
def test_affinity_of_a_platform_that_declares_nothing_is_an_error(
    unnamed: int, kept: int, names: str, measured: int
) -> None:
    known = facts("dgx_h100", 1)
    whole = known.nodes["node01"].platform
    nics = [
        nic.model_copy(update={"rdma_device": ""}) if at < unnamed else nic for at, nic in enumerate(whole.nics[:kept])
    ]
    known = replace(
        known, nodes={"node01": replace(known.nodes["node01"], platform=whole.model_copy(update={"nics": nics}))}
    )
    found = gate(f"{S}affinity")
    verdict = evaluate(found, known, found.plan(known, ["node01"])[0], {"topo": TOPO}, 0)
    wanted = (
        "gpu-topology-not-declared",
        "node01",
        f"{names} in the profile dgx_h100",
        "not declared",
        "profile=dgx_h100",
    )
    assert (tells(verdict), verdict.outcome, len(verdict.measured)) == (
        [wanted],
        Outcome.ERROR,
        measured,
    )


def test_affinity_of_a_healthy_node() -> None:
    verdict = judge(f"{S}affinity", {"topo": TOPO})
    assert verdict.outcome is Outcome.PASS
    assert len(verdict.measured) == 16


def test_a_nic_in_another_slot_is_named_with_what_sits_there() -> None:
    swapped = TOPO.replace("NIC2: mlx5_4", "NIC2: mlx5_5").replace("NIC3: mlx5_5", "NIC3: mlx5_4")
    verdict = judge(f"{S}affinity", {"topo": swapped})
    assert tells(verdict) == [
        ("nic-far-from-gpu", "node01 gpu2", "mlx5_4 at PIX or PXB", "mlx5_4 at NODE; beside it: mlx5_5", "rail=3"),
        ("nic-far-from-gpu", "node01 gpu3", "mlx5_5 at PIX or PXB", "mlx5_5 at NODE; beside it: mlx5_4", "rail=4"),
    ]


def grace_topo(devices: int) -> str:
    """Return the matrix of a GB200 tray: SYS between every GPU and every NIC (sgl-project/sglang issue 11208)."""
    names = [f"GPU{gpu}" for gpu in range(4)], [f"NIC{nic}" for nic in range(devices)]
    lines = ["\t".join(["", *names[0], *names[1], "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for gpu, name in enumerate(names[0]):
        links = [" X " if other == gpu else "NV18" for other in range(4)]
        near = ["0-71", "0,3-9,11-17"] if gpu < 2 else ["72-143", "1,19-25,27-33"]
        lines.append("\t".join([name, *links, *["SYS"] * devices, *near, "", str(2 + 8 * gpu)]))
    for nic, name in enumerate(names[1]):
        lines.append("\t".join([name, *["SYS"] * 4, *(" X " if other == nic else "SYS" for other in range(devices))]))
    return "\n".join([*lines, "", "NIC Legend:", "", *(f"  NIC{nic}: mlx5_{nic}" for nic in range(devices)), ""])


def grace_affinity(path: Literal["switch", "root_ports"], devices: int) -> Verdict:
    """Judge a tray whose profile names mlx5_0 to mlx5_3."""
    known = facts("gb200_nvl72", 1)
    of = known.nodes["node01"].platform
    nics = [nic.model_copy(update={"rdma_device": f"mlx5_{at}"}) for at, nic in enumerate(of.nics)]
    of = of.model_copy(update={"nics": nics, "nic_path": path})
    known = replace(known, nodes={"node01": replace(known.nodes["node01"], platform=of)})
    found = gate(f"{S}affinity")
    return evaluate(found, known, found.plan(known, ["node01"])[0], {"topo": grace_topo(devices)}, 0)


def test_distances_tell_nothing_where_gpus_and_nics_have_root_ports_of_their_own() -> None:
    assert facts("gb200_nvl72", 1).nodes["node01"].platform.nic_path == "root_ports"
    healthy = grace_affinity("root_ports", 6)
    assert (tells(healthy), healthy.outcome, len(healthy.measured)) == ([], Outcome.PASS, 8)
    absent = grace_affinity("root_ports", 3)
    wanted = ("nic-not-in-topology", "node01 gpu3", "mlx5_3 in the matrix", "mlx5_0, mlx5_1, mlx5_2", "rail=4")
    assert (tells(absent), absent.outcome, len(absent.measured)) == ([wanted], Outcome.FAIL, 6)
    assert {finding.what for finding in grace_affinity("switch", 6).findings} == {
        f"NIC of rail {n}" for n in range(1, 5)
    }


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("", "empty output"),
        (TOPO.replace("PXB", "PXZ", 1), "GPU0 to NIC0 is 'PXZ', which is unknown"),
        (TOPO.split("NIC Legend")[0], "the legend does not say what NIC0 is"),
        (
            "\n".join(line for line in TOPO.splitlines() if not line.startswith("GPU3")),
            "the row of GPU3 is missing or cut off",
        ),
    ],
)
def test_a_matrix_that_is_not_whole_is_refused(broken: str, words: str) -> None:
    with pytest.raises(FormatError) as caught:
        smi_topo.parse(broken)
    assert str(caught.value) == words
