"""No address, host or secret of the site is in its rehearsal: neither in the site file nor in the overlay."""

from __future__ import annotations

import json
import re
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from rackready.design.yaml import dump_yaml
from rackready.model.site import Site
from rackready_sim import overlay
from rackready_sim.errors import SimError
from rackready_sim.plan import choose_subnet
from rackready_sim.rehearse.scaled import scaled
from rackready_sim.rehearse.space import Space, networks_of, shared
from rackready_sim.store import Store
from tests.unit.rehearse.small import SITES, SMALL, changed, own_profiles, parsed, plan, rehearsal, site

ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
SIMULATED = [name for name in SMALL if name.startswith("sim-")]
PRODUCTION = [name for name in SMALL if name not in SIMULATED]


def written(name: str, tmp_path: Path) -> tuple[str, str]:
    """Return site file and overlay of a rehearsal as text; the rack is beside the site's networks."""
    small = rehearsal(name)
    made = parsed(small, own_profiles(small, tmp_path / "own", SITES[name]))
    assert not any(IPv4Network("10.64.7.0/24").overlaps(net) for net in networks_of(site(name)))
    store = Store(tmp_path)
    for item in made.software.repositories:
        (store.mirror / item.name).mkdir(parents=True)
        (store.mirror / item.name / "mirror.fpr").write_text("0" * 40)
    (store.base / "kubernetes").mkdir(parents=True, exist_ok=True)
    return dump_yaml(small.document), dump_yaml(overlay.build(made, plan(made), store))


def addresses(value: Site) -> list[IPv4Network]:
    """Return all addresses and networks of a site by its JSON, not by the code under test."""
    text = json.dumps(value.model_dump(mode="json"))
    found = re.findall(r"\b\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?(?=\")", text)
    return [IPv4Network(item, strict=False) for item in found]


@pytest.mark.parametrize("name", [name for name in SMALL if name != "sim-k8s"])
def test_no_address_of_the_site_is_in_the_rehearsal(name: str, tmp_path: Path) -> None:
    here = addresses(site(name))
    assert here, "the site has addresses"
    for text in written(name, tmp_path):
        found = {IPv4Address(item) for item in ADDRESS.findall(text)}
        assert found
        assert [item for item in found if any(item in net for net in here)] == []


@pytest.mark.parametrize("name", list(PRODUCTION))
def test_no_host_and_no_place_of_a_secret_is_in_the_rehearsal(name: str, tmp_path: Path) -> None:
    source = SITES[name].read_text(encoding="utf-8")
    words = set(re.findall(r"inventories/[\w/.-]+/[\w.-]+|[\w.-]+\.example\.com|[A-Z]+_PASSWORD", source))
    assert words, "the site has a key, a mirror and passwords"
    for text in written(name, tmp_path):
        assert [word for word in words if word in text] == []


@pytest.mark.parametrize("name", SMALL)
def test_the_rehearsal_itself_finds_nothing_shared(name: str) -> None:
    assert shared(site(name), dump_yaml(rehearsal(name).document)) == []


def jump(document: dict[str, Any]) -> None:
    document["access"]["proxy_jump"] = {"host": "bastion.example.net", "user": "hop"}
    document["switches"][0]["address"] = {"first": "10.9.8.7"}
    document["switches"][0]["password"] = {"sops": "inventories/lab/secrets.sops.yml#leaf.{name}"}
    document["access"]["sudo_password"] = {"vault": "inventories/lab/vault.yml#sudo"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("address: 10.9.8.7", ["10.9.8.7"]),
        ("address: 192.168.3.250", ["192.168.3.250"]),
        ("url: http://192.0.2.111:8443", ["192.0.2.111"]),
        ("address: 192.0.2.112", ["192.0.2.112"]),
        ("host: bastion.example.net", ["bastion.example.net"]),
        ("url: https://mirror.example.com/x", ["mirror.example.com"]),
        ("env: BMC_PASSWORD", ["BMC_PASSWORD"]),
        ("private_key: /base/inventories/lab/secrets/id_ed25519", ["/base/inventories/lab/secrets/id_ed25519"]),
        ("vault: /base/inventories/lab/vault.yml#sudo", ["/base/inventories/lab/vault.yml#sudo"]),
        ("vault: /base/inventories/lab/vault.yml#sudo-2", []),
        ("address: 192.0.2.222", []),
        ("address: 10.9.8.70", []),
        ("host: bastion.example.network", []),
        ("version: 10.9.8", []),
    ],
)
def test_what_is_shared_is_found(text: str, found: list[str]) -> None:
    assert shared(changed("lab-4-nodes", jump), text) == found


@pytest.mark.parametrize("kind", ["sops", "vault"])
def test_a_key_in_an_encrypted_file_of_the_site_is_found(kind: str) -> None:
    def encrypted(document: dict[str, Any]) -> None:
        document["racks"][0]["nodes"][0]["bmc"]["password"] = {kind: "/srv/secrets.yml#bmc.node01"}

    text = f"password: {{{kind}: '/srv/secrets.yml#bmc.node01'}}"
    assert shared(changed("lab-4-nodes", encrypted), text) == ["/srv/secrets.yml#bmc.node01"]


def test_addresses_are_beside_the_documentation_space_that_a_site_uses() -> None:
    small = scaled(changed("lab-4-nodes", lambda _: None), most=4)
    first = small.document["racks"][0]["nodes"][0]["address"]
    assert first == "198.51.100.11", "the lab itself has 192.0.2.0/24"


def test_space_gives_each_network_once_and_says_when_none_is_left() -> None:
    space = Space([IPv4Network("192.0.2.7/32")])
    assert [str(space.take(24)) for _ in range(3)] == ["198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/24"]
    full = Space([IPv4Network("0.0.0.0/0")])
    with pytest.raises(SimError) as caught:
        full.take(24)
    assert str(caught.value) == (
        "addresses of the rehearsal - Expected: a free network /24 Actual: all overlap the site's. Shrink the pools of "
        "the site file (networks), which take all private address space."
    )


def test_the_rack_is_beside_the_networks_of_the_site() -> None:
    first = choose_subnet("ab12cd", [])
    assert choose_subnet("ab12cd", [IPv4Network(f"{first[9]}/32")]) != first
