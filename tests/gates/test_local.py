"""Gates on this machine: commands run as over SSH, its GPUs identify it, and without a GPU nothing passes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rackready.drivers.local import Local
from rackready.drivers.process import STOP, Interrupted
from rackready.drivers.remote import Answer, UnreachableError
from rackready.evidence.store import EvidenceStore
from rackready.gates.engine import local
from rackready.gates.engine.local import Here, here, recognised, run_here
from rackready.gates.records.offline import platform_of
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.problems import RackreadyError
from rackready.model.profile import GateSetEntry
from rackready.paths import EnvPaths
from tests.gates.fake import FakeConnection, answered
from tests.gates.stage import fingerprint_of
from tests.gates.support import document, text

INVENTORY = "node/gpu/sanity/inventory"


# commands ----------------------------------------------------------------------------------------------------------


def test_a_command_gives_output_errors_and_exit_code() -> None:
    answer = Local().run("here", ("sh", "-c", "cat; echo bad >&2; exit 3"), stdin="in", env={"A": "b"}, timeout_s=10)
    assert (answer.stdout, answer.stderr, answer.exit_code) == ("in", "bad\n", 3)


def test_a_long_script_that_nobody_reads_hangs_nothing() -> None:
    assert Local().run("here", ("true",), stdin="x" * 1_000_000, timeout_s=10).exit_code == 0


def test_environment_reaches_the_command() -> None:
    assert (
        Local().run("here", ("sh", "-c", "echo $NCCL_DEBUG"), env={"NCCL_DEBUG": "INFO"}, timeout_s=10).stdout
        == "INFO\n"
    )


def test_at_the_time_limit_it_is_ended_with_what_it_started() -> None:
    begun = time.monotonic()
    answer = Local().run("here", ("sh", "-c", "echo said; sleep 60 & sleep 60"), timeout_s=0.5)
    assert (answer.exit_code, answer.timed_out, answer.stdout) == (None, True, "said\n")
    assert time.monotonic() - begun < 45


def test_a_program_that_is_not_there_answers_as_a_shell_does() -> None:
    answer = Local().run("here", ("no-such-program", "-x"), timeout_s=5)
    assert (answer.exit_code, answer.stderr, answer.failure) == (
        127,
        "no-such-program: command not found (No such file or directory)",
        "",
    )
    with pytest.raises(UnreachableError, match="no-such-program"):
        Local().start("here", ("no-such-program",), timeout_s=5)


def test_too_much_output_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackready.drivers.local.OUTPUT_LIMIT", 1 << 20)
    answer = Local().run("here", ("yes",), timeout_s=20)
    assert (answer.exit_code, answer.timed_out, answer.failure) == (None, False, "more than 1 MiB of output")


def test_a_server_is_ended() -> None:
    job = Local().start("here", ("sh", "-c", "echo up; sleep 60"), timeout_s=60)
    assert job.alive()
    job.end()
    assert not job.alive()
    assert job.so_far().exit_code is None


@pytest.fixture
def stopped() -> Iterator[None]:
    STOP.set()
    yield
    STOP.clear()


@pytest.mark.usefixtures("stopped")
def test_the_operator_can_stop_it() -> None:
    with pytest.raises(Interrupted):
        Local().run("here", ("sleep", "60"), timeout_s=60)


# which machine -----------------------------------------------------------------------------------------------------


def machine(inventory: Answer, fingerprint: Answer | None = None) -> FakeConnection:
    return FakeConnection(
        {
            "Print a node's identity": lambda node, argv: fingerprint or fingerprint_of(node, argv),
            "Print NVML's inventory": inventory,
        }
    )


HEALTHY = answered(text("nvml/dgx_h100_healthy.json"))


def gpus(names: Sequence[str]) -> Answer:
    one = document("nvml/dgx_h100_healthy.json")["gpus"][0]
    found = [{**one, "name": name, "index": index} for index, name in enumerate(names)]
    return answered(
        json.dumps({"format": "rackready/nvml-inventory/v2", "count": len(found), "gpus": found, "complete": True})
    )


def test_a_machine_is_recognised_by_its_gpus() -> None:
    assert recognised(machine(HEALTHY), None, "DGXH100").id == "dgx_h100"
    assert recognised(machine(HEALTHY), None, "").id == "dgx_h100", "one complete profile has 8 of them"
    assert recognised(machine(HEALTHY), None, "SYS-821GE-TNHR").id == "sys_821ge_h100"


@pytest.mark.parametrize(
    ("gpu", "server"), [("h100_sxm", "dgx_h100"), ("h200_sxm", "dgx_h200"), ("b200_sxm", "dgx_b200")]
)
def test_a_gpu_model_stands_for_the_server_with_most_published(gpu: str, server: str) -> None:
    assert platform_of(gpu).id == server


def test_a_part_of_a_server_is_named_by_its_count() -> None:
    part = platform_of("h100_sxm", 1)
    assert (part.id, part.gpus, len(part.gpu_pci), [nic.gpu for nic in part.nics]) == ("dgx_h100", 1, 1, [0])


REFUSED = [
    (
        answered(
            json.dumps({"format": "rackready/nvml-inventory/v2", "error": "NVML: NVML Shared Library Not Found"}),
            code=1,
        ),
        (
            "this machine: no NVIDIA GPU can be read - Expected: a GPU and its driver "
            "Actual: NVML: NVML Shared Library Not Found. "
            "Nothing was measured; install the driver."
        ),
    ),
    (
        answered("", "python3: command not found", 127),
        (
            "this machine: no NVIDIA GPU can be read - Expected: a GPU and its driver Actual: empty output; "
            "python3: command not found. "
            "Nothing was measured; install the driver."
        ),
    ),
    (
        gpus([]),
        (
            "this machine: no NVIDIA GPU can be read - Expected: a GPU and its driver Actual: NVML finds none. "
            "Nothing was measured; install the driver."
        ),
    ),
    (
        gpus(["NVIDIA Unheard Of"]),
        (
            "this machine: 1 GPUs (NVIDIA Unheard Of) - Expected: GPUs of one model with a profile. "
            "Otherwise name it with --profile (`--profile h100_sxm --gpus 1` for a part of a server)."
        ),
    ),
    (
        gpus(["NVIDIA H100 80GB HBM3", "NVIDIA H200"]),
        (
            "this machine: 2 GPUs (NVIDIA H100 80GB HBM3, NVIDIA H200) - Expected: GPUs of one model with a profile. "
            "Otherwise name it with --profile (`--profile h100_sxm --gpus 1` for a part of a server)."
        ),
    ),
    (
        gpus(["NVIDIA H100 80GB HBM3"]),
        (
            "this machine: 1 x NVIDIA H100 80GB HBM3 in a board - Expected: one profile Actual: none. "
            "To continue, name it with --profile (`--profile h100_sxm --gpus 1` for a part of a server)."
        ),
    ),
]


@pytest.mark.parametrize(("inventory", "message"), REFUSED)
def test_what_cannot_be_recognised_is_refused(inventory: Answer, message: str) -> None:
    with pytest.raises(RackreadyError) as refused:
        recognised(machine(inventory), None, "a board")
    assert str(refused.value) == message


def test_an_unknown_profile_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        RackreadyError,
        match=r"profile 'h100' does not exist - Expected: a server \(dgx_h100 and \d+ more\) or a GPU \(h100_sxm, ",
    ):
        here("h100", None)
    with pytest.raises(RackreadyError, match=r"9 GPUs of dgx_h100 - Expected: 1 to 8\. Correct --gpus"):
        here("dgx_h100", 9)


# runs --------------------------------------------------------------------------------------------------------------


PLACE = Here("here", platform_of("dgx_h100"))


def run(
    tmp_path: Path, connection: FakeConnection, gate_id: str = INVENTORY, place: Here = PLACE
) -> tuple[Outcome, str, EvidenceStore]:
    paths = EnvPaths(tmp_path, "local")
    result = run_here(place, paths, [GateSetEntry(id=gate_id)], "gate-1", connection)
    return result.outcome, result.message, EvidenceStore.read_only(Ledger.read_only(paths.database), paths.raw)


def test_a_gate_runs_here_and_leaves_evidence_in_the_local_store(tmp_path: Path) -> None:
    outcome, message, store = run(tmp_path, machine(HEALTHY))
    assert (outcome, message) == (Outcome.PASS, "")
    (record,) = store.records(target="here")
    assert (record.gate, record.campaign, record.fingerprints[0].gpus[0]) == (INVENTORY, "gate-1", "here-0")
    assert store.raw(record.raw[0].stdout_sha256) == HEALTHY.stdout


def test_the_same_code_judges(tmp_path: Path) -> None:
    outcome, message, _ = run(tmp_path, machine(answered(text("nvml/dgx_h100_gpu2_link4_inactive.json"))))
    assert outcome is Outcome.FAIL
    assert message.startswith("here gpu2: NVLink down - Expected: 18 links active Actual: 17 (link 4 inactive).")


def test_a_part_of_a_server_is_judged_as_that_part(tmp_path: Path) -> None:
    one = Here("here", platform_of("h100_sxm", 1))
    assert run(tmp_path, machine(gpus(["NVIDIA H100 80GB HBM3"])), place=one)[:2] == (Outcome.PASS, "")
    outcome, message, _ = run(tmp_path / "eight", machine(HEALTHY), place=one)
    assert outcome is Outcome.FAIL
    assert "1 GPUs Actual: 8" in message


def test_a_machine_without_a_gpu_passes_nothing(tmp_path: Path) -> None:
    """The profile is named, and the machine itself is asked, for real where the tests run without a GPU."""
    none = {"driver": None, "gpus": [], "gpu_error": "NVML Shared Library Not Found"}
    outcome, message, store = run(tmp_path, machine(HEALTHY, fingerprint=fingerprint_of("here", (), **none)))
    assert outcome is Outcome.ERROR
    assert message.startswith(
        "here: fingerprint unreadable - Expected: serials, firmware, kernel and driver "
        "Actual: NVML Shared Library Not Found."
    )
    assert store.records() == []


@pytest.mark.parametrize(
    "gate_id", ["pair/fabric/performance/ib-write-bw", "cluster/fabric/performance/nccl-all-reduce-ring"]
)
def test_a_gate_of_several_nodes_is_refused(tmp_path: Path, gate_id: str) -> None:
    with pytest.raises(RackreadyError) as refused:
        run(tmp_path, machine(HEALTHY), gate_id)
    assert (
        str(refused.value) == f"gate run --local: {gate_id} - Expected: gates of one node (node/...). "
        "Run them with a site file, without --local."
    )


def test_evidence_lies_in_the_checkout_else_with_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert local.store_paths(tmp_path / "own").database.file == tmp_path / "own/.rackready/local/state.sqlite"

    def nowhere() -> Path:
        raise FileNotFoundError("no checkout")

    monkeypatch.setattr(local, "project_root", nowhere)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert local.store_paths(None).state == tmp_path / "state/rackready/.rackready/local"
