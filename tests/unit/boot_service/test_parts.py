"""The authority, the loaders, configurations as the daemons judge them, and units."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509

from rackready.drivers.boot_service import BootServiceError, authority, loaders, programs, systemd
from rackready.drivers.boot_service.authority import AuthorityError
from rackready.drivers.boot_service.layout import Layout
from rackready.drivers.boot_service.loaders import Loader
from tests.unit.boot_service.made import settings

HERE, OTHER = IPv4Address("10.9.0.1"), IPv4Address("10.9.0.2")
DEAD_CLOCK = datetime(2000, 1, 1, 0, 1, tzinfo=UTC)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "boot")
    made.make()
    authority.ensure(made.tls, HERE)
    return made


def server(layout: Layout) -> x509.Certificate:
    return x509.load_pem_x509_certificate((layout.tls / "server.pem").read_bytes())


def test_the_authority_stays_and_a_new_address_gets_a_new_certificate(layout: Layout) -> None:
    before, first = authority.fingerprint(layout.tls), server(layout)
    assert authority.ensure(layout.tls, HERE) is False
    assert server(layout) == first
    assert authority.ensure(layout.tls, OTHER) is True
    names = server(layout).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [OTHER]
    assert authority.fingerprint(layout.tls) == before


def test_a_certificate_is_renewed_before_it_expires(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authority, "_SERVER_DAYS", 29)
    (layout.tls / "server.pem").unlink()
    authority.ensure(layout.tls, HERE)
    monkeypatch.undo()
    assert authority.ensure(layout.tls, HERE) is True
    assert server(layout).not_valid_after_utc > datetime.now(UTC) + timedelta(days=800)


def test_certificates_hold_for_a_node_whose_clock_stopped(layout: Layout) -> None:
    assert server(layout).not_valid_before_utc < DEAD_CLOCK


def test_a_run_that_died_between_key_and_certificate_is_taken_up(layout: Layout) -> None:
    (layout.tls / "ca.key").write_bytes((layout.tls / "server.key").read_bytes())
    (layout.tls / "ca.pem").unlink()
    assert authority.ensure(layout.tls, HERE) is True
    server(layout).verify_directly_issued_by(x509.load_pem_x509_certificate((layout.tls / "ca.pem").read_bytes()))


def test_damaged_files_of_the_authority_are_named(layout: Layout) -> None:
    (layout.tls / "ca.pem").write_text("nonsense")
    with pytest.raises(AuthorityError) as caught:
        authority.ensure(layout.tls, HERE)
    text = str(caught.value)
    assert text.startswith(f"{layout.tls / 'ca.pem'}: boot authority - Expected: a certificate Actual: ")
    assert text.endswith(f"Remove {layout.tls} and start the boot service again: it makes a new authority.")


def test_missing_loaders_are_named_with_their_packages(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tuple(Loader(item.name, Path("/nowhere") / item.name, item.package) for item in loaders.LOADERS["signed"])
    monkeypatch.setitem(loaders.LOADERS, "signed", gone)
    with pytest.raises(BootServiceError) as caught:
        loaders.place(layout, "signed")
    assert str(caught.value).splitlines() == [
        (
            "boot service: loader shimx64.efi - Expected: /nowhere/shimx64.efi Actual: not there. Install the package "
            "shim-signed on this machine."
        ),
        (
            "boot service: loader grubx64.efi - Expected: /nowhere/grubx64.efi Actual: not there. Install the package "
            "grub-efi-amd64-signed on this machine."
        ),
    ]


@pytest.mark.parametrize(("content", "works"), [(b"..UefiHttpBoot/1.0..", True), (b"..HTTPClient..", False)])
def test_http_boot_needs_a_grub_that_reads_by_http(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    works: bool,  # noqa: FBT001
) -> None:
    grub = tmp_path / "grub"
    grub.write_bytes(content)
    monkeypatch.setitem(loaders.LOADERS, "signed", (Loader("grubx64.efi", grub, "grub-efi-amd64-signed"),))
    problem = loaders.http_boot_problem("signed")
    assert (problem is None) is works
    assert loaders.http_boot_problem("ipxe") is None
    layout = Layout(tmp_path / "boot")
    layout.make()
    programs.configure(layout, settings())
    assert ("dhcp-boot=tag:efi-http" in layout.dnsmasq_conf.read_text()) is works
    if problem:
        assert str(problem) == (
            f"boot service: UEFI HTTP boot - Expected: a GRUB that reads by HTTP Actual: {grub} does not. Use boot: pxe, "  # noqa: E501
            "loader: ipxe (without Secure Boot), or grub-efi-amd64-signed 2.12 or later."
        )


@pytest.mark.parametrize("mode", ["server", "proxy"])
@pytest.mark.skipif(not shutil.which("dnsmasq", path="/usr/sbin:/usr/bin"), reason="needs dnsmasq-base")
def test_dnsmasq_accepts_its_configuration(layout: Layout, mode: str) -> None:
    programs.configure(layout, settings(dhcp=mode, gateway="10.9.0.254", dns=["10.9.0.53"]))
    program = programs.dnsmasq(layout)
    assert program.refusal() == []
    with program.conf.open("a") as stream:
        stream.write("no-such-option\n")
    (problem,) = map(str, program.refusal())
    assert problem.startswith(f"{program.conf}: dnsmasq refuses it - Expected: accepted Actual: dnsmasq: ")
    assert problem.endswith("Correct provisioning.service in the site file.")
    assert "bad option at line" in problem


def test_an_absent_daemon_is_named_with_its_package(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_SYSTEM_PATH", "/nowhere")
    assert [str(item) for program in programs.both(layout) for item in program.absent()] == [
        (
            "boot service: nginx - Expected: installed Actual: not on the PATH. Install the package nginx-light (Debian) or "  # noqa: E501
            "nginx on this machine."
        ),
        (
            "boot service: dnsmasq - Expected: installed Actual: not on the PATH. Install the package dnsmasq-base (Debian, "  # noqa: E501
            "Ubuntu) or dnsmasq on this machine."
        ),
    ]


def test_a_path_that_a_configuration_would_split_is_refused(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "my rack; x" / "boot")
    with pytest.raises(BootServiceError) as caught:
        programs.configure(layout, settings())
    assert str(caught.value) == (
        f"{layout.root}: folder of the boot service - Expected: letters, digits and ._+@- in its path Actual:  ;. Move "
        "the checkout to another folder."
    )


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_accepts_the_units(layout: Layout) -> None:
    programs.configure(layout, settings())
    units = sorted(layout.units.glob("*.service"))
    assert [path.name for path in units] == [
        f"rackready-boot-{layout.root.parent.name}-{name}.service" for name in ("dnsmasq", "nginx")
    ]
    found = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    about_ours = [line for line in found.stderr.splitlines() if "rackready-boot" in line]
    assert about_ours == []


def test_systemd_is_refused_where_it_is_not_the_init(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "RUNNING", tmp_path / "none")
    with pytest.raises(BootServiceError) as caught:
        systemd.start(layout)
    assert str(caught.value) == (
        "boot service: supervised by systemd - Expected: systemd as init of this machine Actual: another init. Set "
        "provisioning.service.supervise to rackready."
    )


class FakeSystemd:
    """`systemctl` that writes down what it was asked; units go to a folder of the test."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.units, self.log = folder / "units", folder / "asked"
        self.units.mkdir()
        self.log.touch()
        (folder / "bin").mkdir()
        (folder / "bin/systemctl").write_text(f'#!/bin/sh\necho "$@" >> {self.log}\n')
        (folder / "bin/systemctl").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setattr(systemd, "RUNNING", folder)
        monkeypatch.setattr(systemd, "UNIT_FOLDER", self.units)
        monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_units_are_installed_once_and_removed(layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs.configure(layout, settings())
    fake = FakeSystemd(tmp_path, monkeypatch)
    systemd.start(layout)
    names = [f"rackready-boot-{tmp_path.name}-{name}.service" for name in ("nginx", "dnsmasq")]
    assert sorted(path.name for path in fake.units.iterdir()) == sorted(names)
    both = " ".join(names)
    assert fake.log.read_text().splitlines() == ["daemon-reload", f"enable {both}", f"restart {both}"]
    other = Layout(tmp_path / "other" / tmp_path.name / "boot")
    other.make()
    programs.configure(other, settings())
    with pytest.raises(BootServiceError, match=f"Expected: of {other.root} Actual: another checkout's"):
        systemd.start(other)
    systemd.stop(other)
    assert len(list(fake.units.iterdir())) == 2, "another checkout's units are not ours"
    systemd.stop(layout)
    assert list(fake.units.iterdir()) == []
    assert fake.log.read_text().splitlines()[3:] == [f"disable --now {both}", "daemon-reload"]


@pytest.mark.parametrize(
    ("authority_name", "trusted"),
    [(b"Debian Secure Boot CA0", True), (b"Canonical Ltd. Master Certificate Authority", False)],
)
def test_secure_boot_needs_a_shim_that_trusts_the_ramdisks_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority_name: bytes, *, trusted: bool
) -> None:
    shim = tmp_path / "shimx64.efi.signed"
    monkeypatch.setattr(loaders, "_SHIM", Loader("shimx64.efi", shim, "shim-signed"))
    assert loaders.trust_problem() is None, "a shim that is not there is named by its package"
    shim.write_bytes(b"MZ..\0" + authority_name + b"\0..")
    problem = loaders.trust_problem()
    assert (problem is None) == trusted
    assert trusted or str(problem) == (
        "provisioning.secure_boot: on - Expected: a shim on this controller that trusts the ramdisk's kernel, which "
        f"is Debian's Actual: {shim} has another authority. Use a controller with Debian, whose packages shim-signed "
        "and grub-efi-amd64-signed do, or secure_boot: off."
    )


@pytest.mark.skipif(
    not Path("/usr/lib/shim/shimx64.efi.signed").exists() or not Path("/etc/debian_version").exists(),
    reason="shim-signed of Debian",
)
def test_debians_own_shim_trusts_it() -> None:
    assert platform.freedesktop_os_release()["ID"] != "debian" or loaders.trust_problem() is None
