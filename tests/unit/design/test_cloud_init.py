"""The cloud-init seed of a virtual node: names, users and network, each read back as YAML."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rackready.design.cloud_init import seed_files
from rackready.design.site import parse_site
from rackready.design.virtual_domain import domain_facts
from rackready.model.site import Site
from rackready.render.domain import domain_digest
from rackready.stacks.virtual_args import virtual_args
from tests.unit.design.virtual_sites import EMULATED, ONE, ROOT, SMALL_PAGES, document, site

KEYS = {"root": ["ssh-ed25519 AAAA one"], "ops": ["ssh-ed25519 BBBB two", "ssh-rsa CCCC three"]}


def files(of: Site, keys: dict[str, list[str]] = KEYS) -> dict[str, str]:
    return seed_files(of, of.node("guest01"), domain_facts(of, "guest01"), keys)


def read(of: Site, name: str, keys: dict[str, list[str]] = KEYS) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(files(of, keys)[name])
    return found


def with_provisioning(machine: dict[str, Any], **settings: Any) -> Site:
    return parse_site({**document(machine), "provisioning": settings}, source="site.yml", base=ROOT)


def test_the_instance_is_the_domain() -> None:
    """cloud-init runs again for another instance-id: it may change only with the domain."""
    of = site(ONE)
    assert read(of, "meta-data") == {"instance-id": domain_facts(of, "guest01").uuid, "local-hostname": "guest01"}


def test_user_data_is_marked_and_allows_no_password() -> None:
    of = site(ONE)
    assert files(of)["user-data"].startswith("#cloud-config\n{")
    found = read(of, "user-data")
    assert (found["hostname"], found["ssh_pwauth"]) == ("guest01", False)
    assert found["growpart"] == {"mode": "auto", "devices": ["/"]}
    assert all(user["lock_passwd"] is True for user in found["users"])


def test_a_changed_network_is_applied_at_every_start_and_a_changed_seed_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """cloud-init's documentation, "Events and updates": by default the network is of the first boot only."""
    of = site(ONE)
    assert read(of, "user-data")["updates"] == {"network": {"when": ["boot-new-instance", "boot"]}}
    monkeypatch.setattr("rackready.stacks.virtual_args._keys", lambda _site: KEYS)
    sites = (of, of, site({**ONE, "gateway": "10.51.0.1"}))
    one, again, changed = (virtual_args(found, "lab", "rack1").domains[0].facts for found in sites)
    assert domain_digest(one) == domain_digest(again) != domain_digest(changed)
    assert one.uuid == changed.uuid


def test_root_gets_keys_alone_and_others_a_shell_and_sudo() -> None:
    ops, root = read(site(ONE), "user-data")["users"]
    assert root == {"name": "root", "ssh_authorized_keys": KEYS["root"], "lock_passwd": True}
    assert ops == {
        "name": "ops",
        "ssh_authorized_keys": KEYS["ops"],
        "lock_passwd": True,
        "shell": "/bin/bash",
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
    }


def test_root_may_not_log_in_where_it_has_no_key() -> None:
    assert read(site(ONE), "user-data")["disable_root"] is False
    assert read(site(ONE), "user-data", {"ops": KEYS["ops"]})["disable_root"] is True


@pytest.mark.parametrize("sudo", [True, False])
def test_a_user_has_sudo_as_the_site_says(sudo: bool) -> None:  # noqa: FBT001 - a parameter of the test
    of = with_provisioning(ONE, users=[{"name": "ops", "keys": ["ops.pub"], "sudo": sudo}])
    assert ("sudo" in read(of, "user-data", {"ops": KEYS["ops"]})["users"][0]) is sudo


def test_without_a_bridge_there_is_no_network() -> None:
    assert sorted(files(site(SMALL_PAGES))) == ["meta-data", "user-data"]


def test_without_a_gateway_the_network_comes_by_dhcp() -> None:
    assert read(site(ONE), "network-config") == {
        "version": 2,
        "ethernets": {"inband": {"match": {"macaddress": "52:54:00:aa:bb:01"}, "dhcp4": True}},
    }


def test_a_network_card_without_a_mac_of_the_site_has_that_of_the_domain() -> None:
    of = site(EMULATED)
    match = read(of, "network-config")["ethernets"]["inband"]["match"]
    assert match == {"macaddress": domain_facts(of, "guest01").mac}
    assert match["macaddress"]


def test_with_a_gateway_the_network_is_static() -> None:
    of = site({**ONE, "gateway": "10.51.0.1", "prefix": 22})
    link = read(of, "network-config")["ethernets"]["inband"]
    assert link["addresses"] == [f"{of.node('guest01').address}/22"]
    assert link["routes"] == [{"to": "0.0.0.0/0", "via": "10.51.0.1"}]
    assert link["nameservers"] == {"addresses": []}
    assert "dhcp4" not in link


def test_name_servers_are_those_of_the_boot_service() -> None:
    service = {"address": "10.20.0.2", "interface": "eth0", "network": "10.20.0.0/16", "dns": ["10.20.0.53"]}
    of = with_provisioning({**ONE, "gateway": "10.51.0.1", "prefix": 16}, service=service)
    assert read(of, "network-config")["ethernets"]["inband"]["nameservers"] == {"addresses": ["10.20.0.53"]}
