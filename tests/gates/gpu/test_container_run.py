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
from tests.gates.support import Case, Said, check, outputs, rack

GATE = "node/gpu/validation/container-run"
IMAGE = "registry.example/cuda:13.0-base"
INPUTS = {"image": IMAGE}
UUIDS = [f"GPU-5f9c1c6e-52a5-4a4e-9d0c-6f2f1a5a7b1{gpu}" for gpu in range(8)]
GPUS = "".join(f"{gpu}, {uuid}\n" for gpu, uuid in enumerate(UUIDS))
PODMAN, DOCKER = Said("podman version 4.3.1\n"), Said("Docker version 27.5.1, build 9f9e405\n")
REFRESH = (
    "Recreate the CDI specification (`systemctl restart nvidia-cdi-refresh.service`); this does not happen by "
    "itself after a driver was removed or MIG was changed."
)
HAND = f"Run its command line by hand on the node (`rackready gate show {GATE}`)."
FETCH = f"Check that the node reaches the registry of image {IMAGE}, or has the image. {HAND}"
NOT_STARTED = "node01: the container did not start, or ended with an error - Expected: exit code 0 Actual: exit code"
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
GLIBC = (
    "The toolkit adds nvidia-smi to images with glibc: name such an image, and see gate node/gpu/sanity/containers "
    "for the contents of the CDI specification."
)
INVENTORY = "Run gate node/gpu/sanity/inventory: it reports what is wrong with the driver or a GPU."
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
        ((f"node01 gpu5: not seen in a container - Expected: {UUIDS[5]} Actual: 7 GPUs without it. {REFRESH}"),),
        INPUTS,
    ),
    Case(
        "another in its place",
        answered(Said(OTHER)),
        Outcome.FAIL,
        (
            f"node01 gpu3: not seen in a container - Expected: {UUIDS[3]} Actual: 8 GPUs without it. {REFRESH}",
            (
                "node01: a container sees other GPUs than the driver has - Expected: those of the host "
                f"Actual: also GPU-00000000-0000-0000-0000-000000000000. {REFRESH}"
            ),
        ),
        INPUTS,
    ),
    Case(
        "a GPU gone from host and container",
        answered(Said(without(5)), host=Said(without(5))),
        Outcome.FAIL,
        ("node01: GPUs of the driver - Expected: 8 Actual: 7. See gate node/gpu/sanity/inventory: a GPU is missing.",),
        INPUTS,
    ),
    Case(
        "no GPU inside",
        answered(Said("No devices were found\n", exit_code=6)),
        Outcome.FAIL,
        (
            (
                "node01: no GPUs in the container - Expected: those of the host Actual: exit code 6: No "
                f"devices were found. {REFRESH}"
            ),
        ),
        INPUTS,
    ),
    Case(
        "stale library",
        answered(Said(DRIVER, exit_code=18)),
        Outcome.FAIL,
        (
            (
                "node01: no GPUs in the container - Expected: those of the host Actual: exit code 18: "
                f"Failed to initialize NVML: Driver/library version mismatch. {REFRESH}"
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
                "node01: podman gives a container no GPUs - Expected: a container with all GPUs Actual: "
                f"exit code 126: {CDI}. See gate node/gpu/sanity/containers. {REFRESH}"
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
                "node01: docker gives a container no GPUs - Expected: a container with all GPUs Actual: "
                f"exit code 125: {HOOK}. Configure docker (`nvidia-ctk runtime configure "
                "--runtime=docker`), restart it, and see gate node/gpu/sanity/containers."
            ),
        ),
        DOCKERS,
    ),
    Case(
        "image not to be had",
        answered(Said("", f"Trying to pull {IMAGE}...\nError: {NO_HOST}\n", 125)),
        Outcome.ERROR,
        (f"{NOT_STARTED} 125: {NO_HOST}. {FETCH}",),
        INPUTS,
    ),
    Case(
        "no nvidia-smi, crun",
        answered(Said("", f"Error: {CRUN}\n", 127)),
        Outcome.ERROR,
        ((f"node01: no nvidia-smi in the container - Expected: {SMI} Actual: exit code 127: {CRUN}. {GLIBC}"),),
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
        (f"node01: no nvidia-smi in the container - Expected: {SMI} Actual: exit code 127: {RUNC}. {GLIBC}",),
        DOCKERS,
    ),
    Case(
        "empty",
        answered(Said("")),
        Outcome.ERROR,
        (
            (
                "node01: nvidia-smi in the container unreadable - Expected: index and UUID of every GPU "
                f"Actual: empty output. {HAND}"
            ),
        ),
        INPUTS,
    ),
    Case(
        "garbage",
        answered(Said("\x00{]<gpu>\n")),
        Outcome.ERROR,
        (
            (
                "node01: nvidia-smi in the container unreadable - Expected: index and UUID of every GPU "
                f"Actual: no GPU's index and UUID: '\\x00{{]<gpu>'. {HAND}"
            ),
        ),
        INPUTS,
    ),
    Case(
        "twice",
        answered(Said(GPUS + GPUS)),
        Outcome.ERROR,
        (
            (
                "node01: nvidia-smi in the container unreadable - Expected: index and UUID of every GPU "
                f"Actual: a GPU twice: '0, {UUIDS[0]}'. {HAND}"
            ),
        ),
        INPUTS,
    ),
    Case(
        "killed with its whole text",
        answered(Said(GPUS, exit_code=137)),
        Outcome.ERROR,
        (f"{NOT_STARTED} 137: 7, {UUIDS[7]}. {FETCH}",),
        INPUTS,
    ),
    Case(
        "does not end",
        answered(Said("", exit_code=None, timed_out=True)),
        Outcome.ERROR,
        (
            (
                "node01: container did not end - Expected: an end within its time limit Actual: still "
                "running after 1 s, killed. Look for Xid errors in the kernel log (`journalctl -k -g "
                "Xid`), then run the gate again."
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
                "node01: no podman on the node - Expected: `podman --version` answers Actual: exit code 127: bash: "
                "line 1: podman: command not found. Install podman, or name the runtime that the nodes have (input "
                "`runtime`). If they have none, skip the gate (site.yml gates.skip)."
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
                "node01: nvidia-smi on the host unreadable - Expected: index and UUID of every GPU "
                "Actual: no GPU's index and UUID: \"NVIDIA-SMI has failed because it couldn't "
                'communicate with the NVIDIA driver." (exit code 9: NVIDIA-SMI has failed because it '
                f"couldn't communicate with the NVIDIA driver.). {INVENTORY}"
            ),
        ),
        INPUTS,
    ),
    Case(
        "the host contradicts itself",
        {"host": Said(GPUS, "killed", 137)},
        Outcome.ERROR,
        (
            (
                "node01: nvidia-smi on the host contradicts itself - Expected: exit code 0 with a list "
                "Actual: exit code 137: killed. Run nvidia-smi by hand on the node."
            ),
        ),
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
                "podman run --rm --device nvidia.com/gpu=all --env "
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
    step = "Name an image in the gate set (inputs: {image: ...}), or skip the gate with a reason (site.yml gates.skip)."
    assert [str(finding) for finding in found.findings] == [
        f"node01: {GATE} has no container image - Expected: an image in its input image Actual: none. {step}"
    ]
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
