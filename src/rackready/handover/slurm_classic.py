"""Slurm's files on every node of a cluster that is not configless: which nodes, and the change in Slurm's order.

Slurm's faq.shtml, "How should I add nodes to Slurm?": to 24.05 stop slurmctld, update the files on all nodes, restart
slurmd there, start slurmctld; from 24.11 update the files, then `scontrol reconfigure`. slurmctld compares a checksum
of slurm.conf, comments included, when a node registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field

from rackready.design.handover_of import served
from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.slurm_files import (
    GRES_MAIN,
    MAIN,
    Cluster,
    NoAnswerError,
    Recovered,
    Reload,
    SlurmController,
    TakenBackError,
    defined,
    own_lines,
)
from rackready.drivers.scheduler.slurm_nodes import BESIDE, NodeLook, NotWritten, SlurmNodes, digests, shared
from rackready.model.host_list import host_list
from rackready.model.problems import Message, Problem
from rackready.model.site import Site
from rackready.model.slurm_files import SlurmFiles
from rackready.ondevice import slurm_conf
from rackready.render.slurm_files import GRES, NODES, TOPOLOGY


@dataclass(frozen=True, slots=True)
class Spread:
    """The nodes that get the cluster's files, each as it was looked at. ``joining``: those that slurmctld did not have.

    ``of_others``: nodes of the cluster to which their owner copies the files.
    """

    looks: Mapping[str, NodeLook] = field(default_factory=dict)
    joining: frozenset[str] = frozenset()
    of_others: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes, sorted."""
        return tuple(sorted(self.looks))

    def behind(self, files: Mapping[str, str]) -> tuple[str, ...]:
        """Return the nodes that lack a file, or have another one than these."""
        wanted = digests(shared(files))
        return tuple(
            node
            for node in self.nodes
            if any(self.looks[node].files.get(name) != digest for name, digest in wanted.items())
        )

    def beside(self, files: Mapping[str, str]) -> dict[str, dict[str, str]]:
        """Return joining node -> the further files of slurmd that it has none of."""
        return {
            node: {name: files[name] for name in BESIDE if name in files and name not in self.looks[node].files}
            for node in self.joining
        }


def hosts_of(
    site: Site, files: SlurmFiles, cluster: Cluster, entering: Sequence[str]
) -> tuple[list[str], frozenset[str]]:
    """Return the nodes that get the files, and those among them that the cluster does not have yet."""
    there = {node.name for node in served(site)} - files.of_others
    inside = there & (cluster.known | set(own_lines(cluster.files)))
    joining = frozenset(entering) - frozenset(own_lines(cluster.files))
    return sorted(inside | set(entering)), joining


def spread_over(
    site: Site, files: SlurmFiles, cluster: Cluster, where: str, nodes: SlurmNodes, entering: Sequence[str]
) -> Spread:
    """Look at every node that has the files. Raises SchedulerError for all that cannot get them, by name."""
    wanted, joining = hosts_of(site, files, cluster, entering)
    found = nodes.look(wanted)
    looks = {node: look for node, look in found.items() if isinstance(look, NodeLook)}
    mute = {node: why for node, why in found.items() if isinstance(why, str)}
    others = (cluster.known | defined(cluster.files[MAIN], cluster.files, "NodeName")) - set(wanted)
    problems = [
        *_foreign(where, others - files.of_others),
        *_mute(mute),
        *_different(files, cluster, {node: look for node, look in looks.items() if node not in joining}),
        *_not_its_own(files, cluster, looks),
        *_killing(looks),
    ]
    if problems:
        raise SchedulerError.of(problems)
    return Spread(looks, joining, tuple(sorted(others & files.of_others)))


def _foreign(where: str, nodes: frozenset[str] | set[str]) -> Iterator[Problem]:
    if nodes:
        yield Problem.of(
            where,
            f"Slurm's files on {host_list(sorted(nodes))}",
            "Copy the files there yourself after each change and name the nodes in handover.files.not_written, or add "
            "them to the site.",
            expected="nodes of the site, which rackready can write to",
            actual="nodes that slurmctld knows and the site does not name",
        )


def _mute(mute: Mapping[str, str]) -> Iterator[Problem]:
    for node, why in sorted(mute.items()):
        yield Problem.of(
            node,
            "Slurm's files",
            "Nothing was changed. Bring the node back, or name it in handover.files.not_written while it is away: "
            "`rackready handover` writes its files when it returns.",
            expected="can be read on every node of the cluster",
            actual=why,
        )


def _different(files: SlurmFiles, cluster: Cluster, looks: Mapping[str, NodeLook]) -> Iterator[Problem]:
    """Yield nodes with another file than the controller's that rackready did not write: it writes over its own only."""
    wanted = digests(shared(cluster.files))
    for node, look in sorted(looks.items()):
        others = {name: digest for name, digest in look.files.items() if name not in look.ours}
        names = sorted(name for name, digest in wanted.items() if others.get(name, digest) != digest)
        if names:
            yield Problem.of(
                node,
                f"{', '.join(names)} in {files.folder}",
                "Nothing was changed. Compare them, and make them the same or remove them there: a missing file is "
                "written.",
                expected="the same as on the Slurm controller",
                actual="different",
            )


_FETCH = "or let nodes fetch them (enable_configless, and handover.files.distribution configless)."


def _not_its_own(files: SlurmFiles, cluster: Cluster, looks: Mapping[str, NodeLook]) -> Iterator[Problem]:
    """Yield nodes whose folder is shared, or whose files are links: what is written there is not the node's own."""
    names = {*shared(cluster.files), MAIN, GRES_MAIN, NODES, GRES, TOPOLOGY}
    for node, look in sorted(looks.items()):
        if look.on_a_network:
            yield Problem.of(
                node,
                f"{files.folder}",
                f"Nothing was changed. Give each node a folder of its own, {_FETCH}",
                expected="on a file system of the node alone",
                actual=look.filesystem,
            )
        elif links := sorted(names & look.links):
            yield Problem.of(
                node,
                f"{', '.join(links)} in {files.folder}",
                f"Nothing was changed. Put the files themselves there, {_FETCH}",
                expected="files, which rackready replaces as a whole",
                actual="links",
            )


def _killing(looks: Mapping[str, NodeLook]) -> Iterator[Problem]:
    for node, look in sorted(looks.items()):
        if look.restart_kills:
            yield Problem.of(
                node,
                "KillMode of slurmd.service",
                "Nothing was changed. Set KillMode=process in the unit, as Slurm's own does, and reload systemd.",
                expected="process: a restart of slurmd leaves jobs alone",
                actual=look.kill_mode or "unknown",
            )


@dataclass(frozen=True, slots=True)
class Everywhere:
    """Where one change goes: the controller, and the nodes of a spread."""

    cluster: SlurmController
    nodes: SlurmNodes
    spread: Spread


def change(places: Everywhere, found: Cluster, files: Mapping[str, str], reload: Reload, known: Sequence[str]) -> None:
    """Write files on the controller and on every node, and make all use them. Raises SchedulerError.

    When a node cannot be written, or slurmctld does not come up, the old files return everywhere. Nodes are written
    only while it is known which files the controller has: after a lost answer it is asked first.
    """
    cluster, nodes, spread = places.cluster, places.nodes, places.spread
    old = {name: found.files.get(name) for name in files}
    with _asked_again(places):
        if not cluster.begin(files, found.seen, reload, known, spread.nodes):
            return
    all_files = {**found.files, **files}
    # A reconfigure makes slurmd read its files; one that restarts before it registers with another checksum.
    bad = nodes.write(
        spread.nodes,
        shared(all_files),
        {**found.files, **old},
        spread.joining,
        spread.beside(all_files),
        restart=reload == "restart",
    )
    if not bad:
        try:
            with _asked_again(places, stopped=True):
                cluster.finish(reload, known)
        except TakenBackError as error:
            undone = _undo(cluster, nodes, spread.nodes, old, files)
            raise SchedulerError.of([*error.messages, *undone]) from error
        return
    try:
        words = cluster.back()
    except SchedulerError as error:
        raise SchedulerError.of([*_not_written(bad, _TO_END), *_may_stand(error)]) from error
    undone = _undo(cluster, nodes, spread.nodes, old, files)
    raise SchedulerError.of([*_not_written(bad, f"The old files are back: {words}."), *undone])


_TO_END = "`rackready slurm apply` ends the change."


@contextmanager
def _asked_again(places: Everywhere, *, stopped: bool = False) -> Iterator[None]:
    """When an answer of the controller is lost, end the change as the next run would, and say how that went.

    The controller's lock refuses that while the first program is still at work. ``stopped``: slurmctld may stand still.
    """
    try:
        yield
    except TakenBackError:
        raise
    except NoAnswerError as error:
        try:
            words = recover(places.cluster, places.nodes, set(places.spread.nodes))
        except SchedulerError as again:
            first = [one for one in error.messages if one not in again.messages]
            raise SchedulerError.of([*first, *_may_stand(again)]) from error
        said = f"Asked again, it said: {words or 'no change is open'}. Run again."
        raise SchedulerError.of([error.messages[0].then(said), *error.messages[1:]]) from error
    except SchedulerError as error:
        raise SchedulerError.of(_may_stand(error) if stopped else error.messages) from error


def _may_stand(error: SchedulerError) -> list[Message | Problem]:
    """Return the messages of an error with what to do where slurmctld may stand still."""
    step = "slurmctld may be stopped: run `rackready slurm apply`, or `systemctl start slurmctld` on the controller."
    return [*error.messages[:-1], error.messages[-1].then(step)]


def _undo(
    cluster: SlurmController,
    nodes: SlurmNodes,
    hosts: Sequence[str],
    files: Mapping[str, str | None],
    instead: Mapping[str, str | None],
) -> list[Message | Problem]:
    """Write files back on nodes and end the change; return a problem for each node where that failed."""
    bad = nodes.write(hosts, files, instead)
    if not bad:
        try:
            cluster.close()
        except SchedulerError as error:
            return list(error.messages)
    return list(_not_written(bad, _BRING))


_BRING = (
    "Bring the node back, or name it in handover.files.not_written while it is away; then `rackready slurm apply` ends "
    "the change."
)


def _not_written(bad: Mapping[str, NotWritten], step: str) -> Iterator[Problem]:
    """Yield a problem for each node that was not written. One with a file of somebody else needs another step."""
    for node, failed in sorted(bad.items()):
        compare = (
            f"Compare {failed.changed} there with the Slurm controller's, make it the same or remove it there, then "
            "run `rackready slurm apply`."
        )
        hint = compare if failed.changed else step
        yield Problem.of(node, "Slurm's files", hint, expected="written, and slurmd runs with them", actual=failed.why)


def recover(
    cluster: SlurmController,
    nodes: SlurmNodes | None,
    names: AbstractSet[str],
    of_others: AbstractSet[str] = frozenset(),
) -> str:
    """End what a killed run began, on the controller and then on the nodes. Raises SchedulerError.

    slurmctld runs first: a node whose files differ meanwhile is better than no scheduler. ``names``: the site's nodes;
    ``of_others``: those that rackready does not write, e.g. because they are away.
    """
    found: Recovered = cluster.recover()
    if not found.hosts:
        return found.words
    if nodes is None:
        raise SchedulerError(
            cluster.where,
            "a change of Slurm's files on every node",
            expected="handover.files.distribution classic, with which it began",
            actual="configless",
            next_step="Set it back, run `rackready slurm apply`, then change it.",
        )
    hosts = [name for name in found.hosts if name in names and name not in of_others]
    gone, away = (
        [name for name in found.hosts if name not in names],
        [name for name in found.hosts if name in of_others],
    )
    bad = nodes.write(hosts, found.files, found.instead)
    if bad:
        raise SchedulerError.of(list(_not_written(bad, _BRING)))
    cluster.close()
    done = [f"on the nodes too: {host_list(hosts)}"] if hosts else []
    left = [f"not on {host_list(gone)}, no longer in the site"] if gone else []
    if away:
        left.append(f"not on {host_list(away)} (handover.files.not_written): {_later(found.files)}")
    return "; ".join([found.words, *done, *left, "slurmctld runs with these files"])


def _later(files: Mapping[str, str | None]) -> str:
    """Return what a node that was away during a change needs when it returns."""
    return f"when it returns, compare {', '.join(sorted(files))} there with the controller's before slurmd starts"


def heal(nodes: SlurmNodes, spread: Spread, files: Mapping[str, str]) -> tuple[str, ...]:
    """Write the cluster's files on nodes that lack some, and return these. Raises SchedulerError."""
    behind = spread.behind(files)
    if behind:
        bad = nodes.write(behind, shared(files), {}, spread.joining, spread.beside(files))
        if bad:
            raise SchedulerError.of(list(_not_written(bad, "Correct that, then run again.")))
    return behind


def to_copy(files: SlurmFiles, names: Sequence[str], spread: Spread, cluster: Cluster) -> str:
    """Return what is left to people after a change: hosts that rackready does not write. "" without a change."""
    if not names:
        return ""
    others, backups = host_list(spread.of_others), ", ".join(_backups(cluster.files))
    hosts = [f"{others} (handover.files.not_written)"] if others else []
    hosts.append("login nodes")
    if backups:
        hosts.append(f"the backup controller {backups}, unless it shares the folder")
    text = f"Copy {', '.join(sorted(names))} from {files.folder} on the Slurm controller to {', and to '.join(hosts)}."
    if others:
        text += (
            f' Restart slurmd on {others}: until then slurmctld logs that they appear "to have a different slurm.conf".'
        )
    return text


def _backups(files: Mapping[str, str]) -> list[str]:
    """Return the further controllers of slurm.conf(5): SlurmctldHost after the first one, or BackupController."""
    found = [(key, value) for key, value in slurm_conf.pairs(files) if key in {"slurmctldhost", "backupcontroller"}]
    hosts = [value.partition("(")[0] for key, value in found if key == "slurmctldhost"]
    return hosts[1:] + [value for key, value in found if key == "backupcontroller"]
