"""Metadata of rpm repositories: repomd.xml, primary.xml and module streams. dnf and createrepo_c write them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import yaml

from rackready.drivers.mirror.parts import Item
from rackready.drivers.mirror.tools import MirrorError

_REPO = "{http://linux.duke.edu/metadata/repo}"
_COMMON = "{http://linux.duke.edu/metadata/common}"
_ALGORITHMS = {"sha": "sha1"}


def metadata(folder: Path) -> dict[str, tuple[str, int]]:
    """Return path to SHA-256 and size of the files that repomd.xml names. Raises MirrorError."""
    found = {}
    for data in _root(folder).iter(f"{_REPO}data"):
        place, checksum, size = (data.find(f"{_REPO}{name}") for name in ("location", "checksum", "size"))
        if place is None or checksum is None or size is None:
            raise MirrorError(
                f"{folder}/repomd.xml", expected="place, hash and size", actual="none", next_step="Build it again."
            )
        found[place.get("href", "")] = (checksum.text or "", int(size.text or 0))
    return found


def packages(folder: Path) -> dict[str, Item]:
    """Return place in the repository to package, from primary.xml. Raises MirrorError."""
    found = {}
    with _open(_file(folder, "primary")) as stream:
        for _, element in ET.iterparse(stream):  # noqa: S314 - of a repository whose hash or signature was checked
            if element.tag == f"{_COMMON}package":
                item = _item(element)
                found[_of(element, "location").get("href", "")] = item
                element.clear()
    return found


def _item(element: ET.Element) -> Item:
    name, architecture, checksum = (_of(element, field) for field in ("name", "arch", "checksum"))
    version = _of(element, "version")
    epoch = version.get("epoch", "0")
    place = _of(element, "location").get("href", "").rpartition("/")[2]
    return Item(
        name.text or "",
        f"{'' if epoch == '0' else epoch + ':'}{version.get('ver')}-{version.get('rel')}",
        architecture.text or "",
        f"Packages/{place}",
        int(_of(element, "size").get("package", "0")),
        _ALGORITHMS.get(checksum.get("type", ""), checksum.get("type", "sha256")),
        checksum.text or "",
        place,
    )


def _of(element: ET.Element, name: str) -> ET.Element:
    found = element.find(f"{_COMMON}{name}")
    if found is None:
        raise MirrorError(
            "primary.xml", expected=f"{name} of every package", actual="none", next_step="Ask the upstream's owner."
        )
    return found


def modules(folders: list[Path], files: set[str], streams: set[str]) -> str:
    """Return the module documents of the repositories that concern these packages or streams, as YAML."""
    kept = [
        document
        for folder in folders
        for document in _module_documents(folder)
        if _concerns(document.get("data", {}), files, streams)
    ]
    return yaml.safe_dump_all(kept, explicit_start=True, explicit_end=True, sort_keys=False) if kept else ""


def _module_documents(folder: Path) -> Iterator[dict[str, Any]]:
    try:
        path = _file(folder, "modules")
    except MirrorError:
        return  # a repository without module streams
    with _open(path) as stream:
        for document in yaml.load_all(stream, Loader=_Text):
            if document and document.get("document") == "modulemd":
                yield document


class _Text(yaml.SafeLoader):
    """Reads every scalar as text: stream 580 and version 9.10 must not become numbers."""


_Text.yaml_implicit_resolvers = {}


def _concerns(data: dict[str, Any], files: set[str], streams: set[str]) -> bool:
    if f"{data.get('name')}:{data.get('stream')}" in streams:
        return True
    artifacts = (data.get("artifacts") or {}).get("rpms") or []
    return any(f"{_without_epoch(item)}.rpm" in files for item in artifacts)


def _without_epoch(nevra: str) -> str:
    name, dash, rest = nevra.rpartition(":")
    return f"{name.rpartition('-')[0]}-{rest}" if dash else rest


def _root(folder: Path) -> ET.Element:
    try:
        return ET.parse(folder / "repomd.xml").getroot()  # noqa: S314 - its signature or transport was checked
    except (OSError, ET.ParseError) as error:
        raise MirrorError(
            f"{folder}/repomd.xml", expected="the index of an rpm repository", actual=error, next_step="Build it again."
        ) from error


def _file(folder: Path, kind: str) -> Path:
    for data in _root(folder).iter(f"{_REPO}data"):
        place = data.find(f"{_REPO}location")
        if data.get("type") == kind and place is not None:
            return folder / place.get("href", "").rpartition("/")[2]
    raise MirrorError(
        f"{folder}/repomd.xml", expected=f"metadata {kind}", actual="none", next_step="Ask the upstream's owner."
    )


def _open(path: Path) -> IO[bytes]:
    """Return a metadata file, uncompressed. Raises MirrorError."""
    if not path.is_file():
        raise MirrorError(
            path, expected="metadata that the index names", actual="no file", next_step="Build the mirror again."
        )
    if path.suffix == ".zst":
        return _zstd(path)
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
    opened: IO[bytes] = openers.get(path.suffix, Path.open)(path, "rb")
    return opened


def _zstd(path: Path) -> IO[bytes]:
    if shutil.which("zstd") is None:
        raise MirrorError(
            path, expected="the program zstd", actual="not installed", next_step="Install the package zstd."
        )
    child = subprocess.Popen(["zstd", "-dcq", str(path)], stdout=subprocess.PIPE)
    if child.stdout is None:
        raise MirrorError(path, expected="output of zstd", actual="none", next_step="Run again.")
    return child.stdout
