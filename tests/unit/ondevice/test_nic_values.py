"""mlxconfig's table, in rows that real cards printed: each source is named beside its row."""

from __future__ import annotations

import pytest

from rackready.ondevice.nic_values import Parameter, number, parse

OLD = """
Device #1:
----------

Device type:    ConnectX5
Name:           MCX515A-CCA_Ax_Bx
Device:         /dev/mst/mt4119_pciconf0

Configurations:                              Default         Current         Next Boot
         MEMIC_BAR_SIZE                      0               0               0
         MEMIC_SIZE_LIMIT                    _256KB(1)       _256KB(1)       _256KB(1)
*        ADVANCED_PCI_SETTINGS               False(0)        True(1)         True(1)
         SAFE_MODE_THRESHOLD                 10              10              10
The '*' shows parameters with next value different from default/current value.
"""
"""A ConnectX-5 of MFT before 4.30, columns of 16 (HPE Slingshot host software, installation guide; shortened)."""

WIDE = (
    "\nDevice #1:\n----------\n\nDevice type:        ConnectX9\n"
    f"{'Configurations:':<56}{'Default':<33} {'Current':<33} {'Next Boot':<33}\n"
    f"*       {'PCI_DOWNSTREAM_PORT_OWNER[0]':<48}{'DEVICE_DEFAULT(0)':<33}{'148':<33}{'DEVICE_DEFAULT(0)':<33}\n"
    f"*       {'PCI_DOWNSTREAM_PORT_OWNER[1]':<48}{'DEVICE_DEFAULT(0)':<33}{'HOST_0(1)':<33}{'DEVICE_DEFAULT(0)':<33}\n"
    f" RO     {'MAX_PACKET_LIFETIME':<48}{'N/A':<33}{'N/A':<33}{'7':<33}\n"
    f"        {'ESWITCH_HAIRPIN_DESCRIPTORS':<48}{'Array[0..7]':<33}{'Array[0..7]':<33}{'Array[0..7]':<33}\n"
    "\nThe 'RO' shows parameters which are for read only and cannot be changed\n"
)
"""A ConnectX-9 (Mellanox/nic-configuration-operator, nvconfig/utils_test.go) in the widths of mstflint's mlxcfg_ui.cpp;
the row RO is made from printSingleParam."""

PLAIN = """
Configurations:                                      Next Boot
        LINK_TYPE_P1                                IB(1)
"""
"""Without -e (mlxconfig -d 86:00.0 q, spidernet-io/spiderpool)."""


def test_the_three_columns_of_a_real_card() -> None:
    found = parse(OLD)
    assert found["ADVANCED_PCI_SETTINGS"] == Parameter("True(1)", "True(1)")
    assert found["MEMIC_BAR_SIZE"] == Parameter("0", "0")
    assert list(found) == ["MEMIC_BAR_SIZE", "MEMIC_SIZE_LIMIT", "ADVANCED_PCI_SETTINGS", "SAFE_MODE_THRESHOLD"]


def test_wide_columns_read_only_rows_and_arrays() -> None:
    found = parse(WIDE)
    assert found["PCI_DOWNSTREAM_PORT_OWNER[0]"] == Parameter("148", "DEVICE_DEFAULT(0)")
    assert found["PCI_DOWNSTREAM_PORT_OWNER[1]"] == Parameter("HOST_0(1)", "DEVICE_DEFAULT(0)")
    assert found["MAX_PACKET_LIFETIME"] == Parameter("N/A", "7")
    assert not found["ESWITCH_HAIRPIN_DESCRIPTORS"].is_in_force(0)


def test_a_value_of_the_next_boot_is_not_in_force() -> None:
    """What plain `q` hides: the card runs GID(1) and will run LID after its reset (SHARP's notes, two rows)."""
    text = (
        "Configurations:                              Default         Current         Next Boot\n"
        "        SRIOV_IB_ROUTING_MODE_P1            LID(1)          GID(1)          GID(0)\n"
    )
    found = parse(text)["SRIOV_IB_ROUTING_MODE_P1"]
    assert (found.is_in_force(1), found.is_in_force(0)) == (True, False)


def test_firmware_that_tells_the_next_boot_alone() -> None:
    found = parse(PLAIN)
    assert found == {"LINK_TYPE_P1": Parameter("", "IB(1)")}
    assert found["LINK_TYPE_P1"].is_in_force(1)


@pytest.mark.parametrize(
    ("text", "value"), [("ETH(2)", 2), ("True(1)", 1), ("44", 44), ("N/A", None), ("Array[0..7]", None), ("", None)]
)
def test_numbers(text: str, value: int | None) -> None:
    assert number(text) == value


def test_text_without_a_table_has_no_parameter() -> None:
    assert parse("-E- Failed to open device: 0000:18:00.0. No such device.\n") == {}
