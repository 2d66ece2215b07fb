"""A command line on the scheduler's controller over SSH, its host key pinned at the first contact."""

from __future__ import annotations

import paramiko

from rackready.drivers.hostkeys import pin_at_first_contact
from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.slurm import SlurmAdapter
from rackready.model.site import SlurmHandover
from rackready.paths import EnvPaths

_TIMEOUT_S = 30.0


def connect_slurm(handover: SlurmHandover, paths: EnvPaths) -> SlurmAdapter:
    """Return the adapter of a Slurm cluster. Raises SchedulerError when its controller does not let us in."""
    host, where = str(handover.controller), f"{handover.controller}:{handover.port}"
    pin_at_first_contact(paths.known_hosts, host, handover.port, "the Slurm controller")
    client = paramiko.SSHClient()
    client.load_host_keys(str(paths.known_hosts))
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    try:
        client.connect(
            host,
            port=handover.port,
            username=handover.user,
            key_filename=str(handover.private_key),
            allow_agent=False,
            look_for_keys=False,
            timeout=_TIMEOUT_S,
            banner_timeout=_TIMEOUT_S,
            auth_timeout=_TIMEOUT_S,
        )
    except (OSError, paramiko.SSHException) as error:
        expected = f"user {handover.user} is let in with {handover.private_key}"
        message = f"Slurm controller {where}: SSH - Expected: {expected} Actual: {str(error) or type(error).__name__}. Correct handover in the site file."
        raise SchedulerError(message) from error

    def run(command: str) -> tuple[int, str, str]:
        try:
            _, out, err = client.exec_command(command, timeout=_TIMEOUT_S)
            text, errors = out.read().decode("utf-8", "replace"), err.read().decode("utf-8", "replace")
            return out.channel.recv_exit_status(), text, errors
        except (OSError, EOFError, paramiko.SSHException) as error:
            actual = str(error) or type(error).__name__
            message = f"Slurm controller {where}: `{command}` - Expected: an end within {_TIMEOUT_S:.0f} s Actual: {actual}. See whether slurmctld runs."
            raise SchedulerError(message) from error

    return SlurmAdapter(run, where, close=client.close)
