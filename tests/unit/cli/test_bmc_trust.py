"""`rackready bmc trust`: what a BMC shows, first contact, a changed certificate, and that nothing is sent to it."""

from __future__ import annotations

import io
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from rackready.design.bmc_pins import PinsDamagedError, pins
from rackready.design.site import load_site
from rackready.drivers.bmc_trust import BMC_CERTIFICATE
from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcTlsError
from rackready.drivers.redfish_tls import fingerprint
from rackready.ledger.store import Ledger
from rackready.model.bmc import Bmc as BmcSite
from rackready.paths import EnvPaths
from tests.stacks.fake_rack import FakeRack

Call = Callable[..., tuple[int, str, str]]
OTHER = ":".join(["ab"] * 32)


@pytest.fixture
def rack(tmp_path: Path, call: Call) -> Iterator[FakeRack]:
    """Four nodes whose BMCs have certificates of an authority that the site file does not name."""
    del call
    made = FakeRack(tmp_path / "rack", 4, net=84)
    write(tmp_path, made)
    yield made
    made.stop()


def write(tmp_path: Path, rack: FakeRack, **trust: str) -> None:
    """The overlay; ``trust``: keys of every BMC."""
    overlay = rack.site()
    for node in overlay["racks"][0]["nodes"]:
        node["bmc"] = {key: value for key, value in node["bmc"].items() if key != "ca"} | trust
    path = EnvPaths(tmp_path, "sim").overlay
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(overlay), encoding="utf-8")


def shown(rack: FakeRack, name: str) -> str:
    pem = (rack.folder / f"{name}.pem").read_text(encoding="utf-8")
    return fingerprint(ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERT") :]))


def store(tmp_path: Path) -> Path:
    return EnvPaths(tmp_path, "sim").bmc_pins


def bmc_of(tmp_path: Path, name: str) -> BmcSite:
    site = load_site("sim", root=tmp_path)
    found = next(node.bmc.known() for node in site.nodes() if node.name == name)
    assert found is not None
    return found


def test_the_fingerprint_is_what_openssl_prints() -> None:
    assert fingerprint(b"") == (
        "e3:b0:c4:42:98:fc:1c:14:9a:fb:f4:c8:99:6f:b9:24:27:ae:41:e4:64:9b:93:4c:a4:95:99:1b:78:52:b8:55"
    )


def test_nothing_is_pinned_silently(call: Call, rack: FakeRack, tmp_path: Path) -> None:
    code, out, err = call("bmc", "trust", "node01")
    value = shown(rack, "node01")
    node = rack.node("node01")
    assert code == 1
    assert out.splitlines()[:3] == [f"node01 BMC {node.bmc}:{rack.bmc_port}", "  pinned: none", f"  shown:  {value}"]
    assert out.splitlines()[3].startswith(f"  subject CN={node.bmc}, issuer CN=test CA, valid until 20")
    assert (
        f"node01: TLS certificate - Expected: a pinned certificate Actual: none, it shows SHA-256 {value}. "
        "Compare it, then add --trust-first." in err
    )
    assert not store(tmp_path).exists()
    assert node.logins == 0


def test_first_contact_is_pinned_shown_recorded_and_used(call: Call, rack: FakeRack, tmp_path: Path) -> None:
    code, out, _ = call("bmc", "trust", "--all", "--trust-first", "--output", "json")
    rows = json.loads(out)["bmcs"]
    assert (code, [row["outcome"] for row in rows]) == (0, ["pinned"] * 4)
    assert rows[0]["message"] == f"node01: pinned SHA-256 {shown(rack, 'node01')}"
    assert pins(store(tmp_path)) == {node.name: shown(rack, node.name) for node in rack.nodes}
    assert store(tmp_path).stat().st_mode & 0o777 == 0o600
    with Ledger.open(EnvPaths(tmp_path, "sim").database) as ledger:
        entry = ledger.latest("node01", BMC_CERTIFICATE)
    assert entry is not None
    assert (entry.status, entry.result) == ("done", {"pinned": shown(rack, "node01")})
    with Bmc("node01", bmc_of(tmp_path, "node01")) as client:
        assert client.identify().serial == rack.node("node01").serial
    again = call("bmc", "trust", "node01", "--trust-first")
    assert (again[0], again[1]) == (0, f"node01: trusted already, SHA-256 {shown(rack, 'node01')}\n")


def test_a_changed_certificate_is_refused_with_both_values_before_the_password_is_sent(
    call: Call, rack: FakeRack, tmp_path: Path
) -> None:
    assert call("bmc", "trust", "node01", "--trust-first")[0] == 0
    old, new = pins(store(tmp_path))["node01"], shown(rack, "node02")
    text = store(tmp_path).read_text(encoding="utf-8").replace(old, new)
    store(tmp_path).write_text(text, encoding="utf-8")
    node = rack.node("node01")
    with Bmc("node01", bmc_of(tmp_path, "node01")) as client, pytest.raises(BmcTlsError) as caught:
        client.identify()
    assert str(caught.value) == (
        f"node01 BMC {node.bmc}:{rack.bmc_port}: TLS certificate, nothing was sent to it - Expected: SHA-256 {new} "
        f"Actual: SHA-256 {old}. If the BMC or its certificate was replaced, compare the value at its console, then "
        "correct bmc.fingerprint, or run `rackready bmc trust node01`. If `rackready bmc certify node01` was "
        "interrupted, run it again."
    )
    assert node.logins == 0
    code, _, err = call("bmc", "trust", "node01", "--trust-first")
    assert code == 1
    assert (
        f"node01: TLS certificate is not the pinned one - Expected: SHA-256 {new} Actual: SHA-256 {old}. "
        f"Compare it at the BMC's console, then give --expect {old}." in err
    )
    assert pins(store(tmp_path))["node01"] == new
    code, out, _ = call("bmc", "trust", "node01", "--expect", old.upper())
    assert (code, out.splitlines()[-1]) == (0, f"node01: pinned SHA-256 {old} in place of {new}")


def test_a_person_at_a_terminal_may_accept(
    call: Call, rack: FakeRack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert call("bmc", "trust", "node01")[0] == 1
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert call("bmc", "trust", "node01")[0] == 0
    assert pins(store(tmp_path)) == {"node01": shown(rack, "node01")}


def test_the_site_files_own_value_decides(call: Call, rack: FakeRack, tmp_path: Path) -> None:
    write(tmp_path, rack, fingerprint=OTHER)
    code, _, err = call("bmc", "trust", "node01", "--expect", shown(rack, "node01"))
    assert code == 1
    assert "Correct bmc.fingerprint in the site file." in err
    write(tmp_path, rack, ca=str(rack.folder / "ca.pem"))
    code, out, _ = call("bmc", "trust", "node01", "--trust-first")
    assert (code, out) == (0, "node01: bmc.ca in the site file decides, nothing is pinned\n")
    assert not store(tmp_path).exists()


def test_with_an_authority_both_must_hold(call: Call, rack: FakeRack, tmp_path: Path) -> None:
    del call
    write(tmp_path, rack, ca=str(rack.folder / "ca.pem"), fingerprint=shown(rack, "node01"))
    with Bmc("node01", bmc_of(tmp_path, "node01")) as client:
        assert client.observe() == "Off"
    with Bmc("node02", bmc_of(tmp_path, "node02")) as client, pytest.raises(BmcTlsError, match="Actual: SHA-256"):
        client.observe()


def test_a_damaged_pin_trusts_nothing(call: Call, rack: FakeRack, tmp_path: Path) -> None:
    del rack
    store(tmp_path).parent.mkdir(parents=True, exist_ok=True)
    store(tmp_path).write_text("node01 ab:cd\n", encoding="utf-8")
    with pytest.raises(PinsDamagedError) as caught:
        load_site("sim", root=tmp_path)
    assert str(caught.value) == (
        f"{store(tmp_path)} line 1 - Expected: NODE SHA-256, as `rackready bmc trust` writes it Actual: another text. "
        "Remove that line, compare the certificate, then run `rackready bmc trust NODE`."
    )
    assert call("bmc", "trust", "node01")[0] == 2


def test_names_are_checked(call: Call, rack: FakeRack) -> None:
    del rack
    assert call("bmc", "trust")[0] == 2
    code, _, err = call("bmc", "trust", "nodeXX")
    assert (code, err) == (2, "nodeXX - Expected: nodes of the site Actual: no such node. Correct the name.\n")
