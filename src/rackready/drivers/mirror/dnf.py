"""Packages of an rpm repository, resolved and fetched by dnf in an empty root, and indexed by createrepo_c."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from urllib.parse import quote

from rackready.drivers.mirror import keys, repodata
from rackready.drivers.mirror.parts import Item, Need, Wanted
from rackready.drivers.mirror.refusals import DnfRefusals
from rackready.drivers.mirror.tools import MirrorError, Tell, ToolResult, last, must, run
from rackready.model.operations import Upstream

TOOLS = ("dnf", "createrepo_c", "modifyrepo_c", "rpmkeys", "gpg")
ARCHITECTURE = "x86_64"
PACKAGES = "Packages"
_MAIN = """[main]
gpgcheck=1
best=True
install_weak_deps=False
multilib_policy=best
skip_if_unavailable=False
zchunk=False
keepcache=True
cachedir=/cache
reposdir={root}/repos
varsdir={root}/vars
module_platform_id=platform:{system}
"""
"""dnf puts ``cachedir`` below the root that it installs into, and finds ``reposdir`` outside of it."""
_REPOSITORY = """[{name}]
name={name}
baseurl={url}
enabled=1
gpgcheck=1
repo_gpgcheck={index}
gpgkey=file://{key}
"""
_SAFE = re.compile(r"[^A-Za-z0-9._+~^-]")


class DnfRoot:
    """dnf with configuration, cache, keys and an empty root of its own."""

    def __init__(self, root: Path, wanted: Wanted) -> None:
        if os.geteuid() != 0:
            raise MirrorError(
                "dnf",
                expected="root, because dnf resolves for no other user",
                actual=f"user {os.geteuid()}",
                next_step="Run the command as root or in `unshare --map-root-user`. The controller's packages are "
                "not changed.",
            )
        self.root, self.wanted = root, wanted
        for name in ("repos", "vars", "install/cache", "keys"):
            (root / name).mkdir(parents=True, exist_ok=True)
        text = _MAIN.format(root=root, system=wanted.system)
        (root / "dnf.conf").write_text(text, encoding="utf-8")

    def source(self, name: str, url: str, key: Path, *, signed_index: bool) -> None:
        """Add a repository whose packages only one key may sign."""
        text = _REPOSITORY.format(name=name, url=url, key=quote(str(key)), index=int(signed_index))
        (self.root / f"repos/{name}.repo").write_text(text, encoding="utf-8")

    def dnf(self, *words: str, on_line: Tell | None = None) -> ToolResult:
        """Run dnf here."""
        release = self.wanted.system.lstrip("abcdefghijklmnopqrstuvwxyz")
        options = ["--config", str(self.root / "dnf.conf"), "--installroot", str(self.root / "install")]
        options += ["--disableplugin", "*"]  # the controller's own locks and copies must not count
        return run(["dnf", *options, "--releasever", release, *words], on_line=on_line)

    def enable_streams(self, refusals: DnfRefusals) -> None:
        """Enable the module streams. Raises MirrorError when a repository has none of that name."""
        if self.wanted.streams:
            shutil.rmtree(self.root / "install/etc/dnf/modules.d", ignore_errors=True)
            done = self.dnf("-q", "-y", "module", "enable", *self.wanted.streams)
            if done.returncode != 0:
                raise refusals.of_streams(done.out, self.wanted.streams)


class DnfBackend:
    """Packages of the site's upstreams."""

    def __init__(self, wanted: Wanted, work: Path) -> None:
        if wanted.installed is not None:
            raise MirrorError(
                "--installed",
                expected="a site whose nodes have apt",
                actual=f"{wanted.system}, whose packages are resolved against an empty system",
                next_step="Leave the option out.",
            )
        self.wanted = wanted
        self.root = DnfRoot(work / "dnf", wanted)
        self.archives = work / "dnf/archives"
        self.archives.mkdir(exist_ok=True)
        self._refusals = DnfRefusals(wanted)

    def refresh(self) -> None:
        """Fetch the metadata of all upstreams. Raises MirrorError."""
        for path in (self.root.root / "repos").iterdir():
            path.unlink()
        for upstream in self.wanted.upstreams:
            key = self._key(upstream)
            keys.write_upstream(upstream, key, armored=True)
            self.root.source(upstream.name, upstream.url, key, signed_index=upstream.signed_index)
        done = self.root.dnf("-y", "makecache", "--refresh")
        if done.returncode != 0:
            raise self._refusals.of_update(done.out)
        self.root.enable_streams(self._refusals)

    def resolve(self) -> list[Item]:
        """Return every package file that the needs take, with dependencies. Raises MirrorError.

        One transaction for all packages of a need, as on a node: `dnf download --resolve` resolves each package alone,
        and would add newer versions of those that another one pins.
        """
        known = {
            (item.name, item.architecture, item.version, upstream.name): item
            for upstream in self.wanted.upstreams
            for item in repodata.packages(self._metadata(upstream)).values()
        }
        found: dict[str, Item] = {}
        for need in self.wanted.needs:
            done = self.root.dnf("--assumeno", "install", *specs(need))
            if not would_install(done):
                raise self._refusals.of_install(done.out, need)
            found |= {item.file: item for item in listed(done.out, known)}
        return [found[name] for name in sorted(found)]

    def fetch(self, tell: Tell) -> None:
        """Fetch what ``archives`` lacks; dnf compares every file with the index. Raises MirrorError."""
        options = ("-y", "--downloadonly", "--destdir", str(self.archives))
        for need in self.wanted.needs:
            done = self.root.dnf(*options, "install", *specs(need), on_line=tell)
            if done.returncode != 0:
                raise self._refusals.of_fetch(done.out)

    def check(self) -> None:
        """Raise MirrorError unless a declared key signed each package.

        dnf checks what it fetches, but not files that an earlier run left, which may have been killed before that.
        """
        database = self.root.root / "rpmdb"
        shutil.rmtree(database, ignore_errors=True)
        database.mkdir()
        own = ["rpmkeys", "--dbpath", str(database), "--define", "_pkgverify_level all"]
        for upstream in self.wanted.upstreams:
            must([*own, "--import", str(self._key(upstream))], f"the key of upstream {upstream.name}")
        paths = sorted(self.archives.glob("*.rpm"))
        if not paths or run([*own, "--checksig", *map(str, paths)]).returncode == 0:
            return
        for path in paths:
            done = run([*own, "--checksig", str(path)])
            if done.returncode != 0:
                path.unlink()
                raise self._refusals.of_signature(path.name, done.out)

    def index(self, folder: Path, place: keys.Home) -> None:
        """Write and sign the index of a folder with packages, with the module streams of the upstreams."""
        options = ["--quiet", "--general-compress-type", "gz", "--no-database"]
        must(["createrepo_c", *options, str(folder)], "an index")
        metadata = [self._metadata(upstream) for upstream in self.wanted.upstreams]
        files = {path.name for path in (folder / PACKAGES).iterdir()}
        text = repodata.modules(metadata, files, set(self.wanted.streams))
        if text:
            modules = self.root.root / "modules.yaml"
            modules.write_text(text, encoding="utf-8")
            must(["modifyrepo_c", "--mdtype=modules", str(modules), str(folder / "repodata")], "module streams")
        index = folder / "repodata/repomd.xml"
        keys.detach(place, index, index.with_name("repomd.xml.asc"))

    def write_key(self, place: keys.Home, fingerprint: str, target: Path) -> None:
        """Write the keys that nodes trust: packages keep the signatures of their upstreams."""
        for upstream in self.wanted.upstreams:
            must(place.argv("--import", str(self._key(upstream))), f"the key of upstream {upstream.name}")
        place.export(target, fingerprint, *(item.fingerprint for item in self.wanted.upstreams), armored=True)

    def _key(self, upstream: Upstream) -> Path:
        return self.root.root / f"keys/{upstream.name}.asc"

    def _metadata(self, upstream: Upstream) -> Path:
        """Return the folder into which dnf fetched the metadata of an upstream: its name ends in a hash."""
        found = [
            path.parent
            for path in (self.root.root / "install/cache").glob(
                f"{_SAFE.sub('_', upstream.name)}-*/repodata/repomd.xml"
            )
            if re.fullmatch(rf"{re.escape(upstream.name)}-[0-9a-f]{{16}}", path.parent.parent.name)
        ]
        if not found:
            raise MirrorError(f"upstream {upstream.name}", expected="metadata", actual="none", next_step="Run again.")
        return max(found, key=lambda path: (path / "repomd.xml").stat().st_mtime)


def specs(need: Need) -> list[str]:
    """Return dnf's words for packages."""
    return [f"{name}-{version}" if version else name for name, version in sorted(need.packages.items())]


def would_install(done: ToolResult) -> bool:
    """Return whether `dnf --assumeno` would have installed: it ends with 1 either way, so only its words tell."""
    return "Operation aborted." in done.out


def listed(out: str, known: dict[tuple[str, str, str, str], Item]) -> list[Item]:
    """Return the packages in dnf's table of a transaction. Raises MirrorError unless all were recognized.

    Long names fold the table's rows, so it is read word by word: name, architecture, version, repository.
    """
    words = out.partition("Dependencies resolved.")[2].split()
    rows = zip(words, words[1:], words[2:], words[3:], strict=False)
    found = [known[row] for row in rows if row in known]
    counted = re.search(r"^Install +(\d+) Packages?$", out, re.MULTILINE)
    if counted is None or int(counted[1]) != len(found):
        wanted = counted[1] if counted else "a number of"
        raise MirrorError(
            "dnf",
            expected=f"{wanted} packages of the upstreams' indexes",
            actual=len(found),
            next_step=f"Report this with the output of dnf: {last(out)}",
        )
    return found


def hashes(folder: Path) -> dict[str, tuple[str, int]]:
    """Return path to SHA-256 and size of everything that the signed index covers. Raises MirrorError."""
    found = repodata.metadata(folder / "repodata")
    return found | {place: (item.digest, item.size) for place, item in repodata.packages(folder / "repodata").items()}


def check_signatures(folder: Path, key: Path) -> None:
    """Raise MirrorError unless the signature of the index is good."""
    index = folder / "repodata/repomd.xml"
    keys.signed_by(key, index.with_name("repomd.xml.asc"), index)


def check_installs(folder: Path, wanted: Wanted, scratch: Path) -> None:
    """Raise MirrorError unless every need installs from this mirror alone (dnf --assumeno)."""
    shutil.rmtree(scratch, ignore_errors=True)
    root = DnfRoot(scratch, wanted)
    root.source("mirror", f"file://{quote(str(folder))}", folder / "mirror.asc", signed_index=True)
    refusals = DnfRefusals(wanted, place=str(folder))
    done = root.dnf("-y", "makecache", "--refresh")
    if done.returncode != 0:
        raise refusals.of_update(done.out)
    root.enable_streams(refusals)
    for need in wanted.needs:
        done = root.dnf("--assumeno", "install", *specs(need))
        if not would_install(done):
            raise refusals.of_install(done.out, need)
    shutil.rmtree(scratch)
