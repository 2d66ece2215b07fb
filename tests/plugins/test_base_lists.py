"""Role base: package lists are old exactly when no list on the node is the Release that the mirror serves now."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROOT = Path(__file__).resolve().parents[2]
VARS: dict[str, Any] = yaml.safe_load((ROOT / "roles/base/vars/main.yml").read_text(encoding="utf-8"))
EL: dict[str, Any] = yaml.safe_load((ROOT / "roles/base/vars/RedHat_9.yml").read_text(encoding="utf-8"))
SERVED = "-----BEGIN PGP SIGNED MESSAGE-----\nDate: Thu, 02 Jan 2025 00:00:00 UTC\n"


def said(name: str, **known: Any) -> Any:  # noqa: ANN401 - what a template gives
    variables = {
        key: trust_as_template(value) if isinstance(value, str) else value for key, value in VARS.items()
    } | known
    return Templar(loader=DataLoader(), variables=variables).template(trust_as_template(f"{{{{ {name} }}}}"))


def fetched(*texts: str) -> dict[str, Any]:
    return {"files": [{"checksum": hashlib.sha256(text.encode()).hexdigest()} for text in texts]}


MIRROR = {"base_mirror_url": "http://192.0.2.2:8080", "base_mirror_suite": "./", "base_mirror_components": []}
MIRROR |= {"base_mirror_key": "/keys/mirror.asc", "base_repositories": []}


def asked(*answers: dict[str, Any]) -> dict[str, Any]:
    return {"results": [{"item": {"index": "http://m/InRelease"}} | answer for answer in answers]}


@pytest.mark.parametrize(
    ("answers", "files", "old"),
    [
        ([{"status": 200, "content": SERVED}], fetched("Debian's own", SERVED), False),
        ([{"status": 200, "content": SERVED}], fetched("Debian's own", SERVED.replace("02 Jan", "01 Jan")), True),
        ([{"status": 200, "content": SERVED}], fetched(), True),
        ([{"status": 200, "content": SERVED}, {"status": 200, "content": "other"}], fetched(SERVED, "other"), False),
        ([{"status": 200, "content": SERVED}, {"status": 200, "content": "other"}], fetched(SERVED), True),
        ([{"status": -1, "msg": "refused"}], fetched(), False),
        ([], fetched(), False),
    ],
)
def test_lists_are_old_when_a_source_serves_another_release(
    answers: list[dict[str, Any]], files: dict[str, Any], *, old: bool
) -> None:
    assert said("__base_lists_old", __base_indexes=asked(*answers), __base_fetched=files) is old


@pytest.mark.parametrize(
    ("url", "suite", "release"),
    [
        ("http://192.0.2.2:8080", "./", "http://192.0.2.2:8080/InRelease"),
        (
            "https://mirror.example.com/cuda/debian12/x86_64",
            "/",
            "https://mirror.example.com/cuda/debian12/x86_64/InRelease",
        ),
        (
            "https://mirror.example.com/debian/",
            "bookworm",
            "https://mirror.example.com/debian/dists/bookworm/InRelease",
        ),
        ("file:///srv/mirror", "./", ""),
    ],
)
def test_where_a_source_says_what_it_carries(url: str, suite: str, release: str) -> None:
    [source] = said("__base_sources", **MIRROR | {"base_mirror_url": url, "base_mirror_suite": suite})
    assert source["index"] == release


@pytest.mark.parametrize("user", ["", "carol@", "carol:s3cret@", "carol:s3@cret@"])
def test_note_of_a_source_that_cannot_be_asked_holds_no_password(user: str) -> None:
    url = f"https://{user}mirror.example.com:8080/a@b/InRelease"
    answer = {"status": -1, "msg": f"Request failed: {url}", "item": {"index": url}}
    note = (
        "https://mirror.example.com:8080/a@b/InRelease: Request failed: https://mirror.example.com:8080/a@b/InRelease"
    )
    words = "the package lists on the node may be older than the mirror"
    assert said("__base_unasked", __base_indexes={"results": [answer]}) == [f"{note}: {words}"]
    assert said("__base_unasked", __base_indexes=asked({"status": 200})) == []


@pytest.mark.parametrize(
    ("system", "wanted"),
    [(VARS, {}), (EL, {"fio": "fio-engine-libaio", "openmpi-bin": "openmpi", "gnupg": "gnupg2"})],
)
def test_base_packages_have_the_names_of_the_system(system: dict[str, Any], wanted: dict[str, str]) -> None:
    [task] = yaml.safe_load((ROOT / "roles/base/tasks/packages.yml").read_text(encoding="utf-8"))
    names = ["chrony", "fio", "gnupg", "openmpi-bin"]
    known = {"base_packages": names, "__base_names": system["__base_names"], "__base_more": system["__base_more"]}
    template = trust_as_template(task["rackready_packages"]["packages"])
    found = Templar(loader=DataLoader(), variables=known).template(template)
    assert list(found) == [*(wanted.get(name, name) for name in names), *system["__base_more"]]
    assert set(found.values()) == {None}


def test_rhels_index_is_repomd() -> None:
    [source] = said("__base_sources", **EL, **MIRROR | {"base_mirror_url": "http://mirror.example/rhel9"})
    assert source["index"] == "http://mirror.example/rhel9/repodata/repomd.xml"
    assert source["keyring"] == "/etc/pki/rpm-gpg/RPM-GPG-KEY-rackready"


def test_a_source_that_apt_would_refuse_is_refused_before_it_is_written() -> None:
    tasks = yaml.safe_load((ROOT / "roles/base/tasks/repository.yml").read_text(encoding="utf-8"))
    first, second = tasks[:2]
    assert (first["rackready_apt_sources"], first["when"]) == ({"sources": "{{ __base_sources }}"}, "__base_apt")
    assert "rackready_files" in second
    [source] = said("__base_sources", **MIRROR)
    assert {"url", "suite", "keyring"} <= set(source)
