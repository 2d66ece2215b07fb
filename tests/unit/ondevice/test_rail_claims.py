"""What other files say about a rail: those that name it, patterns that match it, and what does not concern it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.ondevice.rail_claims import Card, Claim, of_ifupdown, of_networkd, of_profiles
from rackready.ondevice.rail_files import HostRail

RAIL = HostRail("enp24s0np0", "10.8.1.11/24", 9000, path="pci-0000:18:00.0")
CARD = Card(RAIL, "b8:59:9f:00:00:01")
OURS = "05-rackready-enp24s0np0.network"


def networkd(tmp_path: Path, match: str, rest: str = "[Network]\nDHCP=yes\n") -> list[Claim]:
    (tmp_path / "20-site.network").write_text(f"[Match]\n{match}\n\n{rest}")
    return of_networkd([tmp_path], CARD, OURS)


@pytest.mark.parametrize(
    ("match", "exact"),
    [
        ("Name=enp24s0np0", True),
        ("Name=eno1 enp24s0np0", True),
        ("MACAddress=B8:59:9F:00:00:01", True),
        ("PermanentMACAddress=b8-59-9f-00-00-01", True),
        ("Path=pci-0000:18:00.0", True),
        ("Name=en*", False),
        ("Name=!eno*", False),
        ("Type=ether", False),
        ("Driver=mlx5_core", False),
        ("Name=eno1", None),
        ("Name=!en*", None),
        ("MACAddress=b8:59:9f:00:00:02", None),
        ("Path=pci-0000:29:00.0", None),
        ("Type=wlan", None),
        ("Name=enp24s0np0\nPath=pci-0000:29:00.0", None),
    ],
)
def test_networkd_s_match(tmp_path: Path, match: str, *, exact: bool | None) -> None:
    assert [claim.exact for claim in networkd(tmp_path, match)] == ([] if exact is None else [exact])


@pytest.mark.parametrize(
    ("rest", "same", "said"),
    [
        ("[Network]\nAddress=10.8.1.11/24\n", True, "10.8.1.11/24"),
        ("[Address]\nAddress=10.8.1.11/24\n[Network]\nDHCP=no\n", True, "10.8.1.11/24"),
        ("[Network]\nAddress=10.8.1.12/24\n", False, "10.8.1.12/24"),
        ("[Network]\nDHCP=ipv4\nAddress=10.8.1.11/24\n", False, "10.8.1.11/24 and DHCP=ipv4"),
        ("[Network]\nAddress=10.8.1.11/24\nGateway=10.8.1.1\n", False, "10.8.1.11/24 and Gateway=10.8.1.1"),
        ("[Network]\nBond=bond0\n", False, "Bond=bond0"),
        ("[Network]\nMACVLAN=pods\n", False, "MACVLAN=pods"),
        ("[Link]\nUnmanaged=yes\n", False, "Unmanaged=yes"),
        ("[Network]\nLLDP=yes\n", False, "no address"),
    ],
)
def test_what_a_network_file_says(tmp_path: Path, rest: str, said: str, *, same: bool) -> None:
    [claim] = networkd(tmp_path, "Name=enp24s0np0", rest)
    assert (claim.same(RAIL), str(claim)) == (same, f"{tmp_path}/20-site.network: {said}")


def test_a_masked_file_and_our_own_claim_nothing(tmp_path: Path) -> None:
    etc, lib = tmp_path / "etc", tmp_path / "lib"
    for folder, text in ((etc, ""), (lib, "[Match]\nName=enp24s0np0\n")):
        folder.mkdir()
        (folder / "20-site.network").write_text(text)
    (etc / OURS).write_text("[Match]\nName=enp24s0np0\n")
    assert of_networkd([etc, lib], CARD, OURS) == []
    assert len(of_networkd([lib, etc], CARD, OURS)) == 1, "without the mask it claims"


KEYFILE = "[connection]\nid=x\ntype=ethernet\n{}\n[ethernet]\n{}\n[ipv4]\n{}\n"


@pytest.mark.parametrize(
    ("connection", "ethernet", "ipv4", "said"),
    [
        ("interface-name=enp24s0np0", "", "method=manual\naddress1=10.8.1.12/24,10.8.1.1", "10.8.1.12/24"),
        ("", "mac-address=B8:59:9F:00:00:01", "method=auto", "DHCP"),
        ("interface-name=enp24s0np0\nmaster=bond0", "", "", "part of bond0"),
        ("interface-name=enp24s0np0", "", "method=disabled", "no address"),
        ("interface-name=enp24s0np0", "", "method=shared", "method=shared"),
        ("interface-name=enp24s0np0", "", "method=link-local", "method=link-local"),
        ("interface-name=enp24s0np0", "", "", "DHCP"),
        ("interface-name=enp24s0np0\nautoconnect=false", "", "method=auto", None),
        ("interface-name=eno1", "", "method=auto", None),
        ("", "mac-address=B8:59:9F:00:00:02", "method=auto", None),
        ("interface-name=enp24s0np0", "", "method=auto\n[.nmmeta]\nnm-generated=true", None),
    ],
)
def test_networkmanager_s_profiles(tmp_path: Path, connection: str, ethernet: str, ipv4: str, said: str | None) -> None:
    path = tmp_path / "site.nmconnection"
    path.write_text(KEYFILE.format(connection, ethernet, ipv4))
    found = of_profiles([path], CARD)
    assert [str(claim) for claim in found] == ([] if said is None else [f"{path}: {said}"])
    assert all(claim.exact for claim in found)


def test_a_profile_for_any_card_names_none(tmp_path: Path) -> None:
    path = tmp_path / "any.nmconnection"
    path.write_text(KEYFILE.format("", "", "method=auto"))
    assert [claim.exact for claim in of_profiles([path], CARD)] == [False]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('DEVICE="enp24s0np0"\nBOOTPROTO=none\nIPADDR=10.8.1.11\nPREFIX=24\n', "10.8.1.11/24"),
        ("HWADDR=B8:59:9F:00:00:01\nBOOTPROTO=dhcp\n", "DHCP"),
        ("DEVICE=enp24s0np0\nBOOTPROTO=none\nIPADDR0=10.8.1.11\nPREFIX0=24\n", "10.8.1.11/24"),
        ("DEVICE=enp24s0np0\nMASTER=bond0\nSLAVE=yes\n", "part of bond0"),
        ("DEVICE=enp24s0np0\nTEAM_MASTER=team0\n", "part of team0"),
        ("DEVICE=enp24s0np0\nBOOTPROTO=none\n", "no address"),
        ("DEVICE=enp24s0np0\nBOOTPROTO=dhcp\nONBOOT=no\n", None),
        ("DEVICE=eno1\nBOOTPROTO=dhcp\n", None),
    ],
)
def test_ifcfg_files_of_older_systems(tmp_path: Path, text: str, said: str | None) -> None:
    path = tmp_path / "ifcfg-site"
    path.write_text(text)
    assert [str(claim) for claim in of_profiles([path], CARD)] == ([] if said is None else [f"{path}: {said}"])


def test_ifupdown_s_stanzas_of_every_included_file(tmp_path: Path) -> None:
    more = tmp_path / "etc/network/interfaces.d"
    more.mkdir(parents=True)
    (tmp_path / "etc/network/interfaces").write_text(
        "source /etc/network/interfaces.d/*\nauto eno1\niface eno1 inet dhcp\niface enp24s0np0 inet6 auto\n"
    )
    ours = str(more / "rackready-rails")
    Path(ours).write_text("iface enp24s0np0 inet static\n    address 10.8.1.11/24\n")
    assert of_ifupdown(tmp_path, CARD, ours) == []
    (more / "site").write_text("auto enp24s0np0\niface enp24s0np0 inet static\n  address 10.8.1.11/24\n")
    [claim] = of_ifupdown(tmp_path, CARD, ours)
    assert (claim.same(RAIL), str(claim)) == (False, f"{more}/site: 10.8.1.11/24 and a second stanza")
