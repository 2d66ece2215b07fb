"""Sources of Debian's packages for images: this machine's mirror if it runs Debian, else Debian's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

MIRROR_VARIABLE = "RACKREADY_DEBIAN_MIRROR"
_DEFAULT = "http://deb.debian.org/debian"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_CARRIED = re.compile(
    r'^(Acquire::(?:https?::.*Proxy\S*|https?::Proxy|https?::CAInfo|Retries|Check-Valid-Until|Check-Date)) "(.+)";$',
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class AptSource:
    """Source lines and options for mmdebstrap; ``shown`` names the mirror without credentials."""

    lines: tuple[str, ...]
    options: tuple[str, ...]
    shown: str


def find(suite: str) -> AptSource:
    """Return this machine's source of a Debian suite, with its proxy settings."""
    uri = os.environ.get(MIRROR_VARIABLE) or host_mirror() or _DEFAULT
    options = [f'--aptopt={key} "{value}"' for key, value in _settings()]
    if _KEYRING.is_file():
        options.append(f"--keyring={_KEYRING}")
    return AptSource((f"deb {uri} {suite} main",), tuple(options), re.sub(r"//[^/@]*@", "//", uri))


def host_mirror(etc: Path = Path("/etc")) -> str:
    """Return the Debian mirror of this machine's apt, or an empty text if it runs another system or names none."""
    release = etc / "os-release"
    fields = (
        dict(line.split("=", 1) for line in release.read_text(encoding="utf-8").splitlines() if "=" in line)
        if release.is_file()
        else {}
    )
    if fields.get("ID", "").strip('"') != "debian":
        return ""
    codename = fields.get("VERSION_CODENAME", "").strip('"')
    for path in [etc / "apt/sources.list", *sorted((etc / "apt/sources.list.d").glob("*"))]:
        if (
            path.is_file()
            and path.suffix in (".list", ".sources")
            and (found := _mirror(path.read_text(encoding="utf-8"), codename))
        ):
            return found
    return ""


def _mirror(text: str, codename: str) -> str:
    for line in text.splitlines():
        match = re.match(rf"deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+{re.escape(codename)}\s+.*\bmain\b", line)
        if match:
            return str(match[1]).rstrip("/")
    for stanza in re.split(r"\n\s*\n", text):
        fields = {
            key.lower(): value.split() for key, value in re.findall(r"^([A-Za-z-]+):\s*(.*)$", stanza, re.MULTILINE)
        }
        if (
            "deb" in fields.get("types", [])
            and codename in fields.get("suites", [])
            and "main" in fields.get("components", [])
            and fields.get("uris")
        ):
            return str(fields["uris"][0]).rstrip("/")
    return ""


def authorities() -> list[Path]:
    """Return the files of certificate authorities that this machine's apt trusts beside the system's."""
    return [Path(value) for key, value in _settings() if key.lower().endswith("::cainfo") and Path(value).is_file()]


def _settings() -> list[tuple[str, str]]:
    if shutil.which("apt-config") is None:  # not a Debian system: it has no settings to carry
        return []
    done = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, timeout=60, check=False)
    return [(match[1], match[2]) for line in done.stdout.splitlines() if (match := _CARRIED.match(line))]
