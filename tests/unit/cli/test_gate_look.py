"""`gate show`, `explain`, `evaluate`, `list`, `run --local` and `evidence import`: output, exit codes, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from rackready.cli.output import console
from rackready.gates import base
from rackready.gates.base import Command, Gate, GateFacts, Outputs, Run
from rackready.gates.engine import describe
from rackready.gates.engine.registry import all_gates
from rackready.gates.gpu.inventory import Inventory
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from tests.gates.support import between, port, ports

ROOT = Path(__file__).resolve().parents[3]
FIXTURES = ROOT / "tests/fixtures/made"
INVENTORY = "node/gpu/sanity/inventory"
RING = "cluster/fabric/performance/nccl-all-reduce-ring"
WRITE = "pair/fabric/performance/ib-write-bw"


def test_show_prints_every_command_in_full_and_equal_launches_once(call: Any) -> None:  # noqa: ANN401
    code, out, err = call("gate", "show", RING, "--profile", "h100_sxm")
    assert code == 0
    assert "profile h100_sxm: using dgx_h100 with 8 GPUs" in err
    launches = [line for line in out.splitlines() if line.strip().startswith("mpirun")]
    assert len(launches) == 1
    assert "-H 198.19.0.1:8,198.19.0.2:8" in launches[0]
    assert launches[0].endswith("all_reduce_perf -b 8589934592 -e 17179869184 -f 2 -g 1 -w 10 -n 50 -c 1")
    assert "[launch0 to launch4, 5 times, one after the other, at most 1800 s]" in out
    assert "before-node02" in out


def heads(out: str) -> list[str]:
    """The line above each command."""
    return [line.strip() for line in out.splitlines() if line.startswith("  stage")]


def test_show_keeps_readings_before_and_after_apart(call: Any) -> None:  # noqa: ANN401
    _, out, _ = call("gate", "show", RING, "--profile", "h100_sxm")
    usual, others = out.split("with launcher = srun:")
    assert heads(usual) == [
        "stage 0 node01 [before-node01, at most 60 s]:",
        "stage 0 node02 [before-node02, at most 60 s]:",
        "stages 1 to 5 node01 [launch0 to launch4, 5 times, one after the other, at most 1800 s]:",
        "stage 6 node01 [after-node01, at most 60 s]:",
        "stage 6 node02 [after-node02, at most 60 s]:",
    ]
    assert heads(others) == ["stages 1 to 5 node01 [launch0 to launch4, 5 times, one after the other, at most 1800 s]:"]


def test_show_says_that_launches_alternate(call: Any) -> None:  # noqa: ANN401
    _, out, _ = call("gate", "show", "node/gpu/performance/gemm", "--profile", "h100_sxm")
    assert heads(out) == [
        "stages 0, 2, 4, 6, 8 node01 [fp16-0 to fp16-4, 5 times, one after the other, at most 80 s]:",
        "stages 1, 3, 5, 7, 9 node01 [fp32-0 to fp32-4, 5 times, one after the other, at most 80 s]:",
    ]


def test_show_says_why_a_launcher_is_not_shown(call: Any) -> None:  # noqa: ANN401
    _, out, _ = call("gate", "show", RING, "--profile", "h100_sxm")
    assert out.splitlines()[-1] == (
        "with launcher = mpijob: refused: site.yml gates.launcher: mpijob - "
        "Expected: a container image in the gate's input image Actual: none. "
        "Name one in the gate set."
    )


@pytest.mark.parametrize(
    ("gate", "why"),
    [
        (
            "node/gpu/validation/container-run",
            (
                "node01: node/gpu/validation/container-run has no container image - "
                "Expected: an image in its input image Actual: none. "
                "Name an image in the gate set (inputs: {image: ...}), or skip the gate with a reason "
                "(site.yml gates.skip)."
            ),
        ),
        (
            "rack/power/sanity/devices",
            "this server model has nothing to measure, or the gate needs a site file (devices, rails)",
        ),
    ],
    ids=["no image", "no devices"],
)
def test_show_says_why_nothing_is_run(call: Any, gate: str, why: str) -> None:  # noqa: ANN401
    code, out, _ = call("gate", "show", gate, "--profile", "dgx_h100")
    assert (code, out.splitlines()[-1]) == (0, f"it runs nothing: {why}")


def test_show_as_json_holds_whole_scripts(call: Any) -> None:  # noqa: ANN401
    code, out, _ = call("gate", "show", INVENTORY, "--output", "json")
    document = json.loads(out)
    (command,) = document["commands"]
    assert code == 0
    assert command["stdin"].startswith('"""Print NVML\'s inventory')
    assert document["inputs"]["pcie_width"] == {
        "value": 16,
        "description": "PCIe lanes that every GPU must have trained",
    }


def test_explain_says_findings_with_next_steps_outcomes_and_sets(call: Any) -> None:  # noqa: ANN401
    code, out, _ = call("gate", "explain", INVENTORY)
    assert code == 0
    for words in (
        "  gpu-nvlink-down: NVLink down\n    Some NVLinks of this GPU are inactive",
        (
            "    next: Power the node off and on once; if the link stays down, reseat the GPU, then replace it: "
            "docs/runbooks/nvlink-down.md."
        ),
        "  nvml-cannot-be-asked: NVML does not answer\n",
        "    next: Check that the driver is loaded (`nvidia-smi` on the node), then run install again.",
        "findings of every gate: command-not-run, ",
        "  fail: measured, and not as expected; not measured again until the node is repaired",
        "  bringup: required, counts for 720 h, void after a boot",
    ):
        assert words in out


def test_explain_joins_the_lines_of_a_paragraph_and_says_nothing_twice(call: Any) -> None:  # noqa: ANN401
    _, out, _ = call("gate", "explain", "node/gpu/sanity/ecc", "--profile", "dgx_h100")
    title = "ECC is on, and no GPU has uncorrected errors since its last reset, or too many over its lifetime."
    assert out.count(title) == 1
    assert "``" not in out
    assert "  input enabled = true: ECC must be on" in out
    document = json.loads(
        call("gate", "explain", "node/gpu/sanity/ecc", "--profile", "dgx_h100", "--output", "json")[1]
    )
    rules = next(part for text in document["how"] for part in text.split("\n\n") if part.startswith("Rules: "))
    assert "\n" not in rules
    assert rules.endswith("limits as DCGM has them.")
    shown = out[out.index("Rules: ") :].partition("\n\n")[0]
    assert (" ".join(shown.split()), max(map(len, shown.splitlines())) <= 120) == (rules, True)


def test_explain_says_the_bounds_that_are_known_before_a_run(call: Any) -> None:  # noqa: ANN401
    _, out, _ = call("gate", "explain", INVENTORY, "--profile", "dgx_h100")
    lines = out.splitlines()
    place = lines.index("bounds on 1 x dgx_h100: as far as they are known before a run:")
    assert lines[place + 1 : place + 3] == [
        "  identity: gpu_count eq 8: platform profile dgx_h100",
        "  identity: nvlinks_active eq 18: GPU profile",
    ]
    _, out, _ = call("gate", "explain", RING, "--profile", "dgx_h100", "--nodes", "40")
    assert "bounds on 40 x dgx_h100: as far as they are known before a run:" in out
    assert (
        "  floor: busbw ge 278.1 GB/s (derived): 0.75 x min(links x per-link, B): above 32 nodes, judgement "
        "[links=370.8, B=400]" in out
    )


def test_explain_says_where_no_bound_is_known_before_a_run(call: Any) -> None:  # noqa: ANN401
    _, out, _ = call("gate", "explain", "node/gpu/sanity/xid", "--profile", "dgx_h100")
    assert (
        "bounds on 1 x dgx_h100: none known before a run: readings are compared with the profile, the inputs above and "
        "the node's own reports; every finding states the expected value, and the record its source"
    ) in out


def test_explain_says_the_fleet(call: Any) -> None:  # noqa: ANN401
    _, out, _ = call("gate", "explain", "node/gpu/performance/nccl-all-reduce")
    assert (
        "  fleet: busbw not below that of at least 16 identical units; smallest detectable effect 3% of their median"
        in out
    )


def evaluate(
    call: Any,  # noqa: ANN401
    name: str,
    *more: str,
    gate: str = INVENTORY,
    profile: str = "dgx_h100",
) -> tuple[int, str, str]:
    code, out, err = call("gate", "evaluate", gate, "--input", str(FIXTURES / name), "--profile", profile, *more)
    return code, out, err


@pytest.mark.parametrize("profile", ["dgx_h100", "h100_sxm"])
def test_evaluate_takes_a_server_or_a_gpu_and_its_exit_code_says_the_outcome(call: Any, profile: str) -> None:  # noqa: ANN401
    assert evaluate(call, "nvml/dgx_h100_healthy.json", profile=profile)[0] == 0
    code, out, _ = evaluate(call, "nvml/dgx_h100_gpu2_link4_inactive.json", profile=profile)
    assert (code, "node01 gpu2: NVLink down - Expected: 18 links active Actual: 17 (link 4 inactive)." in out) == (
        1,
        True,
    )
    code, out, _ = evaluate(call, "nvml/dgx_h100_healthy.json", "--exit-code", "3", profile=profile)
    assert (code, out.splitlines()[0]) == (2, f"{INVENTORY}: error")
    assert evaluate(call, "nvml/dgx_h100_healthy.json", "--gpus", "4", profile=profile)[0] == 1


def test_an_output_that_no_reading_takes_is_an_error_and_no_crash(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    def crash(*_: object) -> None:
        raise TypeError("'int' object is not iterable")

    monkeypatch.setattr(Inventory, "evaluate", crash)
    code, out, _ = evaluate(call, "nvml/dgx_h100_healthy.json")
    assert code == 2
    assert (
        f"node01: {INVENTORY} could not judge its output - Expected: a verdict "
        "Actual: TypeError: 'int' object is not iterable. " in " ".join(out.split())
    )


def test_a_skip_that_nobody_declared_is_no_pass(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    monkeypatch.setattr(
        "rackready.gates.records.offline.evaluate",
        lambda *_: Verdict(outcome=Outcome.SKIP, note="the tool left it out"),
    )
    assert evaluate(call, "nvml/dgx_h100_healthy.json")[0] == 2


def test_exit_codes_by_command_and_another_run(call: Any, tmp_path: Path) -> None:  # noqa: ANN401
    def link(device: str, sent: int = 0) -> str:
        path = tmp_path / f"{device}-{sent}.json"
        path.write_text(ports({device: port(sent)}), encoding="utf-8")
        return str(path)

    said = (
        (FIXTURES / "perftest/dgx_h100_rail1_healthy.txt")
        .read_text(encoding="utf-8")
        .replace(": mlx5_0", ": mlx5_3")
        .replace("dev = 0]", "dev = 1]")
    )
    (tmp_path / "forth.txt").write_text(between(said, "192.168.2.11", "192.168.2.12"), encoding="utf-8")
    (tmp_path / "back.txt").write_text(between(said, "192.168.2.12", "192.168.2.11"), encoding="utf-8")
    files = {"link-first": link("mlx5_3"), "link-second": link("mlx5_3")}
    files |= {"client-forth": f"{tmp_path}/forth.txt", "client-back": f"{tmp_path}/back.txt"}
    files |= dict.fromkeys(("after-first", "after-second"), link("mlx5_3", 8388608 * 2000))
    given = [word for key, path in files.items() for word in ("--input", f"{key}={path}")]
    common = ("gate", "evaluate", WRITE, "--profile", "dgx_h100", *given, "--run", "node01+node02/rail2")
    assert call(*common)[0] == 0
    assert call(*common, "--exit-code", "client-back=1")[0] != 0
    code, _, err = call(*common, "--exit-code", "client-up=1")
    assert (code, err.splitlines()[-1]) == (
        2,
        (
            "--exit-code client-up=1 - Expected: a whole number, or KEY=NUMBER with KEY one of "
            "link-first, link-second, client-forth, client-back, after-first, after-second. Correct it."
        ),
    )
    code, _, err = call(*common[:-1], "rail2")
    assert (
        code,
        err.splitlines()[-1].startswith("--run rail2 - Expected: one of node01+node02/rail1, node01+node02/rail2, "),
    ) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run",), "gate run - Expected: gate ids, or --set NAME Actual: neither. Give one of them."),
        (
            ("run", INVENTORY, "--set", "quick"),
            "gate run - Expected: gate ids, or --set NAME Actual: both. Give one of them.",
        ),
        (
            ("run", INVENTORY, "--profile", "dgx_h100"),
            "gate run: --profile, --gpus and --store - Expected: --local with them. The site file describes",
        ),
        (
            ("run", INVENTORY, "--local", "--node", "node01"),
            "gate run --local --limit - Expected: no --limit, because --local is this machine.",
        ),
        (
            ("run", "--set", "nightlie"),
            (
                "gate_sets profile 'nightlie' does not exist - Expected: one of bringup, burnin, maintenance, nightly, "
                "quick."
            ),
        ),
    ],
)
def test_what_contradicts_itself_is_refused(call: Any, arguments: tuple[str, ...], message: str) -> None:  # noqa: ANN401
    code, _, err = call("gate", *arguments)
    assert (code, err.splitlines()[-1].startswith(message)) == (2, True)


def test_local_on_a_machine_without_a_gpu_is_a_clear_error(
    call: Any,  # noqa: ANN401
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The real commands of this machine; NVML is hidden where the machine that tests has a GPU."""
    (tmp_path / "pynvml.py").write_text("raise ImportError('hidden')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code, out, err = call("gate", "run", INVENTORY, "--local")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(
        "this machine: no NVIDIA GPU can be read - Expected: a GPU and its driver Actual: pynvml is not installed"
    )
    code, out, _ = call(
        "gate",
        "run",
        INVENTORY,
        "--local",
        "--profile",
        "h100_sxm",
        "--store",
        str(tmp_path / "store"),
        "--output",
        "json",
    )
    ((node, found),) = json.loads(out)["nodes"].items()
    assert (code, found["outcome"]) == (2, "error")
    assert found["message"].startswith(
        f"{node}: fingerprint unreadable - Expected: serials, firmware, kernel and driver Actual: hidden."
    )


def test_list_says_which_sets_have_a_gate(call: Any) -> None:  # noqa: ANN401
    code, out, _ = call("gate", "list", "--output", "json")
    rows = {row["id"]: row for row in json.loads(out)["gates"]}
    assert (code, rows[INVENTORY]["in_set"]) == (0, True)
    assert rows[INVENTORY]["sets"] == ["bringup", "burnin", "maintenance", "nightly", "quick"]


@pytest.mark.parametrize("columns", [20, 80, 400])
def test_list_shows_ids_whole_however_narrow_the_output_is(
    call: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
) -> None:
    """A pipe is taken for 80 columns; an id that ends in three dots cannot be given to another command."""
    monkeypatch.setattr(console, "width", columns)
    code, out, _ = call("gate", "list")
    assert (code, "\u2026" in out) == (0, False)
    first = {line.split("\u2502")[1].strip() for line in out.splitlines() if line.startswith("\u2502")}
    assert first - {""} == set(all_gates())


def test_evidence_import_says_outcome_and_what_it_cannot_prove(call: Any, tmp_path: Path) -> None:  # noqa: ANN401
    (tmp_path / "out.json").write_bytes((FIXTURES / "nvml/dgx_h100_healthy.json").read_bytes())
    one = {
        "node": "node01",
        "gate": INVENTORY,
        "key": "inventory",
        "exit_code": 0,
        "file": "out.json",
        "time": "2026-11-22T00:00:00+00:00",
    }
    (tmp_path / "manifest.json").write_text(
        json.dumps({"schema": "rackready/captured/v1", "by": "field team", "outputs": [one]}), encoding="utf-8"
    )
    code, out, _ = call("evidence", "import", str(tmp_path), "--by", "ops")
    assert (code, out.splitlines()) == (
        0,
        [
            f"node01 {INVENTORY}: pass",
            "  no fingerprint with its chassis serial and GPUs proves that it is this node: it satisfies no gate",
        ],
    )
    code, _, err = call("evidence", "import", str(tmp_path / "nothing"))
    assert (code, "nothing was imported." in err) == (2, True)


# choices -----------------------------------------------------------------------------------------------------------


class Choosing(Gate):
    """A gate with a choice among its inputs, for `gate show`; it has no id and is in no registry."""

    class Inputs(base.Inputs):
        """What is moved."""

        collective: Literal["all_reduce", "alltoall"] = "all_reduce"

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: list[str]) -> list[Run]:  # type: ignore[override]
        del facts
        return [
            Run(
                "one",
                nodes[0],
                (nodes[0],),
                (Command("x", nodes[0], ("true",), 1), Command("y", nodes[0], (f"{self.inputs.collective}_perf",), 1)),
            )
        ]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        raise NotImplementedError


def test_what_another_choice_would_run_is_shown_where_it_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    Choosing.id = "node/trial/performance/choosing"
    monkeypatch.setattr(describe, "make_gate", lambda _, inputs: Choosing(inputs))
    found = describe.shown(Choosing(), facts("dgx_h100"), ["node01"])
    assert [command["line"] for command in found["commands"]] == ["true", "all_reduce_perf"]
    (variant,) = found["variants"]
    assert (variant["choice"], variant["value"], [command["line"] for command in variant["commands"]]) == (
        "collective",
        "alltoall",
        ["alltoall_perf"],
    )


LOOKS = (("list",), ("show", INVENTORY, "--profile", "dgx_h100"), ("explain", INVENTORY, "--profile", "dgx_h100"))


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look[0])
def test_an_environment_that_was_named_and_is_none_is_refused(
    call: Any,  # noqa: ANN401
    look: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    none = (
        f"{tmp_path}/inventories/nope/site.yml: 1 problem; nothing was changed.\n  no such file. "
        "Name an environment with --env: sim.\n"
    )
    outside = (
        "--env ../x - Expected: a plain name such as prod (letters, digits, - _ .) Actual: '../x'. "
        "Give the name of a folder in inventories/.\n"
    )
    assert call("gate", *look, "--env", "nope") == (2, "", none)
    assert call("gate", *look, "--env", "../x") == (2, "", outside)
    monkeypatch.setenv("ENV", "nope")
    assert call("gate", *look) == (2, "", none)


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look[0])
def test_a_site_file_that_is_broken_is_refused_also_where_nobody_named_it(
    call: Any,  # noqa: ANN401
    look: tuple[str, ...],
    tmp_path: Path,
) -> None:
    site = tmp_path / "inventories/sim/site.yml"
    site.write_text("racks: [", encoding="utf-8")
    wrong = (
        f"{site}: 1 problem; nothing was changed.\n  line 1, column 9: not valid YAML: expected the node content, "
        "but found '<stream end>'. Correct the file.\n"
    )
    assert call("gate", *look) == (2, "", wrong)


def test_without_a_site_file_gates_are_listed_and_it_is_said(call: Any, tmp_path: Path) -> None:  # noqa: ANN401
    (tmp_path / "inventories/sim/site.yml").unlink()
    code, out, err = call("gate", "list", "--output", "json")
    assert (code, err) == (0, "sim has no site file: its gate set is unknown\n")
    assert not any(row["in_set"] for row in json.loads(out)["gates"])
    assert call("gate", "list", "--env", "sim")[:2] == (2, "")
