"""A short-lived SSH key with which a head node starts MPI processes on its peers."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rackready.drivers import remote as remote_runs
from rackready.drivers.remote import Answer, Remote, UnreachableError
from rackready.drivers.ssh.sudo import as_user

_PREPARE = r"""
set -eu
umask 077
base=${XDG_RUNTIME_DIR:-/run}
[ -w "$base" ] || base=/tmp
d=$(mktemp -d "$base/rackready-launch.XXXXXX")
ssh-keygen -q -t ed25519 -N '' -C "$1" -f "$d/id"
cat > "$d/known_hosts"
printf '%s\n' "$d"
cat "$d/id.pub"
"""
_ADMIT = r"""
set -eu
umask 077
mkdir -p "$HOME/.ssh"
f=$HOME/.ssh/authorized_keys
touch "$f"
printf 'restrict,from="%s" %s\n' "$1" "$2" >> "$f"
"""
_EXPEL = r"""
f=$HOME/.ssh/authorized_keys
[ -f "$f" ] || exit 0
t=$(mktemp "$f.XXXXXX") && { grep -v -F -- "$1" "$f" > "$t"; chmod 600 "$t"; cat "$t" > "$f"; rm -f "$t"; }
"""


SUDOERS = "/etc/sudoers.d"
_ALLOW = r"""
set -eu
orted=$(command -v orted) || { echo "orted of Open MPI 4 is not installed" >&2; exit 1; }
t=$(mktemp)
printf '%s ALL=(root) NOPASSWD: %s\n' "$2" "$orted" > "$t"
visudo -cqf "$t"
chmod 0440 "$t"
mv "$t" "$3/$1"
"""
"""orted is Open MPI's process on a peer: without a terminal it cannot give sudo a password."""


def _rule(name: str) -> str:
    """Return the name of the sudoers rule of a launch: sudo reads them in this order, and the last match wins."""
    return f"zzz-{name}"


@dataclass(frozen=True, slots=True)
class PeerLogin:
    """The user to whom a peer opens, and whether sudo asks that user for a password."""

    user: str = "root"
    asks: bool = False

    def words(self, *argv: str) -> tuple[str, ...]:
        """Return a command line that runs as this user; commands on nodes run as root."""
        return argv if self.user == "root" else as_user(self.user, argv)


@dataclass(frozen=True, slots=True)
class LaunchKey:
    """Folder on the head node with a key (``id``) and pinned host keys (``known_hosts``)."""

    folder: str
    login: PeerLogin

    def mpirun_options(self, port: int) -> tuple[str, ...]:
        """Return the options with which mpirun logs in to peers and becomes root there, as on the head node.

        Open MPI keeps what precedes orted in its launch agent (open-mpi/ompi 4.1, plm_rsh_module.c, setup_launch).
        """
        agent = () if self.login.user == "root" else ("--mca", "orte_launch_agent", "sudo -n orted")
        return ("--mca", "plm_rsh_args", f"{self.ssh_options} -p {port} -l {self.login.user}", *agent)

    @property
    def ssh_options(self) -> str:
        """Options for ssh on the head node."""
        pinned = f"-o UserKnownHostsFile={self.folder}/known_hosts -o StrictHostKeyChecking=yes"
        return f"-i {self.folder}/id -o IdentitiesOnly=yes {pinned} -o BatchMode=yes -o ConnectTimeout=10"


_ROOT = PeerLogin()


@contextmanager
def launch_key(
    remote: Remote,
    head: str,
    head_address: str,
    peers: Sequence[str],
    known_hosts: Path,
    login: PeerLogin = _ROOT,
) -> Iterator[LaunchKey]:
    """Let the head node log in to its peers while MPI runs, and no longer.

    The head node makes the private key, which never leaves it; peers accept it from the head's address only, for the
    site's own user. Where sudo asks that user for a password, a rule lets the user start orted without it meanwhile.
    Raises UnreachableError when a node cannot be prepared.
    """
    name = f"rackready-launch-{remote_runs.RUN_ID}-{secrets.token_hex(8)}"
    pinned = known_hosts.read_text(encoding="utf-8") if known_hosts.exists() else ""
    made = _must(remote, head, ("sh", "-c", _PREPARE, "rackready", name), stdin=pinned or "\n")
    folder, public = made.stdout.strip().splitlines()[:2]
    try:
        for peer in peers:
            if login.asks:
                _must(remote, peer, ("sh", "-c", _ALLOW, "rackready", _rule(name), login.user, SUDOERS))
            _must(remote, peer, login.words("sh", "-c", _ADMIT, "rackready", head_address, public))
        yield LaunchKey(folder, login)
    finally:
        for peer in peers:
            remote.run(peer, login.words("sh", "-c", _EXPEL, "rackready", name), timeout_s=30, cleaning=True)
            if login.asks:
                remote.run(peer, ("rm", "-f", f"{SUDOERS}/{_rule(name)}"), timeout_s=30, cleaning=True)
        remote.run(head, ("rm", "-rf", folder), timeout_s=30, cleaning=True)


def _must(remote: Remote, node: str, argv: Sequence[str], *, stdin: str = "") -> Answer:
    answer = remote.run(node, argv, stdin=stdin, timeout_s=30)
    if answer.exit_code != 0:
        why = answer.failure or answer.stderr.strip() or answer.exit_code
        raise UnreachableError(node, f"preparing the MPI launch failed ({why})")
    return answer
