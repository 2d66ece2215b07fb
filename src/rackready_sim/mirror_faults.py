"""Faults of the simulated package mirror: newer packages, good or bad, another signing key, downloads that break off.

A newer package has the content of the one that a node has installed, so the programs of the node work as before. All
changes are made in the folder that the mirror's container serves; ``repair`` brings back what was there.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rackready_sim.errors import describe
from rackready_sim.packages import repo
from rackready_sim.packages.deb import Deb

MARK = "/var/lib/configuring"
"""File on the node that says: a package of `mirror-hangs` is being configured for the first time."""
_RAISED = re.compile(r"\+t\d+$")
"""The suffixes that scenarios use: +t1, +t2 and so on."""
_SERVED_HALF = ".cut"
_GOOD = "mirror.good"
_RELATIONS = ("Depends", "Pre-Depends", "Provides", "Conflicts", "Breaks", "Replaces", "Recommends")
_SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
_FAILS = 'if [ "$1" = configure ]; then echo "the service does not start" >&2; exit 1; fi\n'
_WAITS = f'if [ "$1" = configure ] && [ ! -e {MARK} ]; then touch {MARK}; sync; sleep 600; fi\n'
"""It waits once: dpkg that continues after a reboot configures the package."""


def newer(folder: Path, root: Path, *, packages: str, suffix: str, postinst: str = "") -> None:
    """Publish packages of a node, whose file system is ``root``, with a suffix to their version.

    The installed version is published too if the mirror lacks it. ``postinst`` comes first when the package that is
    named first is configured.
    """
    installed = [of_node(root, name) for name in packages.split(",")]
    raised = [_raise(item, installed, suffix) for item in installed]
    first = raised[0]
    raised[0] = replace(first, scripts={**first.scripts, "postinst": postinst + first.scripts.get("postinst", "")})
    _keep(folder)
    there = {path.name for path in folder.glob("*.deb")}
    repo.add_apt([item for item in [*installed, *raised] if item.filename not in there], folder)


def foreign_key(folder: Path) -> None:
    """Sign the index with a key that the site does not know."""
    _keep(folder)
    repo.sign_with_another_key(folder)


def cut(folder: Path) -> None:
    """Let every package break off in the middle."""
    _keep(folder)
    (folder / _SERVED_HALF).touch()


def inject(fault: str, folder: Path, root: Path, /, **options: str) -> None:
    """Apply a fault by its name. Raises SimError for an unknown one."""
    known: dict[str, Callable[[], None]] = {
        "mirror-newer": lambda: newer(folder, root, **options),
        "mirror-broken": lambda: newer(folder, root, **options, postinst=_FAILS),
        "mirror-hangs": lambda: newer(folder, root, **options, postinst=_WAITS),
        "mirror-hangs-broken": lambda: newer(folder, root, **options, postinst=_WAITS + _FAILS),
        "mirror-foreign-key": lambda: foreign_key(folder),
        "mirror-cut": lambda: cut(folder),
    }
    if fault not in known:
        raise describe("the fault of the mirror", f"one of {', '.join(known)}", fault, "Name a fault of the list.")
    known[fault]()


def repair(folder: Path) -> bool:
    """Bring back what the mirror served before its first fault; return whether it had one.

    In place: the container sees this very folder. With new time stamps: apt asks for files that are newer than its own.
    """
    good = folder.parent / _GOOD
    if not good.exists():
        return False
    for path in folder.iterdir():
        if path.is_file() and not (good / path.name).exists():
            path.unlink()
    for path in good.iterdir():
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    shutil.rmtree(good)
    return True


def of_node(root: Path, name: str) -> Deb:
    """Return an installed package as dpkg would have unpacked it. Raises SimError if it is not installed."""
    info = root / "var/lib/dpkg/info"
    fields = _paragraph(root, name)
    lists = [path for path in info.glob(f"{name}*.list") if path.stem.partition(":")[0] == name]
    if not fields or not lists:
        raise describe(f"package {name} of the node", "installed", "absent", "Name an installed package.")
    files: dict[str, bytes | str] = {}
    links: dict[str, str] = {}
    for line in lists[0].read_text(encoding="utf-8").splitlines():
        path = root / line.lstrip("/")
        if path.is_symlink():
            links[line] = str(path.readlink())
        elif path.is_file():
            files[line] = path.read_bytes()
    stem = lists[0].stem
    scripts = {kind: _script(info / f"{stem}.{kind}") for kind in _SCRIPTS if (info / f"{stem}.{kind}").exists()}
    return Deb(
        name,
        fields["Version"],
        fields["Description"],
        {key: fields[key] for key in _RELATIONS if key in fields},
        files,
        links,
        tuple(path for path in fields.get("Conffiles", "").split() if path.startswith("/") and path in files),
        scripts,
        fields["Architecture"],
    )


def _paragraph(root: Path, name: str) -> dict[str, str]:
    """Return the fields of dpkg's status of a package; of a field with several lines, all words."""
    text = (root / "var/lib/dpkg/status").read_text(encoding="utf-8", errors="replace")
    match = re.search(rf"^Package: {re.escape(name)}\n(?:.+\n)+", text, re.MULTILINE)
    if match is None:
        return {}
    rows = re.findall(r"^([A-Za-z-]+):((?:.*\n)(?: .*\n)*)", match[0], re.MULTILINE)
    fields = {key: " ".join(value.split()) for key, value in rows}
    fields["Description"] = next(value for key, value in rows if key == "Description").splitlines()[0].strip()
    return fields


def _script(path: Path) -> str:
    """Return a maintainer script without its first line, which ``deb.write`` writes. All are of sh."""
    return path.read_text(encoding="utf-8").partition("\n")[2]


def _raise(package: Deb, together: list[Deb], suffix: str) -> Deb:
    """Return a package with a higher version, also where it depends on packages that are raised with it.

    An earlier suffix is replaced, so that versions can be told from the first one.
    """
    fields = dict(package.fields)
    for other in together:
        exact = re.compile(rf"(\b{re.escape(other.name)} )\(= {re.escape(other.version)}\)")
        wanted = rf"\g<1>(= {_RAISED.sub('', other.version)}{suffix})"
        fields = {key: exact.sub(wanted, text) for key, text in fields.items()}
    return replace(package, version=f"{_RAISED.sub('', package.version)}{suffix}", fields=fields)


def _keep(folder: Path) -> None:
    good = folder.parent / _GOOD
    if not good.exists():
        shutil.copytree(folder, good)
