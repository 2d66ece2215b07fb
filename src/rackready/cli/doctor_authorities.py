"""Check of `rackready doctor` of the CA certificates by which BMCs, and UFM, are verified."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from rackready.cli.doctor_scene import Answer, Scene
from rackready.design.secret_places import fields
from rackready.model.outcome import Outcome

_WANTED = "a file of CA certificates (PEM), one of them valid now"


def authorities(scene: Scene) -> Answer:
    """Check that every `ca` of the site file is there, has certificates, and has not expired."""
    if scene.site is None:
        return Outcome.SKIP, "the site file cannot be used"
    named = (value for name, value in fields(scene.site) if name == "ca" and isinstance(value, Path))
    files = list(dict.fromkeys(named))
    wrong = [
        f"{file} - Expected: {_WANTED} Actual: {found}. Put it there, or correct `ca` in the site file."
        for file in files
        if (found := _fault(file, datetime.now(UTC)))
    ]
    if wrong:
        return Outcome.FAIL, "\n".join(wrong)
    return Outcome.PASS, f"valid: {', '.join(map(str, files))}" if files else "the site file names none"


def _fault(file: Path, now: datetime) -> str:
    """Return what is wrong with a file of CA certificates, "" when it can be used."""
    try:
        ends = [found.not_valid_after_utc for found in x509.load_pem_x509_certificates(file.read_bytes())]
    except OSError as error:
        return error.strerror or str(error)
    except ValueError:
        return "no PEM certificate"
    return "" if max(ends) > now else f"expired on {max(ends):%Y-%m-%d}"
