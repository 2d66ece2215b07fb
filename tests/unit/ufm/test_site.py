"""The way to UFM in a site file: what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rackready.design.device_facts import fabric_text
from rackready.design.facts import desired_digest, fabric_document
from rackready.design.site import load_site
from rackready.model.infiniband import InfiniBand
from tests.unit.ufm.ufms import ROOT, login, site_of

URL = {"url": "https://ufm.example.com"}
PIN = ":".join(["AB"] * 32)


def under(**ufm: Any) -> InfiniBand:
    return InfiniBand.model_validate({"subnet_manager": "ufm", "ufm": ufm})


@pytest.mark.parametrize(
    "ufm",
    [
        URL | login(),
        URL | {"username": "admin", "password": {"env": "P"}},
        URL | login() | {"ca": "ca.pem"},
        URL | login() | {"certificate_sha256": PIN},
    ],
)
def test_a_login_and_a_way_to_verify_tls(ufm: dict[str, Any]) -> None:
    assert under(**ufm).ufm is not None


@pytest.mark.parametrize(
    ("ufm", "words"),
    [
        (URL, "give token, or username and password"),
        (URL | {"username": "admin"}, "give token, or username and password"),
        (URL | login() | {"username": "admin", "password": {"env": "P"}}, "give token, or username and password"),
        (URL | login() | {"ca": "ca.pem", "certificate_sha256": PIN}, "not both"),
        (login() | {"url": "http://ufm.example.com"}, "pattern"),
        (login() | {"url": "https://admin:pw@ufm.example.com"}, "pattern"),
        (URL | login() | {"verify": False}, "verify"),
    ],
)
def test_any_other_way_is_refused(ufm: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        under(**ufm)


@pytest.mark.parametrize("own", [{"subnet_manager": "ufm"}, {"subnet_manager": "external", "ufm": URL | login()}])
def test_ufm_and_the_way_to_it_belong_together(own: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="needs ufm with its url and login"):
        InfiniBand.model_validate(own)


def test_another_address_of_ufm_changes_no_device() -> None:
    one, other = site_of("https://192.0.2.7"), site_of("https://192.0.2.8")
    assert fabric_text(one) == fabric_text(other)
    assert desired_digest(one, "node01") == desired_digest(other, "node01")


def test_sites_without_ufm_have_the_documents_that_they_had() -> None:
    site = load_site("no-overlay", site_file=ROOT / "inventories/sim-ib/site.yml", root=ROOT)
    assert set(fabric_document(site)["infiniband"]) == {"subnet_manager", "nodes", "routing_engine"}
    assert "ufm" not in fabric_text(site)
