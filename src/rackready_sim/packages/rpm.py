"""Write RPM packages with rpmbuild, from the same descriptions as the Debian packages of the mirror.

Differences that are translated: dependency syntax, library folder (/usr/lib64), and the arguments of scripts
(rpm passes the number of installed instances, dpkg a word).
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rackready_sim.host import run
from rackready_sim.packages.deb import Deb, is_executable

_DEB_LIB, _RPM_LIB = "/usr/lib/x86_64-linux-gnu", "/usr/lib64"
_ARCHITECTURES = {"amd64": "x86_64", "all": "noarch"}
_RELATIONS = {
    "Depends": "Requires",
    "Provides": "Provides",
    "Conflicts": "Conflicts",
    "Obsoletes": "Obsoletes",
    "Recommends": "Recommends",
}
_NAMES = {"libc6": "glibc", "openmpi-bin": "openmpi"}
"""Packages of the operating system that have another name in the RHEL family."""
_DATE = "1735776000"
_MACROS = {
    "debug_package": "%{nil}",
    "__spec_install_post": "%{nil}",
    "_build_id_links": "none",
    "source_date_epoch_from_changelog": "0",
    "use_source_date_epoch_as_buildtime": "1",
    "clamp_mtime_to_source_date_epoch": "1",
    "_buildhost": "localhost",
}
_SCRIPTS = {
    "postinst": ("post", "set -- configure\n"),
    "prerm": ("preun", 'if [ "$1" = 0 ]; then set -- remove; else set -- upgrade; fi\n'),
    "postrm": ("postun", 'if [ "$1" = 0 ]; then set -- remove; else set -- upgrade; fi\n'),
}
_HEAD = """Name: rackready-mirror
Version: 1
Release: 1
Summary: sources of the packages below
License: none
AutoReqProv: no
%description
Nothing.
"""


def write(packages: Iterable[Deb], folder: Path) -> None:
    """Write one .rpm per package into ``folder``. Raises SimError with rpmbuild's message."""
    for group in _groups(packages):
        with tempfile.TemporaryDirectory(prefix="rr-rpm-") as name:
            _build(group, Path(name))
            for path in sorted(Path(name, "out").rglob("*.rpm")):
                shutil.move(path, folder / path.name)


def _groups(packages: Iterable[Deb]) -> list[list[Deb]]:
    """Return the packages in groups without a common path or name: one rpmbuild has one build root."""
    groups: list[tuple[list[Deb], set[str]]] = []
    for package in packages:
        names = {package.name, *package.files, *package.links}
        free = next((group for group in groups if not group[1] & names), None)
        if free is None:
            free = ([], set())
            groups.append(free)
        free[0].append(package)
        free[1].update(names)
    return [group[0] for group in groups]


def _build(packages: list[Deb], work: Path) -> None:
    root = work / "root"
    root.mkdir()
    for package in packages:
        _lay_out(package, root)
    spec = work / "packages.spec"
    text = "".join(f"%define {key} {value}\n" for key, value in _MACROS.items()) + _HEAD
    spec.write_text(text + "".join(_section(package) for package in packages), encoding="utf-8")
    places = {"_topdir": str(work), "_rpmdir": str(work / "out"), "_dbpath": str(work / "db")}
    defined = [word for key, value in places.items() for word in ("--define", f"{key} {value}")]
    environment = ["env", f"SOURCE_DATE_EPOCH={_DATE}", "LC_ALL=C"]
    argv = [*environment, "rpmbuild", "-bb", "--quiet", "--noclean", *defined]
    run([*argv, "--buildroot", str(root), str(spec)], timeout_s=300.0, shown="rpmbuild")


def _lay_out(package: Deb, root: Path) -> None:
    for path, content in package.files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
    for path, target in package.links.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)


def _section(package: Deb) -> str:
    """Return the part of the spec file for one package."""
    epoch, version, release = parts(package.version)
    name = package.name
    rows = [f"%package -n {name}", f"Version: {version}", f"Release: {release}"]
    rows += [f"Epoch: {epoch}"] if epoch else []
    rows += [f"BuildArch: {_ARCHITECTURES[package.architecture]}"] if package.architecture == "all" else []
    rows += [f"Summary: {package.summary}", "AutoReqProv: no"]
    for field, tag in _RELATIONS.items():
        rows += [f"{tag}: {relation(item)}" for item in _items(package.fields.get(field, ""))]
    rows += [f"%description -n {name}", package.summary]
    for key, (tag, head) in _SCRIPTS.items():
        if key in package.scripts:
            rows += [f"%{tag} -n {name}", (head + package.scripts[key]).replace("%", "%%")]
    return "\n".join([*rows, f"%files -n {name}", *_files(package)]) + "\n"


def _files(package: Deb) -> Iterable[str]:
    for path, content in sorted(package.files.items()):
        mode = 755 if is_executable(path, content) else 644
        kind = "%config(noreplace) " if path in package.conffiles else ""
        yield f"{kind}%attr({mode},root,root) {path}"
    for path in sorted(package.links):
        yield path


def parts(version: str) -> tuple[str, str, str]:
    """Return epoch (empty for none), version and release of a full package version."""
    epoch, _, rest = version.rpartition(":")
    upstream, dash, release = rest.rpartition("-")
    return (epoch, upstream, release) if dash else (epoch, rest, "1")


def relation(text: str) -> str:
    """Return a Debian relation as ``name (= 1)`` in RPM's form, ``name = 1``."""
    name, mark, version = re.sub(r"\s*\(([<>=]+)\s*([^)]+)\)", r" \1 \2", text).partition(" ")
    return f"{_NAMES.get(name, name)}{mark}{version.replace('>>', '>').replace('<<', '<')}"


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def translated(package: Deb) -> Deb:
    """Return a package with its libraries where the RHEL family has them."""
    files = {path.replace(_DEB_LIB, _RPM_LIB): content for path, content in package.files.items()}
    links = {path.replace(_DEB_LIB, _RPM_LIB): target for path, target in package.links.items()}
    return replace(package, files=files, links=links)
