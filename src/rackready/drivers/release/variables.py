"""The variables of one node: what Ansible would give it on push, less how the controller reaches it.

Only the keys of package repositories are files of the controller that a pulled phase reads. They become objects, and
their path becomes that of the object on the node. No other file leaves the controller.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rackready.design import hostvars
from rackready.drivers.proof.release import UNCLEAR
from rackready.drivers.release.error import ReleaseError
from rackready.drivers.release.objects import Blob, Objects
from rackready.model.site import Site
from rackready.paths import EnvPaths

ON_NODE = "/var/lib/rackready/pull/objects"
"""Folder of the objects on a node."""
KEY_VARIABLES = ("base_mirror_key", "base_repositories[].key")
"""Variables that name a file of the controller which a role of a pulled phase reads there."""
_KEY_IN_TEXT = re.compile(r"\b(?:base_mirror_key|key)[\"']?\s*:\s*[\"']?(/[^\s\"'#,}\]]+)")
_ELSEWHERE = re.compile(rb"\b(inventory_dir|inventory_file)\b|\{[{%][^}]*?\b(ansible_(?:host|port|user))\b")
"""Words that mean something else on the node: its inventory is another folder, and nobody logs in to it."""
_PUBLIC_KEY = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
_READ = frozenset({"", ".yml", ".yaml", ".json"})
"""Endings of the files in group_vars and host_vars that Ansible reads (DEFAULT_YAML_FILENAME_EXTENSIONS)."""


@dataclass
class Variables:
    """The variables of an environment's nodes. Files are read once, whatever the number of nodes."""

    site: Site
    paths: EnvPaths
    objects: Objects
    _texts: dict[Path, str] = field(default_factory=dict)
    _names: dict[str, set[str]] = field(default_factory=dict)
    _blobs: dict[str, Blob] = field(default_factory=dict)

    def of(self, node: str) -> tuple[dict[str, Any], list[Blob]]:
        """Return the variables of a node as plain data, and the files that they name. Raises ReleaseError, OSError."""
        groups = self._groups_of[node]
        used: set[str] = set()
        document = {
            "node": node,
            "hostvars": self._placed(hostvars.node_vars(self.site, node), used),
            "groups": {name: self._placed(self._groups[name]["vars"], used) for name in groups},
            "group_vars": self._files("group_vars", ["all", *groups], used),
            "host_vars": self._files("host_vars", [node], used),
        }
        return document, [self._blobs[path] for path in sorted(used)]

    @cached_property
    def _groups(self) -> dict[str, dict[str, Any]]:
        return hostvars.groups(self.site)

    @cached_property
    def _groups_of(self) -> dict[str, list[str]]:
        """Return node -> its groups, sorted."""
        out: dict[str, list[str]] = {node.name: [] for node in self.site.nodes()}
        for name in sorted(self._groups):
            for host in self._groups[name]["hosts"]:
                out[host].append(name)
        return out

    def _placed(self, variables: Mapping[str, Any], used: set[str]) -> dict[str, Any]:
        """Return variables of the site with the node's paths of the keys."""
        out = dict(variables)
        if out.get("base_mirror_key"):
            out["base_mirror_key"] = self._moved(out["base_mirror_key"], used)
        if out.get("base_repositories"):
            out["base_repositories"] = [
                {**item, "key": self._moved(item["key"], used)} for item in out["base_repositories"]
            ]
        return out

    def _files(self, folder: str, names: Sequence[str], used: set[str]) -> list[list[str]]:
        """Return path and text of the files below group_vars or host_vars that are about one of these names."""
        top = self.paths.inventory / folder
        if folder not in self._names:
            self._names[folder] = {path.name for path in top.iterdir()} if top.is_dir() else set()
        there = self._names[folder]
        found = [(path.relative_to(top).as_posix(), path) for name in names for path in _about(top, name, there)]
        return [[name, self._text(path, used)] for name, path in sorted(found)]

    def _text(self, path: Path, used: set[str]) -> str:
        if path not in self._texts:
            self._texts[path] = _clear(path)
        text = self._texts[path]
        for word in sorted(set(_KEY_IN_TEXT.findall(text)), key=len, reverse=True):
            if (self.paths.root / word).is_file():
                text = re.sub(rf"{re.escape(word)}(?![^\s\"'#,}}\]])", self._moved(word, used), text)
        return text

    def _moved(self, path: str, used: set[str]) -> str:
        """Return the place of a repository's key on the node. Raises ReleaseError when the file is no such key."""
        if path not in self._blobs:
            self._blobs[path] = self.objects.put(_public(self.paths.root / path))
        used.add(path)
        return f"{ON_NODE}/{self._blobs[path].sha256}"


def _about(top: Path, name: str, there: set[str]) -> list[Path]:
    """Return the files that Ansible reads for one group or host: NAME, NAME.yml, or those of a folder NAME."""
    found = [top / item for item in sorted(f"{name}{ending}" for ending in _READ) if item in there]
    out = [path for path in found if path.is_file()]
    for folder, below, files in os.walk(top / name, followlinks=True) if name in there else ():
        below[:] = [item for item in below if not _left_out(item)]
        out += [Path(folder, file) for file in files if not _left_out(file) and Path(file).suffix in _READ]
    return out


def _left_out(name: str) -> bool:
    return name.startswith(".") or name.endswith("~")


def _clear(path: Path) -> str:
    """Return the text of a file of variables. Raises ReleaseError when it may mean something else on the node."""
    data = path.read_bytes()
    match = UNCLEAR.search(data) or _ELSEWHERE.search(data)
    word = match.group(match.lastindex or 0).decode().rstrip("([.| ") if match else ""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        word, text = f"bytes that are no UTF-8 (at {error.start})", ""
    if word:
        raise ReleaseError(
            path,
            "variables of nodes that pull",
            expected="values that the file alone decides",
            actual=word,
            next_step="Write the value itself, or take the phase out of pull.phases.",
        )
    return text


def _public(path: Path) -> bytes:
    """Return a repository's key. Raises ReleaseError for any other file: objects are not secret."""
    try:
        data = path.read_bytes()
    except OSError as error:
        data, actual = b"", error.strerror or str(error)
    else:
        actual = "another file"
    if data.startswith(_PUBLIC_KEY):
        return data
    raise ReleaseError(
        path,
        "key of a package repository",
        expected="an OpenPGP public key, ASCII armoured",
        actual=actual,
        next_step="Correct the path in the site file or in group_vars.",
    )
