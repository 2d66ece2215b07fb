"""Compare programs and libraries with the checksums of their packages, and print one JSON document.

Sent to a node's python3 on standard input. The only argument is a JSON document: {"programs": [name, ...], "libraries":
[soname, ...]}. What is not installed is left out: its users report it. "files" is name -> path where it is found, the
real file behind it, its package and version, its MD5 (the checksum that dpkg keeps) and SHA-256 (the one that rpm
keeps), and the one in the package; null where there is none. "error" gives the reason why nothing could be compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any

FORMAT = "rackready/trusted-programs/v1"
PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
INFO = "/var/lib/dpkg/info"
RPM_SHA256 = "8"
"""Number of SHA-256 in a package's header (rpm, pgpHashAlgo)."""
MERGED = re.compile(r"^(?:/usr)?(/(?:bin|sbin|lib|lib32|lib64|libx32)/)")
"""Folders that are one with those below /usr (Debian's usrmerge): a package may list its files below either."""


def main() -> int:
    """Print the document; always exit 0: missing values are in it."""
    wanted = json.loads(sys.argv[1])
    try:
        document: dict[str, Any] = {"files": compared(paths(wanted["programs"], wanted["libraries"]))}
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        document = {"error": str(error) or type(error).__name__}
    sys.stdout.write(
        json.dumps(dict(document, format=FORMAT, digest=digest(document), complete=True), sort_keys=True) + "\n"
    )
    return 0


def digest(document: dict[str, Any]) -> str:
    """Return the SHA-256 of the contents, so that a truncated document does not pass for an empty one."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def paths(programs: list[str], libraries: list[str]) -> dict[str, str]:
    """Return name -> path of what is installed, as a shell and the dynamic loader find it."""
    found = {name: path for name in programs for path in [shutil.which(name, path=PLACES)] if path}
    for line in run("ldconfig", "-p").splitlines():
        match = re.match(r"\s*(\S+) \(([^)]*)\) => (\S+)$", line)
        if match and match.group(1) in libraries and ("x86-64" in match.group(2) or "AArch64" in match.group(2)):
            found.setdefault(match.group(1), match.group(3))
    return found


def compared(found: dict[str, str]) -> dict[str, dict[str, str | None]]:
    """Return each file's facts, and its package's facts about it."""
    real = {name: os.path.realpath(path) for name, path in found.items()}
    candidates = sorted({twin for path in real.values() for twin in twins(path)})
    if shutil.which("dpkg-query", path=PLACES):
        owners = owned(candidates)
        versions = installed(sorted(set(owners.values())))
        sums = {package: checksums(package) for package in versions}
    else:
        owners, versions = owned_in_rpm(candidates)
        sums = {package: rpm_checksums(package) for package in versions}
    out: dict[str, dict[str, str | None]] = {}
    for name, path in sorted(real.items()):
        package = next((owners[twin] for twin in twins(path) if twin in owners), None)
        known = sums.get(package or "", {})
        md5, sha256 = digests(path)
        out[name] = {
            "path": found[name],
            "real": path,
            "package": package,
            "version": versions.get(package or ""),
            "md5": md5,
            "sha256": sha256,
            "wanted": next((known[twin] for twin in twins(path) if twin in known), None),
        }
    return out


def twins(path: str) -> tuple[str, ...]:
    """Return the spellings of a path by which a package may list it."""
    match = MERGED.match(path)
    if not match:
        return (path,)
    bare = match.group(1) + path[match.end() :]
    return ("/usr" + bare, bare)


def owned(candidates: list[str]) -> dict[str, str]:
    """Return path -> package of those that packages list; a path that an administrator diverted belongs to none."""
    if not candidates:
        return {}
    found: dict[str, str] = {}
    diverted = set()
    for line in run("dpkg-query", "--search", *candidates, good=(0, 1)).splitlines():
        owner, mark, path = line.partition(": ")
        if owner == "local diversion from":
            diverted.add(path)
        elif owner.startswith("diversion by ") and owner.endswith(" from"):
            found[path] = owner[len("diversion by ") : -len(" from")]
        elif mark and " " not in owner.replace(", ", ","):
            found.setdefault(path, owner.split(", ")[0])
    return {path: package for path, package in found.items() if path not in diverted}


def owned_in_rpm(candidates: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return path -> package of those that packages own, and package -> version; a package's name has its arch."""
    owners, versions = {}, {}
    for path in candidates:
        text = run("rpm", "-qf", "--qf", "%{NAME}.%{ARCH}\t%{VERSION}-%{RELEASE}\n", path, good=(0, 1))
        for package, mark, version in [line.partition("\t") for line in text.splitlines()][:1]:
            if mark:
                owners[path], versions[package] = package, version
    return owners, versions


def rpm_checksums(package: str) -> dict[str, str]:
    """Return path -> SHA-256 of a package's files; nothing where rpm keeps another digest."""
    text = run("rpm", "-q", "--qf", "%{FILEDIGESTALGO}\n[%{FILENAMES}\t%{FILEDIGESTS}\n]", package)
    algorithm, _, rows = text.partition("\n")
    if algorithm != RPM_SHA256:
        return {}
    return {path: total for path, _, total in (row.partition("\t") for row in rows.splitlines()) if total}


def installed(packages: list[str]) -> dict[str, str]:
    """Return package -> version."""
    if not packages:
        return {}
    text = run("dpkg-query", "--show", "--showformat=${binary:Package}\t${Version}\n", *packages, good=(0, 1))
    rows = dict(line.split("\t", 1) for line in text.splitlines() if "\t" in line)
    return {package: rows.get(package) or rows.get(package.split(":")[0], "") for package in packages}


def checksums(package: str) -> dict[str, str]:
    """Return path -> MD5 of a package's files: dpkg keeps the shipped ones, and computes them where there are none."""
    name = package.split(":", maxsplit=1)[0]
    for place in (
        f"{INFO}/{package}.md5sums",
        f"{INFO}/{name}.md5sums",
        *(f"{INFO}/{name}:{kind}.md5sums" for kind in ("amd64", "arm64")),
    ):
        if os.path.exists(place):  # noqa: PTH110
            with open(place, errors="replace") as file:  # noqa: PTH123
                return {"/" + line[34:].rstrip("\n"): line[:32] for line in file}
    return {}


def digests(path: str) -> tuple[str, str]:
    """Return MD5 and SHA-256 of a file."""
    md5, sha256 = hashlib.new("md5", usedforsecurity=False), hashlib.sha256()
    with open(path, "rb") as file:  # noqa: PTH123
        for block in iter(lambda: file.read(1 << 20), b""):
            md5.update(block)
            sha256.update(block)
    return md5.hexdigest(), sha256.hexdigest()


def run(*argv: str, good: tuple[int, ...] = (0,)) -> str:
    """Return a program's output. Raises OSError when the program does not exist or fails."""
    env = dict(os.environ, LC_ALL="C", PATH=PLACES)
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    if done.returncode not in good:
        raise OSError(f"{argv[0]}: exit {done.returncode}: {done.stderr.decode(errors='replace').strip()[-200:]}")
    return done.stdout.decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
