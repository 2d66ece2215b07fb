"""OpenPGP keys of a mirror: those of its upstreams, and the one that signs it. All work is done by gpg."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rackready.drivers.mirror.tools import MirrorError, last, must, run
from rackready.files import replace
from rackready.model.operations import Upstream

_OWNER = "rackready mirror of {}"
_FINGERPRINT_FIELD = 9
_PREFIX = "rr-mirror-gpg-"


@dataclass(frozen=True, slots=True)
class Home:
    """A GnuPG home folder of its own, so that no key of the user counts."""

    path: Path
    agent: bool = True
    """Whether gpg may start its agent, which has the secret keys."""

    def argv(self, *words: str) -> list[str]:
        """Return a gpg command line."""
        options = ["--batch", "--yes", "--no-tty", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
        agent = [] if self.agent else ["--no-autostart"]
        return ["gpg", "--homedir", str(self.path), *options, *agent, *words]

    def export(self, target: Path, *fingerprints: str, armored: bool = False) -> None:
        """Write public keys."""
        form = ["--armor"] if armored else []
        must(self.argv(*form, "--output", str(target), "--export", *fingerprints), "public keys")
        target.chmod(0o644)


@contextmanager
def home(*, agent: bool = True) -> Iterator[Home]:
    """Yield a temporary home. Its path is short: the socket of gpg's agent has a length limit.

    Without ``agent`` it takes public keys only: nothing is started that has to be stopped.
    """
    _sweep()
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-") as name:
        try:
            yield Home(Path(name), agent)
        finally:
            if agent:
                stop = ["gpgconf", "--homedir", name, "--kill", "all"]
                subprocess.run(stop, check=False, capture_output=True)


def _sweep() -> None:
    """Remove homes of processes that were killed: one may have the signing key."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and path.owner() == Path("/proc/self").owner():
            shutil.rmtree(path, ignore_errors=True)


def fingerprints(key: Path) -> list[str]:
    """Return the fingerprints of the primary keys in a file. Raises MirrorError when it has none."""
    if not key.is_file():
        raise MirrorError(key, expected="an OpenPGP public key", actual="no file", next_step="Put the key there.")
    with home(agent=False) as place:
        done = run(place.argv("--show-keys", "--with-colons", str(key)))
    found, primary = [], False
    for line in done.out.splitlines():
        fields = line.split(":")
        if fields[0] in {"pub", "sec"}:
            primary = True
        elif fields[0] == "fpr" and primary:
            found.append(fields[_FINGERPRINT_FIELD].upper())
            primary = False
    if not found:
        raise MirrorError(
            key, expected="an OpenPGP public key", actual=last(done.out), next_step="Export it with gpg --export."
        )
    return found


def check_upstream(upstream: Upstream) -> None:
    """Raise MirrorError unless the key file of an upstream has the key with the declared fingerprint."""
    found = fingerprints(upstream.key)
    if upstream.fingerprint not in found:
        raise MirrorError(
            f"software.upstreams {upstream.name}",
            upstream.key,
            expected=f"the key {upstream.fingerprint}",
            actual=", ".join(found),
            next_step="Nothing was fetched. Compare both with what the key's owner publishes, then correct key "
            "or fingerprint.",
        )


def write_upstream(upstream: Upstream, target: Path, *, armored: bool = False) -> None:
    """Write a keyring with the declared key of an upstream and no other, whatever else its file has."""
    with home() as place:
        must(place.argv("--import", str(upstream.key)), f"the key of upstream {upstream.name}")
        place.export(target, upstream.fingerprint, armored=armored)


@contextmanager
def signer(secret: Path, site: str) -> Iterator[tuple[Home, str]]:
    """Yield a home with the key that signs the mirror, and its fingerprint. A missing key is made once.

    ``secret``: its file, ASCII armoured, without a passphrase.
    """
    with home() as place:
        if not secret.exists():
            must(place.argv("--quick-generate-key", _OWNER.format(site), "rsa4096", "sign", "never"), "a signing key")
            secret.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace(secret, must(place.argv("--armor", "--export-secret-keys"), "the signing key").encode())
        elif secret.stat().st_mode & 0o077 and secret.stat().st_uid == os.geteuid():
            mode = secret.stat().st_mode & 0o777
            raise MirrorError(secret, expected="mode 0600", actual=f"{mode:04o}", next_step=f"Run: chmod 600 {secret}.")
        else:
            must(place.argv("--import", str(secret)), f"the secret key in {secret}")
        listing = must(place.argv("--list-secret-keys", "--with-colons"), "a secret key")
        found = re.search(r"^fpr:(?:[^:]*:){8}([0-9A-F]+):", listing, re.MULTILINE)
        if found is None:
            raise MirrorError(secret, expected="an OpenPGP secret key", actual="none", next_step="Export it with gpg.")
        yield place, found[1]


def clearsign(place: Home, source: Path, target: Path) -> None:
    """Write a signed copy of a text."""
    must(place.argv("--clearsign", "--output", str(target), str(source)), f"{source.name} signed")
    target.chmod(0o644)


def detach(place: Home, source: Path, target: Path) -> None:
    """Write a detached signature of a file, ASCII armoured."""
    must(place.argv("--armor", "--detach-sign", "--output", str(target), str(source)), f"{source.name} signed")
    target.chmod(0o644)


def signed_by(key: Path, signature: Path, signed: Path | None = None) -> str:
    """Return the fingerprint of the key of ``key`` that signed. Raises MirrorError for any other signature."""
    with home() as place:
        must(place.argv("--import", str(key)), f"an OpenPGP public key in {key}")
        done = run(place.argv("--status-fd", "1", "--verify", str(signature), *([str(signed)] if signed else [])))
    # doc/DETAILS of GnuPG: the last field of VALIDSIG is the fingerprint of the primary key.
    found = re.search(r"^\[GNUPG:\] VALIDSIG (.+)$", done.out, re.MULTILINE)
    if done.returncode != 0 or found is None:
        name = signed or signature
        shown = ", ".join(fingerprints(key))
        raise MirrorError(
            name,
            expected=f"a good signature by {shown} ({key})",
            actual=_why(done.out),
            next_step="Do not use this mirror. Build it again, or copy it again from where it was built.",
        )
    return found[1].split()[-1]


def _why(out: str) -> str:
    """Return the reason of a refused signature, from gpg's status lines."""
    words = {
        "BADSIG": "the content was changed after it was signed",
        "ERRSIG": "a signature by another key",
        "NO_PUBKEY": "a signature by another key",
        "EXPKEYSIG": "the key has expired",
        "REVKEYSIG": "the key was revoked",
        "NODATA": "no signature",
    }
    return next((text for word, text in words.items() if f"[GNUPG:] {word}" in out), last(out))
