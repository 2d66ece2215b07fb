"""Runs of a playbook for a batch of nodes, in a worker process; a result per node."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rackready.design.facts import desired_digest
from rackready.design.pinned import VARIABLE, pinned_file, site_of
from rackready.design.secrets import SecretUnreadableError, handed_down
from rackready.design.ssh_words import jump_argv
from rackready.drivers.ansible_events import Events
from rackready.drivers.ansible_modules import callbacks
from rackready.drivers.ansible_ssh import connections
from rackready.drivers.process import ChildResult, run_child
from rackready.drivers.remote import Remote
from rackready.drivers.ssh.errors import SshError
from rackready.drivers.ssh.session import meet, trouble_at_jump
from rackready.drivers.ssh.target import jump_target, node_target
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.site import Site
from rackready.paths import EnvPaths, is_checkout, private_dir, shipped

_LIMIT_S = 7200.0
"""A playbook that runs longer is ended: a node with a hung disk must not block its batch."""

_FORKS = 32
_LOGIN_S, _PROBE_S = 15.0, 5.0
_PASSED_ON = (
    *("HOME", "LANG", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER"),
    *("RACKREADY_ROOT", "RACKREADY_STATE", "PYTHONPATH", "VIRTUAL_ENV"),
)
"""ansible-runner writes its environment to a file, so only these are passed on, and no secret is among them."""


def run_playbook(
    ctx: PhaseContext,
    playbook: str,
    nodes: list[str],
    extra_vars: dict[str, Any] | None = None,
    tags: list[str] | None = None,
    steps: Path | None = None,
) -> dict[str, NodeResult]:
    """Run ``playbooks/<playbook>`` for these nodes of the site and return a result for each.

    A result is pass, fail (a task failed) or error (not reached, or not reported). Its ``data`` has ``changed`` and
    ``ok`` (task counts), and ``changes``, the names of the tasks that changed something (in a dry run: would change).
    Each node's intent is committed before the run and its end after it; with ``ctx.check`` nothing is changed and
    nothing is recorded. ``steps``: a file for every step with its answer (plugins/callback).
    Raises SiteInvalidError, LedgerError, and Interrupted when the operator stops the run.
    """
    if not nodes:
        return {}
    site = site_of(ctx)
    paths = EnvPaths(ctx.root, ctx.env)
    with Ledger.open(paths.database) as ledger:
        return _Run(ctx, site, paths, ledger, playbook, list(nodes), steps).go(extra_vars or {}, tags or [])


class _Run:
    """One run of one playbook."""

    def __init__(  # noqa: PLR0913, PLR0917 - all parts of a run
        self,
        ctx: PhaseContext,
        site: Site,
        paths: EnvPaths,
        ledger: Ledger,
        playbook: str,
        nodes: list[str],
        steps: Path | None = None,
    ) -> None:
        self.ctx, self.site, self.paths, self.ledger = ctx, site, paths, ledger
        self.playbook, self.nodes, self.steps = playbook, nodes, steps
        self.phase = Path(playbook).stem
        self.folder = private_dir(paths.logs / ctx.campaign)
        digest = hashlib.sha256(" ".join(nodes).encode()).hexdigest()[:6]
        self.ident = f"{self.phase}-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{digest}"
        self.log = self.folder / f"{self.ident}.log"

    def go(self, extra_vars: dict[str, Any], tags: list[str]) -> dict[str, NodeResult]:
        tokens = {} if self.ctx.check else {node: self._begin(node) for node in self.nodes}
        events = Events(
            self.phase,
            self.nodes,
            str(self.log),
            self._tell,
            self.ctx.check,
            at_jump=self._at_jump,
            at_sudo=self._at_sudo,
        )
        variables = {**extra_vars, "rackready_tokens": tokens, "rackready_ledger": self.ledger.identity()}
        try:
            meet(jump_target(self.site, self.paths.known_hosts), _LOGIN_S)
            with (
                _vars_file(self.folder / f"{self.ident}.vars.json", variables) as file,
                connections(self.paths.state, jump_argv(self.site, self.paths.known_hosts)) as connection,
                callbacks(self.paths.state, *(["rackready_steps"] if self.steps else [])) as enabled,
            ):
                child = self._child(self._argv(file, tags), connection | enabled, events)
        except (SshError, SecretUnreadableError) as error:  # the jump host's or a password's: no node was reached
            results = {node: NodeResult(Outcome.ERROR, f"{node}: {self.phase}: {error}") for node in self.nodes}
        except OSError as error:
            results = {node: NodeResult(Outcome.ERROR, self._not_started(node, error)) for node in self.nodes}
        else:
            results = {node: events.result(node, timed_out=child.timed_out) for node in self.nodes}
            self._tell_strangers(events.strangers())
        for node, token in tokens.items():
            self._end(token, results[node])
        return results

    def _at_jump(self, node: str) -> str:
        return trouble_at_jump(node_target(self.site, node, self.paths.known_hosts), _PROBE_S)

    def _at_sudo(self, node: str) -> str:
        remote = Remote({node: node_target(self.site, node, self.paths.known_hosts)})
        try:
            failure = remote.run(node, ("true",), timeout_s=_LOGIN_S).failure
        finally:
            remote.close()
        return f"{failure}." if failure else ""

    def _argv(self, vars_file: Path, tags: list[str]) -> list[str]:
        argv = [
            "-i",
            str(self.paths.inventory),
            "--limit",
            ",".join(self.nodes),
            "--forks",
            str(min(_FORKS, len(self.nodes))),
            "-e",
            f"@{vars_file}",
        ]
        argv += ["--tags", ",".join(tags)] if tags else []
        argv += ["--check", "--diff"] if self.ctx.check else []
        return [*argv, str(shipped() / "playbooks" / self.playbook)]

    def _child(self, argv: list[str], environment: dict[str, str], events: Events) -> ChildResult:
        request = {"argv": argv, "cwd": str(self.ctx.root), "artifacts": str(self.folder / self.ident)}
        return run_child(
            [sys.executable, "-m", "rackready.drivers.ansible_worker"],
            log=self.log,
            cwd=self.ctx.root,
            env=_environment(self.site, self.paths) | self._pinned() | self._recorded() | environment,
            stdin_text=json.dumps(request),
            timeout_s=_LIMIT_S,
            on_line=events.line,
            ledger=self.ledger,
            what=f"ansible-playbook {self.playbook}",
        )

    def _pinned(self) -> dict[str, str]:
        return {VARIABLE: str(pinned_file(self.paths, self.ctx.site_digest))} if self.ctx.site_digest else {}

    def _recorded(self) -> dict[str, str]:
        return {"RACKREADY_STEPS": str(self.steps)} if self.steps else {}

    def _begin(self, node: str) -> int:
        operation, desired = f"install:{self.playbook}", desired_digest(self.site, node)
        last = self.ledger.latest(node, operation)
        if last is not None and last.status == "intent":
            self._tell(
                node, "an earlier run was interrupted here; its effect is observed before anything is changed", "warn"
            )
            self.ledger.failed(last.token, "interrupted; observed by the next run")
        return self.ledger.begin(node, operation, desired, {}).token

    def _end(self, token: int, result: NodeResult) -> None:
        """Commit the end. A node that was not reached or not reported keeps its open intent: its state is unknown."""
        if result.outcome is Outcome.PASS:
            self.ledger.done(token, dict(result.data))
        elif result.outcome is Outcome.FAIL:
            self.ledger.failed(token, result.message)

    def _tell(self, node: str, text: str, level: str) -> None:
        self.ledger.event(self.ctx.campaign, node, self.phase, text, level)

    def _tell_strangers(self, names: list[str]) -> None:
        for name in names:
            text = (
                f"{name}: {self.phase}: reported, but not requested - Expected: {', '.join(self.nodes)} "
                f"Actual: {name} too. See {self.log}."
            )
            self._tell(name, text, "error")

    def _not_started(self, node: str, error: OSError) -> str:
        step = (
            "Free disk space on the controller, then run again."
            if error.errno == errno.ENOSPC
            else "Run `rackready doctor`."
        )
        actual = f"{error.strerror} ({error.filename or self.folder})"
        return (
            f"{node}: {self.phase}: Ansible could not be started - Expected: room and programs on the controller "
            f"Actual: {actual}. {step}"
        )


def _environment(site: Site, paths: EnvPaths) -> dict[str, str]:
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    if is_checkout():  # an installed package is found anyway, and packages beside it must not come before Python's own
        given = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
        env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(shipped() / "src"), *given]))
    return env | {
        "ANSIBLE_CONFIG": str(shipped() / "ansible.cfg"),
        # Not in HOME, which a service cannot write (docs/howto/workers.md); ANSIBLE_HOME would move collections, too
        "ANSIBLE_LOCAL_TEMP": str(paths.state / "ansible-tmp"),
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_NOCOLOR": "1",
        "PYTHONUNBUFFERED": "1",
        **handed_down([site.access.sudo_password]),
    }


@contextmanager
def _vars_file(path: Path, variables: dict[str, Any]) -> Iterator[Path]:
    """Yield a file with variables that only its owner can read, for the run alone: command lines are public."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(variables, stream)
        yield path
    finally:
        path.unlink(missing_ok=True)
