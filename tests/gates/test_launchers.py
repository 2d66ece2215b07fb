"""Starting programs on several nodes: three launchers' command lines, the MPIJob's schema, and Slurm's reservation."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from rackready.design.site import load_site
from rackready.drivers.scheduler.base import NotOursError, SchedulerError
from rackready.drivers.scheduler.reserve import reserved
from rackready.drivers.scheduler.slurm import SlurmAdapter
from rackready.gates.base import Command, GateFacts
from rackready.gates.engine import launch
from rackready.gates.engine.registry import gate
from rackready.gates.engine.runner import _with_launch
from rackready.gates.fabric import mpijob
from rackready.model.kubernetes import LOG_BEGINS, KubernetesHandover
from rackready.model.problems import RackreadyError
from tests.gates.support import rack

GATE = "cluster/fabric/performance/nccl-all-reduce"


def facts(launcher: str) -> GateFacts:
    return dataclasses.replace(rack(2), launcher=launcher)  # type: ignore[arg-type]


def line(launcher: str, **inputs: object) -> tuple[str, ...]:
    known = facts(launcher)
    return gate(GATE, {"launches": 1, **inputs}).plan(known, list(known.nodes))[0].commands[2].argv


def test_openmpi_over_ssh() -> None:
    words = " ".join(line("openmpi"))
    assert words.startswith(
        "mpirun --allow-run-as-root -np 16 -H 198.19.0.1:8,198.19.0.2:8 --bind-to none --mca mpi_yield_when_idle 1"
    )
    assert "-x NCCL_DEBUG=INFO -x NCCL_DEBUG_SUBSYS=INIT,ENV,NET,P2P,GRAPH" in words
    assert words.endswith("all_reduce_perf -b 8589934592 -e 17179869184 -f 2 -g 1 -w 10 -n 50 -c 1")


def test_srun_in_our_reservation() -> None:
    words = " ".join(line("srun"))
    assert words.startswith("env NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,P2P,GRAPH ")
    assert (
        " OMPI_MCA_btl_tcp_if_include=198.19.0.0/30 srun --mpi=pmix --reservation=rackready-node01 --nodes=2 "
        "--nodelist=node01,node02 " in words
    )
    assert "--ntasks-per-node=8" in words
    assert "srun --mpi=pmi2 " in " ".join(line("srun", mpi="pmi2"))


def test_srun_as_another_user_in_a_reservation_of_another_name() -> None:
    known = dataclasses.replace(facts("srun"), reservation="burnin", job_user="gpuval")
    command = gate(GATE, {"launches": 1}).plan(known, list(known.nodes))[0].commands[2]
    words = " ".join(command.argv)
    assert words.startswith("runuser -u gpuval -- env NCCL_DEBUG=INFO ")
    assert (
        "srun --mpi=pmix --reservation=burnin-node01 --propagate=NONE --chdir=/ --nodes=2 --nodelist=node01,node02 "
        in words
    )
    launched = _with_launch(command, ("--qos=validation",)).argv
    assert launched[launched.index("srun") + 1] == "--qos=validation"


def test_an_mpijob_is_shown_whole_and_names_its_nodes() -> None:
    known = facts("mpijob")
    inputs = {"launches": 1, "image": "registry.example/nccl-tests:2.19"}
    command = gate(GATE, inputs).plan(known, list(known.nodes))[0].commands[2]
    assert (command.via, command.argv) == ("kubernetes", ("mpijob", mpijob.name_of(["node01", "node02"])))
    manifest = yaml.safe_load(command.stdin)
    assert LOG_BEGINS in command.stdin, "the log is looked at for it"
    assert mpijob.MpiJob.model_validate(manifest).spec.slotsPerWorker == 8
    worker = manifest["spec"]["mpiReplicaSpecs"]["Worker"]
    assert worker["replicas"] == 2
    (container,) = worker["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert {"name": "NCCL_DEBUG", "value": "INFO"} in container["env"]
    terms = worker["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert terms == [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node01", "node02"]}]}
    ]
    command = manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"]
    assert command[:4] == ["/bin/sh", "-c", f'echo \'{LOG_BEGINS}\'; exec "$0" "$@"', "mpirun"]
    shell = subprocess.run([*command[:3], "printf", "%s|", "a b", "c"], capture_output=True, text=True, check=True)
    assert shell.stdout == f"{LOG_BEGINS}\na b|c|"
    assert command[command.index("-np") + 1] == "16"
    words = " ".join(command)
    assert "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include 198.19.0.0/30 " in words, "docker0 is not tried"
    assert "oob_tcp_if_include" not in words, "the launcher is on the pods' network"


def test_workers_of_an_mpijob_reach_the_rails_and_leave_port_22_to_their_node() -> None:
    job = mpijob.job(["node01", "node02"], ["all_reduce_perf"], {}, 8, "image:1").model_dump()["spec"][
        "mpiReplicaSpecs"
    ]
    workers = job["Worker"]["template"]["spec"]
    (container,) = workers["containers"]
    assert (workers["hostNetwork"], workers["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}, "privileged": True}
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/dev/shm"]  # noqa: S108 - the container's own
    assert workers["volumes"] == [{"name": container["volumeMounts"][0]["name"], "emptyDir": {"medium": "Memory"}}]
    (port,) = re.findall(r"sshd .*-p (\d+) -o StrictModes=no$", container["command"][-1])
    mpirun = job["Launcher"]["template"]["spec"]["containers"][0]["command"]
    assert mpirun[mpirun.index("plm_rsh_args") + 1].startswith(f"-p {port} ")
    assert port != "22"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda job: job["spec"].update(slotsPerWorkers=8), "slotsPerWorkers"),
        (lambda job: job.update(apiVersion="kubeflow.org/v1"), "kubeflow.org/v2beta1"),
        (lambda job: job["spec"]["mpiReplicaSpecs"].pop("Launcher"), "Launcher"),
        (lambda job: job["spec"]["mpiReplicaSpecs"]["Worker"].update(replicas=0), "greater than or equal to 1"),
        (lambda job: job["metadata"].update(name="Rack_1"), "string_pattern_mismatch"),
        (
            lambda job: job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0].update(image=""),
            "at least 1 character",
        ),
    ],
)
def test_the_schema_refuses_what_the_api_would(change: Callable[[dict], object], words: str) -> None:  # type: ignore[type-arg]
    job = yaml.safe_load(mpijob.render(mpijob.job(["node01"], ["all_reduce_perf"], {}, 8, "image:1")))
    assert mpijob.MpiJob.model_validate(job)
    change(job)
    with pytest.raises(ValidationError, match=re.escape(words)):
        mpijob.MpiJob.model_validate(job)


def test_workers_and_launcher_run_on_nodes_that_the_site_holds_under_its_own_names_and_taint() -> None:
    cluster = KubernetesHandover.model_validate(
        {
            "kind": "kubernetes", "kubeconfig": "/k", "context": "prod", "node_suffix": ".gpu",
            "node_names": {"node02": "spare-7"}, "taint": "example.com/new:NoSchedule",
        }
    )  # fmt: skip
    job = mpijob.job(["node01", "node02"], ["all_reduce_perf"], {}, 8, "image:1", cluster).model_dump()
    for role in ("Launcher", "Worker"):
        pods = job["spec"]["mpiReplicaSpecs"][role]["template"]["spec"]
        assert pods["tolerations"] == [
            {"key": "example.com/new", "operator": "Exists"},
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
            {"key": "nvidia.com/gpu", "operator": "Exists"},
        ]
        terms = pods["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert terms[0]["matchExpressions"][0]["values"] == ["node01.gpu", "spare-7"]
    assert "podAntiAffinity" not in job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["affinity"]


def test_groups_that_are_measured_side_by_side_have_jobs_of_their_own() -> None:
    assert mpijob.name_of(["node01", "node02"]) != mpijob.name_of(["node03", "node04"])


def test_an_mpijob_without_an_image_is_refused() -> None:
    with pytest.raises(
        RackreadyError, match=r"gates.launcher: mpijob - Expected: a container image in the gate's input image"
    ):
        line("mpijob")


# Slurm's reservation -------------------------------------------------------------------------------------------------


class Cluster:
    """slurmctld as far as a reservation needs it; every change is recorded."""

    def __init__(self, **drained: str) -> None:
        self.drained = drained
        self.said: list[str] = []
        self.equipment = "CPUEfctv=224 CPUTot=224 Gres=gpu:h100:8 ThreadsPerCore=2"
        self.reservations = "No reservations in the system"

    def run(self, command: str) -> tuple[int, str, str]:
        if command.startswith("scontrol show node "):
            node = command.split()[3]
            reason = self.drained.get(node)
            state = "IDLE+DRAIN" if reason else "IDLE+MAINT"
            end = f" Reason={reason} [root@2026-11-01T10:00:00]" if reason else ""
            return 0, f"NodeName={node} Arch=x86_64 {self.equipment} State={state} Partitions=gpu{end}\n", ""
        if command == "scontrol show reservation --oneliner":
            return 0, f"{self.reservations}\n", ""
        self.said.append(command)
        if command.startswith("scontrol delete"):
            name = command.rpartition("=")[2]
            lines = self.reservations.splitlines()
            self.reservations = "\n".join(line for line in lines if f"ReservationName={name} " not in line)
        if "State=RESUME" in command:
            self.drained.pop(re.search(r"NodeName=(\S+)", command)[1])  # type: ignore[index]
        if "State=DRAIN" in command:
            self.drained[re.search(r"NodeName=(\S+)", command)[1]] = "rackready: held"  # type: ignore[index]
        return 0, "", ""


def test_held_nodes_are_usable_inside_the_reservation_only_and_held_again_after_it() -> None:
    cluster = Cluster(node01="rackready: held", node02="rackready: held")
    with reserved(SlurmAdapter(cluster.run, "here"), ["node01", "node02"]) as name:
        assert name == "rackready-node01"
        assert cluster.drained == {}
    assert [command.split(" ", 1)[1] for command in cluster.said] == [
        (
            "create reservation ReservationName=rackready-node01 Users=root StartTime=now Duration=UNLIMITED "
            "Flags=MAINT,IGNORE_JOBS Nodes=node01,node02"
        ),
        "update NodeName=node01 State=RESUME",
        "update NodeName=node02 State=RESUME",
        "update NodeName=node01 State=DRAIN Reason='rackready: held'",
        "update NodeName=node02 State=DRAIN Reason='rackready: held'",
        "delete ReservationName=rackready-node01",
    ]


def test_a_reservation_has_the_sites_name_and_user() -> None:
    cluster = Cluster(node01="rackready: held")
    with reserved(SlurmAdapter(cluster.run, "here"), ["node01"], "burnin", "gpuval") as name:
        assert name == "burnin-node01"
    assert [command for command in cluster.said if "Users=" in command] == [
        (
            "scontrol create reservation ReservationName=burnin-node01 Users=gpuval StartTime=now Duration=UNLIMITED "
            "Flags=MAINT,IGNORE_JOBS Nodes=node01"
        )
    ]


def test_they_are_held_again_when_the_measurement_breaks_off() -> None:
    cluster = Cluster(node01="rackready: held")
    with pytest.raises(KeyboardInterrupt), reserved(SlurmAdapter(cluster.run, "here"), ["node01", "node02"]):
        raise KeyboardInterrupt
    assert cluster.drained == {"node01": "rackready: held"}
    assert cluster.said[-1] == "scontrol delete ReservationName=rackready-node01"


def test_a_node_that_somebody_else_drained_is_left_alone() -> None:
    cluster = Cluster(node01="rackready: held", node02="disk swap, ask Ann")
    with pytest.raises(
        NotOursError,
        match=r"node02: drained in Slurm by somebody else - Expected: a reason that begins with 'rackready:'",
    ):
        reserved(SlurmAdapter(cluster.run, "here"), ["node01", "node02"]).__enter__()
    assert cluster.said == []


def test_a_reservation_that_slurm_refuses_starts_nothing() -> None:
    cluster = Cluster(node01="rackready: held")

    def refuse(command: str) -> tuple[int, str, str]:
        return (1, "", "Access/permission denied") if command.startswith("scontrol create") else cluster.run(command)

    with (
        pytest.raises(SchedulerError, match="Access/permission denied"),
        reserved(SlurmAdapter(refuse, "here"), ["node01"]),
    ):
        pass
    assert cluster.drained == {"node01": "rackready: held"}


HELD = (
    "ReservationName={} StartTime=2026-11-28T01:00:00 EndTime=2027-11-28T01:00:00 Duration=365-00:00:00 "
    "Nodes={} NodeCnt=2 CoreCnt=448 Features=(null) PartitionName=(null) Flags={} TRES=cpu=896 Users={} "
    "Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)"
)
FLAGS = "MAINT,IGNORE_JOBS,SPEC_NODES"


LEFT = (
    "'rackready: a killed measurement left it reserved. `rackready handover --limit {0}` offers it when it is "
    "certified'"
)


def left(name: str = "rackready-node01", nodes: str = "node[01-02]") -> str:
    return HELD.format(name, nodes, FLAGS, "root")


def test_what_a_killed_run_left_is_drained_before_it_is_reserved_anew() -> None:
    """It had resumed node01 inside: without the reservation, jobs start there before it is certified."""
    cluster = Cluster(node02="rackready: held")
    cluster.reservations = "\n".join([left("rackready-node011"), left()])
    with reserved(SlurmAdapter(cluster.run, "here"), ["node01", "node02"]):
        pass
    assert [command.split(" ", 1)[1].partition(" Users=")[0] for command in cluster.said] == [
        f"update NodeName=node01 State=DRAIN Reason={LEFT.format('node01')}",
        "delete ReservationName=rackready-node01",
        "create reservation ReservationName=rackready-node01",
        "update NodeName=node01 State=RESUME",
        "update NodeName=node02 State=RESUME",
        "update NodeName=node01 State=DRAIN Reason='rackready: held'",  # as this controller shows every drain of ours
        "update NodeName=node02 State=DRAIN Reason='rackready: held'",
        "delete ReservationName=rackready-node01",
    ]


@pytest.mark.parametrize(("name", "nodes"), [("rackready-node02", "node[01-02]"), ("rackready-node01", "node[01,07]")])
def test_a_leftover_ends_also_when_other_nodes_are_measured_now(name: str, nodes: str) -> None:
    """Else it stays for ever, and no job of users starts on a node that is handed over."""
    cluster = Cluster(node01="rackready: held")
    cluster.reservations = left(name, nodes)
    other = "node02" if "02" in nodes else "node07"
    with reserved(SlurmAdapter(cluster.run, "here"), ["node01", "node03"]):
        assert cluster.said[:2] == [
            f"scontrol update NodeName={other} State=DRAIN Reason={LEFT.format(other)}",
            f"scontrol delete ReservationName={name}",
        ]


@pytest.mark.parametrize(
    "line",
    [
        left("rackready-node05", "node[05-06]"),
        left("rackready-course", "node[01-02]"),
        left("burnin-node01", "node[01-02]"),
        HELD.format("rackready-node02", "node[01-02]", FLAGS, "ann"),
        HELD.format("rackready-node02", "node[01-02]", "SPEC_NODES", "root"),
    ],
)
def test_a_reservation_of_other_nodes_or_of_others_is_no_leftover(line: str) -> None:
    cluster = Cluster(node01="rackready: held")
    cluster.reservations = line
    with reserved(SlurmAdapter(cluster.run, "here"), ["node01"]):
        pass
    assert [command.split()[1] for command in cluster.said] == ["create", "update", "update", "delete"]


@pytest.mark.parametrize(
    ("nodes", "flags", "user", "shown"),
    [
        ("node[01-02]", FLAGS, "ann", "Users=ann Nodes=node[01-02] Flags=IGNORE_JOBS,MAINT,SPEC_NODES"),
        ("node[02-08]", FLAGS, "root", "Users=root Nodes=node[02-08] Flags=IGNORE_JOBS,MAINT,SPEC_NODES"),
        ("node[01-02]", "SPEC_NODES", "root", "Users=root Nodes=node[01-02] Flags=SPEC_NODES"),
        (
            "node[01-02]",
            f"{FLAGS},DAILY",
            "root",
            "Users=root Nodes=node[01-02] Flags=DAILY,IGNORE_JOBS,MAINT,SPEC_NODES",
        ),
    ],
)
def test_a_reservation_of_somebody_else_is_never_deleted(nodes: str, flags: str, user: str, shown: str) -> None:
    cluster = Cluster()
    cluster.reservations = HELD.format("rackready-node01", nodes, flags, user)
    with pytest.raises(SchedulerError) as caught:
        reserved(SlurmAdapter(cluster.run, "here"), ["node01", "node02"]).__enter__()
    assert str(caught.value) == (
        "rackready-node01: a reservation on here - Expected: none, or one that a killed run left, such as Users=root "
        f"Nodes=node[01-02] Flags=IGNORE_JOBS,MAINT Actual: {shown}. Nothing was started. Give ours another name "
        "(handover.validation_reservation), or delete that one when nobody needs it: "
        "`scontrol delete ReservationName=rackready-node01`."
    )
    assert cluster.said == []


def test_reservations_that_cannot_be_seen_start_nothing() -> None:
    with pytest.raises(SchedulerError, match="Expected: the reservations Actual: Unable to contact slurm controller"):
        SlurmAdapter(lambda _: (1, "", "Unable to contact slurm controller"), "here").reserve("r", ["node01"], "root")


# Slurm's QOS ----------------------------------------------------------------------------------------------------------

CONFIG = "AccountingStorageHost   = db\nAccountingStorageType   = {}\n"


def accounting(storage: str, qos: str = "", code: int = 0) -> SlurmAdapter:
    """A cluster with this accounting, and what its sacctmgr says."""

    def run(command: str) -> tuple[int, str, str]:
        if command == "scontrol show config":
            return 0, CONFIG.format(storage), ""
        assert command == "sacctmgr --noheader --parsable2 show qos where name=validation format=name"
        return code, qos, ""

    return SlurmAdapter(run, "here")


def test_a_qos_that_slurmdbd_has_is_taken() -> None:
    accounting("accounting_storage/slurmdbd", "validation\n").require_qos("validation")


@pytest.mark.parametrize("storage", ["accounting_storage/none", "(null)"])
def test_without_accounting_there_is_no_qos(storage: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        accounting(storage, "validation\n").require_qos("validation")
    assert str(caught.value) == (
        f"here: QOS validation - Expected: AccountingStorageType = accounting_storage/slurmdbd Actual: {storage}. "
        "Slurm has QOS only with accounting: set it up, or remove handover.validation_qos."
    )


@pytest.mark.parametrize(
    ("qos", "code", "actual"),
    [("", 0, "nothing"), ("validation2\n", 0, "validation2"), ("validation\n", 1, "validation")],
)
def test_a_qos_that_slurmdbd_lacks_is_refused(qos: str, code: int, actual: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        accounting("accounting_storage/slurmdbd", qos, code).require_qos("validation")
    assert str(caught.value) == (
        f"here: `sacctmgr show qos where name=validation` - Expected: validation Actual: {actual}. Create it "
        "(`sacctmgr add qos validation`) and let root use it, or correct handover.validation_qos."
    )


def test_srun_gets_the_qos_behind_its_environment_and_no_other_command_does() -> None:
    def command(*argv: str) -> Command:
        return Command(key="k", node="node01", argv=argv, timeout_s=1)

    srun = _with_launch(command("env", "A=1", "B=x", "srun", "--mpi=pmix", "p"), ("--qos=validation",))
    assert srun.argv == ("env", "A=1", "B=x", "srun", "--qos=validation", "--mpi=pmix", "p")
    assert _with_launch(command("mpirun", "p"), ("-x",)).argv == ("mpirun", "-x", "p")
    assert _with_launch(command("env", "A=1", "nvidia-smi"), ("--qos=validation",)).argv[-1] == "nvidia-smi"
    assert _with_launch(command("env", "srun", "p"), ()).argv == ("env", "srun", "p")


STEP = ("--gres=gpu:8", "--cpus-per-task=28")


@pytest.mark.parametrize(("qos", "options"), [("validation", ("--qos=validation", *STEP)), (None, STEP)])
def test_a_measurement_asks_for_the_sites_qos_before_it_reserves(
    monkeypatch: pytest.MonkeyPatch, qos: str | None, options: tuple[str, ...]
) -> None:
    site = load_site("sim", root=Path(__file__).resolve().parents[2])
    site = site.model_copy(update={"handover": site.handover.model_copy(update={"validation_qos": qos})})
    order: list[str] = []
    cluster = Cluster()

    def run(command: str) -> tuple[int, str, str]:
        order.append(command.split(maxsplit=1)[0] + " " + command.split()[1])
        if command == "scontrol show config":
            return 0, CONFIG.format("accounting_storage/slurmdbd"), ""
        return (0, "validation\n", "") if command.startswith("sacctmgr") else cluster.run(command)

    monkeypatch.setattr(launch, "connect_slurm", lambda *_: SlurmAdapter(run, "here"))
    nothing: Any = None
    with launch._under_slurm(site, nothing, nothing, {})("node01", ["node02"]) as found:
        assert found == options
    asked = ["scontrol show", "sacctmgr --noheader"] if qos else []
    assert order[: len(asked)] == asked


# What a step of srun asks for ----------------------------------------------------------------------------------------

LINE = "NodeName=n CPUAlloc=0 CPUTot={} Gres={} Sockets=2 State=IDLE ThreadsPerCore={} CfgTRES=cpu=8,gres/gpu=8"


@pytest.mark.parametrize(
    ("cpus", "threads", "gres", "options"),
    [
        ("224", "2", "gpu:h100:8", ("--gres=gpu:8", "--cpus-per-task=28")),
        ("224", "2", "gpu:8(S:0-1)", ("--gres=gpu:8", "--cpus-per-task=28")),
        ("224", "2", "gpu:a:4(S:0,2),gpu:b:4(S:1),nic:2", ("--gres=gpu:8", "--cpus-per-task=28")),
        ("7", "1", "gpu:8", ("--gres=gpu:8",)),
        ("224", "2", "(null)", ("--cpus-per-task=28",)),
    ],
)
def test_a_step_asks_for_the_gpus_and_cpus_that_slurm_knows(
    cpus: str, threads: str, gres: str, options: tuple[str, ...]
) -> None:
    line = LINE.format(cpus, gres, threads)
    assert SlurmAdapter(lambda _: (0, line, ""), "here").step_options({"node01": 8, "node02": 8}) == options


def test_cores_that_slurmd_keeps_for_itself_are_not_asked_for() -> None:
    line = LINE.format("224", "gpu:8", "2").replace("CPUTot", "CPUEfctv=208 CPUTot")
    assert SlurmAdapter(lambda _: (0, line, ""), "here").step_options({"node01": 8})[1] == "--cpus-per-task=26"


def test_a_node_of_which_slurm_knows_another_number_of_gpus_is_refused_before_it_is_reserved() -> None:
    def run(command: str) -> tuple[int, str, str]:
        return 0, LINE.format("224", "gpu:8" if "node01" in command else "(null)", "2"), ""

    with pytest.raises(SchedulerError) as caught:
        SlurmAdapter(run, "here").step_options({"node01": 8, "node02": 8})
    assert str(caught.value) == (
        "node02: GPUs in Slurm on here - Expected: Gres=gpu:8, as the platform has Actual: none, while other nodes of "
        "the program have some. Nothing was started. Correct Gres of the node in slurm.conf and gres.conf, then "
        "`scontrol reconfigure`; or use the launcher openmpi."
    )


def test_a_node_without_its_cpus_is_an_error() -> None:
    with pytest.raises(SchedulerError, match=r"node01: `scontrol show node` - Expected: CPUTot=... ThreadsPerCore"):
        SlurmAdapter(lambda _: (0, "NodeName=node01 State=IDLE", ""), "here").step_options({"node01": 8})
