"""Whether nodes are at their firmware and BIOS baseline, before they are provisioned, and the note on that state."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rackready.campaign.baseline import run_baseline, run_baseline_drained, site_baseline
from rackready.campaign.drained_phase import Results
from rackready.design.facts import node_facts
from rackready.design.pinned import site_of
from rackready.model.baseline import Baseline
from rackready.model.outcome import Outcome
from rackready.model.phase import REACHED, NodeResult, PhaseContext
from rackready.model.problems import Message
from rackready.model.site import Site
from rackready.model.state import NodeState

_NO_BMC = "not compared: a virtual machine has no BMC"


def run_baselined(ctx: PhaseContext, nodes: list[str], due: Collection[str]) -> Results:
    """Bring nodes whose baseline says ``apply`` to it, and compare those of ``due`` among the others with theirs.

    A node that differs from a baseline of the site, or cannot be brought to it, gets an error. One that differs from
    the platform profile's alone passes with a note: the profile states what a vendor published, not what is wanted.
    """
    site = site_of(ctx)
    virtual = {node for node in nodes if site.node(node).kind == "virtual"}
    apply = [node for node in nodes if node not in virtual and _applies(site, node)]
    compared = [node for node in nodes if node in due and node not in {*virtual, *apply}]
    out = {
        node: _reached(NodeResult(Outcome.PASS, touched=False), _NO_BMC) for node in nodes if node in virtual & set(due)
    }
    if apply:
        out |= {node: _brought(site, node, result) for node, result in run_baseline_drained(ctx, apply).items()}
    if compared:
        looked = run_baseline(replace(ctx, check=True), compared)
        out |= {node: _compared(ctx, site, node, result) for node, result in looked.items()}
    return out


def _applies(site: Site, node: str) -> bool:
    found = site_baseline(site, node)
    return found is not None and found.apply


def _reached(result: NodeResult, note: str) -> NodeResult:
    return replace(result, data={**result.data, REACHED: {NodeState.BASELINED.value: note}})


def _brought(site: Site, node: str, result: NodeResult) -> NodeResult:
    """Return the result of ``apply`` with its note."""
    if result.outcome is not Outcome.PASS:
        return result
    if not result.changed:
        return _reached(result, f"as the site's baseline: {_what(site_baseline(site, node))}")
    changes = [str(item) for item in result.data["changes"]]
    plural = "" if len(changes) == 1 else "s"
    return _reached(result, f"brought to the site's baseline: {len(changes)} change{plural} ({', '.join(changes)})")


def _compared(ctx: PhaseContext, site: Site, node: str, result: NodeResult) -> NodeResult:
    """Return the result of a comparison with its note, or an error where the site's own baseline does not hold."""
    platform, own = site.node(node).platform, site_baseline(site, node)
    passed = NodeResult(Outcome.PASS, touched=False)
    if result.outcome is Outcome.SKIP:
        return _reached(
            passed, f"not compared: neither the site (baselines) nor profile {platform} declares a baseline"
        )
    whose = "the site's baseline" if own is not None else f"the baseline of profile {platform}"
    if result.outcome is not Outcome.PASS:
        return result if own is not None else _reached(passed, f"not compared with {whose}: {result.message}")
    if not result.changed:
        return _reached(passed, f"as {whose}: {_what(own or node_facts(site, node).baseline)}")
    if own is None:
        return _reached(passed, f"passed through: not as {whose}, and the site declares none: {result.message}")
    step = (
        f"Run `rackready baseline --apply --limit {node} --env {ctx.env}`, or set `apply` in baselines.{platform}, or "
        "correct it there. Then run again."
    )
    message = Message(node, "firmware and BIOS", expected=f"as {whose}", actual=result.message, next_step=step)
    return NodeResult(Outcome.ERROR, str(message), touched=False)


def _what(wanted: Baseline | None) -> str:
    """Return what a baseline states, in words."""
    assert wanted is not None  # noqa: S101 - without one, nothing was compared
    versions = {"BMC": wanted.bmc, "BIOS": wanted.bios, **wanted.firmware}
    words = [f"{part} {version}" for part, version in versions.items() if version is not None]
    count = len(wanted.bios_settings)
    return ", ".join([*words, *([f"{count} BIOS setting{'' if count == 1 else 's'}"] if count else [])])
