"""Packages of apt repositories: apt-get resolves and fetches them in a root of its own, apt-ftparchive indexes them."""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, unquote

from rackready.drivers.mirror import keys
from rackready.drivers.mirror.parts import Item, Need, Wanted
from rackready.drivers.mirror.refusals import AptRefusals
from rackready.drivers.mirror.tools import MirrorError, Tell, ToolResult, must, run

TOOLS = ("apt-get", "apt-ftparchive", "gpg")
ARCHITECTURE = "amd64"
POOL = "pool"
INDEXES = ("Packages", "Packages.gz")
_URI = re.compile(
    r"^'(?P<uri>[^']+)' (?P<file>\S+) (?P<size>\d+) (?P<algorithm>[A-Za-z0-9]+):(?P<digest>[0-9a-f]+)", re.MULTILINE
)
_CARRIED = re.compile(
    r'^(Acquire::https?::(?:.+::)?(?:Proxy|Proxy-Auto-Detect|CAInfo|CAPath|SslCert|SslKey)) "(.+)";$', re.IGNORECASE
)
"""Settings of the controller's apt that are ways to reach a host; nothing else of its configuration counts."""
_CONFIG = """Dir "{root}/";
Dir::Etc "{root}/etc/";
Dir::Etc::main "none.conf";
Dir::Etc::parts "none";
Dir::Etc::sourcelist "none.list";
Dir::Etc::sourceparts "sources";
Dir::Etc::preferences "preferences";
Dir::Etc::preferencesparts "none";
Dir::Etc::trusted "none.gpg";
Dir::Etc::trustedparts "none";
Dir::Etc::netrc "/etc/apt/auth.conf";
Dir::Etc::netrcparts "/etc/apt/auth.conf.d";
Dir::State "{root}/state/";
Dir::State::status "{status}";
Dir::Cache "{root}/cache/";
Dir::Log "{root}/log/";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Get::Assume-Yes "true";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
"""


class AptRoot:
    """apt with lists, sources, keys and status of its own; nothing of the controller's packages is read or changed."""

    def __init__(self, root: Path, wanted: Wanted) -> None:
        self.root, self.wanted = root, wanted
        self.archives = root / "cache/archives"
        self._config = root / "apt.conf"
        for name in ("etc/none", "etc/sources", "etc/keys", "state/lists/partial", "cache/archives/partial", "log"):
            (root / name).mkdir(parents=True, exist_ok=True)
        status = wanted.installed or root / "status"
        if wanted.installed is None:
            status.write_bytes(b"")
        (root / "etc/preferences").write_text(wanted.pins, encoding="utf-8")
        text = _CONFIG.format(root=root, status=status, architecture=ARCHITECTURE)
        self._config.write_text(text + "".join(_carried()), encoding="utf-8")

    def source(self, name: str, url: str, suite: str, components: Sequence[str], key: Path) -> None:
        """Add a repository that only one key may sign. Files are copied: apt uses those of file:// in place."""
        uri = f"copy:{url.removeprefix('file://')}" if url.startswith("file://") else url
        flat = suite.endswith("/")
        rows = [
            "Types: deb",
            f"URIs: {uri}",
            f"Suites: {suite}",
            *([] if flat else [f"Components: {' '.join(components) or 'main'}"]),
            f"Architectures: {ARCHITECTURE}",
            f"Signed-By: {key}",
        ]
        (self.root / f"etc/sources/{name}.sources").write_text("\n".join(rows) + "\n", encoding="utf-8")

    def apt_get(self, *words: str, on_line: Tell | None = None) -> ToolResult:
        """Run apt-get here."""
        return run(["apt-get", "-q", *words], env={"APT_CONFIG": str(self._config)}, on_line=on_line)

    def update(self, refusals: AptRefusals) -> None:
        """Fetch the lists. Raises MirrorError: an old list would be used where a new one was refused."""
        done = self.apt_get("update", "--error-on=any")
        if done.returncode != 0:
            raise refusals.of_update(done.out)


class AptBackend:
    """Packages of the site's upstreams."""

    def __init__(self, wanted: Wanted, work: Path) -> None:
        self.wanted = wanted
        self.root = AptRoot(work / "apt", wanted)
        self.archives = self.root.archives
        self._refusals = AptRefusals(wanted)

    def refresh(self) -> None:
        """Fetch the lists of all upstreams. Raises MirrorError."""
        shutil.rmtree(self.root.root / "etc/sources")
        (self.root.root / "etc/sources").mkdir()
        for upstream in self.wanted.upstreams:
            key = self.root.root / f"etc/keys/{upstream.name}.gpg"
            keys.write_upstream(upstream, key)
            self.root.source(upstream.name, upstream.url, upstream.suite, upstream.components, key)
        self.root.update(self._refusals)

    def resolve(self) -> list[Item]:
        """Return every package file that the needs take, with dependencies. Raises MirrorError."""
        empty = self.root.root / "cache/empty"
        (empty / "partial").mkdir(parents=True, exist_ok=True)
        found: dict[str, Item] = {}
        for need in self.wanted.needs:
            options = ("-o", f"Dir::Cache::archives={empty}", "-o", "Acquire::ForceHash=SHA256")
            words = ("--print-uris", *options, "install", *specs(need))
            done = self.root.apt_get(*words)
            if done.returncode != 0:
                raise self._refusals.of_install(done.out, need)
            found |= {item.file: item for item in map(_item, _uris(done.out))}
        return [found[name] for name in sorted(found)]

    def fetch(self, tell: Tell) -> None:
        """Fetch what ``archives`` lacks; apt compares every file with the signed index. Raises MirrorError."""
        for need in self.wanted.needs:
            done = self.root.apt_get("--download-only", "install", *specs(need), on_line=tell)
            if done.returncode != 0:
                raise self._refusals.of_fetch(done.out)

    def check(self) -> None:
        """Check nothing more: apt repositories sign the index, and every file is compared with it."""

    def index(self, folder: Path, place: keys.Home) -> None:
        """Write and sign the index of a folder with packages."""
        must(["apt-ftparchive", "packages", POOL], "an index", cwd=folder, out=folder / "Packages")
        (folder / "Packages.gz").write_bytes(gzip.compress((folder / "Packages").read_bytes(), mtime=0))
        release = self.root.root / "Release"
        fields = {
            "Origin": "rackready",
            "Label": f"rackready mirror {self.wanted.system}",
            "Architectures": ARCHITECTURE,
        }
        options = [word for key, value in fields.items() for word in ("-o", f"APT::FTPArchive::Release::{key}={value}")]
        must(["apt-ftparchive", *options, "release", "."], "a Release file", cwd=folder, out=release)
        shutil.move(release, folder / "Release")
        keys.clearsign(place, folder / "Release", folder / "InRelease")
        keys.detach(place, folder / "Release", folder / "Release.gpg")

    def write_key(self, place: keys.Home, fingerprint: str, target: Path) -> None:
        """Write the key that nodes trust."""
        place.export(target, fingerprint, armored=True)


def specs(need: Need) -> list[str]:
    """Return apt-get's words for packages."""
    return [f"{name}={version}" if version else name for name, version in sorted(need.packages.items())]


def _uris(out: str) -> Iterator[re.Match[str]]:
    """Yield what `--print-uris` lists. Raises MirrorError for a package without SHA-256."""
    for line in out.splitlines():
        if line.startswith("'"):
            match = _URI.match(line)
            if match is None:
                raise MirrorError(
                    "software.upstreams",
                    expected="a package with SHA-256",
                    actual=line,
                    next_step="Ask its owner for one.",
                )
            yield match


def _item(match: re.Match[str]) -> Item:
    name, version, rest = match["file"].removesuffix(".deb").rsplit("_", 2)
    version = unquote(version)
    return Item(
        name,
        version,
        rest,
        f"{POOL}/{name}_{version.rpartition(':')[2]}_{rest}.deb",
        int(match["size"]),
        match["algorithm"].lower(),
        match["digest"],
        match["file"],
    )


def _carried() -> Iterator[str]:
    for line in run(["apt-config", "dump"]).out.splitlines():
        if match := _CARRIED.match(line):
            yield f'{match[1]} "{match[2]}";\n'


def hashes(folder: Path) -> dict[str, tuple[str, int]]:
    """Return path to SHA-256 and size of everything that the signed index covers. Raises MirrorError."""
    release = (folder / "Release").read_text(encoding="utf-8")
    rows = re.findall(r"^ ([0-9a-f]{64}) +(\d+) (\S+)$", release.partition("\nSHA256:")[2], re.MULTILINE)
    found = {name: (digest, int(size)) for digest, size, name in rows}
    if not set(INDEXES) <= set(found):
        raise MirrorError(
            f"{folder}/Release",
            expected=f"the hashes of {' and '.join(INDEXES)}",
            actual="none",
            next_step="Build it again.",
        )
    for stanza in (folder / "Packages").read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"^(Filename|SHA256|Size): (\S+)$", stanza, re.MULTILINE))
        if fields:
            found[fields["Filename"]] = (fields["SHA256"], int(fields["Size"]))
    return found


def check_signatures(folder: Path, key: Path) -> None:
    """Raise MirrorError unless both forms of the signed index are good and equal."""
    keys.signed_by(key, folder / "Release.gpg", folder / "Release")
    keys.signed_by(key, folder / "InRelease")
    text = (folder / "InRelease").read_text(encoding="utf-8")
    if (folder / "Release").read_text(encoding="utf-8").strip() not in text:
        raise MirrorError(
            f"{folder}/InRelease",
            expected="the content of Release",
            actual="another",
            next_step="Build the mirror again.",
        )


def check_installs(folder: Path, wanted: Wanted, scratch: Path) -> None:
    """Raise MirrorError unless every need installs from this mirror alone (apt-get -s)."""
    shutil.rmtree(scratch, ignore_errors=True)
    root = AptRoot(scratch, wanted)
    root.source("mirror", f"file://{quote(str(folder))}", "./", (), folder / "mirror.asc")
    refusals = AptRefusals(wanted, place=str(folder))
    root.update(refusals)
    for need in wanted.needs:
        done = root.apt_get("-s", "install", *specs(need))
        if done.returncode != 0:
            raise refusals.of_install(done.out, need)
    shutil.rmtree(scratch)
