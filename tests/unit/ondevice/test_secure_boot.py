"""Secure Boot: a module whose signature the firmware does not trust is refused before anything is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.secure_boot import SecureBoot

GLOBAL, SHIM = "8be4df61-93ca-11d2-aa0d-00e098032b8c", "605dab50-e046-4300-abb6-3dd810dd8b23"
KEY = "/var/lib/dkms/mok.pub"
EXPECTED = "Expected: a firmware that trusts the key of DKMS (Secure Boot is on)"
CONFIRM = "reboot the node and confirm it on the console (Enroll MOK)"
OFF = "or turn Secure Boot off in the BIOS: docs/runbooks/driver-build.md."


def variable(root: Path, name: str, value: int, guid: str = GLOBAL) -> None:
    """Write a variable as efivarfs shows it: attributes (non-volatile and more), then one byte."""
    path = root / "sys/firmware/efi/efivars" / f"{name}-{guid}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x06\x00\x00\x00" + bytes([value]))


def node(root: Path, out: str = "", *, key: bool = True) -> SecureBoot:
    if key:
        (root / KEY.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (root / KEY.lstrip("/")).write_bytes(b"certificate")

    def answer(argv: list[str]) -> Done:
        assert argv == ["mokutil", "--test-key", KEY]
        return Done(0, out)

    return SecureBoot(answer, root)


def refusal(found: SecureBoot) -> str:
    with pytest.raises(NodeProblem) as refused:
        found.refuse_untrusted(KEY, "dkms generate_mok")
    return str(refused.value)


def test_a_node_without_uefi_or_with_secure_boot_off_is_not_asked(tmp_path: Path) -> None:
    assert SecureBoot(root=tmp_path).on() is False
    variable(tmp_path, "SecureBoot", 0)
    node(tmp_path, key=False).refuse_untrusted(KEY, "dkms generate_mok")


@pytest.mark.parametrize(("name", "guid"), [("SetupMode", GLOBAL), ("MokSBStateRT", SHIM)])
def test_setup_mode_and_a_shim_that_does_not_verify_are_off(tmp_path: Path, name: str, guid: str) -> None:
    variable(tmp_path, "SecureBoot", 1)
    assert SecureBoot(root=tmp_path).on() is True
    variable(tmp_path, name, 1, guid)
    assert SecureBoot(root=tmp_path).on() is False


@pytest.mark.parametrize("words", ["is already enrolled", "is already in db"])
def test_a_trusted_key_passes(tmp_path: Path, words: str) -> None:
    variable(tmp_path, "SecureBoot", 1)
    node(tmp_path, f"{KEY} {words}\n").refuse_untrusted(KEY, "dkms generate_mok")


def test_a_key_that_is_absent_unknown_or_waits_is_refused_with_the_steps(tmp_path: Path) -> None:
    variable(tmp_path, "SecureBoot", 1)
    enrol = f"`mokutil --import {KEY}`"
    assert refusal(node(tmp_path, key=False)) == (
        f"{EXPECTED} Actual: no {KEY}. Run `dkms generate_mok` and {enrol} on the node, {CONFIRM}; {OFF}"
    )
    assert refusal(node(tmp_path, f"{KEY} is not enrolled\n")) == (
        f"{EXPECTED} Actual: {KEY} is not enrolled. Run {enrol} on the node, {CONFIRM}; {OFF}"
    )
    assert refusal(node(tmp_path, f"{KEY} is already in the enrollment request\n")) == (
        f"{EXPECTED} Actual: {KEY} waits to be confirmed. "
        f"Reboot the node and confirm it on the console (Enroll MOK); {OFF}"
    )
    assert refusal(node(tmp_path)) == (
        f"{EXPECTED} Actual: no answer of mokutil about {KEY}. Run {enrol} on the node, {CONFIRM}; {OFF}"
    )
