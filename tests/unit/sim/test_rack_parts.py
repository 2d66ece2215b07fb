"""The smaller parts of the simulated rack: certificates, Slurm's configuration, Debian sources, words for errors."""

from __future__ import annotations

import os
import ssl
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from rackready.drivers import debian_source
from rackready_sim import emulator, host, slurm, tls
from rackready_sim.definition import site_without_overlay
from rackready_sim.errors import SimError
from rackready_sim.plan import build_plan
from rackready_sim.podman import LABEL

ROOT = Path(__file__).resolve().parents[3]


def _certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    key = authority.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert certificate.signature_hash_algorithm is not None
    try:
        key.verify(
            certificate.signature, certificate.tbs_certificate_bytes, ec.ECDSA(certificate.signature_hash_algorithm)
        )
    except Exception:  # noqa: BLE001 - whatever it is, it is not signed
        return False
    return True


def test_each_bmc_has_a_certificate_for_its_own_address(tmp_path: Path) -> None:
    tls.ensure_certificates(tmp_path, {"node01": "127.9.8.101", "node02": "127.9.8.102"})
    names = _certificate(tmp_path / "node02.pem").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name) for name in names.get_values_for_type(x509.IPAddress)] == ["127.9.8.102"]
    assert _signed_by(_certificate(tmp_path / "node02.pem"), _certificate(tmp_path / "ca.pem"))
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "node01.pem")


def test_certificates_are_kept_and_made_anew_only_for_another_address(tmp_path: Path) -> None:
    tls.ensure_certificates(tmp_path, {"node01": "127.9.8.101", "node02": "127.9.8.102"})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    tls.ensure_certificates(tmp_path, {"node01": "127.9.8.101", "node02": "127.9.8.103"})
    changed = {name for name, data in before.items() if (tmp_path / name).read_bytes() != data}
    assert changed == {"node02.pem"}


def test_after_the_authority_is_lost_everything_is_signed_by_a_new_one(tmp_path: Path) -> None:
    tls.ensure_certificates(tmp_path, {"node01": "127.9.8.101"})
    (tmp_path / "ca-key.pem").unlink()
    tls.ensure_certificates(tmp_path, {"node01": "127.9.8.101"})
    assert _signed_by(_certificate(tmp_path / "node01.pem"), _certificate(tmp_path / "ca.pem"))


def test_slurm_knows_every_node_with_its_gpus_and_offers_none_before_handover() -> None:
    site = site_without_overlay(ROOT, "sim")
    plan = build_plan(site, clone="ab12cd", subnet=IPv4Network("10.64.7.0/24"), loopback="127.9.8")
    files = slurm.build(site, plan)
    nodes = [line for line in files["slurm.conf"].splitlines() if line.startswith("NodeName=")]
    assert len(nodes) == 4
    assert all(
        "Gres=gpu:h100:8" in line and 'State=DRAIN Reason="rackready: not handed over yet"' in line for line in nodes
    )
    assert "NodeName=node03 NodeAddr=10.64.7.13 " in nodes[2]
    assert "PartitionName=gpu Nodes=node01,node02,node03,node04 " in files["slurm.conf"]
    assert "SlurmctldHost=slurmctl(10.64.7.5)" in files["slurm.conf"]
    assert files["gres.conf"].splitlines()[0] == "NodeName=node01 Name=gpu Type=h100 File=/dev/nvidia[0-7]"


def test_the_munge_key_reaches_the_controller_decoded(tmp_path: Path) -> None:
    (tmp_path / "etc/munge").mkdir(parents=True)
    (tmp_path / "etc/systemd/system/multi-user.target.wants").mkdir(parents=True)
    slurm.seed(tmp_path, {"slurm.conf": "x\n"}, "AAECAw==")
    assert (tmp_path / "etc/munge/munge.key").read_bytes() == b"\x00\x01\x02\x03"
    assert (tmp_path / "etc/munge/munge.key").stat().st_mode & 0o777 == 0o400


DEB822 = """Types: deb
URIs: http://mirror.example/debian/
Suites: {codename} {codename}-updates
Components: main contrib

Types: deb
URIs: http://mirror.example/security
Suites: {codename}-security
Components: main
"""


@pytest.mark.parametrize(
    ("release", "name", "text", "expected"),
    [
        (
            "ID=debian\nVERSION_CODENAME=bookworm\n",
            "debian.sources",
            DEB822.format(codename="bookworm"),
            "http://mirror.example/debian",
        ),
        (
            "ID=debian\nVERSION_CODENAME=trixie\n",
            "a.list",
            "deb [signed-by=/x] http://mirror.example/d trixie main\n",
            "http://mirror.example/d",
        ),
        ("ID=debian\nVERSION_CODENAME=bookworm\n", "a.list", "# deb http://off.example bookworm main\n", ""),
        ("ID=debian\nVERSION_CODENAME=bookworm\n", "other.sources.disabled", DEB822.format(codename="bookworm"), ""),
        ("ID=ubuntu\nVERSION_CODENAME=noble\n", "ubuntu.sources", DEB822.format(codename="noble"), ""),
    ],
)
def test_the_machines_own_debian_mirror_is_found_where_it_runs_debian(
    tmp_path: Path, release: str, name: str, text: str, expected: str
) -> None:
    (tmp_path / "apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "os-release").write_text(release)
    (tmp_path / "apt/sources.list.d" / name).write_text(text)
    assert debian_source.host_mirror(tmp_path) == expected


def test_credentials_of_a_mirror_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(debian_source.MIRROR_VARIABLE, "http://user:password@mirror.example/debian")
    source = debian_source.find("bookworm")
    assert source.shown == "http://mirror.example/debian"
    assert source.lines == ("deb http://user:password@mirror.example/debian bookworm main",)


def test_a_failing_program_is_quoted_without_noise() -> None:
    script = 'echo "time=x level=warning msg=noise" >&2; echo "no space left" >&2; exit 3'
    with pytest.raises(SimError) as caught:
        host.run(["sh", "-c", script], shown="podman run x", hint="Free some space.")
    assert (
        str(caught.value)
        == "`podman run x` on this machine - Expected: exit status 0 Actual: 3: no space left. Free some space."
    )


def test_a_program_that_does_not_end_is_ended() -> None:
    with pytest.raises(SimError, match="Expected: an end within 0 s Actual: still running, it was ended"):
        host.run(["sleep", "30"], timeout_s=0.2)


def test_a_program_that_is_not_installed_names_its_package() -> None:
    with pytest.raises(
        SimError,
        match=r"program no-such-tool on this machine - Expected: installed Actual: not found\. "
        r"apt-get install no-such-tool",
    ):
        host.run(["no-such-tool"])


def test_without_root_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(
        SimError,
        match=r"Expected: root, because it creates containers, bridges and virtual cables Actual: user id 1000\. "
        r"Run it with sudo\.",
    ):
        host.require_root()


def test_a_marker_of_another_process_with_the_same_number_is_not_alive() -> None:
    now = emulator.process_start(os.getpid())
    assert emulator.Marker(os.getpid(), now, "x").alive
    assert not emulator.Marker(os.getpid(), now + "0", "x").alive
    assert not emulator.Marker(2**22 - 1, now, "x").alive


def test_the_label_is_what_down_looks_for() -> None:
    assert LABEL == "rackready.clone"
