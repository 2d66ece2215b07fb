"""`rackready bmc`: trust in BMCs' certificates, certificates of the site's own CA, and passwords."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackready.cli import complete
from rackready.cli.chosen_hosts import require_names_or_all, retired
from rackready.cli.deploy import Check
from rackready.cli.output import Env, Format, Output, Verbose, console, env_paths, print_json, progress
from rackready.cli.run_log import new_run, run_log
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rackready.drivers.bmc_authority import Authority
    from rackready.drivers.bmc_trust import Trust
    from rackready.ledger.store import Ledger
    from rackready.model.bmc import BmcAuthority
    from rackready.model.site import Node
    from rackready.paths import EnvPaths

app = typer.Typer(help="Take BMCs into use: their certificates and passwords.", no_args_is_help=True)

_PINNED, _SAME, _CHANGED, _WAITING, _ERROR = "pinned", "unchanged", "changed", "waiting", "error"
_BAD = frozenset({_WAITING, _ERROR, "lost", "not begun"})
_AT_ONCE = 32
"""BMCs that get a certificate at a time, a waiting thread each."""
Nodes = Annotated[list[str] | None, typer.Argument(help="Node; repeatable.", autocompletion=complete.nodes)]
Every = Annotated[bool, typer.Option("--all", help="Every node whose BMC is known.")]


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="bmc")


@app.callback()
def _group() -> None:
    """Keep `trust` as a word: an application with one command would omit it."""


@app.command("trust")
def trust(  # noqa: PLR0913, PLR0917 - the options of the command
    node: Nodes = None,
    every: Every = False,  # noqa: FBT002 - a flag
    trust_first: Annotated[  # noqa: FBT002
        bool, typer.Option("--trust-first", help="Pin what a BMC shows at first contact; never in place of a pin.")
    ] = False,
    expect: Annotated[
        list[str] | None,
        typer.Option("--expect", help="Pin a certificate with this SHA-256, also in place of a pin; repeatable."),
    ] = None,
    env: Env = "sim",
    verbose: Verbose = False,  # noqa: FBT002
    output: Output = Format.TEXT,
) -> None:
    """Show the certificate that each BMC serves beside the pinned one; pin it if confirmed.

    It sends no login and no password to a BMC. Compare the SHA-256 with the BMC's console or the vendor's list.

    Exit codes: 0 every BMC is trusted, 1 some are not, 2 refused.
    """
    from rackready.drivers.bmc_trust import look  # noqa: PLC0415

    paths = env_paths(env)
    nodes = _chosen(paths, env, node or [], every=every)
    campaign = new_run("bmc")
    with run_log(paths, campaign, f"rackready bmc trust --env {env}", verbose=verbose) as log:
        found = look(nodes, paths.bmc_pins)
        if output is Format.TEXT:
            _show(found)
        allowed = _allowed(found, {value.lower() for value in expect or []}, trust_first=trust_first)
        rows = _pin(paths, found, allowed, campaign, env)
    _end(rows, output, log)


@app.command("rotate")
def rotate(
    node: Nodes = None,
    every: Every = False,  # noqa: FBT002 - a flag
    check: Check = False,  # noqa: FBT002 - a flag
    env: Env = "sim",
    verbose: Verbose = False,  # noqa: FBT002
    output: Output = Format.TEXT,
) -> None:
    """Give each BMC a new random password of its own, and write it to the place of `bmc.password`.

    The place is a file, or a key in a file of sops or Ansible Vault. rackready changes one BMC first, then works in
    waves, until the site's stop rule ends the run. It finishes an interrupted change: it tries the pending password,
    then the old one, each once. A BMC with its factory password (`bmc.factory_password`) also gets its own at first
    contact in any `deploy`.

    Exit codes: 0 every BMC has its new password, 1 some have not, 2 refused.
    """
    from rackready.cli.rotation import in_waves, require_own_places  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.drivers import bmc_password  # noqa: PLC0415
    from rackready.drivers.bmc_trust import known  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    paths = env_paths(env)
    nodes = {item.name: item for item in _chosen(paths, env, node or [], every=every)}
    campaign, command = new_run("bmc"), f"rackready bmc rotate --env {env}"
    site = load_site(env, root=paths.root)
    require_own_places(site, {name: known(item).password for name, item in nodes.items()})
    lost, limit = bmc_password.BmcPasswordLostError, site.campaign.stop_above_pct
    if check:
        looked = [bmc_password.look_row(name, known(item)) for name, item in nodes.items()]
        with run_log(paths, campaign, command, verbose=verbose) as log:
            _end(looked, output, log)
    with (
        run_log(paths, campaign, command, verbose=verbose) as log,
        ControllerLock(paths.lock, command, paths.database),
        Ledger.open(paths.database) as ledger,
    ):

        def change(name: str, say: Callable[[str], None]) -> None:
            bmc_password.rotate(ledger, name, known(nodes[name]), say)

        rows = in_waves(list(nodes), change, lost=lost, stop_above_pct=limit)
        for row in rows:
            ledger.event(campaign, row["name"], "bmc", row["message"].splitlines()[-1], "warn")
    _end(rows, output, log)


@app.command("certify")
def certify(  # noqa: PLR0913, PLR0917 - the options of the command
    node: Nodes = None,
    every: Every = False,  # noqa: FBT002 - a flag
    renew: Annotated[  # noqa: FBT002
        bool, typer.Option("--renew", help="Also where the BMC has a valid certificate of the CA.")
    ] = False,
    expect: Annotated[
        list[str] | None,
        typer.Option("--expect", help="Log in to a BMC with this SHA-256 that bmc.ca does not accept; repeatable."),
    ] = None,
    env: Env = "sim",
    verbose: Verbose = False,  # noqa: FBT002
    output: Output = Format.TEXT,
) -> None:
    """Give each BMC a TLS certificate of the site's CA (`bmc_authority`), for a key that never leaves the BMC.

    The BMC makes a request (CSR) and the CA signs it: rackready with the CA's key, or you, with the request's file. The
    old trust is replaced after the new certificate is verified and a login over it works. To continue an interrupted
    run, repeat the command.

    Exit codes: 0 every BMC has its certificate, 1 some have not, or a request waits for your signature, 2 refused.
    """
    from rackready.drivers.bmc_authority import load  # noqa: PLC0415
    from rackready.drivers.bmc_trust import look  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    paths = env_paths(env)
    nodes = _chosen(paths, env, node or [], every=every)
    authority = load(_authority(paths, env))
    campaign, command = new_run("bmc"), f"rackready bmc certify --env {env}"
    with (
        run_log(paths, campaign, command, verbose=verbose) as log,
        ControllerLock(paths.lock, command, paths.database),
        Ledger.open(paths.database) as ledger,
    ):
        expected = frozenset(value.lower() for value in expect or [])
        work = _Certifying(paths, ledger, authority, expected, renew=renew, shown=output is Format.TEXT)
        with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(nodes)), thread_name_prefix="certify") as pool:
            rows = list(pool.map(work.row, look(nodes, paths.bmc_pins)))
        for row in rows:
            ledger.event(campaign, row["name"], "bmc", row["message"], "warn")
    _end(rows, output, log)


def _authority(paths: EnvPaths, env: str) -> BmcAuthority:
    from rackready.design.site import load_site  # noqa: PLC0415

    found = load_site(env, root=paths.root).bmc_authority
    if found is None:
        raise RackreadyError(
            "bmc certify",
            expected="bmc_authority in the site file",
            actual="none",
            next_step="Name the CA there, or pin the certificates that the BMCs have: `rackready bmc trust`.",
        )
    return found


@dataclass(frozen=True, slots=True)
class _Certifying:
    """What every BMC of one command has in common."""

    paths: EnvPaths
    ledger: Ledger
    authority: Authority
    expected: frozenset[str]
    renew: bool = field(kw_only=True)
    shown: bool = field(kw_only=True)

    def tell(self, text: str) -> None:
        """Show a step."""
        if self.shown:
            progress.print(text, style="dim")

    def row(self, trust: Trust) -> dict[str, Any]:
        from rackready.drivers.bmc_certificate import Certify, Place  # noqa: PLC0415

        said: list[str] = []
        place = Place(self.paths.bmc_certificates, trust.node)
        pinned = self.paths.bmc_pins
        work = Certify(self.ledger, trust, self.authority, place, pinned, self.expected, said.append, self.tell)
        try:
            outcome = work.run(renew=self.renew)
        except RackreadyError as error:
            outcome = _ERROR
            said.append(str(error))
        return {"name": trust.node, "outcome": outcome, "message": "\n".join(said)}


def _chosen(paths: EnvPaths, env: str, names: list[str], *, every: bool) -> list[Node]:
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.drivers.bmc_trust import chosen  # noqa: PLC0415

    require_names_or_all("bmc", "nodes", names, every=every)
    return chosen(load_site(env, root=paths.root), names, leave_out=retired(paths))


def _show(found: list[Trust]) -> None:
    for item in (item for item in found if item.shown is not None and (item.first or item.differs)):
        assert item.shown is not None  # noqa: S101 - chosen above
        console.print(f"{item.node} BMC {item.site.address}:{item.site.port}")
        console.print(f"  pinned: {item.pinned or 'none'}")
        console.print(f"  shown:  {item.shown.sha256}")
        until = item.shown.until.strftime("%Y-%m-%d")
        console.print(f"  subject {item.shown.subject}, issuer {item.shown.issuer}, valid until {until}")


def _allowed(found: list[Trust], expected: set[str], *, trust_first: bool) -> set[str]:
    """Return the nodes whose certificate may be pinned. At a terminal, the operator is asked for the others."""
    able = [item for item in found if (item.first or item.differs) and not item.decides]
    allowed = {
        item.node
        for item in able
        if item.shown is not None and (item.shown.sha256 in expected or (trust_first and item.first))
    }
    rest = [item.node for item in able if item.node not in allowed]
    if rest and not expected and not trust_first and sys.stdin.isatty():
        progress.print(f"Pin what {', '.join(rest)} show? [y/N] ", end="")
        if sys.stdin.readline().strip().lower() in {"y", "yes"}:
            allowed |= set(rest)
    return allowed


def _pin(paths: EnvPaths, found: list[Trust], allowed: set[str], campaign: str, env: str) -> list[dict[str, Any]]:
    from rackready.drivers.bmc_trust import trust as pin  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    told: dict[str, str] = {}
    if allowed:
        with (
            ControllerLock(paths.lock, f"rackready bmc trust --env {env}", paths.database),
            Ledger.open(paths.database) as ledger,
        ):
            for item in (item for item in found if item.node in allowed):
                told[item.node] = pin(ledger, paths.bmc_pins, item)
                ledger.event(campaign, item.node, "bmc", told[item.node], "warn")
    return [_row(item, told.get(item.node, "")) for item in found]


def _row(item: Trust, told: str) -> dict[str, Any]:
    outcome, message = (_PINNED, told) if told else _outcome(item)
    return {
        "name": item.node,
        "address": str(item.site.address),
        "port": item.site.port,
        "pinned": item.pinned or None,
        "shown": item.shown.sha256 if item.shown is not None else None,
        "outcome": outcome,
        "message": message,
    }


def _outcome(item: Trust) -> tuple[str, str]:
    """Return outcome and message of a BMC whose certificate was not pinned."""
    if item.shown is None:
        return _ERROR, item.trouble
    if item.decides == "bmc.ca":
        return _SAME, f"{item.node}: bmc.ca in the site file decides, nothing is pinned"
    if item.differs:
        step = (
            "Correct bmc.fingerprint in the site file."
            if item.decides
            else f"Compare it at the BMC's console, then give --expect {item.shown.sha256}."
        )
        values = f"Expected: SHA-256 {item.pinned} Actual: SHA-256 {item.shown.sha256}"
        return _ERROR, f"{item.node}: TLS certificate is not the pinned one - {values}. {step}"
    if item.first:
        values = f"Expected: a pinned certificate Actual: none, it shows SHA-256 {item.shown.sha256}"
        return _ERROR, f"{item.node}: TLS certificate - {values}. Compare it, then add --trust-first."
    return _SAME, f"{item.node}: trusted already, SHA-256 {item.pinned}"


def _end(rows: list[dict[str, Any]], output: Format, log: Path) -> None:
    if output is Format.JSON:
        print_json({"bmcs": rows, "log": log})
    else:
        progress.print(f"log: {log}")
        for row in rows:
            (progress if row["outcome"] in _BAD else console).print(row["message"])
    raise typer.Exit(1 if any(row["outcome"] in _BAD for row in rows) else 0)
