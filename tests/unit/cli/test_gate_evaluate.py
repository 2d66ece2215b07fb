"""`rackready gate evaluate`: what an output that was captured elsewhere does not say of itself, and its options do."""

from __future__ import annotations

import io
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rackready.cli import captured_inputs
from rackready.cli.output import progress
from tests.gates.test_published_runs import RUNS, Evidence, counters, known, log, table

ROOT = Path(__file__).resolve().parents[3]
FIXTURES = ROOT / "tests/fixtures/made"
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
    after = before.replace("<replay_counter>0<", "<replay_counter>1<", 1).replace("06:00:00", "06:01:00")
    (tmp_path / "after").write_text(after, encoding="utf-8")
    (tmp_path / "before").write_text(before, encoding="utf-8")
    files = {
        "before": tmp_path / "before",
        "copy-0": FIXTURES / "nvbandwidth/dgx_h100_healthy.json",
        "after": tmp_path / "after",
    }
    given = [word for key, path in files.items() for word in ("--input", f"{key}={path}")]
    code, out, _ = evaluate(COPIES, "--profile", "dgx_h100", *given)
    assert (code, "0 before, 1 after, in an unknown time" in out) == (2, True)
    code, out, _ = evaluate(COPIES, "--profile", "dgx_h100", "--seconds", "copy-0=60", *given)
    assert "in an unknown time" not in out
    assert "pcie_replays_per_minute on node01/gpu" in out
    code, _, err = evaluate(COPIES, "--profile", "dgx_h100", "--seconds", "soon", *given)
    assert (
        code,
        err.splitlines()[-1].startswith(
            "--seconds soon - Expected: a number of seconds, or KEY=NUMBER with KEY one of before, "
        ),
    ) == (2, True)


def test_what_a_container_said_elsewhere_needs_no_image_of_the_site(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    gpus = "".join(f"{gpu}, GPU-{gpu}\n" for gpu in range(8))
    for key, text in {
        "host": gpus,
        "runtime": "podman version 4.3.1\n",
        "container": gpus,
        "fewer": gpus.replace("3, GPU-3\n", ""),
    }.items():
        (tmp_path / key).write_text(text, encoding="utf-8")
    given = [
        "node/gpu/validation/container-run",
        "--profile",
        "dgx_h100",
        "--input",
        f"host={tmp_path}/host",
        "--input",
        f"runtime={tmp_path}/runtime",
    ]
    code, out, _ = evaluate(*given, "--input", f"container={tmp_path}/container")
    assert (code, out.splitlines()[0]) == (0, "node/gpu/validation/container-run: pass")
    code, out, _ = evaluate(*given, "--input", f"container={tmp_path}/fewer")
    assert (code, "node01 gpu3: not seen in a container - Expected: GPU-3 Actual: 7 GPUs without it." in out) == (
        1,
        True,
    )


def test_an_output_is_given_once_and_no_file_is_dropped(evaluate: Any) -> None:  # noqa: ANN401
    """A file that was overwritten by another of the same command was never judged: a lost GPU passed."""
    lost, whole = (str(FIXTURES / f"nvml/dgx_h100_{name}.json") for name in ("gpu5_lost", "healthy"))
    for given in (
        (lost, f"inventory={whole}"),
        (f"inventory={lost}", whole),
        (f"inventory={lost}", f"inventory={whole}"),
    ):
        code, out, err = evaluate(INVENTORY, "--profile", "dgx_h100", "--input", given[0], "--input", given[1])
        said = (
            f"--input {given[1]} - Expected: one file for inventory Actual: {lost} and {whole}. Give each output once."
        )
        assert (code, out, err.splitlines()[-1]) == (2, "", said)


def test_standard_input_is_read_for_one_command(evaluate: Any) -> None:  # noqa: ANN401
    code, _, err = evaluate(COPIES, "--profile", "dgx_h100", "--input", "before=-", "--input", "after=-")
    said = "--input - - Expected: one output from standard input Actual: before, after. Give files for the others."
    assert (code, err.splitlines()[-1]) == (2, said)


def options(*items: str | Path) -> list[str]:
    return [word for item in items for word in ("--input", str(item))]


SMI, COPIED = FIXTURES / "smi/dgx_h100_healthy.xml", FIXTURES / "nvbandwidth/dgx_h100_healthy.json"


def test_files_without_a_key_go_to_the_commands_in_their_order(evaluate: Any, captured: list[str]) -> None:  # noqa: ANN401
    """How many launches there were, the files say: two more than the readings before and after are two launches."""
    readings = ["--seconds", "60", "--profile", "dgx_h100"]
    for given in (
        (SMI, COPIED, SMI),
        (SMI, COPIED, COPIED, SMI),
    ):  # one report for both ends: every file has found its command, and that is refused
        code, out, err = evaluate(COPIES, *readings, *options(*given))
        assert (code, out.splitlines()[0]) == (2, f"{COPIES}: error"), err
    files = dict(item.split("=", 1) for item in captured if item != "--input")
    order = ["before-node01", "before-node02", "launch0", "after-node01", "after-node02"]
    code, out, _ = evaluate(
        GATHER, "--profile", "dgx_h100", "--nodes", "2", "--nccl-net", "ofi", *options(*(files[key] for key in order))
    )
    assert (code, out.splitlines()[0]) == (0, f"{GATHER}: pass")


def test_launches_are_counted_by_their_keys_whatever_these_are_called(evaluate: Any) -> None:  # noqa: ANN401
    given = options(f"before={SMI}", f"copy-1={COPIED}", f"copy-0={COPIED}", f"after={SMI}")
    code, out, err = evaluate(COPIES, "--profile", "dgx_h100", "--seconds", "60", *given)
    assert (code, out.splitlines()[0]) == (2, f"{COPIES}: error"), err
    assert "was not run" not in out, "every file has found its command"


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        (["befor"], "before, copy-0, after"),
        (["copy-21", "before"], "before, copy-0, after"),
        (["copy-0", "copy-1", "befor"], "before, copy-0, copy-1, after"),
    ],
    ids=["misspelled", "beyond the most", "misspelled beside launches"],
)
def test_a_key_of_no_command_is_said_with_those_that_there_are(evaluate: Any, given: list[str], keys: str) -> None:  # noqa: ANN401
    code, _, err = evaluate(COPIES, "--profile", "dgx_h100", *options(*(f"{key}={SMI}" for key in given)))
    wrong = next(key for key in given if key in {"befor", "copy-21"})
    said = (
        f"--input {wrong}={SMI} - Expected: at most {keys.count(',') + 1} files, or KEY=FILE with KEY one of "
        f"{keys}. Correct it."
    )
    assert (code, err.splitlines()[-1]) == (2, said)


def test_a_file_with_a_sign_of_equality_in_its_name_is_a_file(
    evaluate: Any,  # noqa: ANN401
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "node=3.json").write_bytes((FIXTURES / "nvml/dgx_h100_healthy.json").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert evaluate(INVENTORY, "--profile", "dgx_h100", *options("node=3.json"))[0] == 0


def test_an_output_that_was_not_given_is_asked_for(evaluate: Any) -> None:  # noqa: ANN401
    code, out, _ = evaluate(COPIES, "--profile", "dgx_h100", *options(f"before={SMI}"))
    step = "Give its output with --input KEY=FILE; without one: copy-0, after."
    assert (code, out.splitlines()[1]) == (
        2,
        f"  node01: nvbandwidth was not run - Expected: an output Actual: none. {step}",
    )


def test_a_gate_whose_commands_stand_in_a_site_file_is_refused(evaluate: Any) -> None:  # noqa: ANN401
    gate = "rack/power/sanity/devices"
    code, _, err = evaluate(gate, "--profile", "dgx_h100", *options(SMI))
    said = (
        f"gate {gate} - Expected: a gate with commands on dgx_h100 Actual: none, because it checks the site file. "
        "Use `rackready gate run`."
    )
    assert (code, err.splitlines()[-1]) == (2, said)


@pytest.mark.parametrize(
    ("option", "given", "said"),
    [
        (
            "--exit-code",
            ["--1"],
            "--exit-code --1 - Expected: a whole number, or KEY=NUMBER with KEY one of inventory. Correct it.",
        ),
        (
            "--exit-code",
            ["\u00b2"],
            "--exit-code \u00b2 - Expected: a whole number, or KEY=NUMBER with KEY one of inventory. Correct it.",
        ),
        (
            "--exit-code",
            ["1.5"],
            "--exit-code 1.5 - Expected: a whole number, or KEY=NUMBER with KEY one of inventory. Correct it.",
        ),
        (
            "--seconds",
            ["-1"],
            "--seconds -1 - Expected: a number of seconds, or KEY=NUMBER with KEY one of inventory. Correct it.",
        ),
        (
            "--exit-code",
            ["inventory=3", "inventory=0"],
            "--exit-code inventory=0 - Expected: one number for inventory Actual: another before it. Give each once.",
        ),
        (
            "--exit-code",
            ["3", "0"],
            "--exit-code 0 - Expected: one number for all commands Actual: another before it. Give each once.",
        ),
    ],
    ids=["two signs", "a superscript", "a fraction", "before it began", "a command twice", "all twice"],
)
def test_numbers_are_refused_in_words(evaluate: Any, option: str, given: list[str], said: str) -> None:  # noqa: ANN401
    whole = options(FIXTURES / "nvml/dgx_h100_healthy.json")
    code, _, err = evaluate(INVENTORY, "--profile", "dgx_h100", *whole, *(f"{option}={item}" for item in given))
    assert (code, err.splitlines()[-1]) == (2, said)


def test_seconds_may_have_a_fraction_and_one_command_goes_before_all(evaluate: Any) -> None:  # noqa: ANN401
    whole = options(FIXTURES / "nvml/dgx_h100_healthy.json")
    assert evaluate(INVENTORY, "--profile", "dgx_h100", *whole, "--seconds", "1.5")[0] == 0
    assert (
        evaluate(INVENTORY, "--profile", "dgx_h100", *whole, "--exit-code", "inventory=0", "--exit-code", "3")[0] == 0
    )


def test_an_output_that_does_not_end_is_refused(evaluate: Any) -> None:  # noqa: ANN401
    code, _, err = evaluate(INVENTORY, "--profile", "dgx_h100", *options("/dev/zero"))
    said = (
        "--input /dev/zero - Expected: at most 256 MiB Actual: more. "
        "Give the output of one command: `rackready gate show` lists them."
    )
    assert (code, err.splitlines()[-1]) == (2, said)


def test_standard_input_that_is_closed_is_refused(evaluate: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    monkeypatch.setattr(sys, "stdin", None)
    code, _, err = evaluate(INVENTORY, "--profile", "dgx_h100", *options("-"))
    assert (code, err.splitlines()[-1]) == (
        2,
        "--input - - Expected: standard input that is open Actual: closed. Give a file, or pipe the output in.",
    )


def test_a_folder_or_a_file_that_is_not_there_is_refused(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    for path, why in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file or directory")):
        code, _, err = evaluate(INVENTORY, "--profile", "dgx_h100", *options(path))
        assert (code, err.splitlines()[-1]) == (
            2,
            f"--input {path} - Expected: a readable file Actual: {why}. Correct the path.",
        )


def test_a_pipe_is_read_to_its_end_and_the_wait_for_it_is_said(
    evaluate: Any,  # noqa: ANN401
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a shell's <(...) makes them; the writer comes once the line was printed."""
    pipe, printed = tmp_path / "pipe", threading.Event()
    os.mkfifo(pipe)
    monkeypatch.setattr(captured_inputs, "_PATIENCE_S", 0.01)
    say = progress.print

    def told(text: str) -> None:
        say(text)
        printed.set()

    monkeypatch.setattr(progress, "print", told)

    def write() -> None:
        assert printed.wait(60)
        pipe.write_bytes((FIXTURES / "nvml/dgx_h100_healthy.json").read_bytes())

    writer = threading.Thread(target=write)
    writer.start()
    code, out, err = evaluate(INVENTORY, "--profile", "dgx_h100", *options(pipe))
    writer.join()
    assert (code, out.startswith(f"{INVENTORY}: pass ")) == (0, True)
    assert err.splitlines()[-1] == f"--input {pipe}: waiting for its end; Ctrl-C stops"


def test_ends_of_lines_and_bytes_that_are_no_text_are_read_as_of_any_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured_inputs, "_BLOCK", 1)
    assert captured_inputs._text("x", io.BytesIO("a\r\n\u00fc\r".encode() + b"\xff")) == "a\n\u00fc\n\ufffd"


def test_a_launch_is_judged_behind_the_prefixes_of_kubectl_and_mpirun(evaluate: Any, captured: list[str]) -> None:  # noqa: ANN401
    """As `kubectl logs --prefix` prints an MPIJob's launcher with `mpirun --tag-output`.

    NCCL's lines come from every rank, the table comes from the first.
    """
    path = Path(next(item for item in captured if item.startswith("launch0=")).split("=", 1)[1])
    lines = path.read_text(encoding="utf-8").splitlines()
    ranks = {
        pid: rank
        for rank, pid in enumerate(dict.fromkeys(line.split(":")[1] for line in lines if " NCCL INFO " in line))
    }
    tagged = [f"[1,{ranks[line.split(':')[1]] if ' NCCL INFO ' in line else 0}]<stdout>:{line}" for line in lines]
    path.write_text("".join(f"[pod/nccl-launcher-x7/launcher] {line}\n" for line in tagged), encoding="utf-8")
    given = [GATHER, "--profile", "dgx_h100", "--nodes", "2", "--nccl-net", "ofi", *captured]
    code, out, err = evaluate(*given)
    assert (code, out.splitlines()[0]) == (0, f"{GATHER}: pass")
    words = (
        f"judged without kubectl's pod/nccl-launcher-x7/launcher and mpirun's tags of {len(ranks)} ranks, [1,0], "
        "[1,1], [1,2], [1,3], ..."
    )
    assert err.splitlines()[-1].endswith(words)
    path.write_text(
        path.read_text(encoding="utf-8").replace("launcher-x7/launcher] [1,0]", "worker-0/worker] [1,0]", 1),
        encoding="utf-8",
    )
    code, out, err = evaluate(*given)
    assert (code, out, "Expected: lines of one container Actual: 2 (pod/nccl-" in err) == (2, "", True)
