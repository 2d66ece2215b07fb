"""A node's release for a play: a keyed digest over everything that decides what the play does on that node."""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rackready.design import hostvars
from rackready.design.facts import desired_digest
from rackready.model.site import Site
from rackready.paths import EnvPaths, is_checkout, shipped

SOURCES = ("ansible.cfg", "playbooks", "plugins", "roles", "src/rackready")
"""What a play is made of, below the folder of shipped files: all of it counts, read or not."""
LIBRARIES = ("ansible-core", "jinja2", "markupsafe", "pyyaml")
COPIED = ("pynvml",)
"""Modules of the controller that roles copy to nodes (filter rackready_module_file)."""
UNCLEAR = re.compile(
    rb"\$ANSIBLE_VAULT|\b(hostvars|groups|lookup|query|q|now|random|ansible_play\w*|ansible_date_time|undef)\b *[(\[.|]"
)
"""Words in variables of an environment by which other nodes, the time or files elsewhere could decide a value."""
_WORD = re.compile(r"""[^\s"'\[\]{},]+""")
_LONGEST = 4096
"""Bytes of a path, PATH_MAX of Linux."""
_LEFT_OUT = frozenset({"__pycache__", "molecule", "shipped"})


class UnclearReleaseError(Exception):
    """Nothing says that variables are the same as before, and why."""


def sources_digest() -> bytes:
    """Return the SHA-256 of roles, playbooks, plugins, rackready's code, and the libraries that render them."""
    top, out = shipped(), hashlib.sha256()
    package = Path(__file__).resolve().parents[2]
    for name in SOURCES:
        path = package if name == "src/rackready" else top / name
        for below, file in _files(path):
            _add(out, f"{name}/{below}", file)
    if not is_checkout():  # the copy that Ansible packs for nodes
        for below, file in _files(top / "src"):
            _add(out, f"shipped/{below}", file)
    for name in COPIED:
        found = importlib.util.find_spec(name)
        if found is None or not found.origin:
            raise FileNotFoundError(name)
        _add(out, name, found.origin)
    out.update(json.dumps([sys.version, *(version(name) for name in LIBRARIES)]).encode())
    return out.digest()


def releases(
    key: bytes, paths: EnvPaths, site: Site, playbook: str, nodes: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Return node -> its release, a keyed SHA-256 (hex). Raises UnclearReleaseError, and OSError.

    ``nodes``: node -> the variables that its phase adds.

    Keyed, for variables of a site may hold secrets, and a plain hash of a short one can be guessed.
    """
    sources, groups = sources_digest(), hostvars.groups(site)
    shared = _tree(paths.inventory / "group_vars", paths.root)
    out = {}
    for node, extra in nodes.items():
        variables = {name: group["vars"] for name, group in groups.items() if node in group["hosts"]}
        document = {
            "playbook": playbook,
            "extra": extra,
            "groups": variables,
            "desired": desired_digest(site, node),
            "node": {"name": node, **hostvars.node_vars(site, node)},
            "files": [*shared, *_tree(paths.inventory / "host_vars", paths.root, node)],
        }
        document["named"] = _named(_strings(document), paths.root)
        text = json.dumps(document, sort_keys=True).encode()
        out[node] = hmac.new(key, sources + text, hashlib.sha256).hexdigest()
    return out


def _tree(folder: Path, root: Path, begins: str = "") -> list[list[Any]]:
    """Return path, hash and named files of the files below a folder of variables; ``begins``: only of this name.

    They stay inside the keyed digest.
    """
    found = [(below, file) for below, file in _files(folder) if _is_of(below.partition("/")[0], begins)]
    return [[below, *_clear(Path(file), root)] for below, file in found]


def _clear(file: Path, root: Path) -> tuple[str, list[list[str]]]:
    """Return the hash of a file of variables, and of the files that it names. Raises UnclearReleaseError."""
    data = file.read_bytes()
    if match := UNCLEAR.search(data):
        word = match.group(0).decode().rstrip("([.| ")
        raise UnclearReleaseError(
            f"{file.parent.name}/{file.name} uses {word}, which may mean something else each time"
        )
    words = _WORD.findall(data.decode(errors="replace"))
    return hashlib.sha256(data).hexdigest(), _named(words, root)


def _strings(value: object) -> Iterator[str]:
    """Yield every text of a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


def _named(words: Iterable[str], root: Path) -> list[list[str]]:
    """Return path and hash of every file of the controller that variables name, such as the key of a mirror.

    A role may read it, and it may change although its name does not.
    """
    found = sorted({word for word in words if "/" in word and len(word) < _LONGEST and "\n" not in word})
    files = [(word, root / word) for word in found if "\0" not in word]
    return [[word, hashlib.sha256(file.read_bytes()).hexdigest()] for word, file in files if file.is_file()]


def _is_of(name: str, begins: str) -> bool:
    return not begins or name == begins or name.startswith(f"{begins}.")


def _files(path: Path) -> list[tuple[str, str]]:
    """Return the files below a path in their order, each with its name below it ("." of a file itself)."""
    if path.is_file():
        return [(".", str(path))]
    out = []
    for folder, below, names in os.walk(path, followlinks=True):
        below[:] = sorted(name for name in below if name not in _LEFT_OUT)
        inside = f"{folder}/".removeprefix(f"{path}/")
        out += [(f"{inside}{name}", f"{folder}/{name}") for name in sorted(names)]
    return out


def _add(out: hashlib._Hash, name: str, file: str) -> None:
    with open(file, "rb", buffering=0) as handle:  # noqa: PTH123 - 1,500 files a phase: a Path takes longer than its hash
        mode, data = os.fstat(handle.fileno()).st_mode, handle.read()
    out.update(f"{name}\0{mode & 0o111}\0{len(data)}\0".encode())
    out.update(data)
