"""Phase handover: certified nodes join the scheduler and are released; others are drained, with our reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rackready.design.handover_of import HandoverView, by_scheduler, place_of
from rackready.design.munge_key import munge_key
from rackready.design.node_labels import node_labels
from rackready.design.pinned import site_of
from rackready.design.secrets import in_memory
from rackready.drivers.ansible import run_playbook
from rackready.drivers.scheduler.base import NotOursError, SchedulerAdapter, UnknownNodeError, reason_text
from rackready.drivers.scheduler.places import (
    DRAIN,
    PART,
    PLACE,
    RELEASE,
    absence,
    drain_digest,
    drained_by_us,
    handed_to,
    places,
    record_drain,
    twice_in,
    where,
)
from rackready.drivers.scheduler.registry import adapter_for
from rackready.drivers.scheduler.reserve import end_leftovers
from rackready.drivers.scheduler.slurm import SlurmAdapter
from rackready.drivers.scheduler.slurm_release import taken_by
from rackready.drivers.scheduler.slurm_text import of_registration
from rackready.handover.certificate import require
from rackready.handover.certify import fingerprints
from rackready.handover.keys import Keys, keys_of
from rackready.handover.returned import kept_out
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger
from rackready.model.base import Model
from rackready.model.evidence import Fingerprint
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.operations import absent_is_free, files_of
from rackready.model.outcome import CONTINUES, Finding, Outcome
from rackready.model.phase import UNTOUCHED, NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import Site, SlurmHandover
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

PLAYBOOK = "handover.yml"
LACKING = "lacking"
"""In the data of a node that entered Slurm's files: nodes in production that lack the check."""
PARTNER_OF = "partner_of"
"""In the ledger entry of a drain, among what was observed: the nodes that the drained one is lent to as a partner."""


def run_handover(ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
    """Hand over every node with a certificate for what it is now, and drain the others. Returns a result per node."""
    from rackready.handover.other_schedulers import clear_elsewhere  # noqa: PLC0415 - it drains with this module

    site = site_of(ctx)
    paths = EnvPaths(ctx.root, ctx.env)
    out: dict[str, NodeResult] = {}
    digests: dict[str, str] = {}
    seen: dict[str, Fingerprint] = {}
    keys = keys_of(site, paths)
    out |= _returning(paths, nodes)
    for node, found in fingerprints(site, paths, [node for node in nodes if node not in out]).items():
        digest, refusal = _certified(keys, node, found)
        if refusal is None and isinstance(found, Fingerprint):
            digests[node], seen[node] = digest, found
        else:
            out[node] = refusal or NodeResult(Outcome.ERROR, str(found))
    if out and not ctx.check:
        drain_nodes(ctx, list(out), {node: result.message for node, result in out.items()})
    out |= clear_elsewhere(ctx, site, paths, list(seen))
    joined: dict[str, NodeResult] = {}
    for view in by_scheduler(site, [node for node in seen if node not in out]):
        joined |= _join(ctx, view.site, {node: seen[node] for node in view.nodes})
    out |= {node: result for node, result in joined.items() if result.outcome not in CONTINUES}
    ready = [node for node in digests if node not in out]
    released = offer_nodes(ctx, paths, ready, digests)
    return out | {node: _merged(joined[node], released[node]) for node in ready}


def _returning(paths: EnvPaths, nodes: list[str]) -> dict[str, NodeResult]:
    """Return why nodes are kept from production, whatever certificate they have."""
    with Ledger.open(paths.database) as ledger:
        found = {node: kept_out(ledger, node) for node in nodes}
    return {node: NodeResult(Outcome.FAIL, str(why)) for node, why in found.items() if why is not None}


def _join(ctx: PhaseContext, site: Site, seen: Mapping[str, Fingerprint]) -> dict[str, NodeResult]:
    """Let the nodes join the cluster. The role reads the munge key itself, from the place that the site file names.

    Slurm's files come first, since slurmd needs the node's line. They make Slurm run the check of nodes only when every
    node in production has it; so where they did not yet, they come again.
    """
    nodes = list(seen)
    if isinstance(site.handover, KubernetesHandover) and site.handover.join is not None:
        from rackready.handover.kube_join import bring_in  # noqa: PLC0415 - few sites let rackready join nodes

        paths = EnvPaths(ctx.root, ctx.env)
        joined = bring_in(ctx, site, paths, nodes)
        return joined | _stay_ready(paths, {node: result for node, result in joined.items() if not result.touched})
    if not isinstance(site.handover, SlurmHandover):
        return {node: NodeResult(Outcome.PASS) for node in nodes}
    entered = _entered(ctx, site, nodes)
    bad = {node: result for node, result in entered.items() if result.outcome is not Outcome.PASS}
    there = [node for node in nodes if node not in bad]
    try:
        variables = (
            join_vars(site.handover)
            | (_cluster_vars(ctx, site) if there else {})
            | (controller_vars(site, EnvPaths(ctx.root, ctx.env)) if there else {})
            | _check_vars(ctx, site, {node: seen[node] for node in there})
        )
    except RackreadyError as error:  # also of the munge key: nodes of other schedulers go on
        return bad | dict.fromkeys(there, NodeResult(Outcome.ERROR, str(error)))
    played = run_playbook(ctx, PLAYBOOK, there, variables) if there else {}
    out = bad | {node: _after(entered.get(node), result) for node, result in played.items()}
    good = [node for node in there if played[node].outcome in CONTINUES]
    if ctx.check or not any(LACKING in entered[node].data for node in good if node in entered):
        return out
    for node, result in _entered(ctx, site, good).items():
        out[node] = _after(result, out[node]) if result.outcome in CONTINUES else result
    return out


def _cluster_vars(ctx: PhaseContext, site: Site) -> dict[str, Any]:
    """Return the role's variables that slurmctld itself answers: what may join, and how. Raises RackreadyError.

    A text that is no munge key, or not the controller's, is refused before it replaces the right one on a node.
    """
    key = site.handover.munge_key if isinstance(site.handover, SlurmHandover) else None
    with adapter_for(site, EnvPaths(ctx.root, ctx.env)) as adapter:
        if not isinstance(adapter, SlurmAdapter):
            return {}
        release, configless = adapter.joined_by()
        if key is not None:
            adapter.require_munge_key(munge_key(key), str(key))
    return {"slurm_node_releases": list(taken_by(release)), "slurm_node_configless": configless}


def controller_vars(site: Site, paths: EnvPaths) -> dict[str, list[str]]:
    """Return the role's variable with all controllers of the cluster, as slurm.conf names them. Raises SchedulerError.

    {} where rackready reads no slurm.conf.
    """
    from rackready.handover import slurm_apply  # noqa: PLC0415 - few sites let rackready read them

    return slurm_apply.controller_vars(site, paths) if files_of(site.handover) is not None else {}


def _check_vars(ctx: PhaseContext, site: Site, seen: Mapping[str, Fingerprint]) -> dict[str, Any]:
    """Return the role's variables that put the check of nodes on them, where Slurm is to run one."""
    from rackready.handover.slurm_checks import check_vars  # noqa: PLC0415 - few sites have it

    files = files_of(site.handover)
    checked = files is not None and files.checks is not None and len(seen) > 0
    return check_vars(site, EnvPaths(ctx.root, ctx.env), seen) if checked else {}


def _entered(ctx: PhaseContext, site: Site, nodes: list[str]) -> dict[str, NodeResult]:
    """Bring the nodes into the cluster's files, where these are ours to write."""
    from rackready.handover.slurm_apply import bring  # noqa: PLC0415 - few sites let rackready write them

    if files_of(site.handover) is None or not nodes:
        return {}
    try:
        return bring(site, EnvPaths(ctx.root, ctx.env), nodes, check=ctx.check)
    except RackreadyError as error:
        return _stay_ready(EnvPaths(ctx.root, ctx.env), dict.fromkeys(nodes, NodeResult(Outcome.ERROR, str(error))))


def _stay_ready(paths: EnvPaths, results: dict[str, NodeResult]) -> dict[str, NodeResult]:
    """Return results; by an error of the scheduler, nodes in production stay there: nothing speaks against them."""
    bad = {node: result for node, result in results.items() if result.outcome is not Outcome.PASS}
    if not bad:
        return results
    with Ledger.open(paths.database) as ledger:
        ready = {row.name for row in ledger.states() if row.state is NodeState.READY}
    stays = {node: result for node, result in bad.items() if node in ready}
    return results | {
        node: replace(result, data={**result.data, UNTOUCHED: True}, touched=False) for node, result in stays.items()
    }


def _after(entered: NodeResult | None, played: NodeResult) -> NodeResult:
    if entered is None or not entered.message:
        return played
    changes = [entered.message, *played.data.get("changes", [])]
    return replace(played, changed=entered.changed or played.changed, data={**played.data, "changes": changes})


def join_vars(handover: Model) -> dict[str, Any]:
    """Return the variables of the role that joins the cluster: where the site keeps the munge key."""
    key = handover.munge_key if isinstance(handover, SlurmHandover) else None
    if key is None:
        return {}
    return {"slurm_node_munge_key_file": str(in_memory(key).file), "slurm_node_munge_key_env": ""}


def _certified(keys: Keys, node: str, found: Fingerprint | Finding) -> tuple[str, NodeResult | None]:
    if isinstance(found, Finding):
        return "", NodeResult(Outcome.ERROR, str(found))
    try:
        return require(keys, node, found).digest, None
    except RackreadyError as error:
        return "", NodeResult(Outcome.FAIL, str(error))


def _merged(joined: NodeResult, released: NodeResult) -> NodeResult:
    data = {**joined.data, **released.data}
    if joined.changed:
        data.pop(UNTOUCHED, None)
    return replace(
        released,
        changed=joined.changed or released.changed,
        data=data,
        touched=joined.changed or released.touched,
    )


def drain_nodes(
    ctx: PhaseContext,
    nodes: list[str],
    reasons: dict[str, str],
    *,
    partner_of: Sequence[str] = (),
    views: Sequence[HandoverView] | None = None,
) -> dict[str, NodeResult]:
    """Drain nodes, with our prefix before each reason, and return a result per node.

    A drain that somebody else set stays as it is. A node that the site gave to another scheduler since is drained in
    both. ``partner_of``: the nodes that these are lent to as partners; the ledger keeps it, so that the next run finds
    what a killed one lent. ``views``: the schedulers in which they are drained, default: all where they may run jobs.
    """
    site, paths = site_of(ctx), EnvPaths(ctx.root, ctx.env)
    if views is None and nodes:
        with Ledger.open(paths.database) as ledger:
            views = places(site, ledger, nodes)
    twice = twice_in(views or ())

    def drain(view: Site, adapter: SchedulerAdapter, ledger: Ledger, node: str) -> NodeResult:
        wanted = reason_text(reasons.get(node) or "drained")

        def observe(_stored: dict[str, object]) -> Observation:
            now = adapter.show(node)
            theirs = now.drained and not now.ours and not adapter.beside_others
            # The reason is compared as a value: one in other words is replaced, and nothing else depends on it.
            ours = now.drained and now.reason == wanted
            return Observation.HAPPENED if theirs or ours else Observation.NOT_HAPPENED

        try:
            before = adapter.show(node)
        except UnknownNodeError as error:
            why = f"unknown to {place_of(view)}" if node in twice else absent_is_free(view.handover)
            if node not in twice and (lost := absence(view, ledger, node, error)) is not error:
                raise lost from error
            if why:
                return NodeResult(Outcome.PASS, f"{node}: {why}")
            raise
        if ctx.check:
            return NodeResult(Outcome.PASS, f"{node}: would be drained: {wanted}")
        seen = {"state": before.state, "reason": before.reason, PLACE: place_of(view)}
        effect = run_effect(
            ledger,
            node,
            DRAIN,
            drain_digest(wanted),
            before=lambda: {**seen, PARTNER_OF: list(partner_of)},
            observe=observe,
            act=lambda _token: {"changed": adapter.drain(node, wanted)},
        )
        theirs = before.drained and not before.ours and not of_registration(before.reason)
        if theirs and effect.outcome == "already" and drained_by_us(ledger.entries(node), place_of(view)):
            record_drain(ledger, node, wanted, seen, changed=False)  # somebody drained it over our drain
        return NodeResult(
            Outcome.PASS,
            f"{node}: {adapter.show(node).reason}",
            bool(effect.outcome == "done" and effect.result.get("changed")),
        )

    return _each(views or (), paths, drain)


def offer_nodes(ctx: PhaseContext, paths: EnvPaths, nodes: list[str], digests: dict[str, str]) -> dict[str, NodeResult]:
    """Offer nodes to jobs, with facts about them, and return a result per node.

    A node in production whose scheduler refuses that stays there. ``digests``: node -> SHA-256 (hex) of the certificate
    that allows it.
    """
    site = site_of(ctx)

    def release(view: Site, adapter: SchedulerAdapter, ledger: Ledger, node: str) -> NodeResult:
        if not ctx.check:
            end_leftovers(adapter, view.handover, [node])  # no job of users starts in one, though the node looks usable
        try:
            before = adapter.show(node)
        except UnknownNodeError:
            if ctx.check and absent_is_free(view.handover):
                enters = (
                    "join Kubernetes and be" if view.handover.kind == "kubernetes" else "be added to Slurm's files and"
                )
                return NodeResult(Outcome.PASS, f"{node}: would {enters} released")
            raise
        if ctx.check:
            return NodeResult(
                Outcome.PASS, f"{node}: {'is on offer already' if before.usable else 'would be released'}"
            )
        # before the offer, so that no job is placed by facts that are missing
        labelled = adapter.label(node, node_labels(site, node), digests[node])
        effect = run_effect(
            ledger,
            node,
            RELEASE,
            digests[node],
            before=lambda: {"state": before.state, "reason": before.reason, **where(site, node)},
            observe=lambda _stored: Observation.HAPPENED if adapter.show(node).usable else Observation.NOT_HAPPENED,
            act=lambda token: _released(view, adapter, ledger, node, token),
        )
        _keep_where(ledger, site, node, digests[node], again=drained_by_us(ledger.entries(node), place_of(view)))
        changed = effect.outcome == "done" and bool(effect.result.get("changed"))
        return NodeResult(
            Outcome.PASS,
            f"{node}: {'released' if changed else 'on offer already'} ({adapter.show(node).state})",
            changed or labelled,
        )

    return _stay_ready(paths, _each(by_scheduler(site, nodes), paths, release))


def _released(view: Site, adapter: SchedulerAdapter, ledger: Ledger, node: str, token: int) -> dict[str, object]:
    """Release a node for the intent of this token. A refusal changed nothing, which ends the intent."""
    try:
        if not isinstance(adapter, SlurmAdapter):
            return {"changed": adapter.release(node)}
        before = [entry for entry in ledger.entries(node) if entry.token < token]
        return {"changed": adapter.release(node, drained_by_us=drained_by_us(before, place_of(view)))}
    except NotOursError as error:
        ledger.failed(token, str(error))
        raise


def _keep_where(ledger: Ledger, site: Site, node: str, digest: str, *, again: bool) -> None:
    """Record the part to which a node is handed over where the ledger has another, or none of an older version.

    ``again``: the ledger ends with a drain of ours, which somebody lifted by hand.
    """
    record, here = handed_to(ledger, node), where(site, node)
    other = here[PART] and (record is None or (record.part, record.place) != (here[PART], here[PLACE]))
    if other or again:
        ledger.done(ledger.begin(node, RELEASE, digest, here).token, {"observed": "on offer already"})


def _each(
    views: Sequence[HandoverView], paths: EnvPaths, work: Callable[[Site, SchedulerAdapter, Ledger, str], NodeResult]
) -> dict[str, NodeResult]:
    """Return the result of each node. A scheduler that does not answer is an error of its own nodes only.

    A node of two schedulers has the result of both together, an error of one is its error.
    """
    out: dict[str, NodeResult] = {}
    if not any(view.nodes for view in views):
        return out
    with Ledger.open(paths.database) as ledger:
        for view in views:
            try:
                with adapter_for(view.site, paths) as adapter:
                    found = {node: _guarded(view.site, adapter, ledger, node, work) for node in view.nodes}
            except RackreadyError as error:
                found = dict.fromkeys(view.nodes, NodeResult(Outcome.ERROR, str(error)))
            out |= {node: _both(out.get(node), result) for node, result in found.items()}
    return out


def _both(before: NodeResult | None, result: NodeResult) -> NodeResult:
    if before is None or before.outcome is result.outcome is Outcome.PASS:
        return result if before is None else replace(result, changed=before.changed or result.changed)
    return before if before.outcome is not Outcome.PASS else result


def _guarded(
    view: Site,
    adapter: SchedulerAdapter,
    ledger: Ledger,
    node: str,
    work: Callable[[Site, SchedulerAdapter, Ledger, str], NodeResult],
) -> NodeResult:
    try:
        return work(view, adapter, ledger, node)
    except RackreadyError as error:
        return NodeResult(Outcome.ERROR, str(error))
