"""The parts of nodes as their BMCs list them, compared with the platform profile before anything is installed.

A BMC knows many parts from the host's firmware alone: of a node that is off it shows those of the last start (Dell's
Collect System Inventory On Restart), or none before the first one. So a node that is off, and whose list is not as in
the profile, is powered on before it is judged. The list may lag: it is read again until it is complete, for as long as
the site allows a node from power-on until SSH answers. By then, its firmware has found all parts, or never does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from rackready.campaign.drained_phase import Results
from rackready.campaign.node_bmcs import NodeBmcs
from rackready.design.imaging import imaged_nodes
from rackready.design.pinned import site_of
from rackready.drivers.process import check_stop
from rackready.drivers.redfish_errors import BmcError, BmcIdentityError, BmcLoginError, BmcTlsError
from rackready.drivers.redfish_words import Identity
from rackready.gates.base import Gate, Output
from rackready.gates.bmc.connection import Bmcs
from rackready.gates.bmc.parts import PartsListed
from rackready.gates.engine.registry import gate
from rackready.gates.engine.runner import evaluated, output_of
from rackready.gates.engine.site_facts import site_facts
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome, Verdict
from rackready.model.phase import FINDINGS, REACHED, NodeResult, PhaseContext, finding_documents
from rackready.model.problems import RackreadyError
from rackready.model.site import Node, Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from rackready.stacks.args import NodeArgs, rack_args
from rackready.stacks.installations import IMAGE
from rackready.stacks.power import Power

POWERED = "inventory-power"
"""The ledger's operation: a node is on for its inventory, until it is recorded as ended."""
_POLL_S = 15.0
"""Pause between two looks, s: as between two looks at the power state while a node is imaged, to spare the BMC."""
_GPUS_S = 300.0
"""How long a BMC may take to list GPUs once all else is as in the profile, s. Judgement: where the profile does not
name them as a BMC would, a BMC that lists them late looks like one that never does."""
_FATAL = (BmcLoginError, BmcTlsError, BmcIdentityError)
"""Errors that do not pass by themselves; BMCs lock accounts after refused logins."""
_AT_ONCE = 32


def run_inventory(ctx: PhaseContext, nodes: list[str]) -> Results:
    """Compare the parts of nodes with the platform profile. No node raises.

    A node whose parts differ fails. With ``ctx.check`` no node is powered on or waited for.
    """
    if not nodes:
        return {}
    site, paths = site_of(ctx), EnvPaths(ctx.root, ctx.env)
    with Ledger.open(paths.database) as ledger:
        work = _Work(ctx, site, ledger, NodeBmcs(site, ledger, ctx.campaign, "inventory"), _gate(site))
        with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(nodes)), thread_name_prefix="inventory") as pool:
            return dict(zip(nodes, pool.map(work.of, nodes), strict=True))


def _gate(site: Site) -> Gate:
    """Return the gate with the site's inputs."""
    given = next((entry.inputs for entry in site.gates.also if entry.id == PartsListed.id), {})
    return gate(PartsListed.id, given)


@dataclass(frozen=True, slots=True)
class _Work:
    ctx: PhaseContext
    site: Site
    ledger: Ledger
    bmcs: NodeBmcs
    gate: Gate

    def of(self, name: str) -> NodeResult:
        node = self.site.node(name)
        if node.kind == "virtual":
            return _passed({NodeState.INVENTORIED: "not compared: a virtual machine has no BMC"})
        try:
            result = _Node(self, node).compare()
        except RackreadyError as error:
            return NodeResult(Outcome.ERROR, str(error), touched=_is_open(self.ledger, name))
        if note := result.data[REACHED].get(NodeState.INVENTORIED.value):
            self.bmcs.say(name, note)
        return result


def _passed(notes: dict[NodeState, str], *, touched: bool = False) -> NodeResult:
    return NodeResult(
        Outcome.PASS, data={REACHED: {state.value: note for state, note in notes.items()}}, touched=touched
    )


def _is_open(ledger: Ledger, name: str) -> bool:
    """Return whether a node is on for its inventory, by this run or by one that was killed."""
    last = ledger.latest(name, POWERED)
    return last is not None and last.status == "intent"


@dataclass(frozen=True, slots=True)
class _Node:
    """The inventory of one node."""

    work: _Work
    node: Node

    def compare(self) -> NodeResult:
        """Return the result, with the node's power as it must be for what follows. Raises RackreadyError."""
        name = self.node.name
        with self.work.bmcs.open(name) as bmc:
            found = bmc.require(str(self.node.serial), self.node.serial_kind)
        reached = {NodeState.REACHABLE: _words(found, str(self.node.serial))}
        skip = self.work.site.gates.skipped(name, datetime.now(UTC).date()).get(self.work.gate.id)
        if skip is not None:
            return _passed(
                {**reached, NodeState.INVENTORIED: f"not compared: the site skips {self.work.gate.id}: {skip}"}
            )
        verdict, waited = self._look(), ""
        powered = _is_open(self.work.ledger, name)
        if not self._complete(verdict) and self.work.ctx.check:
            return self._result(verdict, reached) if found.power == "On" else _unjudged(reached, found.power)
        if not self._complete(verdict):
            if found.power == "Off":
                powered = self._power_on() or powered
            verdict, waited = self._wait(verdict)
        while_off = " (as listed while it is off)" if found.power == "Off" and not powered else ""
        result = self._result(verdict, reached, waited or while_off, touched=powered)
        if powered:
            self._settle(good=result.outcome is Outcome.PASS)
        return result

    def _look(self) -> Verdict:
        name, known = self.node.name, self.node.bmc.known()
        facts = site_facts(self.work.site, [name])
        run = self.work.gate.plan(facts, [name])[0]
        bmcs = Bmcs({name: known} if known is not None else {})
        outputs: dict[str, Output] = {}
        for command in run.commands:
            outputs[command.key] = output_of(command, bmcs.run(name, command.argv, timeout_s=command.timeout_s))
            if self.work.gate.ended(run, outputs):
                break
        return evaluated(self.work.gate, facts, run, outputs)

    def _complete(self, verdict: Verdict) -> bool:
        """Return whether all is as in the profile, and GPUs were among what was compared."""
        wants_gpus = "gpus" in getattr(self.work.gate.inputs, "parts", ())
        return verdict.outcome is Outcome.PASS and (
            not wants_gpus or any(metric.name == "gpus" for metric in verdict.metrics)
        )

    def _wait(self, verdict: Verdict) -> tuple[Verdict, str]:
        """Look again until the list is complete, or only lacks GPUs for long.

        Return the last verdict, and how long that took in words.
        """
        limit = self.work.site.campaign.provision_timeout_s
        begun = time.monotonic()
        why = str(verdict.findings[0]) if verdict.findings else str(verdict.note)
        self.work.bmcs.say(
            self.node.name, f"waits at most {limit} s (campaign.provision_timeout_s) for its parts: {why}"
        )
        listed = begun
        while time.monotonic() - begun < limit:
            if verdict.outcome is not Outcome.PASS:
                listed = time.monotonic()
            elif time.monotonic() - listed >= _GPUS_S:
                return verdict, f" (waited for {_GPUS_S:.0f} s for GPUs after all else was listed)"
            check_stop()
            time.sleep(_POLL_S)
            try:
                with self.work.bmcs.open(self.node.name) as bmc:
                    bmc.observe()
            except _FATAL:
                raise
            except BmcError:
                continue
            verdict = self._look()
            if self._complete(verdict):
                return verdict, f" (complete after {time.monotonic() - begun:.0f} s)"
        return verdict, f" (waited for {limit} s, campaign.provision_timeout_s)"

    @staticmethod
    def _result(
        verdict: Verdict, reached: dict[NodeState, str], waited: str = "", *, touched: bool = False
    ) -> NodeResult:
        note = f"{verdict.note or ''}{waited}"
        if verdict.outcome is Outcome.PASS:
            return _passed({**reached, NodeState.INVENTORIED: note}, touched=touched)
        words = "; ".join(str(finding) for finding in verdict.findings)
        data = {
            FINDINGS: finding_documents(verdict.findings),
            REACHED: {key.value: text for key, text in reached.items()},
        }
        return NodeResult(verdict.outcome, f"{words}{waited}", data=data, touched=touched)

    # power ---------------------------------------------------------------------------------------------------------

    def _args(self) -> NodeArgs:
        rack = self.work.site.rack_of(self.node.name).name
        return next(
            args for args in rack_args(self.work.site, self.work.ctx.env, rack).nodes if args.node == self.node.name
        )

    def _power(self, args: NodeArgs) -> Power:
        say: Callable[[str], None] = lambda text: self.work.bmcs.say(self.node.name, text)  # noqa: E731
        return Power(args, self.work.ledger, proceed=check_stop, say=say)

    def _power_on(self) -> bool:
        """Power the node on as provisioning would, and return whether it is on because of that. Raises BmcError."""
        args = self._args()
        self.work.bmcs.say(self.node.name, "is off, and its BMC does not list all parts: powered on for its inventory")
        if not _is_open(self.work.ledger, self.node.name):
            self.work.ledger.begin(self.node.name, POWERED, self.work.gate.id, {})
        with self.work.bmcs.open(self.node.name) as bmc:
            return self._power(args).on(bmc, bmc.observe(), args.boot)

    def _settle(self, *, good: bool) -> None:
        """Leave a good node on, as provisioning does. One that is imaged next, or is not good, is off again."""
        last = self.work.ledger.latest(self.node.name, POWERED)
        stays = good and not self._is_imaged_next()
        if not stays:
            with self.work.bmcs.open(self.node.name) as bmc:
                self._power(self._args()).off(bmc)
        if last is not None and last.status == "intent":
            self.work.ledger.done(last.token, {"left": "on" if stays else "off"})

    def _is_imaged_next(self) -> bool:
        entries = self.work.ledger.entries(self.node.name)
        begun = any(entry.operation == IMAGE and entry.status in {"intent", "done"} for entry in entries)
        return not begun and any(node.name == self.node.name for node in imaged_nodes(self.work.site))


def _words(found: Identity, serial: str) -> str:
    model = " ".join(word for word in (found.manufacturer, found.model) if word)
    return f"its BMC answers for {model or 'a server'}, serial {serial}"


def _unjudged(reached: dict[NodeState, str], power: str) -> NodeResult:
    note = f"not compared yet: power {power}, and its BMC does not list all parts"
    return _passed({**reached, NodeState.INVENTORIED: note})
