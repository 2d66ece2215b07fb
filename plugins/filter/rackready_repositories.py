"""Package sources of role base: where their keys and indexes are, and what is wrong with either."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

KEYRINGS = {"apt": "/etc/apt/keyrings/{}.asc", "rpm": "/etc/pki/rpm-gpg/RPM-GPG-KEY-{}"}
STALE = "the package lists on the node may be older than the mirror"


def sources(mirror: Mapping[str, Any], repositories: Iterable[Mapping[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return every package source of a node: the mirror, if there is one, and the repositories."""
    single = {"name": "", "components": [], "fingerprint": "", "signed_index": False} | dict(mirror)
    every = [*([single] if mirror["url"] else []), *repositories]
    return [_source({"suite": "./", "components": [], "signed_index": True} | dict(item), kind) for item in every]


def _source(item: dict[str, Any], kind: str) -> dict[str, Any]:
    name = f"rackready-{item['name']}" if item["name"] else "rackready"
    index = index_url(item["url"], item["suite"], kind) if re.match("https?://", item["url"]) else ""
    return item | {"id": name, "keyring": KEYRINGS[kind].format(name), "index": index}


def index_url(url: str, suite: str, kind: str) -> str:
    """Return the URL of a signed index: beside the packages in a flat repository, below dists/ in others."""
    if kind == "rpm":
        return f"{url.rstrip('/')}/repodata/repomd.xml"
    folder = suite if suite.endswith("/") else f"dists/{suite}/"
    return f"{url.rstrip('/')}/{folder.removeprefix('.').removeprefix('/')}InRelease"


def key_files(given: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the key of each source as a file of the node."""
    return [{"path": item["keyring"], "content": Path(item["key"]).read_text(encoding="utf-8")} for item in given]


def wrong_keys(given: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return expected and actual of each source whose key file has not exactly the declared keys."""
    try:
        from rackready.design import repositories  # noqa: PLC0415 - said when it is used, not at every start
    except ImportError as error:
        message = f"rackready - Expected: importable Actual: {error}. Use .venv/bin/ansible-playbook."
        raise AnsibleFilterError(message) from error
    out = []
    for item in (item for item in given if item["fingerprint"]):
        more = item.get("package_fingerprints", [])
        differs = repositories.wrong_keys(Path(item["key"]), item["fingerprint"], more)
        if differs is not None:
            out.append({"expected": f"{item['name']}: {differs[0]} in {item['key']}", "actual": differs[1]})
    return out


def unasked(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a note for each index that was not served. Text before a host's @ could be a password: it is left out."""
    texts = [
        f"{result['item']['index']}: {result.get('msg') or 'no answer'}: {STALE}"
        for result in results
        if result.get("status") != 200  # noqa: PLR2004 - HTTP
    ]
    return [re.sub("://[^/ ]*@", "://", text) for text in texts]


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, object]:
        """Return the filters by the names that templates use."""
        return {
            "rackready_sources": sources,
            "rackready_key_files": key_files,
            "rackready_wrong_keys": wrong_keys,
            "rackready_unasked": unasked,
        }
