"""Errors of apt and dnf as messages: what was expected of which upstream, and the next step."""

from __future__ import annotations

import re

from rackready.drivers.mirror.parts import Need, Wanted
from rackready.drivers.mirror.tools import MirrorError, last

_SIGNATURE = {
    "NO_PUBKEY": "a signature by another key",
    "BADSIG": "a signature that does not fit its content",
    "EXPKEYSIG": "a signature by a key that has expired",
    "REVKEYSIG": "a signature by a key that was revoked",
    "is not signed": "no signature",
    "GPG verification is enabled, but GPG signature is not available": "no signature",
    "Bad GPG signature": "a bad signature, or one by another key",
    "repomd.xml GPG signature verification error": "a bad signature, or one by another key",
}
_DAMAGED = (
    "Hash Sum mismatch",
    "File has unexpected size",
    "Checksum doesn't match",
    "checksum doesn't match",
    "incorrect checksum",
)
_ABSENT = re.compile(
    r"^E: (?:Unable to locate package (\S+)|Package '?(\S+?)'? has no installation candidate"
    r"|Version '([^']+)' for '([^']+)' was not found)|^No match for argument: (\S+)",
    re.MULTILINE,
)
_SHOWN = 12


class AptRefusals:
    """Turns outputs of apt-get into errors. ``place``: the mirror that is checked; empty for the upstreams."""

    def __init__(self, wanted: Wanted, place: str = "") -> None:
        self._wanted, self._place = wanted, place

    def of_update(self, out: str) -> MirrorError:
        """Return why lists were not fetched."""
        lines = [line for line in out.splitlines() if line.startswith(("E: ", "W: "))]
        text = "\n".join(lines) or out
        where = self._where(text)
        signature = next((words for mark, words in _SIGNATURE.items() if mark in text), "")
        if signature:
            return MirrorError(
                where,
                expected="an index signed by its declared key",
                actual=f"{signature}: {_first(lines)}",
                next_step="Nothing was built. Compare key and fingerprint with what the owner publishes.",
            )
        if any(mark in text for mark in _DAMAGED):
            return MirrorError(
                where,
                expected="lists as its signed index describes",
                actual=_first(lines),
                next_step="Nothing was built. The upstream may be changing: run again in some minutes.",
            )
        return MirrorError(
            where,
            expected="an answer",
            actual=_first(lines) or last(out),
            next_step="Nothing was built. Check its url and suite in the site file (software.upstreams), and the "
            "way there: name, route, proxy.",
        )

    def of_install(self, out: str, need: Need) -> MirrorError:
        """Return why packages cannot be installed together."""
        where = self._place or "software.upstreams"
        platforms = ", ".join(need.platforms)
        absent = absent_in(out)
        if absent:
            shown = ", ".join(absent[:_SHOWN]) + (f" and {len(absent) - _SHOWN} more" if len(absent) > _SHOWN else "")
            return MirrorError(
                where,
                expected=f"the packages of {platforms}",
                actual=f"no {shown}",
                next_step="Declare the upstream that has them, or choose a version set whose packages it carries "
                "(software.set).",
            )
        words = out.partition("unmet dependencies:")[2] or out.partition("Problem")[2].lstrip("0123456789 :") or out
        return MirrorError(
            where,
            expected=f"the packages of {platforms} install together",
            actual=last(words),
            next_step="Declare the upstream that has what is missing (software.upstreams), then run again.",
        )

    def of_fetch(self, out: str) -> MirrorError:
        """Return why a package was not fetched."""
        lines = [line for line in out.splitlines() if line.startswith(("E: ", "Err:"))]
        where = self._where("\n".join(lines))
        if any(mark in out for mark in _DAMAGED):
            failed = next((line for line in lines if "Failed to fetch" in line), _first(lines))
            return MirrorError(
                where,
                expected="packages as the signed index describes",
                actual=failed.removeprefix("E: "),
                next_step="Nothing was built, and the file is not kept. Ask the upstream's owner if it stays so.",
            )
        return MirrorError(
            where,
            expected="every package",
            actual=_first(lines) or last(out),
            next_step="What was fetched is kept: run again to continue.",
        )

    def _where(self, text: str) -> str:
        """Return the upstream that a message names."""
        if self._place:
            return self._place
        for upstream in self._wanted.upstreams:
            if upstream.url.removeprefix("file://").rstrip("/") in text:
                return f"software.upstreams {upstream.name} ({upstream.url})"
        return "software.upstreams"


def absent_in(out: str) -> list[str]:
    """Return the packages that apt-get or dnf did not find, with their versions."""
    found = []
    for one, candidate, version, name, dnf in _ABSENT.findall(out):
        found.append(f"{name} {version}" if name else one or candidate or dnf)
    return list(dict.fromkeys(found))


def _causes(out: str) -> list[str]:
    """Return what dnf names as causes; those in its lists come first, because they are the exact ones."""
    listed = re.findall(r"^ +- (.+)$", out, re.MULTILINE)
    return listed + re.findall(r"^(?:\[MIRROR\] |Error: |\[FAILED\] )(.+)$", out, re.MULTILINE)


def _first(lines: list[str]) -> str:
    return lines[0].partition(" ")[2].rstrip(".") if lines else ""


class DnfRefusals(AptRefusals):
    """Turns outputs of dnf and rpmkeys into errors."""

    def of_update(self, out: str) -> MirrorError:
        """Return why metadata was not fetched."""
        return super().of_update("\n".join(f"E: {line}" for line in _causes(out)) or out)

    def of_fetch(self, out: str) -> MirrorError:
        """Return why a package was not fetched."""
        if "GPG check FAILED" in out:
            found = re.search(r"^(?:Package|Public key for|Problem opening package) (\S+\.rpm)(.*)$", out, re.MULTILINE)
            return self.of_signature(found[1], found[0]) if found else self.of_signature("a package", last(out))
        return super().of_fetch("\n".join(f"E: {line}" for line in _causes(out)) or out)

    def _where(self, text: str) -> str:
        """Return the upstream that a message names by its address or its name."""
        found = super()._where(text)
        name = re.search(r"\brepo(?:sitory)? '([a-z0-9-]+)'", text)
        for upstream in self._wanted.upstreams:
            if not self._place and name and upstream.name == name[1]:
                return f"software.upstreams {upstream.name} ({upstream.url})"
        return found

    def of_streams(self, out: str, streams: tuple[str, ...]) -> MirrorError:
        """Return why module streams were not enabled."""
        where = self._place or "software.upstreams"
        return MirrorError(
            where,
            expected=f"the module streams {', '.join(streams)}",
            actual=last(out),
            next_step="Declare the upstream that has them, with its modules.yaml.",
        )

    def of_signature(self, file: str, out: str) -> MirrorError:
        """Return why a package was refused."""
        return MirrorError(
            file,
            expected="a package that a declared key signed",
            actual=last(out.replace(chr(10), " ")),
            next_step="Nothing was built, and the file is not kept. Compare the keys in software.upstreams with "
            "what the packages' owner publishes.",
        )
