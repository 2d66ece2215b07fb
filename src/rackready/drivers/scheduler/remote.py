"""A command line on the scheduler's controller over SSH, its host key pinned at the first contact."""

from __future__ import annotations

import paramiko

from rackready.drivers import ssh
from rackready.drivers.hostkeys import SCHEDULER, known_name, pin_at_first_contact
from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.slurm import SlurmAdapter
from rackready.model.site import SlurmHandover
from rackready.paths import EnvPaths

_TIMEOUT_S = 30.0
_KEEPALIVE_S = 15
"""Between signs of life: less than the minutes after which firewalls and servers end sessions that say nothing. Our judgement."""
_READS = ("squeue ", "scontrol show ", "sinfo ")
"""Commands that may be sent twice. What changes something may have been done although no answer came: it is not sent again."""


def connect_slurm(handover: SlurmHandover, paths: EnvPaths) -> SlurmAdapter:
    """Return the adapter of a Slurm cluster. Raises SchedulerError when its controller does not let us in."""
    pin_at_first_contact(paths.known_hosts, str(handover.controller), handover.port, "the Slurm controller")
    return _connected(handover, paths)


def read_slurm(handover: SlurmHandover, paths: EnvPaths) -> SlurmAdapter:
    """Return the same without writing anything: a controller whose host key is not pinned yet is not asked. Raises SchedulerError."""
    where = known_name(str(handover.controller), handover.port)
    if not ssh.pinned(paths.known_hosts, where):
        expected = f"its host key in {paths.known_hosts}"
        raise SchedulerError(
            f"Slurm controller {where}: SSH - Expected: {expected} Actual: none, and this command writes none. "
            f"{ssh.way_out(SCHEDULER)}"
        )
    return _connected(handover, paths)


def _connected(handover: SlurmHandover, paths: EnvPaths) -> SlurmAdapter:
    session = _Session(handover, paths)
    return SlurmAdapter(session.run, session.where, close=session.close)


class _Session:
    """One SSH session with the controller, opened again once a command when it was lost: jobs are waited for longer than a session may last."""

    def __init__(self, handover: SlurmHandover, paths: EnvPaths) -> None:
        self.where = f"{handover.controller}:{handover.port}"
        self._handover, self._paths = handover, paths
        self._client = _connect(handover, paths, self.where)

    def run(self, command: str) -> tuple[int, str, str]:
        """Return exit code, standard output and standard error. Raises SchedulerError."""
        try:
            try:
                return _execute(self._client, command)
            except (OSError, EOFError, paramiko.SSHException):
                if _alive(self._client) or not command.startswith(_READS):
                    raise
            self._client.close()
            self._client = _connect(self._handover, self._paths, self.where)
            return _execute(self._client, command)
        except (OSError, EOFError, paramiko.SSHException) as error:
            actual = str(error) or type(error).__name__
            message = (
                f"Slurm controller {self.where}: `{command}` - Expected: an end within {_TIMEOUT_S:.0f} s "
                f"Actual: {actual}. See whether slurmctld runs."
            )
            raise SchedulerError(message) from error

    def close(self) -> None:
        """End the session."""
        self._client.close()


def _connect(handover: SlurmHandover, paths: EnvPaths, where: str) -> paramiko.SSHClient:
    target = ssh.SshTarget(
        "Slurm controller",
        str(handover.controller),
        handover.port,
        handover.user,
        handover.private_key,
        paths.known_hosts,
    )
    try:
        return ssh.connect(target, timeout_s=_TIMEOUT_S, keepalive_s=_KEEPALIVE_S)
    except paramiko.BadHostKeyException as error:
        expected, actual = ssh.fingerprint(error.expected_key), ssh.fingerprint(error.key)
        message = (
            f"Slurm controller {where}: SSH host key changed, no login was tried - Expected: {expected} "
            f"Actual: {actual}. {ssh.way_out(SCHEDULER)}"
        )
        raise SchedulerError(message) from error
    except (OSError, ValueError, paramiko.SSHException, paramiko.pkey.UnknownKeyType) as error:
        expected = f"user {handover.user} is let in with {handover.private_key}"
        step = "See whether it is up and answers there, or correct handover in the site file."
        message = (
            f"Slurm controller {where}: SSH - Expected: {expected} Actual: {str(error) or type(error).__name__}. {step}"
        )
        raise SchedulerError(message) from error


def _execute(client: paramiko.SSHClient, command: str) -> tuple[int, str, str]:
    """Return exit code and both outputs. Raises what paramiko does, and EOFError when the session ended within the command."""
    _, out, err = client.exec_command(command, timeout=_TIMEOUT_S)
    text, errors = out.read().decode("utf-8", "replace"), err.read().decode("utf-8", "replace")
    code = out.channel.recv_exit_status()
    if code < 0 and not _alive(client):  # what came may be a part only
        raise EOFError
    return code, text, errors


def _alive(client: paramiko.SSHClient) -> bool:
    transport = client.get_transport()
    return transport is not None and transport.is_active()
