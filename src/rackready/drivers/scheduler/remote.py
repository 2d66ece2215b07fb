"""Commands on the Slurm controller over SSH; its host key is pinned at first contact."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.slurm import SlurmAdapter
from rackready.drivers.ssh import errors
from rackready.drivers.ssh.command import Shell
from rackready.drivers.ssh.first_contact import pin_at_first_contact
from rackready.drivers.ssh.pins import pinned
from rackready.drivers.ssh.session import DIAL_S, active, connect
from rackready.drivers.ssh.target import SshTarget, slurm_target
from rackready.model.site import SlurmHandover
from rackready.paths import EnvPaths

_TIMEOUT_S = 30.0
_READS = ("squeue ", "scontrol show ", "sinfo ")
"""Commands that may be sent twice. A change without an answer may have been made: it is not sent again."""


def connect_slurm(handover: SlurmHandover, paths: EnvPaths) -> SlurmAdapter:
    """Return the adapter of a Slurm cluster. Raises SchedulerError when its controller cannot be reached."""
    target = slurm_target(handover, paths.known_hosts)
    with _as_scheduler_errors():
        pin_at_first_contact(target, patience_s=DIAL_S)  # nothing of ours boots it
    return _connected(target)


def read_slurm(handover: SlurmHandover, paths: EnvPaths) -> SlurmAdapter:
    """Return the same without writing anything: a controller without a pinned host key is refused.

    Raises SchedulerError.
    """
    target = slurm_target(handover, paths.known_hosts)
    if not pinned(paths.known_hosts, target.host):
        actual = "none, and this command writes none"
        refused = errors.not_pinned(target.where, paths.known_hosts, target.accept_name, actual)
        raise SchedulerError.of(refused.messages)
    return _connected(target)


def _connected(target: SshTarget) -> SlurmAdapter:
    session = _Session(target)
    return SlurmAdapter(session.run, f"{target.address}:{target.port}", close=session.close)


class _Session:
    """One SSH session with the controller, opened again once per command when it was lost.

    Waiting for jobs takes longer than a session may last.
    """

    def __init__(self, target: SshTarget) -> None:
        self._target = target
        self._shell = self._open()

    def run(self, command: str) -> tuple[int, str, str]:
        """Return exit code, standard output and standard error. Raises SchedulerError."""
        with _as_scheduler_errors():
            try:
                done = self._shell.run(command, timeout_s=_TIMEOUT_S)
            except errors.SshCommandError:
                if active(self._shell.client) or not command.startswith(_READS):
                    raise
                self.close()
                self._shell = self._open()
                done = self._shell.run(command, timeout_s=_TIMEOUT_S)
        return done.exit_code, done.stdout, done.stderr

    def close(self) -> None:
        """End the session."""
        self._shell.client.close()

    def _open(self) -> Shell:
        with _as_scheduler_errors():
            client = connect(self._target, timeout_s=_TIMEOUT_S, dial_s=DIAL_S)
        return Shell(client, self._target.where, "Check that slurmctld runs.")


@contextmanager
def _as_scheduler_errors() -> Iterator[None]:
    """Raise SSH errors as SchedulerError, their text unchanged."""
    try:
        yield
    except errors.SshError as error:
        raise SchedulerError.of(error.messages) from error
