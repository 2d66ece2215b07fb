"""A short-lived SSH key with which a head node starts MPI processes on its peers."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rackready.drivers import remote as remote_runs
from rackready.drivers.remote import Answer, Remote, UnreachableError

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


@dataclass(frozen=True, slots=True)
class LaunchKey:
    """Folder on the head node with a key (``id``) and pinned host keys (``known_hosts``)."""

    folder: str

    @property
    def ssh_options(self) -> str:
        """Options for ssh on the head node."""
        pinned = f"-o UserKnownHostsFile={self.folder}/known_hosts -o StrictHostKeyChecking=yes"
        return f"-i {self.folder}/id -o IdentitiesOnly=yes {pinned} -o BatchMode=yes -o ConnectTimeout=10"


@contextmanager
def launch_key(
    remote: Remote, head: str, head_address: str, peers: Sequence[str], known_hosts: Path
) -> Iterator[LaunchKey]:
    """Let the head node log in to its peers while MPI runs, and no longer.

    The head node makes the private key, which never leaves it; peers accept it from the head's address only. Raises
    UnreachableError when a node cannot be prepared.
    """
    name = f"rackready-launch-{remote_runs.RUN_ID}-{secrets.token_hex(8)}"
    pinned = known_hosts.read_text(encoding="utf-8") if known_hosts.exists() else ""
    made = _must(remote, head, ("sh", "-c", _PREPARE, "rackready", name), stdin=pinned or "\n")
    folder, public = made.stdout.strip().splitlines()[:2]
    try:
        for peer in peers:
            _must(remote, peer, ("sh", "-c", _ADMIT, "rackready", head_address, public))
        yield LaunchKey(folder)
    finally:
        for peer in peers:
            remote.run(peer, ("sh", "-c", _EXPEL, "rackready", name), timeout_s=30, cleaning=True)
        remote.run(head, ("rm", "-rf", folder), timeout_s=30, cleaning=True)


def _must(remote: Remote, node: str, argv: Sequence[str], *, stdin: str = "") -> Answer:
    answer = remote.run(node, argv, stdin=stdin, timeout_s=30)
    if answer.exit_code != 0:
        why = answer.failure or answer.stderr.strip() or answer.exit_code
        raise UnreachableError(node, f"preparing the MPI launch failed ({why})")
    return answer
