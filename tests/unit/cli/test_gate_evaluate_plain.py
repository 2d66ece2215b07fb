"""`rackready gate evaluate`: gate inputs, plain tool outputs, line prefixes, one report for all gates that read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gates import plain_texts as printed
from tests.gates.gpu.test_links import HOPPER, counters
from tests.gates.gpu.test_pcie_path import paths_of
from tests.gates.support import text
from tests.gates.test_captured_prefix import POD, TAG, TIME, before

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures/made"
INVENTORY, PATH, VERSIONS = "node/gpu/sanity/inventory", "node/gpu/sanity/pcie-path", "node/gpu/sanity/versions"
NVLINK = "node/gpu/sanity/nvlink"
SETTINGS, REDUCE = "node/gpu/sanity/settings", "node/gpu/performance/nccl-all-reduce"
SMI = FIXTURES / "smi/dgx_h100_healthy.xml"


@pytest.fixture
def evaluate(call: Any) -> Any:  # noqa: ANN401
    """Call the command for a DGX H100; returns (exit code, standard output, standard error)."""
    return lambda *arguments: call("gate", "evaluate", "--profile", "dgx_h100", *arguments)


def files(folder: Path, **texts: str) -> list[str]:
    """Write files and return them as --input options without keys."""
    for name, body in texts.items():
        (folder / name).write_text(body, encoding="utf-8")
    return [word for name in texts for word in ("--input", str(folder / name))]


# inputs of a gate ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", ["7G", "0G", "12M"])
def test_a_message_is_a_power_of_two(evaluate: Any, size: str) -> None:  # noqa: ANN401
    code, _, err = evaluate(REDUCE, "--input", str(SMI), "--set", f"size={size}")
    step = f"Correct it; `rackready gate show {REDUCE}` describes the inputs."
    said = f"--set size: gate {REDUCE} - Expected: a power of two, e.g. 8G Actual: '{size}'. {step}"
    assert (code, err.splitlines()[-1]) == (2, said)


def test_inputs_of_a_gate_are_set(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    log = files(tmp_path, log=text("nccl/dgx_h100_8_healthy.txt"))
    assert evaluate(REDUCE, *log)[0] == 0
    code, out, _ = evaluate(REDUCE, *log, "--set", "size=8G")
    said = (
        "all_reduce_perf ran something else - Expected: 8 ranks, sizes [4294967296, 8589934592] "
        "Actual: 8 ranks, sizes [8589934592, 17179869184]"
    )
    assert (code, said in out) == (2, True)
    code, out, _ = evaluate(REDUCE, *log, "--set", "launches=2")
    assert (code, "without one: launch1." in out) == (2, True)
    code, out, _ = evaluate(SETTINGS, "--input", str(SMI), "--set", "persistence=false")
    assert (code, "persistence mode - Expected: Disabled Actual: Enabled" in out) == (1, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["size"], "--set size - Expected: NAME=VALUE, e.g. size=8G. `rackready gate show {gate}` lists the inputs."),
        (
            ["launches=2", "launches=3"],
            "--set launches=3 - Expected: one value for launches Actual: 2 before it. Give each once.",
        ),
        (
            ["size=[8G"],
            (
                "--set size=[8G - Expected: a YAML value Actual: expected ',' or ']', but got '<stream end>'. "
                "Correct it."
            ),
        ),
        (
            ["sizes=8G"],
            (
                "--set sizes: gate {gate} has no such input - Expected: one of binary, launches, published_floor, "
                "published_source, size. Correct or remove it."
            ),
        ),
        (
            ["launches='7'"],
            (
                "--set launches: gate {gate} - Expected: a whole number Actual: '7'. Correct it; "
                "`rackready gate show {gate}` describes the inputs."
            ),
        ),
        (
            ["size=8 GB"],
            (
                "--set size: gate {gate} - Expected: text that matches ^\\d+[KMG]$ Actual: '8 GB'. "
                "Correct it; `rackready gate show {gate}` describes the inputs."
            ),
        ),
    ],
)
def test_inputs_that_a_gate_does_not_take_are_refused_as_a_sites_are(
    evaluate: Any,  # noqa: ANN401
    given: list[str],
    said: str,
) -> None:
    code, out, err = evaluate(REDUCE, "--input", str(SMI), *(f"--set={item}" for item in given))
    assert (code, out, err.splitlines()[-1]) == (2, "", said.format(gate=REDUCE))


# plain outputs -------------------------------------------------------------------------------------------------------


def test_plain_outputs_are_taken_in_any_order_or_by_their_keys(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    given = files(tmp_path, links=printed.nvlink(), report=printed.SMI)
    assert evaluate(INVENTORY, *given)[0] == 0
    assert evaluate(INVENTORY, "--input", f"nvlink={tmp_path}/links", "--input", f"smi={tmp_path}/report")[0] == 0
    assert (
        evaluate(INVENTORY, "--input", f"inventory={tmp_path}/report", "--input", f"inventory:nvlink={tmp_path}/links")[
            0
        ]
        == 0
    )
    code, out, _ = evaluate(INVENTORY, "--input", str(tmp_path / "report"))
    assert (code, "Also give the output of `nvidia-smi nvlink -s`: --input nvlink=FILE." in out) == (2, True)
    assert evaluate(PATH, *files(tmp_path, lspci=printed.lspci(paths_of()["gpus"])))[0] == 0
    every = files(
        tmp_path,
        packages=printed.DPKG_L,
        report=printed.SMI,
        module=printed.MODULE,
        services=printed.SERVICES,
        manager=printed.MANAGER,
    )
    assert evaluate(VERSIONS, *every)[0] == 0


def test_what_plain_outputs_lack_is_an_error_in_json_too(evaluate: Any) -> None:  # noqa: ANN401
    code, out, _ = evaluate(PATH, "--input", str(SMI), "--output", "json")
    found = json.loads(out)
    assert (code, found["outcome"], found["findings"][0]["expected"]) == (2, "error", "`lspci -D -nn -vvv`")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ("smi={smi}", "{smi}"),
            "--input {smi} - Expected: one file for smi Actual: {smi} and {smi}. Give each output once.",
        ),
        (
            ("smi={smi}", "inventory={ours}"),
            "--input inventory=smi - Expected: the output of inventory, or of smi Actual: both. Give one of them.",
        ),
        (
            ("nvidia={smi}",),
            (
                "--input nvidia={smi} - Expected: at most 1 files, or KEY=FILE with KEY one of inventory; "
                "or the output of a tool as smi, nvlink. Correct it."
            ),
        ),
    ],
    ids=["a report twice", "a report beside the document", "a key of no tool"],
)
def test_plain_outputs_that_do_not_fit_are_refused(evaluate: Any, given: tuple[str, ...], said: str) -> None:  # noqa: ANN401
    paths = {"smi": SMI, "ours": FIXTURES / "nvml/dgx_h100_healthy.json"}
    code, out, err = evaluate(INVENTORY, *(word for item in given for word in ("--input", item.format(**paths))))
    assert (code, out, err.splitlines()[-1]) == (2, "", said.format(**paths))


def test_what_no_tool_of_the_gate_prints_is_refused_with_those_that_there_are(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    given = files(
        tmp_path,
        link="2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP mode DEFAULT group default qlen "
        "1000\n",
    )
    code, out, err = evaluate("node/host/sanity/links", *given)
    said = (
        f"--input {tmp_path}/link - Expected: the output of the gate's command, or of dmesg (`dmesg`), files (`grep "
        "-H '' /proc/uptime /sys/class/infiniband/{mlx5_0,mlx5_3 ...`), ibstat (`ibstat`) "
        "Actual: '2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq'. "
        "Give the output of one of them, as KEY=FILE."
    )
    assert (code, out, err.splitlines()[-1]) == (2, "", said)


def test_an_exit_code_is_told_of_a_plain_output(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    given = ["--input", f"smi={SMI}", *files(tmp_path, links=printed.nvlink())]
    code, out, _ = evaluate(INVENTORY, *given, "--exit-code", "smi=9")
    assert (code, "a report of nvidia-smi, but exit code 9" in out) == (2, True)
    assert evaluate(INVENTORY, *given, "--exit-code", "smi=0")[0] == 0


# prefixes ------------------------------------------------------------------------------------------------------------


def test_prefixes_are_taken_off_and_it_is_said(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    given = files(tmp_path, report=before(printed.SMI, POD + TIME))
    code, _, err = evaluate("node/gpu/sanity/ecc", *given)
    assert (code, err.splitlines()[-1]) == (
        0,
        f"--input {tmp_path}/report: judged without kubectl's pod/probe-7x/main and times",
    )
    given = files(tmp_path, log=before(text("nccl/dgx_h100_8_healthy.txt"), TAG))
    code, _, err = evaluate(REDUCE, *given)
    assert (code, err.splitlines()[-1]) == (0, f"--input {tmp_path}/log: judged without mpirun's tags of rank [1,0]")
    given = files(tmp_path, report=before(printed.SMI, TAG) + before(printed.SMI, "[1,1]<stdout>:"))
    code, out, err = evaluate("node/gpu/sanity/ecc", *given)
    said = (
        f"--input {tmp_path}/report - Expected: lines of one rank Actual: 2 ([1,0], [1,1]). "
        "Give the lines of each rank in a file of its own."
    )
    assert (code, out, err.splitlines()[-1]) == (2, "", said)


# one report for all gates --------------------------------------------------------------------------------------------

READ_BY = ["clocks", "ecc", "fabric", "inforom", "recovery-action", "row-remap", "settings"]


def test_one_report_is_judged_by_every_gate_that_reads_it(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    code, out, _ = evaluate("--all", "--input", str(SMI), "--output", "json")
    found = json.loads(out)
    assert (code, [item["gate"] for item in found["gates"]]) == (0, [f"node/gpu/sanity/{name}" for name in READ_BY])
    assert {item["outcome"] for item in found["gates"]} == {"pass"}
    assert {item["gate"]: item["lacks"][:1] for item in found["not_judged"]} == {
        "node/gpu/performance/nvbandwidth": ["nvidia-smi -q -x (2 readings)"],
        INVENTORY: ["nvidia-smi nvlink -s"],
        PATH: ["lspci -D -nn -vvv"],
        VERSIONS: ["cat /proc/driver/nvidia/version"],
        "node/gpu/stress/burn": ["nvidia-smi -q -x (2 readings)"],
    }
    code, out, _ = evaluate(
        "--all", "--input", str(SMI), *files(tmp_path, links=printed.nvlink(), lspci=printed.lspci(paths_of()["gpus"]))
    )
    lines = out.splitlines()
    assert code == 0
    assert [line.split()[1] for line in lines if line.startswith("\u2502")] == [
        f"node/gpu/sanity/{name}" for name in sorted([*READ_BY, "inventory", "pcie-path"])
    ]
    assert f"not judged: {VERSIONS}: also needs `cat /proc/driver/nvidia/version`, " in out
    assert "not judged: node/gpu/sanity/nvlink: also needs `nvidia-smi nvlink -e`" in lines


def test_a_fail_is_told_where_a_gate_needs_more(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    down = files(tmp_path, links=printed.nvlink(inactive=(3, 7)))
    code, out, _ = evaluate("--all", *down)
    said = "node01 gpu3: NVLink down - Expected: 18 links active Actual: 17 (inactive or not listed: 7)."
    assert (code, f"{NVLINK}: {said}" in out) == (1, True)
    assert "was not run" not in out
    assert out.splitlines()[-1] == f"not judged as a whole: {NVLINK}: also needs `nvidia-smi nvlink -e`"
    found = json.loads(evaluate("--all", *down, "--output", "json")[1])
    assert [(item["gate"], item["outcome"], item["lacks"]) for item in found["gates"]] == [
        (NVLINK, "fail", ["nvidia-smi nvlink -e"])
    ]
    assert NVLINK not in {item["gate"] for item in found["not_judged"]}
    good = json.loads(evaluate("--all", *files(tmp_path, links=printed.nvlink()), "--output", "json")[1])
    assert (good["gates"], NVLINK in {item["gate"] for item in good["not_judged"]}) == ([], True)


def test_a_server_whose_nics_are_not_published_is_judged_and_one_without_nvlinks_by_the_report_alone(call: Any) -> None:  # noqa: ANN401
    for profile, judged, ended in (("dgx_a100", set(), 2), ("sys_521ge_l40s", {INVENTORY}, 1)):
        code, out, _ = call("gate", "evaluate", "--all", "--profile", profile, "--input", str(SMI), "--output", "json")
        found = {item["gate"]: item["outcome"] for item in json.loads(out)["gates"]}
        assert (code, found.keys() & {INVENTORY}, "pass" in found.values()) == (ended, judged, False)


def test_the_exit_code_is_that_of_the_worst(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    off = printed.SMI.replace("<persistence_mode>Enabled<", "<persistence_mode>Disabled<", 1)
    unread = printed.SMI.replace("<current_ecc>Enabled<", "<current_ecc>N/A<", 1)
    for body, code, outcomes in (
        (off, 1, {"settings": "fail", "ecc": "pass"}),
        (unread, 2, {"settings": "pass", "ecc": "error"}),
        (off.replace("<current_ecc>Enabled<", "<current_ecc>N/A<", 1), 1, {"settings": "fail", "ecc": "error"}),
    ):
        ended, out, _ = evaluate("--all", *files(tmp_path, report=body), "--output", "json")
        found = {item["gate"].rpartition("/")[2]: item["outcome"] for item in json.loads(out)["gates"]}
        assert (ended, {name: found[name] for name in outcomes}) == (code, outcomes)
    code, out, _ = evaluate("--all", *files(tmp_path, links=printed.nvlink()))
    assert (code, out.splitlines()[-1]) == (2, "nothing was judged: every gate lacks some outputs")


KINDS = "nvidia-smi -q -x, nvidia-smi nvlink -s, nvidia-smi nvlink -e, nvidia-smi topo -m, lspci -D -nn -vvv"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["--all", INVENTORY],
            (f"gate evaluate --all - Expected: only files Actual: also {INVENTORY}. Omit them, or judge by one gate."),
        ),
        (
            ["--all", "--set", "size=8G"],
            "gate evaluate --all - Expected: only files Actual: also --set. Omit them, or judge by one gate.",
        ),
        (
            ["--all", "--nodes", "2"],
            "gate evaluate --all - Expected: outputs of one node Actual: 2 nodes. Judge each node separately.",
        ),
        (
            ["--all", "--input", "{smi}"],
            (
                "--input {smi} - Expected: one output of `nvidia-smi -q -x` Actual: {smi} and {smi}. "
                "Give each output once."
            ),
        ),
        (
            ["--all", "--input", "{other}"],
            f"--input {{other}} - Expected: the output of {KINDS} Actual: '{{{{'. Judge other outputs by a gate's id.",
        ),
        ([], "gate evaluate - Expected: a gate id, or --all Actual: neither. `rackready gate list` shows the ids."),
    ],
)
def test_what_does_not_fit_all_gates_is_refused(evaluate: Any, given: list[str], said: str) -> None:  # noqa: ANN401
    paths = {"smi": SMI, "other": FIXTURES / "nvbandwidth/dgx_h100_healthy.json"}
    code, out, err = evaluate("--input", str(SMI), *(item.format(**paths) for item in given))
    assert (code, out, err.splitlines()[-1]) == (2, "", said.format(**paths))


# files without a key ------------------------------------------------------------------------------------------------


def test_a_file_without_a_key_that_several_commands_may_have_printed_is_refused(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    given = files(tmp_path, links=printed.nvlink())
    code, out, err = evaluate(NVLINK, *given)
    said = (
        f"--input {tmp_path}/links - Expected: KEY=FILE with KEY one of status, errors Actual: no key, and more than "
        "one of them may have printed it. Give the key; `rackready gate show` lists the commands."
    )
    assert (code, out, err.splitlines()[-1]) == (2, "", said)
    code, out, err = evaluate("bmc/power/stress/cycles", "--input", str(SMI), "--set", "cycles=1")
    said = f"--input {SMI} - Expected: KEY=FILE with KEY one of gpus-0:smi, gpus-1:smi Actual: no key, and"
    assert (code, out, said in err) == (2, "", True)


def test_a_file_without_a_key_takes_the_command_that_no_key_names(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    links = printed.nvlink()
    errors = counters(len(printed.UUIDS), HOPPER, {})
    for gpu, uuid in enumerate(printed.UUIDS):
        errors = errors.replace(f"GPU-{gpu:08d}", uuid)
    (tmp_path / "status").write_text(links, encoding="utf-8")
    (tmp_path / "errors").write_text(errors, encoding="utf-8")
    status, counted = str(tmp_path / "status"), str(tmp_path / "errors")
    for given in ((status, counted), (f"errors={counted}", status), (counted, f"status={status}")):
        assert evaluate(NVLINK, *(word for item in given for word in ("--input", item)))[0] == 0
