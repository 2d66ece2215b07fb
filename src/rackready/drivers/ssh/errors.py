"""SSH errors: one class and one text for each cause, whatever host it happens on."""

from __future__ import annotations

from rackready.model.problems import RackreadyError

CHECK_JUMP = "Check its power, its network and access.proxy_jump in the site file, then run again."
CHECK_HOST = "Check its power, its network and its address in the site file, then run again."


class SshError(RackreadyError):
    """A host cannot be used over SSH. ``actual``: what happened instead of what was expected, in a few words."""

    def __init__(self, where: str, what: str, expected: str, actual: str, step: str) -> None:
        self.actual = actual
        super().__init__(where, what, expected=expected, actual=actual, next_step=step)


class SshTimeoutError(SshError):
    """No SSH session within the time limit: nothing answers, or what answers is not SSH."""


class NoConnectionError(SshTimeoutError):
    """The host's SSH port takes no TCP connection: it is off, elsewhere, or has no SSH service."""

    code = SshTimeoutError.code


class SshBusyError(SshError):
    """The connection is open, and the server refuses another session on it now (sshd's MaxSessions)."""


class SshLostError(SshError):
    """The connection broke before a command was started."""


class HostKeyChangedError(SshError):
    """The host shows another key than the pinned one."""


class HostKeyNotPinnedError(SshError):
    """No key of the host is pinned."""


class SshLoginError(SshError):
    """The host refuses the login, or the controller cannot read its private key."""


class JumpSilentError(SshTimeoutError):
    """The jump host in front of a host opens no SSH session in time."""


class JumpForbidsError(SshError):
    """The jump host accepts the login, and refuses to open connections for it."""


class SudoError(SshError):
    """The user logs in, and sudo does not make it root."""


class SshCommandError(SshError):
    """The end of a command was not seen: it ran too long, or the connection broke. Nobody knows what it did."""


def no_answer(where: str, timeout_s: float, actual: str, step: str = CHECK_HOST) -> SshTimeoutError:
    """Return the error for a host that opens no SSH session in time."""
    return SshTimeoutError(where, "SSH", f"an answer within {timeout_s:.0f} s", actual, step)


def no_connection(where: str, timeout_s: float, actual: str) -> NoConnectionError:
    """Return the error for a host whose SSH port takes no TCP connection in time."""
    return NoConnectionError(where, "SSH", f"a TCP connection within {timeout_s:.0f} s", actual, CHECK_HOST)


def jump_silent(where: str, timeout_s: float, actual: str) -> JumpSilentError:
    """Return the error for a jump host that opens no SSH session in time."""
    return JumpSilentError(where, "SSH", f"an answer within {timeout_s:.0f} s", actual, CHECK_JUMP)


def jump_forbids(where: str, user: str, host: str) -> JumpForbidsError:
    """Return the error for a jump host that opens no connections for a user (sshd_config(5), sshd(8))."""
    step = (
        "Set AllowTcpForwarding to yes or local in its sshd_config, with a PermitOpen (if any) that names the nodes, "
        f"and see that no `restrict` or `no-port-forwarding` precedes the key in the authorized_keys of {user}."
    )
    expected = f"a connection for {user} to {host}"
    return JumpForbidsError(where, "SSH forwarding", expected, "administratively prohibited", step)


def beyond_jump(where: str, jump: str, timeout_s: float, actual: str) -> SshTimeoutError:
    """Return the error for a host that does not answer its jump host."""
    step = (
        "Check its power, its network and its address in the site file, and the way to it from the jump host; "
        "then run again."
    )
    return SshTimeoutError(where, "SSH", f"an answer within {timeout_s:.0f} s", f"{actual} from {jump}", step)


def busy(where: str, actual: str) -> SshBusyError:
    """Return the error for a server that refuses another session on an open connection."""
    step = "Check MaxSessions in its sshd_config and the load of the host, then run again."
    return SshBusyError(where, "SSH", "another session on the open connection", actual, step)


def lost(where: str, actual: str) -> SshLostError:
    """Return the error for a connection that broke."""
    return SshLostError(where, "SSH", "the connection stays open", f"lost ({actual})", CHECK_HOST)


def key_changed(where: str, expected: str, actual: str, accept_name: str) -> HostKeyChangedError:
    """Return the error for a host key that is not the pinned one; both as fingerprints."""
    what = "SSH host key changed, no login was tried"
    return HostKeyChangedError(where, what, expected, actual, way_out(accept_name))


def not_pinned(where: str, known_hosts: object, accept_name: str, actual: str = "none") -> HostKeyNotPinnedError:
    """Return the error for a host without a pinned key."""
    what = "SSH host key not pinned, no login was tried"
    return HostKeyNotPinnedError(where, what, f"its key in {known_hosts}", actual, _first(accept_name))


def login_refused(where: str, user: str, credential: str, actual: str, step: str) -> SshLoginError:
    """Return the error for a refused login; ``credential`` names what was tried, never a secret."""
    return SshLoginError(where, "SSH login refused", f"user {user} accepted with {credential}", actual, step)


def unreadable_key(where: str, path: object, actual: str, setting: str) -> SshLoginError:
    """Return the error for a private key that cannot be used; ``setting`` names its key in the site file."""
    expected = "an OpenSSH private key without passphrase"
    return SshLoginError(where, f"private key {path}", expected, actual, f"Correct {setting} in the site file.")


def unfinished(where: str, command: str, timeout_s: float, actual: str, step: str) -> SshCommandError:
    """Return the error for a command whose end was not seen; ``step`` says what helps on this kind of host."""
    return SshCommandError(where, f"`{command}`", f"an end within {timeout_s:.0f} s", actual, step)


def way_out(accept_name: str) -> str:
    """Return the next step for a host whose key is not the pinned one."""
    accept = f"`rackready hostkey accept {accept_name}` shows both keys and pins the new one"
    return f"If the host was reinstalled or its pin was lost, {accept}. If not, find out who answers at its address."


def _first(accept_name: str) -> str:
    """Return the next step for a host without a pin, which is mostly one that others installed."""
    accept = f"`rackready hostkey accept {accept_name}` shows its key and pins it"
    return f"If rackready never logged in there, or its pin was lost, {accept}: compare the key with the host's own."


def reason(error: BaseException) -> str:
    """Return an exception's first line, its class when it has no text."""
    if isinstance(error, TimeoutError):
        return "no answer (time-out)"
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
