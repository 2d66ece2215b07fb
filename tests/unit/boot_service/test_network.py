"""dnsmasq and nginx for real: the service in one network namespace, a machine's firmware and agent in another."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from rackready.drivers.boot_service import (
    ArmedNode,
    BootService,
    BootServiceError,
    checks,
    daemons,
    probe,
    programs,
    systemd,
)
from rackready.drivers.boot_service.loaders import LOADERS
from rackready.model.provisioning import ProvisioningService
from tests.unit.boot_service import dhcp_client as dhcp
from tests.unit.boot_service.made import DIGEST, armed, report, settings
from tests.unit.boot_service.nets import Net, joined

MAC, OTHER_MAC = "52:54:00:00:00:01", "52:54:00:00:00:02"
MISSING = [
    name for name in ("dnsmasq", "nginx", "ip", "curl") if not shutil.which(name, path="/usr/sbin:/usr/bin:/sbin")
]
MISSING += [item.package for loaders in LOADERS.values() for item in loaders if not item.source.exists()]

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and ports below 1024"),
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}"),
]


class Scene:
    """A boot service that runs, and a machine on the same wire."""

    def __init__(self, folder: Path, **changes: object) -> None:
        self.here, self.there = joined("boot0", "nic0", MAC)
        self.here.ip("address add 10.9.0.1/24 dev boot0")
        self.there.ip("address add 10.9.0.11/24 dev nic0")
        (folder / "kernel").write_bytes(b"kernel")
        (folder / "ramdisk").write_bytes(b"ramdisk")
        self.service = BootService(folder / "boot", settings(**changes))
        self.here.run(lambda: self.service.prepare(folder / "ramdisk", folder / "kernel"))
        with pytest.MonkeyPatch.context() as patched:  # this wire has no other server: one must not be waited for
            patched.setattr(checks, "dhcp_servers", partial(probe.dhcp_servers, wait_s=0.3))
            self.notes = self.here.run(self.service.start)

    def ask(self, firmware: dhcp.Firmware, mac: str = MAC, offer: dhcp.Answer | None = None) -> dhcp.Answer | None:
        return self.there.run(lambda: dhcp.ask("nic0", mac, firmware, offer=offer))

    def arm(self, node: ArmedNode) -> str:
        return self.here.run(lambda: self.service.arm(node))

    def disarm(self, node: str) -> bool:
        return self.here.run(lambda: self.service.disarm(node))

    def tftp(self, path: str) -> bytes:
        words = ["curl", "-sS", "--max-time", "10", f"tftp://10.9.0.1/{path}"]
        return self.there.run(lambda: subprocess.run(words, capture_output=True, check=True)).stdout

    def web(self, url: str, token: str = "", method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body; TLS by the authority that HTTP hands out, the name checked."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(url, data=body, method=method, headers=headers)  # noqa: S310 - our own
        context = ssl.create_default_context(cafile=self.service.layout.boot / "ca.pem")

        def go() -> tuple[int, bytes]:
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
            )
            try:
                with opener.open(request, timeout=10) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                return error.code, error.read()

        return self.there.run(go)

    def close(self) -> None:
        self.here.run(self.service.stop)
        self.here.close()
        self.there.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def answer(found: dhcp.Answer | None) -> dhcp.Answer:
    assert found is not None
    return found


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


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv of util-linux")
def test_the_capabilities_of_their_units_are_enough_for_roots_daemons(tmp_path: Path) -> None:
    """As systemd starts them, in a checkout below another user's home."""
    home = tmp_path / "home"
    home.mkdir()
    scene = Scene(home)
    try:
        scene.here.run(scene.service.stop)
        os.chown(home, 65534, 65534)
        home.chmod(0o700)
        for unit in sorted(scene.service.layout.units.glob("*.service"), reverse=True):
            ended = scene.here.run(partial(started_as_by_systemd, unit))
            assert (unit.name, ended.returncode, ended.stderr) == (unit.name, 0, "")
        assert scene.service.running()
        scene.arm(armed("node01", MAC))
        assert answer(scene.ask(dhcp.PXE)).file == "shimx64.efi"
        assert scene.tftp("shimx64.efi")
        assert scene.web("http://10.9.0.1:8080/boot/ca.pem")[0] == 200
        assert "failed" not in (scene.service.layout.logs / "nginx-error.log").read_text()
    finally:
        scene.close()


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv of util-linux")
def test_another_user_than_root_goes_on_once_root_has_started_the_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    units, layout, asked = tmp_path / "units", scene.service.layout, []
    units.mkdir()
    names = [programs.unit_name(layout, program) for program in programs.both(layout)]

    def say(*words: str) -> str:
        asked.append(" ".join(words[:-1]))
        return (layout.run / f"{words[-1].split('-')[-1].removesuffix('.service')}.pid").read_text()

    def root_restarts() -> None:
        for program in programs.both(layout):
            daemons.stop(program, layout)
        for name in names:
            shutil.copy(layout.units / name, units)
            assert scene.here.run(partial(started_as_by_systemd, units / name)).returncode == 0

    try:
        scene.here.run(scene.service.stop)
        for name, value in (("RUNNING", tmp_path), ("UNIT_FOLDER", units), ("_systemctl", say)):
            monkeypatch.setattr(systemd, name, value)
        monkeypatch.setattr(checks, "dhcp_servers", lambda _interface: [])
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        for changes in ({}, {"dns": ["10.9.0.53"]}):
            service = BootService(layout.root, settings(supervise="systemd", **changes))
            with pytest.raises(BootServiceError) as caught:
                scene.here.run(service.start)
            assert str(caught.value) == (
                "boot service: units of systemd - Expected: root, who may install them Actual: user id 1000. Run as "
                f"root `cp {layout.units}/*.service {units}/ && systemctl daemon-reload && systemctl enable "
                f"{' '.join(names)} && systemctl restart {' '.join(names)}`, then run the same command again."
            )
            root_restarts()
            assert scene.here.run(service.start) == []
            assert all(daemons.current(program, layout) for program in programs.both(layout))
            asked.clear()
            assert (scene.here.run(service.start), asked) == ([], [])
        tested: list[str] = []
        monkeypatch.setattr(programs.Program, "refusal", lambda self: tested.append(self.name) or [])
        with pytest.raises(BootServiceError, match="units of systemd"):
            scene.here.run(BootService(layout.root, settings(supervise="systemd", http_port=80)).start)
        assert tested == ["dnsmasq"], "nginx's own test opens port 80"
        with pytest.raises(BootServiceError, match=r"systemctl disable --now .* && rm .* && systemctl daemon-reload`"):
            scene.here.run(service.stop)
    finally:
        for name in names:
            (units / name).unlink(missing_ok=True)
        scene.close()


def test_daemons_that_systemd_does_not_run_are_not_its_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    try:
        monkeypatch.setattr(systemd, "RUNNING", tmp_path)
        monkeypatch.setattr(systemd, "UNIT_FOLDER", scene.service.layout.units)
        monkeypatch.setattr(systemd, "_systemctl", lambda *_: "0\n")
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        assert not systemd.started_by_hand(scene.service.layout)
    finally:
        monkeypatch.undo()
        scene.close()


@pytest.mark.parametrize(
    ("supervise", "said"),
    [
        ("systemd", []),
        (
            "rackready",
            [
                f"boot service: {port} - Expected: we may open it Actual: Permission denied. Start the service as "
                "root, or let systemd do it (provisioning.service.supervise)."
                for port in ("TCP port 80", "UDP port 67", "UDP port 69")
            ],
        ),
    ],
)
def test_ports_that_only_root_may_open_are_no_obstacle_to_systemd(supervise: str, said: list[str]) -> None:
    here, there = joined("boot0", "nic0", MAC)
    here.ip("address add 10.9.0.1/24 dev boot0")
    own = settings(supervise=supervise, http_port=80)

    def found() -> list[str]:
        os.seteuid(65534)
        try:
            return [str(item) for item in checks.port_problems(own, dhcp=True, http=True)]
        finally:
            os.seteuid(0)

    try:
        assert here.run(found) == said
    finally:
        here.close()
        there.close()


def started_as_by_systemd(unit: Path) -> subprocess.CompletedProcess[str]:
    """Run a unit's test and start with its capabilities alone."""
    rows = [line.partition("=") for line in unit.read_text().splitlines()]
    names = next(value for key, _, value in rows if key == "CapabilityBoundingSet").lower()
    kept = ",".join(f"+{name.removeprefix('cap_')}" for name in names.split())
    words = ["setpriv", f"--bounding-set=-all,{kept}", "--inh-caps=-all", "--no-new-privs", "--"]
    for command in [value for key, _, value in rows if key in {"ExecStartPre", "ExecStart"}]:
        ended = subprocess.run([*words, *command.split()], capture_output=True, text=True, check=False, timeout=30)
        if ended.returncode != 0:
            break
    return ended


def test_settings_of_the_tests_are_a_site_s() -> None:
    assert isinstance(settings(), ProvisioningService)
