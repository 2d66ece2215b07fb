"""One domain without Pulumi: define it, start it once, observe it, remove it. Every effect goes through the ledger."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rackready.drivers.local import Local
from rackready.drivers.passthrough.judge import judge, notes
from rackready.drivers.remote import Remote, Runner
from rackready.drivers.ssh.first_contact import wait_and_pin
from rackready.drivers.ssh.sudo import Sudo
from rackready.drivers.ssh.target import KeyLogin, SshTarget, jump_at
from rackready.drivers.virsh import HypervisorError, SeenDomain, Virsh, seed_request
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger
from rackready.model.problems import Message, RackreadyError
from rackready.render.domain import domain_digest, domain_xml
from rackready.stacks.args import SshArgs
from rackready.stacks.machine import POWER_OFF, POWER_ON
from rackready.stacks.virtual_args import DomainArgs

DEFINE = "domain-define"
UNDEFINE = "domain-undefine"
_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class DomainState:
    """State of a domain. ``restart``: it runs with an older definition; ``text``: digest of libvirt's own XML."""

    power: str
    made: bool
    digest: str = ""
    text: str = ""
    restart: bool = False
    host_key: str = ""
    boot_id: str = ""
    problem: str = ""


class DomainIncompleteError(RackreadyError):
    """The domain was made or changed and is not usable; ``state`` is its last known state."""

    def __init__(self, state: DomainState, error: RackreadyError) -> None:
        super().__init__(error)
        self.messages = error.messages
        self.state = state


class ForeignDomainError(RackreadyError):
    """A domain of this name was made by others: it is neither changed nor removed."""


class HypervisorUnfitError(RackreadyError):
    """The preflight found why the hypervisor cannot run the node; nothing was made."""


class StackDomain:
    """One domain. ``proceed`` is called while waiting and may raise to stop; ``say`` gets progress messages."""

    def __init__(
        self,
        args: DomainArgs,
        ledger: Ledger,
        known_hosts: Path,
        *,
        proceed: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._args = args
        self._ledger = ledger
        self._known_hosts = known_hosts
        self._proceed = proceed
        self._say = say
        self._name = args.node

    def ensure(self, *, text: str = "") -> DomainState:
        """Bring the domain to its definition and up; a running one is redefined, never restarted.

        ``text``: digest of the definition as libvirt had it when we last wrote it; another one was edited since.
        Raises RackreadyError (nothing was started), or DomainIncompleteError (it runs, and SSH is not usable).
        """
        with self._virsh() as virsh:
            seen = self._own(virsh)
            if seen is None or not seen.active:
                self._prepare(virsh)
            edited = seen is not None and bool(text) and seen.text != text
            if seen is None or edited or seen.digest != domain_digest(self._args.facts):
                self._define(virsh, edited=edited)
            started = self._start(virsh)
            state = self._state(virsh.look(self._name))
        if state.restart:
            self._say(
                "redefined; what runs is older: shut it down when it may end, the next run starts it again. "
                "cloud-init then applies a changed network; changed users and keys, set in the guest"
            )
        if self._args.ssh is None:
            return state
        self._say("started, waiting for SSH" if started else "runs, waiting for SSH")
        try:
            facts = wait_and_pin(
                _target(self._name, self._args.ssh, self._known_hosts),
                timeout_s=self._args.timeout_s,
                proceed=self._proceed,
            )
        except RackreadyError as error:
            raise DomainIncompleteError(state, error) from error
        self._say("SSH answers, host key pinned")
        return replace(state, host_key=facts.host_key, boot_id=facts.boot_id)

    def observe(self) -> DomainState:
        """Return the state of the domain; Unknown with the reason when its hypervisor fails."""
        try:
            with self._virsh() as virsh:
                return self._state(self._own(virsh))
        except RackreadyError as error:
            return DomainState("Unknown", made=False, problem=str(error))

    def remove(self) -> None:
        """Stop the domain and remove its definition and seed; its disk stays. Raises RackreadyError."""
        with self._virsh() as virsh:
            seen = self._own(virsh)
            if seen is None:
                self._say("was gone")
                return
            if seen.active:
                self._effect(POWER_OFF, self._again(POWER_ON), lambda: self._stop(virsh), lambda: not self._runs(virsh))
            after = self._again(DEFINE)
            self._effect(UNDEFINE, after, lambda: virsh.undefine(self._name), lambda: virsh.look(self._name) is None)
            virsh.prepare({"remove": str(self._args.facts.seed)})
        self._say(f"removed; its disk {self._args.facts.disk} stays on {self._args.host.name}")

    def _own(self, virsh: Virsh) -> SeenDomain | None:
        """Return our domain, None where there is none. Raises ForeignDomainError for one of others."""
        seen = virsh.look(self._name)
        if seen is None or seen.owner == self._args.facts.owner:
            return seen
        raise ForeignDomainError(
            virsh.where,
            f"domain {self._name} exists",
            expected=f"none, or one that rackready made for {self._args.facts.owner}",
            actual=f"one of {seen.owner}" if seen.owner else "one that others made",
            next_step="Rename the node in the site file, or remove that domain with the tool that made it.",
        )

    def _prepare(self, virsh: Virsh) -> None:
        facts, wanted = self._args.facts, self._args.wanted
        shown = virsh.facts(wanted.request()) | {"versions": virsh.versions()}
        found = judge(self._args.host.name, wanted, shown)
        if found:
            raise HypervisorUnfitError.of([Message(what=str(finding)) for finding in found])
        made = virsh.prepare(seed_request(facts.disk, facts.base, facts.disk_gib, facts.seed, self._args.seed))
        for note in notes(wanted, shown):
            self._say(note)
        if made["disk"]:
            self._say(f"made its disk over {facts.base}")

    def _define(self, virsh: Virsh, *, edited: bool) -> None:
        xml, wanted = domain_xml(self._args.facts), domain_digest(self._args.facts)
        key = f"{wanted}/{self._again(UNDEFINE)}"

        def happened() -> bool:
            seen = virsh.look(self._name)
            return seen is not None and seen.digest == wanted and not edited

        self._effect(DEFINE, key, lambda: virsh.define(xml), happened)
        how = " (software emulation)" if self._args.facts.accelerator == "qemu" else ""
        self._say(f"defined on {self._args.host.name}{how}")

    def _start(self, virsh: Virsh) -> bool:
        if self._runs(virsh):
            return False
        self._proceed()
        key = self._again(POWER_OFF)
        outcome = self._effect(POWER_ON, key, lambda: virsh.start(self._name), lambda: self._runs(virsh))
        self._say(f"started ({outcome})")
        return True

    def _stop(self, virsh: Virsh) -> None:
        virsh.shutdown(self._name)
        end = time.monotonic() + self._args.host.stop_s
        while self._runs(virsh):
            self._proceed()
            if time.monotonic() > end:
                self._say(f"did not end within {self._args.host.stop_s} s: cut")
                virsh.cut(self._name)
                return
            time.sleep(_POLL_S)

    def _runs(self, virsh: Virsh) -> bool:
        seen = virsh.look(self._name)
        return seen is not None and seen.active

    def _state(self, seen: SeenDomain | None) -> DomainState:
        if seen is None:
            return DomainState("Off", made=False)
        wanted = domain_digest(self._args.facts)
        restart = seen.active and seen.live != wanted
        power = "On" if seen.active else "Off"
        return DomainState(power, made=True, digest=seen.digest, text=seen.text, restart=restart)

    def _again(self, operation: str) -> str:
        """Return the number of the last such operation: what was done before it does not count after it."""
        last = self._ledger.latest(self._name, operation)
        return str(last.token if last else 0)

    def _effect(self, operation: str, key: str, act: Callable[[], None], happened: Callable[[], bool]) -> str:
        wanted = {"operation": operation, "owner": self._args.facts.owner, "key": key}
        desired = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()

        def do(_token: int) -> dict[str, str]:
            self._proceed()
            act()
            return {"host": self._args.host.name}

        return run_effect(
            self._ledger,
            self._name,
            operation,
            desired,
            before=lambda: {"host": self._args.host.name, "at": time.time()},
            observe=lambda _stored: Observation.HAPPENED if happened() else Observation.NOT_HAPPENED,
            act=do,
        ).outcome

    @contextmanager
    def _virsh(self) -> Iterator[Virsh]:
        host = self._args.host
        if host.reach == "local":
            yield Virsh(Local(), host.name, host.uri)
            return
        sudo = None if host.ssh.user == "root" else Sudo(host.sudo_password)
        remote = Remote({host.name: _target(host.name, host.ssh, self._known_hosts, sudo)})
        try:
            yield Virsh(remote, host.name, host.uri)
        finally:
            remote.close()


def _target(name: str, ssh: SshArgs, known_hosts: Path, sudo: Sudo | None = None) -> SshTarget:
    hop = ssh.jump
    jump = jump_at(hop.host, hop.port, hop.user, hop.private_key, known_hosts) if hop is not None else None
    login = KeyLogin(ssh.private_key)
    return SshTarget(name, str(ssh.address), ssh.port, ssh.user, login, known_hosts, sudo=sudo, jump=jump)


__all__ = ["DomainIncompleteError", "DomainState", "ForeignDomainError", "HypervisorError", "Runner", "StackDomain"]
