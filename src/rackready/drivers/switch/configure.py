"""The switches' part of the fabric phase: a bounded number of switches at a time, a result for each."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rackready.design.pinned import site_of
from rackready.design.secrets import reveal
from rackready.design.switches import switch_config
from rackready.drivers.process import check_stop
from rackready.drivers.ssh.errors import SshError
from rackready.drivers.ssh.first_contact import PATIENCE_S, pin_at_first_contact
from rackready.drivers.ssh.session import DIAL_S
from rackready.drivers.ssh.target import SshTarget, switch_target
from rackready.drivers.switch.apply import apply_config
from rackready.drivers.switch.base import Session, SwitchDriver, SwitchError, SwitchRevertedError
from rackready.drivers.switch.registry import driver_for
from rackready.drivers.switch.session import SwitchAwayError, SwitchSilentError
from rackready.drivers.switch.waves import waves
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import FINDINGS, NodeResult, PhaseContext, finding_documents
from rackready.model.problems import RackreadyError
from rackready.model.site import Site, Switch
from rackready.paths import EnvPaths

PORTS = "ports"
"""In the result of a dry run: the site's ports on which something would change."""
REVERTED = "reverted"
"""In the result of a switch that took the change back."""
_AT_ONCE = 8


def run_switches(ctx: PhaseContext, switch_names: list[str]) -> dict[str, NodeResult]:
    """Configure switches and return a result for each; with ``ctx.check`` only report what would change."""
    site = site_of(ctx)
    paths = EnvPaths(ctx.root, ctx.env)
    with Ledger.open(paths.database) as ledger:
        return _in_waves(ctx, site, switch_names, lambda name: _run_one(ctx, site, paths, ledger, name))


def _in_waves(
    ctx: PhaseContext, site: Site, names: list[str], work: Callable[[str], NodeResult]
) -> dict[str, NodeResult]:
    """Run the switches wave by wave; a dry run reads them all at once.

    A change that one switch took back goes to no other: they would do the same.
    """
    out: dict[str, NodeResult] = {}
    for wave in [sorted(names)] if ctx.check else waves(site, names, _AT_ONCE):
        reverted = next((name for name, result in out.items() if REVERTED in result.data), "")
        if reverted:
            out |= {name: _not_begun(name, reverted) for name in wave}
        else:
            out |= _each(wave, work)
    return out


def _not_begun(name: str, reverted: str) -> NodeResult:
    text = (
        f"{name}: not changed - Expected: the change kept by {reverted} first Actual: {reverted} rolled it back. "
        f"Correct what {reverted} reports, then run again."
    )
    return NodeResult(Outcome.ERROR, text, touched=False)


def _each(names: list[str], work: Callable[[str], NodeResult]) -> dict[str, NodeResult]:
    with ThreadPoolExecutor(max_workers=max(1, min(_AT_ONCE, len(names))), thread_name_prefix="switch") as pool:
        return dict(zip(names, pool.map(lambda name: _guarded(name, work), names), strict=True))


def _guarded(name: str, work: Callable[[str], NodeResult]) -> NodeResult:
    try:
        return work(name)
    except KeyError:
        return NodeResult(
            Outcome.ERROR, f"{name}: no such switch - Expected: one of the site's switches. Correct the name."
        )
    except SwitchError as error:
        data: dict[str, object] = {FINDINGS: finding_documents(error.findings)} if error.findings else {}
        return NodeResult(
            Outcome.ERROR, str(error), data=data | ({REVERTED: True} if isinstance(error, SwitchRevertedError) else {})
        )
    except RackreadyError as error:
        return NodeResult(Outcome.ERROR, str(error))


def open_driver(site: Site, paths: EnvPaths, name: str) -> tuple[SwitchDriver, str]:
    """Return the driver of a switch with an open session, and a note about its host key (see ``open_session``)."""
    switch = next((item for item in site.switches if item.name == name), None)
    if switch is None:
        raise KeyError(name)
    session, note = open_session(paths, switch)
    return driver_for(name, switch.os)(name, session), note


def open_session(paths: EnvPaths, switch: Switch) -> tuple[Session, str]:
    """Return a session with a switch, and a note about its host key (empty when it was pinned before).

    Raises SwitchUnreachableError, and SecretUnreadableError for its password.
    """
    driver = driver_for(switch.name, switch.os)
    if switch.password is not None:
        reveal(switch.password)  # a missing password stops here, before the host key is pinned
    target = switch_target(switch, paths.known_hosts)
    try:
        note = pin_at_first_contact(target)
    except SshError as error:
        raise SwitchSilentError.of(error.messages) from error
    return _session(target, driver), note


def _session(target: SshTarget, driver: type[SwitchDriver]) -> Session:
    """Return a session; a switch that is booting is asked again, less long while it takes no connection."""
    begun = time.monotonic()
    while True:
        try:
            return driver.connect(target)
        except SwitchSilentError as error:
            check_stop()
            patience_s = DIAL_S if isinstance(error, SwitchAwayError) else PATIENCE_S
            if time.monotonic() >= begun + patience_s:
                raise
            time.sleep(1.0)


def _run_one(ctx: PhaseContext, site: Site, paths: EnvPaths, ledger: Ledger, name: str) -> NodeResult:
    config = switch_config(site, name)
    driver, pinned = open_driver(site, paths, name)
    try:
        applied = apply_config(driver, config, ledger, check=ctx.check)
    finally:
        driver.close()
    verb = ("would change" if ctx.check else "changed and confirmed") if applied.changed else "unchanged"
    message = "; ".join(part for part in (f"{name}: {verb}", applied.note, pinned) if part)
    return NodeResult(Outcome.PASS, message, applied.changed, {"diff": applied.diff, PORTS: list(applied.ports)})
