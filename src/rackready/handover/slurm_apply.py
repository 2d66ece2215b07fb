"""Brings nodes into Slurm's files: what would change, the change, and what it takes for a node to stay drained."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rackready.design.handover_of import served
from rackready.drivers.remote import Remote
from rackready.drivers.scheduler import slurm_checks, slurm_values
from rackready.drivers.scheduler import slurm_files as driver
from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.slurm_files import Cluster, Reload, SlurmController
from rackready.drivers.scheduler.slurm_gres import own_gres
from rackready.drivers.scheduler.slurm_nodes import SlurmNodes
from rackready.drivers.ssh.first_contact import pin_at_first_contact
from rackready.drivers.ssh.session import DIAL_S
from rackready.drivers.ssh.sudo import Sudo
from rackready.drivers.ssh.target import node_target, slurm_target
from rackready.handover import slurm_checks as on_nodes
from rackready.handover import slurm_classic as classic
from rackready.handover.slurm_parts import read_parts
from rackready.model.host_list import host_list
from rackready.model.operations import files_of
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult
from rackready.model.problems import Problem
from rackready.model.site import Site, SlurmHandover
from rackready.ondevice import slurm_conf
from rackready.paths import EnvPaths
from rackready.profiles import loader
from rackready.render import slurm_files as render
from rackready.render.slurm_files import NodeParts


@dataclass(frozen=True, slots=True)
class Candidate:
    """Files as they are to be, beside the cluster as it is. ``failed``: nodes whose parts are unknown.

    ``files``: only those that differ. ``settled``: the same once slurmctld knows every node. ``nodes``: those that it
    must know.
    """

    cluster: Cluster
    files: Mapping[str, str]
    settled: Mapping[str, str]
    nodes: tuple[str, ...]
    reload: Reload
    failed: Mapping[str, NodeResult]
    left: tuple[str, ...] = ()
    """Nodes with a line that the site no longer names."""
    lacking: tuple[str, ...] = ()
    """Nodes in production without the check: Slurm does not run it anywhere before they have it."""
    spread: classic.Spread | None = None
    """Nodes with files of their own; None where they fetch them from slurmctld."""

    @property
    def behind(self) -> tuple[str, ...]:
        """Return the nodes of the cluster that lack files which it has already."""
        return self.spread.behind(self.cluster.files) if self.spread is not None else ()

    def diff(self) -> str:
        """Return what would change as a unified diff."""
        out: list[str] = []
        for name, text in sorted(self.files.items()):
            old = self.cluster.files.get(name, "")
            out += difflib.unified_diff(
                old.splitlines(keepends=True), text.splitlines(keepends=True), f"a/{name}", f"b/{name}"
            )
        return "".join(out)


@contextmanager
def controller(site: Site, paths: EnvPaths, nodes: Sequence[str]) -> Iterator[tuple[SlurmController, Remote]]:
    """Connect to the cluster's controller, and to nodes. Raises SchedulerError; ValueError without managed files."""
    handover, files = site.handover, files_of(site.handover)
    if not isinstance(handover, SlurmHandover) or files is None:
        raise ValueError(site.name)
    target = slurm_target(handover, paths.known_hosts)
    pin_at_first_contact(target, patience_s=DIAL_S)  # nothing of ours boots it
    if handover.user != "root":
        target = replace(target, sudo=Sudo())
    everywhere = files.classic or files.checks is not None
    names = [node.name for node in served(site)] if everywhere else nodes
    remote = Remote({driver.CONTROLLER: target} | {node: node_target(site, node, paths.known_hosts) for node in names})
    try:
        yield SlurmController(remote, target.where, str(files.folder), files.unit), remote
    finally:
        remote.close()


def controller_vars(site: Site, paths: EnvPaths) -> dict[str, list[str]]:
    """Return the variable of role slurm_node that names all controllers, {} where rackready reads no slurm.conf.

    Raises SchedulerError.
    """
    files = files_of(site.handover)
    if files is None or files.classic:  # slurmd reads its own file
        return {}
    with controller(site, paths, []) as (cluster, _remote):
        return {"slurm_node_controllers": controllers(cluster.look().files)}


def controllers(files: Mapping[str, str]) -> list[str]:
    """Return the address, else the name, of each SlurmctldHost of slurm.conf."""
    hosts = [value.partition("(") for key, value in slurm_conf.pairs(files) if key == "slurmctldhost"]
    return [address.rstrip(")") or name for name, _, address in hosts]


def nodes_of(site: Site, remote: Remote) -> SlurmNodes | None:
    """Return the nodes that have files of their own; None where they fetch them from slurmctld."""
    files = files_of(site.handover)
    return SlurmNodes(remote, str(files.folder)) if files is not None and files.classic else None


def candidate(
    site: Site,
    cluster: Cluster,
    where: str,
    parts: Mapping[str, NodeParts | NodeResult],
    lacking: tuple[str, ...] = (),
) -> Candidate:
    """Return the files with these nodes in them. Raises SchedulerError when they cannot stand beside what others wrote.

    A node that stands in them already and is not among ``parts`` keeps its lines. ``lacking``: nodes in production
    without the check.
    """
    files, handover = files_of(site.handover), site.handover
    assert files is not None  # noqa: S101 - controller() refuses a site without
    assert isinstance(handover, SlurmHandover)  # noqa: S101 - as above
    theirs = {name: text for name, text in cluster.files.items() if name not in {render.NODES, render.GRES}}
    partitions = render.partitions_of(files, handover.partition, default=not slurm_values.default_of_others(theirs))
    good = {node: found for node, found in parts.items() if isinstance(found, NodeParts)}
    lines = driver.own_lines(cluster.files) | {
        node: render.node_line(site, node, found) for node, found in good.items()
    }
    gres = own_gres(cluster.files) | {node: render.gres_lines(site, node, found) for node, found in good.items()}
    there = {node.name for node in served(site)}
    placed = [node for node in lines if node in there]
    others = sorted((driver.nodes_of_others(cluster.files) | set(lines)) - set(placed))
    names = [partition.name for partition in partitions]
    problems = list(driver.objections(where, cluster, sorted(lines), names, files, _channels(site)))
    if files.topology == "block":
        problems += _outside_blocks(where, others + render.outside_blocks(site, placed))
    if problems:
        raise SchedulerError.of(problems)
    new = frozenset(lines) - cluster.known - driver.settled(cluster.files)
    checks = slurm_checks.settings_beside(None if lacking else files.checks, driver.settings_of_others(cluster.files))
    extra = driver.extra_lines(cluster.files, files.topology, checks)
    wanted = {
        driver.MAIN: driver.with_include(cluster.files[driver.MAIN], render.NODES),
        driver.GRES_MAIN: driver.with_include(cluster.files.get(driver.GRES_MAIN, ""), render.GRES),
        render.NODES: render.nodes_text(lines, partitions, extra, new),
        render.GRES: render.gres_text(gres),
    }
    if files.topology == "tree":
        wanted[render.TOPOLOGY] = render.tree_text(site, placed, others)
    elif files.topology == "block":
        wanted[render.TOPOLOGY] = render.block_text(site, placed)
    settled = wanted | {render.NODES: render.nodes_text(lines, partitions, extra, frozenset())}
    return Candidate(
        cluster,
        {name: text for name, text in wanted.items() if cluster.files.get(name) != text},
        settled,
        tuple(sorted(lines)),
        driver.reload_for(cluster, wanted),
        {node: found for node, found in parts.items() if isinstance(found, NodeResult)},
        tuple(sorted(set(lines) - there)),
        lacking,
    )


def _channels(site: Site) -> str:
    """Return who makes the IMEX channels of the site's nodes in Slurm, "" where they need none."""
    needed = any(loader.platform(node.platform).runs_imex for node in served(site))
    return site.handover.imex_channels if needed and isinstance(site.handover, SlurmHandover) else ""


def _outside_blocks(where: str, nodes: Sequence[str]) -> Iterator[Problem]:
    if nodes:
        yield Problem.of(
            f"{where} topology",
            "blocks",
            "Set handover.files.topology to tree or none. Nodes of the site's own can be named in nvlink_domains.",
            expected="every node of the cluster in an NVLink domain of the site",
            actual=f"{host_list(nodes)} in none: no job would start there",
        )


def bring(site: Site, paths: EnvPaths, nodes: list[str], *, check: bool) -> dict[str, NodeResult]:
    """Bring nodes into the cluster's files; return a result per node. Raises SchedulerError for the cluster's own.

    With ``check`` nothing changes, and nothing is tried.
    """
    with controller(site, paths, nodes) as (cluster, remote):
        if not check:
            recover(site, cluster, remote)
        found = wanted(site, cluster, remote, nodes, on_nodes.out_of_service(paths))
        changed = sorted(found.files) if check else apply(cluster, found, nodes_of(site, remote))
    words = f"Slurm's files: {'would change' if check else 'changed'}: {', '.join(changed)}" if changed else ""
    words = "; ".join(filter(None, [words, waits(found), "" if check else to_copy(site, found, changed)]))
    data = {"lacking": list(found.lacking)} if found.lacking else {}
    good = {
        node: NodeResult(Outcome.PASS, words, changed=bool(changed), data=data)
        for node in nodes
        if node not in found.failed
    }
    return good | dict(found.failed)


def recover(site: Site, cluster: SlurmController, remote: Remote) -> str:
    """End what a killed run began, and return what was done; "" when there was nothing. Raises SchedulerError."""
    files = files_of(site.handover)
    of_others = files.of_others if files is not None else frozenset[str]()
    return classic.recover(cluster, nodes_of(site, remote), {node.name for node in served(site)}, of_others)


def to_copy(site: Site, found: Candidate, changed: Sequence[str]) -> str:
    """Return what people copy to hosts that rackready does not write; "" when nothing."""
    files, names = files_of(site.handover), [name for name in changed if name in found.settled]  # not what some lacked
    if files is None or found.spread is None:
        return ""
    return classic.to_copy(files, names, found.spread, found.cluster)


def waits(found: Candidate) -> str:
    """Return why Slurm does not run the check yet; "" when nothing holds it back."""
    if not found.lacking:
        return ""
    gone = [node for node in found.lacking if node in found.left]
    there = [node for node in found.lacking if node not in gone]
    text = (
        "Slurm's checks - Expected: `slurm-check --look` finds nothing on every node in production "
        f"Actual: not so on {host_list(found.lacking)}. Slurm runs it nowhere yet, since it would drain such a node."
    )
    if there:
        text += f" Run `rackready handover` for {host_list(there)}, or `rackready retire` for one that is gone."
    if gone:
        text += (
            f" The site does not name {host_list(gone)}: delete the line in Slurm's files, or set "
            "handover.files.checks.others."
        )
    return text


def wanted(
    site: Site, cluster: SlurmController, remote: Remote, nodes: list[str], out: AbstractSet[str] = frozenset()
) -> Candidate:
    """Return the candidate for these nodes. Raises SchedulerError, also for files as a killed run left them.

    ``out``: nodes on which no job may start.
    """
    now = cluster.look()
    if now.journal:
        raise SchedulerError(
            cluster.where,
            "Slurm's files",
            expected="no change under way",
            actual="one that was interrupted",
            next_step="`rackready slurm apply` ends it.",
        )
    files, hosts = files_of(site.handover), nodes_of(site, remote)
    parts = read_parts(site, remote, nodes)
    if files is not None and hosts is not None:
        parts |= {node: _of_others(node) for node in nodes if node in files.of_others}
    found = candidate(site, now, cluster.where, parts, _lacking(site, remote, now, out))
    if files is None or hosts is None:
        return found
    entering = [node for node in nodes if node not in found.failed]
    return replace(found, spread=classic.spread_over(site, files, now, cluster.where, hosts, entering))


def _of_others(node: str) -> NodeResult:
    text = (
        f"{node}: Slurm's files - Expected: written by rackready Actual: named in handover.files.not_written. "
        "Remove it there, then run again."
    )
    return NodeResult(Outcome.ERROR, text)


def _lacking(site: Site, remote: Remote, now: Cluster, out: AbstractSet[str] = frozenset()) -> tuple[str, ...]:
    """Return the nodes that run jobs and lack the check; () where Slurm runs it already, or is not to."""
    files = files_of(site.handover)
    if files is None or files.checks is None or slurm_checks.runs_it(now.files):
        return ()
    in_production = sorted((set(driver.own_lines(now.files)) & driver.settled(now.files)) - out)
    return on_nodes.lacking(remote, in_production, [node.name for node in served(site)], files.checks)


def apply(cluster: SlurmController, found: Candidate, nodes: SlurmNodes | None = None) -> list[str]:
    """Make a candidate the cluster's files; return the names of those that changed. Raises SchedulerError.

    A node that slurmctld did not know begins drained. Its line loses that state as soon as slurmctld has it: slurmctld
    keeps a node's state itself, and would drain the node anew at each restart. Configless nodes need no reload
    for that; where nodes have files of their own, slurmctld compares checksums, so all read the files again.
    """
    changed = sorted(found.files)
    spread = found.spread
    if spread is not None and nodes is not None and not changed:
        healed = classic.heal(nodes, spread, found.cluster.files)
        changed = [f"files of {host_list(healed)}"] if healed else []
    if found.files:
        _change(cluster, nodes, found, found.cluster, found.files, found.reload)
    now = cluster.look()
    rest = {name: text for name, text in found.settled.items() if now.files.get(name) != text}
    if rest:
        _change(cluster, nodes, found, now, rest, "none")
    return changed or sorted(rest)


def _change(
    cluster: SlurmController,
    nodes: SlurmNodes | None,
    found: Candidate,
    now: Cluster,
    files: Mapping[str, str],
    reload: Reload,
) -> None:
    known = found.nodes if reload != "none" else ()
    if found.spread is None or nodes is None:
        cluster.change(files, now.seen, reload, known)
    else:
        how: Reload = "reconfigure" if reload == "none" else reload
        classic.change(classic.Everywhere(cluster, nodes, found.spread), now, files, how, known)
