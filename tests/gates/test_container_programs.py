"""The optional programs in containers, HPL and an inference benchmark: how they start, and how outputs are judged."""

from __future__ import annotations

import pytest

from rackready.gates.engine.registry import gate
from rackready.model.outcome import Outcome, Verdict
from tests.gates.support import Said, outputs, rack

IMAGE = {"image": "registry.example/pytorch:25.10"}


def finished(passed: int, failed: int = 0, skipped: int = 0) -> str:
    """The end of HPL's output."""
    return f"""
Finished {passed + failed + skipped:6d} tests with the following results:
         {passed:6d} tests completed and passed residual checks,
         {failed:6d} tests completed and failed residual checks,
         {skipped:6d} tests skipped because of illegal input values.
--------------------------------------------------------------------------------

End of Tests.
================================================================================
"""


HPL = """ Prog= 98.71%   N_left= 6144   Time=   33.60    Time_left=   0.05       iGF= 301543.10 GF= 365333.94  \
GF_per= 45666.74
================================================================================
T/V                N    NB     P     Q         Time          Gflops (   per GPU)
--------------------------------------------------------------------------------
WC0           264192  1024     4     2        33.65       3.654e+05 ( 4.567e+04)

HPL_pdgesv() start time Tue Nov  4 23:23:45 2025
HPL_pdgesv() end time   Tue Nov  4 23:24:19 2025

--------------------------------------------------------------------------------
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   0.000521840189 ...... PASSED
||Ax-b||_oo  . . . . . . . . . . . . . . . . . = 0.0000000061268288
||A||_oo . . . . . . . . . . . . . . . . . . . = 66391.3885435541742481
||x||_oo . . . . . . . . . . . . . . . . . . . = 5.2804384307618703
||b||_oo . . . . . . . . . . . . . . . . . . . = 0.4999994346680141
================================================================================
"""
READ = (
    "Read its raw output in the report; check the image, and that the node's container toolkit offers the GPUs (CDI)."
)
UNREADABLE = (
    "HPL unreadable - Expected: results with their residual checks, and one summary with the same counts Actual:"
)
NETLIB = """T/V                N    NB     P     Q               Time                 Gflops
--------------------------------------------------------------------------------
WR01C2L8      102144   192     4     2             514.92              1.380e+03
--------------------------------------------------------------------------------
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=        0.0020152 ...... PASSED
"""
NO_HPL_SH = """--------------------------------------------------------------------------
mpirun was unable to find the specified executable file, and therefore
did not launch the job.
--------------------------------------------------------------------------
"""
VLLM = """INFO 11-01 10:00:00 [gpu_model_runner.py:1800] done
Throughput: 41.22 requests/s, 21103.55 total tokens/s, 5275.89 output tokens/s
Total num prompt tokens:  384000
Total num output tokens:  128000
"""
TRTLLM = """===========================================================
= PERFORMANCE OVERVIEW
===========================================================
Request Throughput (req/sec):                     141.3968
Total Output Throughput (tokens/sec):             18098.7904
Total Token Throughput (tokens/sec):              36197.5808
Total Latency (ms):                               21216.8790
Average request latency (ms):                     15698.2533
Per User Output Throughput [w/ ctx] (tps/user):   8.2584
Per GPU Output Throughput (tps/gpu):              2262.3488
"""
TRTLLM_FIRST = """= PERFORMANCE OVERVIEW
===========================================================
Number of requests:             3000
Token Throughput (tokens/sec):  28390.4265
Request Throughput (req/sec):   221.8002
"""
SERVING = "Output token throughput (tok/s):         434.40\nTotal Token throughput (tok/s):          868.80\n"


def program(gate_id: str, stdout: str, code: int = 0) -> Verdict:
    known = rack(1)
    whole = (
        {"command": ["vllm", "bench", "throughput", "--tensor-parallel-size", "8"]}
        if gate_id.endswith("inference")
        else {}
    )
    found = gate(gate_id, IMAGE | whole)
    run = found.plan(known, list(known.nodes))[0]
    return found.evaluate(known, run, outputs(run, {"program": Said(stdout, exit_code=code)}))


@pytest.mark.parametrize(
    ("old", "new", "expected", "actual"),
    [
        ("        33.65 ", "       336.50 ", "3.653e+04 Gflops", "3.654e+05 Gflops of N 264192 in 336.50 s"),
        ("        33.65 ", "        33.68 ", "3.650e+05 Gflops", "3.654e+05 Gflops of N 264192 in 33.68 s"),
        ("264192", "  1000", "1.986e-02 Gflops", "3.654e+05 Gflops of N 1000 in 33.65 s"),
        (
            "3.654e+05 ( 4.567e+04)",
            "3.661e+05 ( 4.576e+04)",
            "3.653e+05 Gflops",
            "3.661e+05 Gflops of N 264192 in 33.65 s",
        ),
    ],
)
def test_hpls_size_time_and_rate_agree(old: str, new: str, expected: str, actual: str) -> None:
    assert old in HPL
    verdict = program("node/gpu/stress/hpl", HPL.replace(old, new) + finished(1))
    message = (
        f"node01: HPL contradicts itself - Expected: {expected} (2/3 N^3 + 3/2 N^2 over time) Actual: {actual}. {READ}"
    )
    assert ([str(finding) for finding in verdict.findings], verdict.outcome) == ([message], Outcome.ERROR)


def test_hpl_in_no_time_is_no_measurement() -> None:
    verdict = program("node/gpu/stress/hpl", HPL.replace("        33.65 ", "         0.00 ") + finished(1))
    message = (
        "node01: HPL contradicts itself - Expected: a time above 0 s "
        f"Actual: 3.654e+05 Gflops of N 264192 in 0.00 s. {READ}"
    )
    assert ([str(finding) for finding in verdict.findings], verdict.outcome) == ([message], Outcome.ERROR)


@pytest.mark.parametrize(
    ("gate_id", "stdout", "code", "outcome", "words"),
    [
        ("node/gpu/stress/hpl", HPL + finished(1), 0, Outcome.PASS, ""),
        (
            "node/gpu/stress/hpl",
            NETLIB + finished(1),
            0,
            Outcome.ERROR,
            (
                "node01: HPL did not run on GPUs - Expected: a rate per GPU in brackets, as NVIDIA's HPL "
                "prints it Actual: 1.380e+03 alone. Run the HPL of NVIDIA's HPC benchmarks (input "
                "image): HPL for CPUs shows nothing about GPUs."
            ),
        ),
        (
            "node/gpu/stress/hpl",
            HPL.replace("   33.65       3.654e+05 ( 4.567e+04)", "361568.1       3.400e+01 ( 4.250e+00)") + finished(1),
            0,
            Outcome.FAIL,
            (
                "node01: HPL is slow - Expected: at least 274.2 TFLOPS (derived: 0.75 x 45.7 TFLOPS x 8 GPUs; "
                "Voltage Park, 8 x H100 SXM "
                "(aigatech/vpbenchmarking): 365.4 TFLOPS a node) Actual: 0.034 TFLOPS."
            ),
        ),
        (
            "node/gpu/stress/hpl",
            HPL.replace("33.65       3.654e+05 ( 4.567e+04)", "3.365       3.654e+06 ( 4.567e+05)") + finished(1),
            0,
            Outcome.ERROR,
            (
                "node01: HPL is implausible - Expected: at most 535.2 TFLOPS (NVIDIA Hopper architecture white "
                "paper: H100 SXM5, peak FP64 tensor core) "
                "Actual: 3654.0 TFLOPS."
            ),
        ),
        (
            "node/gpu/stress/hpl",
            HPL.replace("( 4.567e+04)", "( 9.135e+04)") + finished(1),
            0,
            Outcome.ERROR,
            "node01: HPL contradicts itself - Expected: 3.654e+05 Gflops over 8 GPUs Actual: 9.135e+04 Gflops a GPU.",
        ),
        ("node/gpu/stress/hpl", HPL, 0, Outcome.ERROR, f"{UNREADABLE} 1 results, 1 checks, 0 summaries."),
        (
            "node/gpu/stress/hpl",
            HPL + finished(1, skipped=1),
            0,
            Outcome.ERROR,
            f"{UNREADABLE} 1 results, 1 checks, and it reports 2 tests.",
        ),
        (
            "node/gpu/stress/hpl",
            HPL + finished(0, 1),
            0,
            Outcome.ERROR,
            f"{UNREADABLE} 1 results, 1 checks, and it reports 1 tests.",
        ),
        (
            "node/gpu/stress/hpl",
            NO_HPL_SH,
            134,
            Outcome.ERROR,
            "HPL failed - Expected: exit code 0 Actual: exit code 134: did not launch the job.",
        ),
        (
            "node/gpu/stress/hpl",
            HPL + HPL.replace(" ...... PASSED", "") + finished(1, 1),
            0,
            Outcome.ERROR,
            "2 results, 1 checks, and it reports 2 tests.",
        ),
        (
            "node/gpu/stress/hpl",
            HPL.replace("PASSED", "FAILED") + finished(0, 1),
            0,
            Outcome.FAIL,
            "node01: HPL residual - Expected: PASSED Actual: FAILED.",
        ),
        (
            "node/gpu/stress/hpl",
            HPL.replace("     4     2 ", "     2     2 ") + finished(1),
            0,
            Outcome.ERROR,
            "a grid of 8 Actual: 2 x 2.",
        ),
        (
            "node/gpu/stress/hpl",
            HPL.partition("||Ax")[0],
            0,
            Outcome.ERROR,
            "HPL unreadable",
        ),
        (
            "node/gpu/stress/hpl",
            "",
            125,
            Outcome.ERROR,
            "HPL failed - Expected: exit code 0 Actual: exit code 125: nothing said.",
        ),
        ("node/gpu/performance/inference", VLLM, 0, Outcome.PASS, ""),
        ("node/gpu/performance/inference", TRTLLM, 0, Outcome.PASS, ""),
        ("node/gpu/performance/inference", TRTLLM_FIRST, 0, Outcome.PASS, ""),
        ("node/gpu/performance/inference", VLLM + TRTLLM, 0, Outcome.ERROR, "inference benchmark unreadable"),
        (
            "node/gpu/performance/inference",
            TRTLLM.replace("36197.5808", "36,197.58"),
            0,
            Outcome.ERROR,
            "(vLLM or TensorRT-LLM) Actual: Total Token Throughput (tokens/sec): 36,197.58.",
        ),
        ("node/gpu/performance/inference", SERVING, 0, Outcome.ERROR, "inference benchmark unreadable"),
        (
            "node/gpu/performance/inference",
            TRTLLM.replace("36197.5808", "0.0000"),
            0,
            Outcome.FAIL,
            "node01: inference - Expected: tokens Actual: 0 tokens/s.",
        ),
        (
            "node/gpu/performance/inference",
            VLLM.replace("21103.55", "0.00"),
            0,
            Outcome.FAIL,
            "node01: inference - Expected: tokens Actual: 0 tokens/s.",
        ),
        ("node/gpu/performance/inference", "done\n", 0, Outcome.ERROR, "inference benchmark unreadable"),
    ],
)
def test_programs_in_containers(gate_id: str, stdout: str, code: int, outcome: Outcome, words: str) -> None:
    verdict = program(gate_id, stdout, code)
    assert verdict.outcome is outcome
    assert words in " ".join(str(finding) for finding in verdict.findings)
    assert verdict.fleet_pending is (outcome is Outcome.PASS)


@pytest.mark.parametrize(
    ("gate_id", "stdout", "metric", "value"),
    [
        ("node/gpu/stress/hpl", HPL + finished(1), "hpl", 365.4),
        ("node/gpu/stress/hpl", NETLIB + finished(1), "hpl", 1.38),
        ("node/gpu/stress/hpl", NETLIB + HPL + finished(2), "hpl", 365.4),
        ("node/gpu/performance/inference", VLLM, "tokens_per_second", 21103.55),
        ("node/gpu/performance/inference", TRTLLM, "tokens_per_second", 36197.5808),
        ("node/gpu/performance/inference", TRTLLM_FIRST, "tokens_per_second", 28390.4265),
    ],
    ids=["NVIDIA's HPL", "Netlib's HPL", "the best of two sizes", "vLLM", "TensorRT-LLM", "TensorRT-LLM 0.12"],
)
def test_the_figure_of_each_program_is_the_one_that_is_meant(
    gate_id: str, stdout: str, metric: str, value: float
) -> None:
    assert {found.name: found.value for found in program(gate_id, stdout).metrics} == {metric: pytest.approx(value)}
    assert [found.name for found in gate(gate_id).fleet] == [metric], "only its fleet can judge it"


def test_hpl_is_started_from_the_working_directory_of_its_image() -> None:
    [command] = gate("node/gpu/stress/hpl", IMAGE).plan(rack(1), ["node01"])[0].commands
    mpirun = "mpirun --allow-run-as-root -np 8 --bind-to none ./hpl.sh --dat hpl-linux-x86_64/sample-dat/HPL-8GPUs.dat"
    assert " ".join(command.argv).endswith(f" {IMAGE['image']} {mpirun}")
