"""Plans, begins and continues upgrades for the command line."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import typer

from rackready.campaign import stop_request
from rackready.campaign.controller import Reporter
from rackready.campaign.stop_request import StopRequest
from rackready.campaign.upgrade.changes import Changes, NodeChanges
from rackready.campaign.upgrade.durations import Expected, expected
from rackready.campaign.upgrade.edits import edited
from rackready.campaign.upgrade.engine import Engine, Ways, Windows
from rackready.campaign.upgrade.mirror_check import Repositories
from rackready.campaign.upgrade.moves import Moves
from rackready.campaign.upgrade.plan import Fleet, UpgradePlan, members, out_of_use, planned, settled, target
from rackready.campaign.upgrade.serving import in_service
from rackready.cli import upgrade_text
from rackready.cli.campaign_run import stopped
from rackready.cli.limit import choose, names_of
from rackready.cli.output import console, print_json, progress
from rackready.cli.progress_lines import Lines
from rackready.cli.run_log import new_run
from rackready.design.deployable import require
from rackready.design.handover_of import handover_views
from rackready.design.node_sets import choice_of, regrouped
from rackready.design.site import load_site
from rackready.drivers.required import require_drivers
from rackready.drivers.ssh.target import read_private_key
from rackready.gates.engine.site_check import require_gates
from rackready.ledger import upgrades
from rackready.ledger.lock import ControllerLock, is_held, is_held_here
from rackready.ledger.node_sets import assigned, refresh, settle
from rackready.ledger.store import Ledger
from rackready.model.phase import PhaseContext
from rackready.model.problems import Message, RackreadyError
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.model.upgrade import OPEN, UpgradeRecord, UpgradeState
from rackready.paths import EnvPaths, shipped
from rackready.watch.drain_faulty import unrecorded_faults

_GO_ON = frozenset({UpgradeState.RUNNING, UpgradeState.WINDOW})
"""States from which the same command continues by itself."""


@dataclass(frozen=True, slots=True)
class UpgradeOptions:
    """What the operator asked for."""

    env: str
    to: str
    branch: int | None
    limit: str
    failed_only: bool
    firmware: bool
    expect_s: float | None
    drain_s: int | None
    outside_windows: bool
    verbose: bool
    json: bool

    @property
    def command(self) -> str:
        """Return the command line that repeats it."""
        words = [*(["--to", shlex.quote(self.to)] if self.to else ["--resume"])]
        words += ["--branch", str(self.branch)] if self.branch is not None else []
        words += ["--limit", shlex.quote(self.limit)] if self.limit else []
        words += ["--failed-only"] if self.failed_only else []
        words += ["--firmware"] if self.firmware else []
        words += ["--expect-minutes", f"{self.expect_s / 60:.0f}"] if self.expect_s is not None else []
        words += ["--drain-minutes", str(self.drain_s // 60)] if self.drain_s is not None else []
        words += ["--outside-windows"] if self.outside_windows else []
        return " ".join(["rackready", "upgrade", "--env", self.env, *words])


def last_record(paths: EnvPaths) -> UpgradeRecord | None:
    """Return the last upgrade, None when there was none."""
    if not Ledger.exists(paths.database):
        return None
    with Ledger.read_only(paths.database) as ledger:
        return upgrades.last(ledger)


def ask(paths: EnvPaths, *, abort: bool) -> str:
    """Ask the upgrade to pause or end, and return what happens then. Raises RackreadyError when none is open."""
    record, word = last_record(paths), "abort" if abort else "pause"
    if record is None or record.state not in OPEN:
        raise RackreadyError(
            f"upgrade --{word}", expected="an upgrade that is open", actual="none", next_step="There is nothing to do."
        )
    running = is_held(paths.lock, paths.database)
    if running and not is_held_here(paths.lock):
        step = f"Run `rackready upgrade --{word}` on the machine that runs it."
        raise RackreadyError(
            f"upgrade --{word}", expected="an upgrade on this machine", actual="on another one", next_step=step
        )
    if running or record.wave is not None:
        stop_request.put(paths.upgrade_request, StopRequest.ABORT if abort else StopRequest.PAUSE)
        if running:
            return f"upgrade {record.id}: asked to {word}; it does so after the wave under way"
        return f"upgrade {record.id}: its wave was cut off: `rackready upgrade --resume` ends the wave, then {word}s"
    with (
        ControllerLock(paths.lock, f"rackready upgrade --{word}", paths.database),
        Ledger.open(paths.database) as ledger,
    ):
        record = _as_it_is_now(ledger, record, fresh=False)
        record.state = UpgradeState.ABORTED if abort else UpgradeState.PAUSED
        record.reason = "asked for between two runs"
        upgrades.save(ledger, record)
    return f"upgrade {record.id}: {record.state.value}"


def show_plan(paths: EnvPaths, asked: UpgradeOptions) -> None:
    """Print the plan of a new upgrade, with what the nodes' repositories lack."""
    plan, fleet = _plan(paths, asked)
    site = fleet.seen
    read_private_key("this controller", site.access.private_key)
    lacking = Repositories(site, paths).problems(list(plan.nodes), plan.changes)
    firmware = _firmware(paths, asked, list(plan.nodes)) if asked.firmware else {}
    if asked.json:
        more = {"lacking": [str(problem) for problem in lacking], "firmware": firmware}
        print_json({"env": asked.env, **plan.document(), **more})
    else:
        upgrade_text.show_plan(plan)
        for node, words in firmware.items():
            console.print(f"firmware: {node} {words}")
        for problem in lacking:
            console.print(str(problem), style="yellow")
    raise typer.Exit(1 if lacking else 0)


def _firmware(paths: EnvPaths, asked: UpgradeOptions, nodes: list[str]) -> dict[str, str]:
    """Return node -> how its firmware and BIOS settings differ from the baseline, as its BMC reports them."""
    from rackready.campaign.baseline import run_baseline  # noqa: PLC0415 - only with --firmware

    ctx = PhaseContext(asked.env, paths.root, new_run("upgrade"), check=True)
    return {node: result.message for node, result in run_baseline(ctx, nodes).items()}


def start(paths: EnvPaths, asked: UpgradeOptions) -> None:
    """Begin an upgrade, or go on with the one that was cut off."""
    record = last_record(paths)
    if record is not None and record.state in OPEN:
        _require_same(paths, asked, record)
        _drive(paths, asked, record)
        return
    plan, fleet = _plan(paths, asked)
    for node, why in plan.left_out.items():
        progress.print(f"left out: {node} {why}", style="yellow")
    if not plan.nodes:
        _nothing(asked, plan, fleet)
        return
    begun = time.time()
    record = UpgradeRecord(
        id=new_run("upgrade"),
        to=plan.to,
        nodes=dict(plan.nodes) | out_of_use(fleet, plan.left_out),
        begun=begun,
        firmware=asked.firmware,
        limit=asked.limit,
    )
    stop_request.take(paths.upgrade_request)  # asked of an earlier upgrade
    _drive(paths, asked, record, fresh=True)


def carry_on(paths: EnvPaths, asked: UpgradeOptions) -> None:
    """Go on with an open upgrade, also with one that was paused or stopped."""
    record = last_record(paths)
    if record is None or record.state not in OPEN:
        actual = "none" if record is None else record.state.value
        step = "Begin one: `rackready upgrade --to SET`."
        raise RackreadyError("upgrade --resume", expected="an upgrade that is open", actual=actual, next_step=step)
    _drive(paths, asked, record)


def _nothing(asked: UpgradeOptions, plan: UpgradePlan, fleet: Fleet) -> None:
    if asked.json:
        print_json({"env": asked.env, **plan.document()})
    else:
        console.print(f"no node to move to {plan.to}: nothing was changed")
    seen = fleet.seen
    raise typer.Exit(0 if all(choice_of(seen, node) == plan.to for node in plan.left_out) else 1)


def _require_same(paths: EnvPaths, asked: UpgradeOptions, record: UpgradeRecord) -> None:
    """Raise RackreadyError where the open upgrade is another one, or waits for the operator's word."""
    where, step = f"upgrade {record.id}", "Go on with `rackready upgrade --resume`, or end it with --abort."
    to = target(load_site(asked.env, root=paths.root, written=True), asked.to, asked.branch)
    if to != record.to:
        raise RackreadyError(where, expected=f"none open but to {to}", actual=f"to {record.to}", next_step=step)
    if record.state not in _GO_ON:
        raise RackreadyError(
            where, expected="--resume", actual=f"{record.state.value}: {record.reason}", next_step=step
        )
    chosen = choose(load_site(asked.env, root=paths.root, written=True), asked.limit)
    others = [node for node in record.nodes if node not in chosen]
    if others:
        actual = f"not {', '.join(others)}"
        raise RackreadyError(where, "--limit", expected="the nodes that it began with", actual=actual, next_step=step)
    if record.limit:  # it would go on with the nodes that it began with, and the others would not be missed
        begun = set(names_of(record.limit))
        if more := [node for node in chosen if node not in begun]:
            actual = f"also {', '.join(more)}"
            raise RackreadyError(
                where, "--limit", expected="the nodes that it began with", actual=actual, next_step=step
            )
    if asked.firmware != record.firmware:
        words = {True: "with --firmware", False: "without --firmware"}
        raise RackreadyError(where, expected=words[record.firmware], actual=words[asked.firmware], next_step=step)


def _plan(paths: EnvPaths, asked: UpgradeOptions) -> tuple[UpgradePlan, Fleet]:
    written = load_site(asked.env, root=paths.root, written=True)
    to, chosen = target(written, asked.to, asked.branch), choose(written, asked.limit)
    earlier, fleet, taken = None, Fleet(written, {}, {}), None
    if Ledger.exists(paths.database):
        with Ledger.read_only(paths.database) as ledger:
            fleet = Fleet(written, assigned(ledger), {row.name: row for row in ledger.states()})
            taken = expected(ledger)
            records = [record for record in upgrades.upgrades(ledger) if record.to == to]
            earlier = records[0] if asked.failed_only and records else None
    if asked.failed_only and earlier is None:
        step = f"Begin one: `rackready upgrade --to {asked.to}`."
        raise RackreadyError("--failed-only", expected=f"an upgrade to {to}", actual="none", next_step=step)
    nodes, left = members(fleet, chosen, to, earlier)
    if nodes:
        _require_deployable(paths, regrouped(fleet.seen, dict.fromkeys(nodes, to)), list(nodes))
    plan = planned(
        fleet,
        nodes,
        left,
        to,
        root=shipped(),
        group_vars=paths.inventory / "group_vars",
        expected=_taken(asked, taken),
    )
    return plan, fleet


def _taken(asked: UpgradeOptions, measured: Expected | None) -> Expected | None:
    return measured if asked.expect_s is None else Expected(asked.expect_s, "--expect-minutes", whole=True)


def _require_deployable(paths: EnvPaths, site: Site, nodes: list[str]) -> None:
    """Raise RackreadyError for what a deploy with the new set would refuse."""
    require_gates(site, str(paths.site_file))
    require_drivers(site, str(paths.site_file), switches=True)
    require(site, nodes, "deploy")


def _as_it_is_now(ledger: Ledger, record: UpgradeRecord, *, fresh: bool) -> UpgradeRecord:
    """Return the record as it is under the lock. Raises RackreadyError where another command went on meanwhile."""
    now = upgrades.last(ledger)
    is_open = now is not None and now.state in OPEN
    if fresh and not is_open:
        return record
    if not fresh and is_open and now is not None and now.id == record.id:
        return now
    actual = "none" if now is None else f"{now.id}, {now.state.value}"
    expected = "none open" if fresh else f"{record.id}, open"
    raise RackreadyError("upgrades", expected=expected, actual=actual, next_step="Look at it: `rackready upgrade`.")


def _drive(paths: EnvPaths, asked: UpgradeOptions, record: UpgradeRecord, *, fresh: bool = False) -> None:
    """Run the upgrade under the controller lock, show it, and exit with its code."""
    with ControllerLock(paths.lock, asked.command, paths.database), Ledger.open(paths.database) as ledger:
        record = _as_it_is_now(ledger, record, fresh=fresh)
        refresh(paths)
        written = load_site(asked.env, root=paths.root, written=True)
        if edits := edited(record, {node.name: choice_of(written, node.name) for node in written.nodes()}):
            raise RackreadyError.of(edits)
        settle(ledger, paths, written)
        site = load_site(asked.env, root=paths.root)
        read_private_key("this controller", site.access.private_key)
        upgrades.save(ledger, record)
        known = [node.name for node in site.nodes()]

        def serving() -> set[str]:
            return in_service(site, paths, _ready(ledger).intersection(known), _say)

        reporter, reports = _reporter(asked), _reports(paths)
        moves = Moves(asked.env, paths, record, asked.command, reporter, reports, serving, asked.drain_s, asked.verbose)
        taken = _taken(asked, expected(ledger))
        ways = Ways(
            move=moves.move,
            serving=serving,
            offered=lambda nodes: _lacking(paths, site, record, nodes),
            asked=lambda: stop_request.take(paths.upgrade_request),
            now=lambda: datetime.now(UTC),
            say=_say,
            save=partial(upgrades.save, ledger),
            faulty=partial(unrecorded_faults, ledger),
        )
        windows = Windows(not asked.outside_windows, _wave_s(site, asked, taken))
        record = Engine(site, record, ways, windows).run()
    if asked.json:
        print_json({"env": asked.env, **upgrade_text.document(record)})
    else:
        upgrade_text.show(record)
    raise typer.Exit(0 if settled(record) else 1)


def _ready(ledger: Ledger) -> set[str]:
    """Return the nodes in production, without those that `rackready watch` drained for a fault."""
    return {row.name for row in ledger.states() if row.state is NodeState.READY}.difference(unrecorded_faults(ledger))


def _wave_s(site: Site, asked: UpgradeOptions, taken: Expected | None) -> float | None:
    """Return the longest that a wave may take: the wait for jobs, the work, and the way back."""
    if taken is None:
        return None
    own = max(getattr(view.site.handover, "drain_wait_s", 0) for view in handover_views(site))
    return taken.wave_s + float(own if asked.drain_s is None else asked.drain_s)


def _lacking(paths: EnvPaths, site: Site, record: UpgradeRecord, nodes: Sequence[str]) -> list[Message]:
    former = regrouped(site, {node: record.nodes[node].former for node in nodes})
    changes = Changes(former, shipped(), paths.inventory / "group_vars")
    found: dict[str, NodeChanges] = {node: changes.of(node, record.to) for node in nodes}
    return Repositories(site, paths).problems(list(nodes), found)


def _reporter(asked: UpgradeOptions) -> Reporter:
    return Reporter(_say, Lines(verbose=asked.verbose), partial(stopped, json=asked.json))


def _reports(paths: EnvPaths) -> Callable[[Site, str], None]:
    def report(site: Site, campaign: str) -> None:
        from rackready.evidence.report import write  # noqa: PLC0415 - only at the end of a wave
        from rackready.handover.counted import Counted  # noqa: PLC0415 - as above

        written = write(site, paths, campaign, counting=Counted())
        progress.print(f"report: {written.html}", style="dim")

    return report


def _say(text: str) -> None:
    progress.print(text, style="yellow")
