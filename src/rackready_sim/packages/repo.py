"""Build the signed package repository of the simulated mirror."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from rackready.design.facts import driver_version
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.profiles import loader
from rackready_sim.packages import deb, kernel, recipes

_DATE = "Thu, 02 Jan 2025 00:00:00 UTC"
_STAMP = ".built"
_KEY_FILE = "mirror-key.asc"
_OWNER = "rackready simulated mirror"
_HERE = Path(__file__).parent


class MirrorBuildError(RackreadyError):
    """The repository could not be built: a tool is missing or failed."""


def build_repo(site: Site, out: Path, *, key_days: int = 730) -> None:
    """Build the repository for the site's software set below ``out``, unless it exists from the same recipes.

    ``out`` gets the packages, Packages, Release, InRelease and the public key ``mirror.asc``; the secret key stays
    beside ``out``. A negative ``key_days`` makes a signing key that has expired. Raises MirrorBuildError.
    """
    wanted = f"{digest(site)} {key_days}\n"
    stamp = out / _STAMP
    if stamp.exists() and stamp.read_text() == wanted and (out / "InRelease").exists():
        return
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    software = loader.software(site.software.set)
    paragraphs = [deb.write(package, out) for package in recipes.packages(software, driver_version(site))]
    index = "\n".join(sorted(paragraphs)).encode()
    (out / "Packages").write_bytes(index)
    (out / "Packages.gz").write_bytes(gzip.compress(index, mtime=0))
    (out / "Release").write_text(_release(out))
    _sign(out, key_days)
    stamp.write_text(wanted)


def digest(site: Site) -> str:
    """Return a digest of the recipes and their inputs from the site."""
    total = hashlib.sha256()
    for folder in (_HERE, _HERE.parent / "nvml", _HERE.parent / "programs"):
        for path in sorted(item for item in folder.rglob("*") if item.suffix in {".py", ".c", ".h"}):
            total.update(path.relative_to(_HERE.parent).as_posix().encode())
            total.update(path.read_bytes())
    total.update(loader.software(site.software.set).model_dump_json().encode())
    total.update(driver_version(site).encode())
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


def _sign(out: Path, key_days: int) -> None:
    """Sign with a key that is created once per rack.

    It uses a short temporary home, because the agent's socket path has a length limit.
    """
    secret = out.parent / _KEY_FILE
    with tempfile.TemporaryDirectory(prefix="rr-gpg-") as home:
        try:
            fresh = not secret.exists() or key_days < 0
            _make_key(home, secret, key_days) if fresh else _gpg(home, "--import", str(secret))
            past = ["--faked-system-time", "20250103T120000"] if key_days < 0 else []
            _gpg(home, *past, "--clearsign", "--output", str(out / "InRelease"), str(out / "Release"))
            _gpg(home, *past, "--armor", "--detach-sign", "--output", str(out / "Release.gpg"), str(out / "Release"))
            _gpg(home, "--armor", "--export", "--output", str(out / "mirror.asc"))
        finally:
            subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False, capture_output=True)


def _make_key(home: str, secret: Path, key_days: int) -> None:
    """Create a signing key; an expired one is created in the past and not kept."""
    past = ["--faked-system-time", "20250103T000000"] if key_days < 0 else []
    _gpg(home, *past, "--passphrase", "", "--quick-generate-key", _OWNER, "ed25519", "sign", f"{abs(key_days)}d")
    if key_days > 0:
        secret.touch(mode=0o600)
        secret.write_bytes(_gpg(home, "--armor", "--export-secret-keys"))


def _gpg(home: str, *arguments: str) -> bytes:
    argv = ["gpg", "--homedir", home, "--batch", "--yes", "--quiet", "--pinentry-mode", "loopback", *arguments]
    try:
        done = subprocess.run(argv, check=False, capture_output=True)
    except FileNotFoundError as error:
        raise MirrorBuildError(
            "Simulated mirror - Expected: the program gpg Actual: it is not installed. Run `apt-get install gnupg`."
        ) from error
    if done.returncode:
        text = done.stderr.decode(errors="replace").strip()
        raise MirrorBuildError(
            f"Simulated mirror - Expected: gpg signs the repository Actual: exit {done.returncode}: {text}. "
            "Check the gnupg installation."
        )
    return done.stdout
