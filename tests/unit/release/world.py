"""A small site whose nodes pull, with pinned host keys, and wheels that need no index."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paramiko
import pytest
import yaml

from rackready.design.site import load_site
from rackready.drivers.release import pip, wheels
from rackready.drivers.ssh.pins import known_name, pin, text_of
from rackready.model.site import Site
from rackready.paths import EnvPaths
from tests.unit.design.written import example

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZ\n-----END PGP PUBLIC KEY BLOCK-----\n"
SECRET = "hunter2-of-the-cluster"
NODES = ["node01", "node02", "node03", "node04"]


def write_site(root: Path, **changes: Any) -> None:
    """Write the site of four nodes that pull, or another version of it."""
    document = example("lab-4-nodes")
    document["software"]["mirror"]["key"] = "inventories/sim/mirror.asc"
    document["pull"] = {"url": "http://192.0.2.1:8480"}
    document.update(changes)
    document = {key: value for key, value in document.items() if value is not None}
    folder = root / "inventories/sim"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "site.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    (folder / "mirror.asc").write_text(KEY, encoding="utf-8")


def write_vars(root: Path, name: str, text: str) -> Path:
    """Write a file of variables, such as group_vars/nodes.yml."""
    path = root / "inventories/sim" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def host_key(number: int) -> str:
    """Return an SSH host key, the same for the same number."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    private = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
    message = paramiko.Message()
    message.add_string("ssh-ed25519")
    message.add_string(private.public_key().public_bytes_raw())
    return text_of(paramiko.Ed25519Key(data=message.asbytes()))


def pin_keys(root: Path, nodes: list[str] = NODES) -> None:
    """Pin the host keys of nodes."""
    site, paths = load_site("sim", root=root), EnvPaths(root, "sim")
    for number, name in enumerate(nodes, 1):
        pin(paths.known_hosts, known_name(str(site.node(name).address), site.access.port), host_key(number))


def loaded(root: Path) -> tuple[Site, EnvPaths]:
    """Return the site and its paths."""
    return load_site("sim", root=root), EnvPaths(root, "sim")


def tiny_wheel(folder: Path, name: str, version: str, tag: str = "py3-none-any", text: str = "") -> Path:
    """Write a wheel with one module."""
    stem = name.replace("-", "_")
    path = folder / f"{stem}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as out:
        out.writestr(zipfile.ZipInfo(f"{stem}.py"), f"version = {version!r}{text}\n")
        out.writestr(zipfile.ZipInfo(f"{stem}-{version}.dist-info/METADATA"), f"Name: {name}\nVersion: {version}\n")
        out.writestr(zipfile.ZipInfo(f"{stem}-{version}.dist-info/WHEEL"), f"Wheel-Version: 1.0\nTag: {tag}\n")
        out.writestr(zipfile.ZipInfo(f"{stem}-{version}.dist-info/RECORD"), "")
    return path


class Index:
    """An index of wheels in place of pip's: each download is counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[list[str]] = []
        self.text = ""
        monkeypatch.setattr(pip, "download", self._download)
        monkeypatch.setattr(wheels, "is_checkout", lambda: False)

    def _download(
        self, wanted: Mapping[str, str], hashes: Mapping[str, Any], python: str, processor: str, folder: Path
    ) -> None:
        del hashes, python, processor
        self.asked.append(sorted(wanted))
        for name, version in wanted.items():
            tiny_wheel(folder, name, version, text=self.text)
