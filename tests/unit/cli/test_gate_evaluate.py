"""`rackready gate evaluate`: what an output that was captured elsewhere does not say of itself, and its options do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gates.test_published_runs import RUNS, Evidence, counters, known, log, table

ROOT = Path(__file__).resolve().parents[3]
FIXTURES = ROOT / "tests/fixtures"
GATHER = "cluster/fabric/performance/nccl-all-gather"
COPIES = "node/gpu/performance/nvbandwidth"
INVENTORY = "node/gpu/sanity/inventory"


@pytest.fixture
def evaluate(call: Any) -> Any:  # noqa: ANN401
    """Call the command; returns (exit code, standard output, standard error)."""
    return lambda *arguments: call("gate", "evaluate", *arguments)


@pytest.fixture
def captured(tmp_path: Path) -> list[str]:
    """The published all-gather of two nodes on EFA, with evidence of its transport, as --input options."""
    run = next(run for run in RUNS if (run.platform, run.collective) == ("dgx_h100", "all_gather"))
    site, evidence = known(run), Evidence(run.busbw)
    texts = {"launch0": log(run, site, evidence) + table(run, site, run.busbw)}
    texts |= {key: said.stdout for key, said in counters(run, site, evidence).items()}
    for key, text in texts.items():
        (tmp_path / key).write_text(text, encoding="utf-8")
    return [word for key in texts for word in ("--input", f"{key}={tmp_path / key}")]


def test_the_plugin_that_nccl_must_use_is_said(evaluate: Any, captured: list[str]) -> None:  # noqa: ANN401
    code, out, _ = evaluate(GATHER, "--profile", "dgx_h100", "--nodes", "2", "--nccl-net", "ofi", *captured)
    assert (code, out.splitlines()[0]) == (0, f"{GATHER}: pass")
    code, out, _ = evaluate(GATHER, "--profile", "dgx_h100", "--nodes", "2", *captured)
    assert (code, out.splitlines()[0]) == (1, f"{GATHER}: fail")
    assert "NCCL transport - Expected: NET/IB Actual: AWS Libfabric, " in out


def test_a_plugin_or_fabric_that_is_none_is_refused(evaluate: Any, captured: list[str]) -> None:  # noqa: ANN401
    for option, word in (("--nccl-net", "tcp"), ("--fabric", "omnipath")):
        code, _, err = evaluate(GATHER, "--profile", "dgx_h100", option, word, *captured)
        assert code == 2
        assert f"'{word}' is not one of" in err


def test_what_is_rated_by_time_takes_how_long_it_ran(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    before = (FIXTURES / "smi/dgx_h100_healthy.xml").read_text(encoding="utf-8")
    (tmp_path / "after").write_text(before.replace("<replay_counter>0<", "<replay_counter>1<", 1), encoding="utf-8")
    (tmp_path / "before").write_text(before, encoding="utf-8")
    files = {"before": tmp_path / "before", "copy-0": FIXTURES / "nvbandwidth/dgx_h100_healthy.json", "after": tmp_path / "after"}
    given = [word for key, path in files.items() for word in ("--input", f"{key}={path}")]
    code, out, _ = evaluate(COPIES, "--profile", "dgx_h100", *given)
    assert (code, "0 before, 1 after, in a time that is not known" in out) == (2, True)
    code, out, _ = evaluate(COPIES, "--profile", "dgx_h100", "--seconds", "copy-0=60", *given)
    assert "in a time that is not known" not in out
    assert "pcie_replays_per_minute on node01/gpu" in out
    code, _, err = evaluate(COPIES, "--profile", "dgx_h100", "--seconds", "soon", *given)
    assert (code, err.splitlines()[-1].startswith("--seconds soon - Expected: a number, or KEY=NUMBER with KEY one of before, ")) == (2, True)


def test_what_a_container_said_elsewhere_needs_no_image_of_the_site(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    gpus = "".join(f"{gpu}, GPU-{gpu}\n" for gpu in range(8))
    for key, text in {"host": gpus, "runtime": "podman version 4.3.1\n", "container": gpus, "fewer": gpus.replace("3, GPU-3\n", "")}.items():
        (tmp_path / key).write_text(text, encoding="utf-8")
    given = ["node/gpu/validation/container-run", "--profile", "dgx_h100", "--input", f"host={tmp_path}/host", "--input", f"runtime={tmp_path}/runtime"]
    code, out, _ = evaluate(*given, "--input", f"container={tmp_path}/container")
    assert (code, out.splitlines()[0]) == (0, "node/gpu/validation/container-run: pass")
    code, out, _ = evaluate(*given, "--input", f"container={tmp_path}/fewer")
    assert (code, "node01 gpu3: not seen in a container - Expected: GPU-3 Actual: 7 GPUs without it." in out) == (1, True)


def test_an_output_is_given_once_and_no_file_is_dropped(evaluate: Any) -> None:  # noqa: ANN401
    """A file that was overwritten by another of the same command was never judged: a lost GPU passed."""
    lost, whole = (str(FIXTURES / f"nvml/dgx_h100_{name}.json") for name in ("gpu5_lost", "healthy"))
    for given in ((lost, f"inventory={whole}"), (f"inventory={lost}", whole), (f"inventory={lost}", f"inventory={whole}")):
        code, out, err = evaluate(INVENTORY, "--profile", "dgx_h100", "--input", given[0], "--input", given[1])
        said = f"--input {given[1]} - Expected: one file for inventory Actual: {lost} and {whole}. Give each output once."
        assert (code, out, err.splitlines()[-1]) == (2, "", said)


def test_standard_input_is_read_for_one_command(evaluate: Any) -> None:  # noqa: ANN401
    code, _, err = evaluate(COPIES, "--profile", "dgx_h100", "--input", "before=-", "--input", "after=-")
    said = "--input - - Expected: one output from standard input Actual: before, after. Give files for the others."
    assert (code, err.splitlines()[-1]) == (2, said)
