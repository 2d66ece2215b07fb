"""A container that is really started: what it sees of the GPUs, and every way in which it does not come to that, word for word.

What podman and docker say is theirs: podman 4.4 (NVIDIA/nvidia-container-toolkit issue 146), podman 5 (podman issue 22500, NVIDIA/nvidia-container-runtime
issue 190), docker (NVIDIA/nvidia-docker issue 1668, NVIDIA/nvidia-container-toolkit issue 434).
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers.remote import Answer
from rackready.gates.base import Output
from rackready.gates.engine.registry import gate
from rackready.gates.engine.validate import Stage
from rackready.model.operations import DeclaredSkip
from rackready.model.outcome import Outcome, Verdict
from rackready.model.profile import GateSetEntry
from tests.gates.fake import Reply
from tests.gates.stage import fingerprint_of, site_with, stage_of
from tests.gates.support import Case, Said, check, outputs, rack, tells

GATE = "node/gpu/validation/container-run"
IMAGE = "registry.example/cuda:13.0-base"
INPUTS = {"image": IMAGE}
UUIDS = [f"GPU-5f9c1c6e-52a5-4a4e-9d0c-6f2f1a5a7b1{gpu}" for gpu in range(8)]
GPUS = "".join(f"{gpu}, {uuid}\n" for gpu, uuid in enumerate(UUIDS))
PODMAN, DOCKER = Said("podman version 4.3.1\n"), Said("Docker version 27.5.1, build 9f9e405\n")
OF = f"image={IMAGE}"
NO_HOST = (
    f"initializing source docker://{IMAGE}: pinging container registry registry.example: Get "
    '"https://registry.example/v2/": dial tcp: lookup registry.example: no such host'
)
CDI = "setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all"
HOOK = 'could not select device driver "" with capabilities: [[gpu]]'
RUNC = (
    "failed to create task for container: failed to create shim task: OCI runtime create "
    'failed: runc create failed: unable to start container process: exec: "nvidia-smi": '
    "executable file not found in $PATH: unknown"
)
CRUN = (
    "crun: executable file `nvidia-smi` not found in $PATH: No such file or directory: OCI "
    "runtime attempted to invoke a command that was not found"
)
SMI = "nvidia-smi, put there by the Container Toolkit"
DRIVER = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"


def answered(inside: Said, *, host: Said | None = None, runtime: Said = PODMAN) -> Mapping[str, Said]:
    return {"host": host or Said(GPUS), "runtime": runtime, "container": inside}


def without(*lost: int) -> str:
    return "".join(line for gpu, line in enumerate(GPUS.splitlines(keepends=True)) if gpu not in lost)


OTHER = GPUS.replace(UUIDS[3], "GPU-00000000-0000-0000-0000-000000000000")
DOCKERS = {**INPUTS, "runtime": "docker"}

CASES = [
    Case("sees all", answered(Said(GPUS)), Outcome.PASS, inputs=INPUTS),
    Case(
        "numbers them otherwise",
        answered(Said("".join(f"{7 - gpu}, {uuid}\n" for gpu, uuid in enumerate(UUIDS)))),
        Outcome.PASS,
        inputs=INPUTS,
    ),
    Case("docker", answered(Said(GPUS), runtime=DOCKER), Outcome.PASS, inputs=DOCKERS),
    Case(
        "one fewer",
        answered(Said(without(5))),
        Outcome.FAIL,
        (("container-gpu-not-seen", "node01 gpu5", f"{UUIDS[5]}", "7 GPUs without it"),),
        INPUTS,
    ),
    Case(
        "another in its place",
        answered(Said(OTHER)),
        Outcome.FAIL,
        (
            ("container-gpu-not-seen", "node01 gpu3", f"{UUIDS[3]}", "8 GPUs without it"),
            ("container-other-gpus", "node01", "those of the host", "also GPU-00000000-0000-0000-0000-000000000000"),
        ),
        INPUTS,
    ),
    Case(
        "a GPU gone from host and container",
        answered(Said(without(5)), host=Said(without(5))),
        Outcome.FAIL,
        (("container-driver-gpus-missing", "node01", "8", "7"),),
        INPUTS,
    ),
    Case(
        "no GPU inside",
        answered(Said("No devices were found\n", exit_code=6)),
        Outcome.FAIL,
        (("container-no-gpus", "node01", "those of the host", "exit code 6: No devices were found"),),
        INPUTS,
    ),
    Case(
        "stale library",
        answered(Said(DRIVER, exit_code=18)),
        Outcome.FAIL,
        (
            (
                "container-no-gpus",
                "node01",
                "those of the host",
                "exit code 18: Failed to initialize NVML: Driver/library version mismatch",
            ),
        ),
        INPUTS,
    ),
    Case(
        "CDI without them",
        answered(Said("", f"Error: {CDI}\n", 126)),
        Outcome.FAIL,
        (
            (
                "container-runtime-gives-no-gpus",
                "node01",
                "a container with all GPUs",
                f"exit code 126: {CDI}",
                "runtime=podman",
                "step=2",
            ),
        ),
        INPUTS,
    ),
    Case(
        "docker without the toolkit",
        answered(
            Said(
                "",
                (f"docker: Error response from daemon: {HOOK}.\n\nRun 'docker run --help' for more information\n"),
                125,
            ),
            runtime=DOCKER,
        ),
        Outcome.FAIL,
        (
            (
                "container-runtime-gives-no-gpus",
                "node01",
                "a container with all GPUs",
                f"exit code 125: {HOOK}",
                "runtime=docker",
                "step=1",
            ),
        ),
        DOCKERS,
    ),
    Case(
        "image not to be had",
        answered(Said("", f"Trying to pull {IMAGE}...\nError: {NO_HOST}\n", 125)),
        Outcome.ERROR,
        (("container-not-started", "node01", "exit code 0", f"exit code 125: {NO_HOST}", OF),),
        INPUTS,
    ),
    Case(
        "no nvidia-smi, crun",
        answered(Said("", f"Error: {CRUN}\n", 127)),
        Outcome.ERROR,
        (("container-no-nvidia-smi", "node01", SMI, f"exit code 127: {CRUN}"),),
        INPUTS,
    ),
    Case(
        "no nvidia-smi, runc",
        answered(
            Said(
                "",
                (f"docker: Error response from daemon: {RUNC}.\n\nRun 'docker run --help' for more information\n"),
                127,
            ),
            runtime=DOCKER,
        ),
        Outcome.ERROR,
        (("container-no-nvidia-smi", "node01", SMI, f"exit code 127: {RUNC}"),),
        DOCKERS,
    ),
    Case(
        "empty",
        answered(Said("")),
        Outcome.ERROR,
        (("container-gpus-unreadable", "node01", "index and UUID of every GPU", "empty output"),),
        INPUTS,
    ),
    Case(
        "garbage",
        answered(Said("\x00{]<gpu>\n")),
        Outcome.ERROR,
        (
            (
                "container-gpus-unreadable",
                "node01",
                "index and UUID of every GPU",
                "no GPU's index and UUID: '\\x00{]<gpu>'",
            ),
        ),
        INPUTS,
    ),
    Case(
        "twice",
        answered(Said(GPUS + GPUS)),
        Outcome.ERROR,
        (("container-gpus-unreadable", "node01", "index and UUID of every GPU", f"a GPU twice: '0, {UUIDS[0]}'"),),
        INPUTS,
    ),
    Case(
        "killed with its whole text",
        answered(Said(GPUS, exit_code=137)),
        Outcome.ERROR,
        (("container-not-started", "node01", "exit code 0", f"exit code 137: 7, {UUIDS[7]}", OF),),
        INPUTS,
    ),
    Case(
        "does not end",
        answered(Said("", exit_code=None, timed_out=True)),
        Outcome.ERROR,
        (
            (
                "command-did-not-end",
                "node01",
                "an end within its time limit",
                "still running after 1 s, killed",
                "command=container",
            ),
        ),
        INPUTS,
    ),
    Case(
        "no runtime",
        {"host": Said(GPUS), "runtime": Said("", "bash: line 1: podman: command not found\n", 127)},
        Outcome.ERROR,
        (
            (
                "container-runtime-missing",
                "node01",
                "`podman --version` answers",
                "exit code 127: bash: line 1: podman: command not found",
                "name=podman",
            ),
        ),
        INPUTS,
    ),
    Case(
        "no driver on the host",
        {"host": Said("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", exit_code=9)},
        Outcome.ERROR,
        (
            (
                "container-host-gpus-unreadable",
                "node01",
                "index and UUID of every GPU",
                (
                    "no GPU's index and UUID: \"NVIDIA-SMI has failed because it couldn't communicate "
                    "with the NVIDIA driver.\" (exit code 9: NVIDIA-SMI has failed because it couldn't "
                    "communicate with the NVIDIA driver.)"
                ),
            ),
        ),
        INPUTS,
    ),
    Case(
        "the host contradicts itself",
        {"host": Said(GPUS, "killed", 137)},
        Outcome.ERROR,
        (("container-host-gpus-exit-code", "node01", "exit code 0 with a list", "exit code 137: killed"),),
        INPUTS,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_a_container_sees(case: Case) -> None:
    check(GATE, case)


def verdict(inside: Said) -> Verdict:
    known = rack()
    made = gate(GATE, INPUTS)
    run = made.plan(known, ["node01"])[0]
    return made.evaluate(known, run, outputs(run, answered(inside)))


def test_only_what_was_seen_counts_as_measured() -> None:
    assert verdict(Said(GPUS)).measured == [f"node01/gpu{gpu}" for gpu in range(8)]
    assert verdict(Said(without(5))).measured == [f"node01/gpu{gpu}" for gpu in range(8) if gpu != 5]
    assert verdict(Said("")).measured == []


@pytest.mark.parametrize(
    ("runtime", "line"),
    [
        (
            "podman",
            (
                "podman run --rm --device nvidia.com/gpu=all --security-opt=label=disable --env "
                f"NVIDIA_DRIVER_CAPABILITIES=compute,utility {IMAGE} nvidia-smi --query-gpu=index,uuid "
                "--format=csv,noheader"
            ),
        ),
        (
            "docker",
            (
                f"docker run --rm --gpus all --env NVIDIA_DRIVER_CAPABILITIES=compute,utility {IMAGE} "
                "nvidia-smi --query-gpu=index,uuid --format=csv,noheader"
            ),
        ),
    ],
)
def test_a_container_is_started_after_host_and_runtime_answered(runtime: str, line: str) -> None:
    [run] = gate(GATE, {**INPUTS, "runtime": runtime}).plan(rack(), ["node01"])
    assert [" ".join(command.argv) for command in run.commands] == [
        "nvidia-smi --query-gpu=index,uuid --format=csv,noheader",
        f"{runtime} --version",
        line,
    ]
    assert [command.stage for command in run.commands] == [0, 1, 2]
    assert run.chained, "a container is not started where the runtime did not answer"


@pytest.mark.parametrize(
    ("printed", "tools"),
    [(PODMAN.stdout, {"podman": "4.3.1"}), (DOCKER.stdout, {"podman": "27.5.1"}), ("", {}), ("version", {})],
)
def test_the_runtime_is_named_in_the_evidence(printed: str, tools: dict[str, str]) -> None:
    assert gate(GATE, INPUTS).tools({"runtime": Output("runtime", "node01", "podman --version", 0, printed)}) == tools


def test_without_an_image_it_is_an_error_and_no_container_is_started() -> None:
    known = rack()
    made = gate(GATE)
    assert made.plan(known, ["node01"]) == []
    [found] = made.attribute(known, [])["node01"]
    assert tells(found) == [("no-container-image", "node01", "an image in its input image", "none", f"gate={GATE}")]
    assert found.outcome is Outcome.ERROR


def stage(
    tmp_path: Path, inputs: Mapping[str, object], answers: Mapping[str, Answer] | None = None, **gates: Any
) -> Stage:
    """A stage over node01, whose commands answer as they are told."""
    replies: dict[str, Reply] = {"Print a node's identity": fingerprint_of, **(answers or {})}
    made = stage_of(tmp_path, replies, ["node01"], site_with(**gates))
    made.run(["node01"], [], [GateSetEntry(id=GATE, inputs=dict(inputs))], full_set=False)
    return made


def test_the_error_of_a_gate_without_an_image_stands_in_the_evidence(tmp_path: Path) -> None:
    recorder = stage(tmp_path, {}).state.recorder
    [record] = recorder.store.records(gate=GATE)
    assert (record.verdict.outcome, record.verdict.findings[0].what) == (
        Outcome.ERROR,
        f"{GATE} has no container image",
    )
    said_ = [event.text for event in recorder.ledger.events("c1")]
    assert said_[-1].startswith(
        f"{GATE} error: node01: {GATE} has no container image - Expected: an image in its input image Actual: none."
    )


def test_a_declared_skip_starts_no_container(tmp_path: Path) -> None:
    why = "no container runtime on these nodes"
    recorder = stage(tmp_path, INPUTS, skip=[DeclaredSkip(gate=GATE, nodes=["node01"], reason=why)]).state.recorder
    [record] = recorder.store.records(gate=GATE)
    assert (record.verdict.outcome, record.verdict.note, record.raw) == (Outcome.SKIP, why, [])


def test_a_container_is_not_started_by_a_runtime_that_is_not_there(tmp_path: Path) -> None:
    missing = Answer(127, "", "bash: line 1: podman: command not found\n", 0.1)
    recorder = stage(
        tmp_path, INPUTS, {"podman --version": missing, "--query-gpu=index,uuid": Answer(0, GPUS, "", 0.1)}
    ).state.recorder
    first, second = recorder.store.records(gate=GATE)
    assert {record.verdict.findings[0].what for record in (first, second)} == {"no podman on the node"}, (
        "an error is tried once more"
    )
    assert {output.command for output in first.raw} == {
        "nvidia-smi --query-gpu=index,uuid --format=csv,noheader",
        "podman --version",
    }
