"""Arming and disarming: files, tokens, refusals, and a run that dies at any point."""

from __future__ import annotations

import hashlib
import json
import ssl
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pydantic import ValidationError

from rackready import files
from rackready.drivers.boot_service import ArmedNode, BootService, BootServiceError, authority
from tests.unit.boot_service.made import DIGEST, armed, report, settings

MAC, OTHER_MAC = "52:54:00:00:00:01", "52:54:00:00:00:02"


class Died(BaseException):
    """A SIGKILL: no handler of the code under test sees it."""


@pytest.fixture
def service(tmp_path: Path) -> BootService:
    made = BootService(tmp_path / "boot", settings())
    made.layout.make()
    authority.ensure(made.layout.tls, made.settings.address)
    return made


def files_of(service: BootService, node: str = "node01", mac: str = MAC) -> list[Path]:
    """Return the files of an armed node, the one that makes dnsmasq answer last."""
    layout = service.layout
    return [
        layout.record(node),
        layout.plan(node),
        layout.node_conf(node),
        layout.ipxe(mac),
        layout.grub(mac),
        layout.host(node),
    ]


def store(service: BootService, name: str, text: str, node: str = "node01") -> None:
    (service.layout.reports(node) / name).write_text(text)


def test_arming_writes_every_file_and_disarming_removes_them(service: BootService) -> None:
    token = service.arm(armed("node01", MAC))
    assert [path.exists() for path in files_of(service)] == [True] * 6
    assert service.armed() == ["node01"]
    assert service.layout.host("node01").read_text() == f"{MAC},10.9.0.11,node01\n"
    assert json.loads(service.layout.plan("node01").read_bytes())["digest"] == DIGEST
    assert token not in service.layout.node_conf("node01").read_text(), "nginx gets a hash of the token"
    assert service.disarm("node01") is True
    assert [path.exists() for path in files_of(service)] == [False] * 6
    assert (service.armed(), service.disarm("node01")) == ([], False)


def test_the_kernel_command_line_is_that_of_the_agent(service: BootService) -> None:
    token = service.arm(armed("node01", MAC))
    ca = hashlib.sha256(_der(service.layout.tls / "ca.pem")).hexdigest()
    line = (
        f"rackready.plan=https://10.9.0.1:8443/nodes/node01/plan.json rackready.token={token} rackready.ca_sha256={ca} "
        "rackready.ca=http://10.9.0.1:8080/boot/ca.pem console=ttyS0,115200n8 console=tty0 "
        "BOOTIF=01-52-54-00-00-00-01"
    )
    assert f"linux /vmlinuz {line}\ninitrd /ramdisk.img\nboot\n" in service.layout.grub(MAC).read_text()
    assert (
        f"kernel http://10.9.0.1:8080/boot/vmlinuz initrd=ramdisk.img {line}\n" in service.layout.ipxe(MAC).read_text()
    )


def _der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def test_only_what_dnsmasq_serves_is_readable_for_others_and_its_folder_is_not(service: BootService) -> None:
    service.arm(armed("node01", MAC))
    assert [stat.S_IMODE(path.stat().st_mode) for path in files_of(service)] == [0o600] * 4 + [0o644, 0o600]
    assert stat.S_IMODE(service.layout.root.stat().st_mode) == 0o700
    keys = [service.layout.tls / name for name in ("ca.key", "server.key")]
    assert [stat.S_IMODE(path.stat().st_mode) for path in keys] == [0o600] * 2


def test_the_same_node_keeps_token_and_reports(service: BootService) -> None:
    token = service.arm(armed("node01", MAC))
    store(service, "0a1b2c3d-0001.json", report("node01", "started"))
    assert service.arm(armed("node01", MAC)) == token
    assert [item.step for item in service.reports("node01").reports] == ["started"]


@pytest.mark.parametrize(
    "change",
    [
        lambda: armed("node01", MAC, hostname="other"),
        lambda: armed("node01", OTHER_MAC),
        lambda: armed("node01", MAC, 12),
    ],
    ids=["plan", "mac", "address"],
)
def test_another_plan_port_or_address_gets_a_new_token_and_no_old_report(
    service: BootService, change: Callable[[], ArmedNode]
) -> None:
    token = service.arm(armed("node01", MAC))
    store(service, "0a1b2c3d-0001.json", report("node01", "done"))
    node = change()
    assert service.arm(node) != token
    assert service.reports("node01").reports == ()
    assert [path.exists() for path in files_of(service, mac=node.mac)] == [True] * 6
    assert len(list((service.layout.tftp / "grub").glob("grub.cfg-01-*"))) == 1, "the old port's file stays"


def test_armed_again_an_old_done_does_not_count_and_is_kept_aside(service: BootService) -> None:
    token = service.arm(armed("node01", MAC))
    store(service, "0a1b2c3d-0001.json", report("node01", "done"))
    service.disarm("node01")
    assert [item.step for item in service.reports("node01", DIGEST).reports] == ["done"]
    assert service.arm(armed("node01", MAC)) != token
    assert service.reports("node01").reports == ()
    assert (service.layout.nodes / "node01/earlier/0a1b2c3d-0001.json").exists()


@contextmanager
def dies_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> Iterator[None]:
    """End the run at the given change of a file."""
    left = [steps]
    replace, unlink, rename = files.replace, Path.unlink, Path.rename

    def counted(do: Callable[..., object]) -> Callable[..., object]:
        def change(*args: object, **kwargs: object) -> object:
            if left[0] == 0:
                raise Died
            left[0] -= 1
            return do(*args, **kwargs)

        return change

    with monkeypatch.context() as patch:
        patch.setattr(files, "replace", counted(replace))
        patch.setattr(Path, "unlink", counted(unlink))
        patch.setattr(Path, "rename", counted(rename))
        yield


def consistent(service: BootService) -> None:
    """Whatever happened: a node that dnsmasq answers has all other files, and one with any file counts as armed."""
    there = [path.exists() for path in files_of(service)]
    assert all(there) or not there[-1], "dnsmasq answers a node without its files"
    assert service.armed() == (["node01"] if any(there) else [])


@pytest.mark.parametrize("before", [None, "same", "other"])
@pytest.mark.parametrize("steps", range(14))
def test_a_killed_arming_is_taken_up(
    service: BootService, monkeypatch: pytest.MonkeyPatch, steps: int, before: str | None
) -> None:
    if before:
        service.arm(armed("node01", MAC, **({"hostname": "other"} if before == "other" else {})))
        store(service, "0a1b2c3d-0001.json", report("node01", "done"))
    with dies_after(monkeypatch, steps), suppress(Died):
        service.arm(armed("node01", MAC))
    consistent(service)
    token = service.arm(armed("node01", MAC))
    assert token in service.layout.grub(MAC).read_text()
    assert [path.exists() for path in files_of(service)] == [True] * 6
    assert len(service.reports("node01").reports) == (1 if before == "same" else 0)
    assert service.disarm("node01")
    assert service.armed() == []


@pytest.mark.parametrize("steps", range(7))
def test_a_killed_disarming_is_taken_up(service: BootService, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    service.arm(armed("node01", MAC))
    with dies_after(monkeypatch, steps):
        try:
            service.disarm("node01")
        except Died:
            assert not service.layout.host("node01").exists() or steps == 0, "dnsmasq must stop first"
    consistent(service)
    service.disarm("node01")
    assert [path.exists() for path in files_of(service)] == [False] * 6


def refusal(service: BootService, node: ArmedNode) -> str:
    with pytest.raises(BootServiceError) as caught:
        service.arm(node)
    return str(caught.value)


def test_a_mac_or_address_of_another_armed_node_is_refused(service: BootService) -> None:
    service.arm(armed("node01", MAC))
    assert refusal(service, armed("node02", MAC, 12)) == (
        "node02: MAC address 52:54:00:00:00:01 - Expected: one node with it Actual: node01 is armed with it. Correct the "  # noqa: E501
        "site file."
    )
    assert refusal(service, armed("node02", OTHER_MAC)) == (
        "node02: address 10.9.0.11 - Expected: one node with it Actual: node01 is armed with it. Correct the site file."
    )
    assert service.armed() == ["node01"]
    service.arm(armed("node02", OTHER_MAC, 12))


@pytest.mark.parametrize(("last", "network"), [(1, "10.9.0.0/24"), (200, "10.9.0.0/25")])
def test_an_address_that_dhcp_cannot_give_is_refused(tmp_path: Path, last: int, network: str) -> None:
    service = BootService(tmp_path / "boot", settings(network=network))
    assert refusal(service, armed("node01", MAC, last)) == (
        f"node01: address for network boot - Expected: an address in {network}, other than the boot service's Actual: "
        f"10.9.0.{last}. Correct provisioning.service.network, or the node's address."
    )


def test_a_plan_of_another_node_or_schema_is_refused() -> None:
    good = armed("node01", MAC).plan
    for change, text in (
        ({"node": "node02"}, "plan.node - Expected: node01 Actual: node02"),
        ({"schema": "x"}, "plan.schema - Expected: rackready/imaging/v1 Actual: x"),
        ({"digest": ""}, "plan.digest - Expected: SHA-256 in hex Actual: none"),
    ):
        with pytest.raises(ValidationError, match=text):
            ArmedNode(name="node01", mac=MAC, address="10.9.0.11", plan={**good, **change})


def test_a_damaged_record_is_named_and_can_be_disarmed(service: BootService) -> None:
    service.arm(armed("node01", MAC))
    record = service.layout.record("node01")
    record.write_text(json.dumps(json.loads(record.read_text()) | {"token": "do-not-show-me"}))
    with pytest.raises(BootServiceError) as caught:
        service.arm(armed("node01", MAC))
    assert str(caught.value) == (
        f"{record}: record of an armed node - Expected: token, MAC and address Actual: token: not at least 32 "
        "characters. Run `rackready boot-service disarm node01`, then provision it again."
    )
    assert service.disarm("node01")
    assert [path.exists() for path in files_of(service)] == [False] * 6
    service.arm(armed("node01", MAC))


def test_nothing_secret_is_shown_in_texts_of_objects() -> None:
    node = armed("node01", MAC, seed={"user-data": "do-not-leak"})
    assert "do-not-leak" not in repr(node)


def test_removal_is_refused_while_a_node_is_armed(service: BootService) -> None:
    service.arm(armed("node01", MAC))
    with pytest.raises(BootServiceError) as caught:
        service.remove()
    assert str(caught.value) == (
        "boot service: removal - Expected: no node is being provisioned Actual: armed: node01. Wait for them, or run "
        "`rackready boot-service disarm` for each."
    )
    service.disarm("node01")
    service.remove()
    assert not service.layout.root.exists()
    service.remove()
