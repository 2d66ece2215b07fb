"""Build the signed package repositories of the simulated mirror."""

from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.profiles import loader
from rackready_sim.packages import deb, driver_rhel, kernel, repo_rpm
from rackready_sim.packages.contents import Content, contents

_DATE = "Thu, 02 Jan 2025 00:00:00 UTC"
_STAMP = ".built"
_KEY_FILE = "mirror-key.asc"
_OWNER = "rackready simulated mirror"
_HERE = Path(__file__).parent


class MirrorBuildError(RackreadyError):
    """The repository could not be built: a tool is missing or failed."""


def build_repo(site: Site, out: Path, *, key_days: int = 730) -> None:
    """Build the repositories of the site below ``out``, each unless it exists from the same recipes.

    A site with one mirror gets it in ``out``, a site with several repositories gets each in a folder of its name. A
    repository has its packages, their index (Packages, Release and InRelease, or repodata/), the public key
    ``mirror.asc`` and its fingerprint ``mirror.fpr``; secret keys stay beside ``out``. A negative ``key_days`` makes a
    signing key that has expired. Raises MirrorBuildError.
    """
    wanted = contents(site)
    for content in wanted:
        _build(content, out / content.name, out.parent, key_days)
    names = {content.name for content in wanted}
    for folder in out.iterdir() if "" not in names else ():
        if folder.name not in names:
            shutil.rmtree(folder) if folder.is_dir() else folder.unlink()


def _build(content: Content, out: Path, keys: Path, key_days: int) -> None:
    """Build one repository in ``out``; its secret key is below ``keys``."""
    wanted = f"{digest(content)} {key_days}\n"
    stamp = out / _STAMP
    index = out / ("repodata/repomd.xml" if content.rpm else "InRelease")
    if stamp.exists() and stamp.read_text() == wanted and index.exists():
        return
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    packages = content.packages()
    algorithm = "rsa3072" if content.rpm else "ed25519"
    secret = keys / f"{content.name}-{_KEY_FILE}" if content.name else _secret(keys, algorithm)
    with _signing_key(out, key_days, algorithm, secret) as home:
        if content.rpm:
            repo_rpm.build(packages, driver_rhel.MODULE, driver_rhel.streams(packages), out, home)
            _gpg(str(home), "--armor", "--detach-sign", "--output", f"{index}.asc", str(index))
        else:
            _write_apt(packages, out)
            _sign(out, home, key_days)
    stamp.write_text(wanted)


def add_apt(packages: list[deb.Deb], out: Path) -> None:
    """Add packages to an apt repository that ``build_repo`` made, and sign its new index with its own key."""
    index = (out / "Packages").read_text()
    _write_index("\n".join([index, *(deb.write(package, out) for package in packages)]).encode(), out)
    with _signing_key(out, 1, "ed25519") as home:
        _sign(out, home, 1)


def sign_with_another_key(out: Path) -> None:
    """Sign an apt repository with a key that nobody knows; the public key that it publishes stays."""
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "repository"
        other.mkdir()
        shutil.copyfile(out / "Release", other / "Release")
        with _signing_key(other, 1, "ed25519") as home:
            _sign(other, home, 1)
        for name in ("InRelease", "Release.gpg"):
            shutil.copyfile(other / name, out / name)


def _write_apt(packages: list[deb.Deb], out: Path) -> None:
    _write_index("\n".join(sorted(deb.write(package, out) for package in packages)).encode(), out)


def _write_index(index: bytes, out: Path) -> None:
    (out / "Packages").write_bytes(index)
    (out / "Packages.gz").write_bytes(gzip.compress(index, mtime=0))
    (out / "Release").write_text(_release(out))


def digest(content: Content) -> str:
    """Return a digest of the recipes and their inputs from the site."""
    total = hashlib.sha256()
    for folder in (_HERE, _HERE.parent / "nvml", _HERE.parent / "programs"):
        for path in sorted(item for item in folder.rglob("*") if item.suffix in {".py", ".c", ".h"}):
            total.update(path.relative_to(_HERE.parent).as_posix().encode())
            total.update(path.read_bytes())
    for name, driver in content.sets:
        total.update(f"{loader.software(name).model_dump_json()} {driver}".encode())
    total.update(content.part.encode())
    total.update(kernel.release().encode())
    return total.hexdigest()


def _release(out: Path) -> str:
    rows = [f"Origin: NVIDIA\nLabel: rackready mirror\nDate: {_DATE}\nArchitectures: amd64 all"]
    for title, algorithm in (("MD5Sum", "md5"), ("SHA256", "sha256")):
        rows.append(f"{title}:")
        for name in ("Packages", "Packages.gz"):
            raw = (out / name).read_bytes()
            rows.append(f" {hashlib.new(algorithm, raw, usedforsecurity=False).hexdigest()} {len(raw):>10} {name}")
    return "\n".join(rows) + "\n"


@contextmanager
def _signing_key(out: Path, key_days: int, algorithm: str, secret: Path | None = None) -> Iterator[Path]:
    """Yield a GnuPG home with the key of a repository, which is created once; its public key is written to ``out``.

    It is a short temporary folder, because the agent's socket path has a length limit.
    """
    secret = secret or _secret(out.parent, algorithm)
    with tempfile.TemporaryDirectory(prefix="rr-gpg-") as home:
        try:
            fresh = not secret.exists() or key_days < 0
            _make_key(home, secret, key_days, algorithm) if fresh else _gpg(home, "--import", str(secret))
            _gpg(home, "--armor", "--export", "--output", str(out / "mirror.asc"))
            listing = _gpg(home, "--list-keys", "--with-colons").decode()
            (out / "mirror.fpr").write_text(re.findall(r"^fpr:(?:[^:]*:){8}([0-9A-F]+):", listing, re.MULTILINE)[0])
            yield Path(home)
        finally:
            subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False, capture_output=True)


def _secret(folder: Path, algorithm: str) -> Path:
    """Return the place of the secret key of a site's one mirror."""
    return folder / (_KEY_FILE if algorithm == "ed25519" else f"{algorithm}-{_KEY_FILE}")


def _sign(out: Path, home: Path, key_days: int) -> None:
    past = ["--faked-system-time", "20250103T120000"] if key_days < 0 else []
    _gpg(str(home), *past, "--clearsign", "--output", str(out / "InRelease"), str(out / "Release"))
    _gpg(str(home), *past, "--armor", "--detach-sign", "--output", str(out / "Release.gpg"), str(out / "Release"))


def _make_key(home: str, secret: Path, key_days: int, algorithm: str) -> None:
    """Create a signing key; an expired one is created in the past and not kept."""
    past = ["--faked-system-time", "20250103T000000"] if key_days < 0 else []
    _gpg(home, *past, "--passphrase", "", "--quick-generate-key", _OWNER, algorithm, "sign", f"{abs(key_days)}d")
    if key_days > 0:
        secret.touch(mode=0o600)
        secret.write_bytes(_gpg(home, "--armor", "--export-secret-keys"))


def _gpg(home: str, *arguments: str) -> bytes:
    argv = ["gpg", "--homedir", home, "--batch", "--yes", "--quiet", "--pinentry-mode", "loopback", *arguments]
    try:
        done = subprocess.run(argv, check=False, capture_output=True)
    except FileNotFoundError as error:
        raise MirrorBuildError(
            "Simulated mirror",
            expected="the program gpg",
            actual="it is not installed",
            next_step="Run `apt-get install gnupg`.",
        ) from error
    if done.returncode:
        text = done.stderr.decode(errors="replace").strip()
        raise MirrorBuildError(
            "Simulated mirror",
            expected="gpg signs the repository",
            actual=f"exit {done.returncode}: {text}",
            next_step="Check the gnupg installation.",
        )
    return done.stdout
