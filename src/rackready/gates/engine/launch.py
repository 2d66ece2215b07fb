"""Launchers: an SSH key for Open MPI, a Slurm reservation for srun, nothing for Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rackready.design.facts import node_facts
from rackready.design.handover_of import by_scheduler
from rackready.drivers.launch_key import PeerLogin, launch_key
from rackready.drivers.remote import Remote, UnreachableError
from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.remote import connect_slurm
from rackready.drivers.scheduler.reserve import reserved
from rackready.drivers.ssh.target import SshTarget
from rackready.gates.engine.runner import Launcher
from rackready.model.several import SeveralHandover
from rackready.model.site import Site, SlurmHandover
from rackready.paths import EnvPaths


def launcher(site: Site, paths: EnvPaths, remote: Remote, hosts: Mapping[str, SshTarget]) -> Launcher:
    """Return the launcher that the site selects (gates.launcher); on a site with several schedulers, that of the part.

    It never starts a program on nodes of two schedulers.
    """
    makers = {"openmpi": _over_ssh, "srun": _under_slurm, "mpijob": _no_preparation}
    if not isinstance(site.handover, SeveralHandover):
        return makers[site.gates.launcher](site, paths, remote, hosts)

    @contextmanager
    def launch(head: str, peers: Sequence[str]) -> Iterator[tuple[str, ...]]:
        views = by_scheduler(site, [head, *peers])
        if len(views) != 1:
            raise UnreachableError(
                ", ".join([head, *peers]),
                "nodes of one program",
                expected="one scheduler",
                actual="; ".join(f"{view.called}: {', '.join(view.nodes)}" for view in views),
                next_step="Nothing was started. This is a bug: report it.",
            )
        seen = views[0].site
        with makers[seen.gates.launcher](seen, paths, remote, hosts)(head, peers) as options:
            yield options

    return launch


def _over_ssh(site: Site, paths: EnvPaths, remote: Remote, hosts: Mapping[str, SshTarget]) -> Launcher:
    @contextmanager
    def launch(head: str, peers: Sequence[str]) -> Iterator[tuple[str, ...]]:
        target = hosts[head]
        login = PeerLogin(target.user, asks=target.sudo is not None and target.sudo.password is not None)
        with launch_key(remote, head, target.address, peers, paths.known_hosts, login) as key:
            yield key.mpirun_options(site.access.port)

    return launch


def _under_slurm(site: Site, paths: EnvPaths, remote: Remote, hosts: Mapping[str, SshTarget]) -> Launcher:
    del remote, hosts

    @contextmanager
    def launch(head: str, peers: Sequence[str]) -> Iterator[tuple[str, ...]]:
        if not isinstance(site.handover, SlurmHandover):
            raise UnreachableError(
                "site.yml gates.launcher",
                "srun",
                expected="handover.kind slurm",
                actual="no Slurm",
                next_step="Use the launcher openmpi.",
            )
        try:
            qos, prefix = site.handover.validation_qos, site.handover.validation_reservation
            with connect_slurm(site.handover, paths) as slurm:
                if qos is not None:
                    slurm.require_qos(qos)
                nodes = [head, *peers]
                step = slurm.step_options({node: node_facts(site, node).platform.gpus for node in nodes})
                with reserved(slurm, nodes, prefix, site.handover.validation_user):
                    yield (*((f"--qos={qos}",) if qos is not None else ()), *step)
        except SchedulerError as error:
            raise UnreachableError.of(error.messages) from error

    return launch


def _no_preparation(site: Site, paths: EnvPaths, remote: Remote, hosts: Mapping[str, SshTarget]) -> Launcher:
    del site, paths, remote, hosts

    @contextmanager
    def launch(head: str, peers: Sequence[str]) -> Iterator[tuple[str, ...]]:
        del head, peers
        yield ()

    return launch
