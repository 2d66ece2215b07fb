"""Launchers of a program with one process per GPU: Open MPI over SSH, srun (Slurm), MPIJob (Kubernetes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, collapse_addresses
from typing import Literal

from rackready.drivers.scheduler.reserve import reservation
from rackready.gates.base import Command, GateFacts
from rackready.gates.fabric import mpijob
from rackready.model.problems import RackreadyError

Launcher = Literal["openmpi", "srun", "mpijob"]
_LONGEST_S = 1800


@dataclass(frozen=True, slots=True)
class Program:
    """The program to start: its command, environment and processes per node."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    per_node: int
    mpi: Literal["pmix", "pmi2"] = "pmix"
    """How srun connects processes. Debian 12 ships both plugins; its Open MPI 4.1 supports PMIx, and not PMI-2."""
    image: str = ""
    """Container image, for the MPIJob."""


def command(launcher: Launcher, facts: GateFacts, nodes: Sequence[str], program: Program) -> Command:
    """Return the command that starts the program on these nodes, one process per GPU.

    The first node runs it, or with Kubernetes the controller.
    """
    if launcher == "mpijob":
        return _mpijob(facts, nodes, program)
    line = _openmpi(facts, nodes, program) if launcher == "openmpi" else _srun(facts, nodes, program)
    return Command(key="launch", node=nodes[0], argv=line, timeout_s=_LONGEST_S)


def _openmpi(facts: GateFacts, nodes: Sequence[str], program: Program) -> tuple[str, ...]:
    """Return the command line of mpirun: Open MPI uses the in-band network only, the program's data use the rails."""
    hosts = ",".join(f"{facts.nodes[node].node.address}:{program.per_node}" for node in nodes)
    exported = [word for name, value in program.environment.items() for word in ("-x", f"{name}={value}")]
    mca = [word for name, value in _mca(facts, nodes).items() for word in ("--mca", name, value)]
    count = str(program.per_node * len(nodes))
    return (
        "mpirun",
        "--allow-run-as-root",
        "-np",
        count,
        "-H",
        hosts,
        "--bind-to",
        "none",
        *mca,
        *exported,
        *program.argv,
    )


def _srun(facts: GateFacts, nodes: Sequence[str], program: Program) -> tuple[str, ...]:
    """Return the command line of srun: one step over exactly these nodes, in our reservation.

    Values with commas cannot be in --export, so the environment comes before srun. srun has no --uid from 24.11, so
    another user than root starts it itself; its limits are then slurmd's, since PAM's for that user may lock little
    memory. The step's GPUs and CPUs are those that slurmctld knows (gates/engine/launch.py).
    """
    other = facts.job_user != "root"
    as_user = ("runuser", "-u", facts.job_user, "--") if other else ()
    options = ("--propagate=NONE", "--chdir=/") if other else ()
    mca = {f"OMPI_MCA_{name}": value for name, value in _mca(facts, nodes).items() if not name.startswith("oob_")}
    environment = [f"{name}={value}" for name, value in {**program.environment, **mca}.items()]
    return (
        *as_user,
        "env",
        *environment,
        "srun",
        f"--mpi={program.mpi}",
        f"--reservation={reservation(nodes[0], facts.reservation)}",
        *options,
        f"--nodes={len(nodes)}",
        f"--nodelist={','.join(nodes)}",
        f"--ntasks-per-node={program.per_node}",
        "--exclusive",
        "--distribution=block",
        "--cpu-bind=none",
        "--mem=0",
        "--kill-on-bad-exit=1",
        "--export=ALL",
        *program.argv,
    )


def _mpijob(facts: GateFacts, nodes: Sequence[str], program: Program) -> Command:
    """Return the job for the cluster. Its manifest is the command's input, so that it can be read before it runs."""
    if not program.image:
        raise RackreadyError(
            "site.yml gates.launcher",
            "mpijob",
            expected="a container image in the gate's input image",
            actual="none",
            next_step="Name one in the gate set.",
        )
    # Ranks have the nodes' network, where docker0 has the same address on each node (open-mpi/ompi #6377). The launcher
    # is on the pods' network, so what it connects by (oob) is left open.
    mca = {name: value for name, value in _mca(facts, nodes).items() if not name.startswith("oob_")}
    how = (program.argv, program.environment, program.per_node, program.image, facts.cluster)
    wanted = mpijob.job(nodes, *how, mca=mca)
    return Command(
        key="launch",
        node=nodes[0],
        argv=("mpijob", wanted.metadata.name),
        stdin=mpijob.render(wanted),
        timeout_s=_LONGEST_S,
        via="kubernetes",
    )


def _mca(facts: GateFacts, nodes: Sequence[str]) -> dict[str, str]:
    """Return Open MPI's parameters: in-band network only, and ranks that wait yield to NCCL, which carries data."""
    inband = common_network([str(facts.nodes[node].node.address) for node in nodes])
    return {
        "mpi_yield_when_idle": "1",
        "pml": "ob1",
        "btl": "tcp,self",
        "btl_tcp_if_include": inband,
        "oob_tcp_if_include": inband,
    }


def common_network(addresses: Sequence[str]) -> str:
    """Return the smallest IPv4 network with all these addresses, in CIDR notation."""
    network = IPv4Network(f"{addresses[0]}/32")
    for address in addresses[1:]:
        while IPv4Network(f"{address}/32").network_address not in network:
            network = network.supernet()
    return str(next(iter(collapse_addresses([network]))))
