"""dnsmasq and nginx for real: the service in one network namespace, a machine's firmware and agent in another."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from rackready.drivers.boot_service import (
    BootService,
    BootServiceError,
)
from rackready.drivers.boot_service.loaders import LOADERS
from rackready.model.provisioning import ProvisioningService
from tests.unit.boot_service import dhcp_client as dhcp
from tests.unit.boot_service.made import DIGEST, armed, report, settings
from tests.unit.boot_service.nets import Net, joined
from tests.unit.boot_service.scene import MAC, NEEDS, OTHER_MAC, Scene, answer

pytestmark = NEEDS


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def test_an_armed_machine_gets_its_address_and_the_loader_for_its_firmware(scene: Scene) -> None:
    scene.arm(armed("node01", MAC))
    base = "http://10.9.0.1:8080/boot"
    seen = {firmware: answer(scene.ask(firmware)) for firmware in (dhcp.PXE, dhcp.PXE_EBC, dhcp.HTTP, dhcp.IPXE)}
    http = "" if scene.service.http_boot_problem() else f"{base}/shimx64.efi"
    assert [found.file for found in seen.values()] == ["shimx64.efi", "shimx64.efi", http, f"{base}/boot.ipxe"]
    assert {found.address for found in seen.values()} == {IPv4Address("10.9.0.11")}
    assert {found.server for found in seen.values()} == {IPv4Address("10.9.0.1")}
    assert seen[dhcp.HTTP].options[60] == b"HTTPClient"
    assert answer(scene.ask(dhcp.PXE, offer=seen[dhcp.PXE])).kind == 5, "no DHCPACK for the offer"
    assert answer(scene.ask(dhcp.BIOS)).file == "", "a machine without UEFI must not get a UEFI loader"


def test_a_wrong_mac_keeps_an_address_for_no_longer_than_a_node_needs_to_boot(scene: Scene) -> None:
    scene.arm(armed("node01", OTHER_MAC))
    offer = answer(scene.ask(dhcp.PXE, OTHER_MAC))
    bound = answer(scene.ask(dhcp.PXE, OTHER_MAC, offer))
    assert int.from_bytes(bound.options[51], "big") == 120, "seconds of the lease, by RFC 2132"
    scene.arm(armed("node01", MAC))
    assert scene.ask(dhcp.PXE) is None, "dnsmasq has no way to end another's lease"
    until, mac = (scene.service.layout.dnsmasq / "leases").read_text().split()[:2]
    assert (mac, int(until) <= time.time() + 120) == (OTHER_MAC, True)
    assert scene.ask(dhcp.PXE, OTHER_MAC, bound) is None, "it is not renewed"


def test_a_machine_that_is_not_armed_gets_no_answer(scene: Scene) -> None:
    assert scene.ask(dhcp.PXE) is None
    scene.arm(armed("node01", MAC))
    assert [scene.ask(firmware, OTHER_MAC) for firmware in (dhcp.PXE, dhcp.HTTP, dhcp.IPXE)] == [None, None, None]
    assert answer(scene.ask(dhcp.PXE)).file == "shimx64.efi"
    scene.disarm("node01")
    assert scene.ask(dhcp.PXE) is None


def test_ipxe_instead_of_grub(tmp_path: Path) -> None:
    scene = Scene(tmp_path, loader="ipxe")
    try:
        scene.arm(armed("node01", MAC))
        assert answer(scene.ask(dhcp.PXE)).file == "ipxe.efi"
        assert answer(scene.ask(dhcp.HTTP)).file == "http://10.9.0.1:8080/boot/ipxe.efi"
        assert scene.tftp("ipxe.efi") == LOADERS["ipxe"][0].source.read_bytes()
    finally:
        scene.close()


def test_gateway_and_name_servers_are_named_only_when_the_site_has_them(tmp_path: Path, scene: Scene) -> None:
    scene.arm(armed("node01", MAC))
    assert not {3, 6} & answer(scene.ask(dhcp.PXE)).options.keys()
    (tmp_path / "second").mkdir()
    with_both = Scene(tmp_path / "second", gateway="10.9.0.254", dns=["10.9.0.53", "10.9.0.54"])
    try:
        with_both.arm(armed("node01", MAC))
        found = answer(with_both.ask(dhcp.PXE)).options
        assert (found[3], found[6]) == (bytes([10, 9, 0, 254]), bytes([10, 9, 0, 53, 10, 9, 0, 54]))
    finally:
        with_both.close()


def test_proxy_adds_the_loader_and_gives_no_address(tmp_path: Path) -> None:
    scene = Scene(tmp_path, dhcp="proxy")
    try:
        assert scene.notes == [
            "no DHCP server made an offer on boot0: in mode proxy, nodes need one that gives addresses"
        ]
        scene.arm(armed("node01", MAC))
        found = answer(scene.ask(dhcp.PXE))
        assert (found.address, found.options[60]) == (IPv4Address(0), b"PXEClient")
        server = ("10.9.0.1", 4011)
        there = scene.there
        loader = there.run(lambda: dhcp.ask("nic0", MAC, dhcp.PXE, offer=found, to=server))
        assert answer(loader).file == "shimx64.efi"
        assert answer(scene.ask(dhcp.IPXE)).file == "http://10.9.0.1:8080/boot/boot.ipxe"
        assert scene.ask(dhcp.PXE, OTHER_MAC) is None
        assert there.run(lambda: dhcp.ask("nic0", OTHER_MAC, dhcp.PXE, offer=found, to=server)) is None
        scene.disarm("node01")
        assert scene.ask(dhcp.PXE) is None
    finally:
        scene.close()


def test_loaders_and_their_configuration_come_by_tftp_and_http(scene: Scene) -> None:
    token = scene.arm(armed("node01", MAC))
    assert scene.tftp("shimx64.efi") == LOADERS["signed"][0].source.read_bytes()
    assert scene.tftp("grubx64.efi") == LOADERS["signed"][1].source.read_bytes()
    assert b"not being provisioned" in scene.tftp("grub/grub.cfg")
    mine = scene.tftp("grub/grub.cfg-01-52-54-00-00-00-01")
    assert token.encode() in mine
    base = "http://10.9.0.1:8080"
    assert scene.web(f"{base}/grub/grub.cfg-01-52-54-00-00-00-01") == (200, mine)
    assert scene.web(f"{base}//grubx64.efi")[1] == LOADERS["signed"][1].source.read_bytes(), "as shim asks for it"
    assert [scene.tftp(name) for name in ("vmlinuz", "ramdisk.img")] == [b"kernel", b"ramdisk"]
    assert scene.web(f"{base}/boot/vmlinuz") == (200, b"kernel")
    assert scene.web(f"{base}/boot/ramdisk.img") == (200, b"ramdisk")
    assert token.encode() in scene.web(f"{base}/boot/52-54-00-00-00-01.ipxe")[1]
    scene.disarm("node01")
    assert scene.web(f"{base}/grub/grub.cfg-01-52-54-00-00-00-01")[0] == 404
    assert scene.web(f"{base}/boot/52-54-00-00-00-01.ipxe")[0] == 404


def test_a_plan_is_shown_only_for_its_own_token_and_only_while_armed(scene: Scene) -> None:
    mine, other = scene.arm(armed("node01", MAC)), scene.arm(armed("node02", OTHER_MAC, 12))
    url = "https://10.9.0.1:8443/nodes/node01/plan.json"
    assert scene.web(url, mine)[0] == 200
    assert DIGEST.encode() in scene.web(url, mine)[1]
    assert [scene.web(url, token)[0] for token in ("", "wrong", other, mine[:-1], f"{mine} ")] == [401] * 4 + [200]
    assert scene.web("http://10.9.0.1:8080/nodes/node01/plan.json", mine)[0] == 404, "never without TLS"
    scene.disarm("node01")
    assert [scene.web(url, token)[0] for token in (mine, other)] == [404, 404]
    assert scene.web(url.replace("node01", "node02"), other)[0] == 200


def test_a_report_is_stored_and_nothing_else_can_be_written(scene: Scene) -> None:
    mine, other = scene.arm(armed("node01", MAC)), scene.arm(armed("node02", OTHER_MAC, 12))
    top = "https://10.9.0.1:8443"
    where = f"{top}/nodes/node01/reports/0a1b2c3d-0001.json"
    body = report("node01", "started").encode()
    assert [scene.web(where, token, "PUT", body)[0] for token in ("", other)] == [401, 401]
    assert scene.web(where, mine, "PUT", body)[0] == 201
    assert scene.web(where, mine, "PUT", body)[0] == 204, "a repetition after a lost answer"
    assert [item.step for item in scene.service.reports("node01").reports] == ["started"]
    assert scene.web(where, mine)[0] == 403, "reports are not for reading"
    refused = {
        f"{top}/nodes/node01/plan.json": 403,
        f"{top}/nodes/node01/reports/notes.txt": 404,
        f"{top}/nodes/node01/reports/../../../tls/ca.pem": 404,
        f"{top}/nodes/node01/reports/%2e%2e/0a1b2c3d-0001.json": 404,
        f"{top}/nodes/node02/reports/0a1b2c3d-0001.json": 401,
        f"{top}/boot/vmlinuz": 404,
    }
    assert {url: scene.web(url, mine, "PUT", body)[0] for url in refused} == refused
    assert scene.web("http://10.9.0.1:8080/boot/vmlinuz", mine, "PUT", body)[0] == 403
    assert scene.web(where, mine, "PUT", b" " * (300 << 10))[0] == 413
    assert scene.web(where, mine, "DELETE")[0] == 403
    scene.disarm("node01")
    assert scene.web(where, mine, "PUT", body)[0] == 404
    assert not list(scene.service.layout.incoming.glob("0*")), "no half report stays"


def test_no_folder_is_listed_and_no_secret_is_served(scene: Scene) -> None:
    scene.arm(armed("node01", MAC))
    paths = ("", "boot/", "images/", "nodes/", "nodes/node01/", "tls/ca.key", "armed/node01.json", "boot/../tls/ca.key")
    tops = ("http://10.9.0.1:8080", "https://10.9.0.1:8443")
    assert {scene.web(f"{top}/{path}")[0] for top in tops for path in paths} <= {403, 404}
    words = ["curl", "-sS", "--max-time", "5", "tftp://10.9.0.1/../tls/ca.key"]
    assert (
        scene.there.run(lambda: subprocess.run([*words, "--path-as-is"], capture_output=True, check=False)).stdout
        == b""
    )


def test_an_image_is_served(scene: Scene, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"i" * 100_000)
    scene.service.publish_image(image, "f" * 64)
    for top in ("http://10.9.0.1:8080", "https://10.9.0.1:8443"):
        assert scene.web(f"{top}/images/{'f' * 64}.tar.zst") == (200, image.read_bytes())


def test_a_boot_medium_is_served_by_its_own_name_only(scene: Scene) -> None:
    folder = scene.service.layout.media("node01")
    folder.mkdir(parents=True)
    disc = folder / f"{'0a' * 16}.iso"
    disc.write_bytes(b"d" * 100_000)
    top = "http://10.9.0.1:8080/media"
    assert scene.web(f"{top}/node01/{disc.name}") == (200, disc.read_bytes())
    for path in ("", "/node01/", f"/node02/{disc.name}", "/node01/other.iso"):
        assert scene.web(f"{top}{path}")[0] in {403, 404}
    assert scene.web(f"{top}/node01/{disc.name}", "", "PUT", b"x")[0] == 403


def test_start_twice_keeps_the_daemons_and_a_changed_site_restarts_them(scene: Scene) -> None:
    token = scene.arm(armed("node01", MAC))
    first = scene.service.pids()
    assert all(first.values())
    scene.here.run(scene.service.start)
    assert scene.service.pids() == first
    scene.service = BootService(scene.service.layout.root, settings(https_port=9443))
    scene.here.run(scene.service.start)
    assert scene.service.pids()["dnsmasq"] == first["dnsmasq"]
    assert scene.service.pids()["nginx"] not in {0, first["nginx"]}
    assert scene.web("https://10.9.0.1:9443/nodes/node01/plan.json", token)[0] == 200


def test_a_new_service_adopts_running_daemons_and_stop_ends_them(scene: Scene) -> None:
    again = BootService(scene.service.layout.root, scene.service.settings)
    assert again.running()
    assert again.stop() is True
    assert (again.running(), again.stop()) == (False, False)
    assert scene.ask(dhcp.PXE) is None


def test_another_programs_pid_is_not_ours(scene: Scene) -> None:
    file = scene.service.layout.run / "dnsmasq.pid"
    ours = file.read_text()
    file.write_text(f"{os.getpid()}\n")
    assert scene.service.running() is False
    file.write_text(ours)
    assert scene.service.running() is True


def refusal(net: Net, folder: Path, **changes: object) -> str:
    with pytest.raises(BootServiceError) as caught:
        net.run(BootService(folder / "boot", settings(**changes)).start)
    return str(caught.value)


def test_what_is_in_the_way_is_said_before_anything_starts(tmp_path: Path) -> None:
    here, there = joined("boot0", "nic0", MAC)
    try:
        assert refusal(here, tmp_path, interface="eno9") == (
            "boot service: interface eno9 - Expected: on this machine Actual: not there. Correct "
            "provisioning.service.interface; this machine has boot0, lo."
        )
        assert refusal(here, tmp_path) == (
            "boot service: address of boot0 - Expected: 10.9.0.1 Actual: no IPv4 address. Run `ip address add "
            "10.9.0.1/24 dev boot0`, or correct the site file."
        )
        here.ip("address add 10.9.0.1/24 dev boot0")
        assert refusal(here, tmp_path, media_address="10.8.0.1") == (
            "boot service: address for virtual media - Expected: 10.8.0.1 Actual: not on this machine. Correct "
            "provisioning.service.media_address, or give this machine that address."
        )
        taken = here.run(lambda: (socket.create_server(("10.9.0.1", 8080)), socket.socket(type=socket.SOCK_DGRAM)))
        here.run(lambda: taken[1].bind(("", 69)))
        assert refusal(here, tmp_path).splitlines() == [
            (
                "boot service: TCP port 8080 - Expected: free Actual: used by another program. `ss -lntup` names it: stop "  # noqa: E501
                "it, or choose another port in the site file."
            ),
            "boot service: UDP port 69 - Expected: free Actual: used by another program. `ss -lntup` names it: stop it.",  # noqa: E501
        ]
        for item in taken:
            item.close()
    finally:
        here.close()
        there.close()


def test_a_second_dhcp_server_on_the_wire_is_named(tmp_path: Path) -> None:
    here, there = joined("boot0", "nic0", MAC)
    here.ip("address add 10.9.0.1/24 dev boot0")
    there.ip("address add 10.9.0.2/24 dev nic0")
    words = [
        "dnsmasq",
        "--conf-file=/dev/null",
        "--port=0",
        "--interface=nic0",
        "--bind-interfaces",
        "--keep-in-foreground",
    ]
    words += [
        "--dhcp-range=10.9.0.100,10.9.0.110",
        f"--dhcp-leasefile={tmp_path / 'leases'}",
        "--no-ping",
        "--user=root",
    ]
    other = there.run(lambda: subprocess.Popen([*words, "--pid-file="], stderr=subprocess.DEVNULL))
    try:
        subprocess.run(["sleep", "0.5"], check=True)
        assert refusal(here, tmp_path) == (
            "boot service: DHCP on boot0 - Expected: no other server Actual: 10.9.0.2 answers. Set "
            "provisioning.service.dhcp to proxy, or take that server off this network."
        )
        proxy = BootService(tmp_path / "boot", settings(dhcp="proxy"))
        assert here.run(proxy.start) == []
        here.run(proxy.stop)
    finally:
        other.terminate()
        other.wait()
        here.close()
        there.close()


def test_settings_of_the_tests_are_a_site_s() -> None:
    assert isinstance(settings(), ProvisioningService)
