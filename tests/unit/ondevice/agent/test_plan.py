"""The plan and the kernel command line: what they mean, and every refusal."""

from __future__ import annotations

import pytest

from rackready.ondevice.agent.cmdline import parse as parse_cmdline
from rackready.ondevice.agent.errors import ImagingError
from rackready.ondevice.agent.plan import Image, Ref, parse
from tests.unit.ondevice.agent.machine import document

WORDS = (
    "rackready.plan=https://192.0.2.1:8443/nodes/node01/plan.json rackready.token=SECRET "
    f"rackready.ca_sha256={'AB' * 32} rackready.ca=http://192.0.2.1:8080/boot/ca.pem console=ttyS0,115200n8 "
    "console=tty0 BOOTIF=01-52-54-00-AA-BB-CC"
)


def test_a_plan_is_read() -> None:
    plan = parse(document())
    assert plan.image == Image("debian12", "https://192.0.2.1:8443/images/x.tar.zst", "cd" * 32, 1000, 2 << 30)
    assert plan.system == (Ref(serial="S1"),)
    assert sorted(plan.seed) == ["meta-data", "network-config", "user-data"]
    assert not plan.erase


def test_a_null_beside_the_reference_is_as_absent() -> None:
    assert parse(document(disks={"system": [{"serial": "S1", "path": None}]})).system == (Ref(serial="S1"),)


@pytest.mark.parametrize(
    ("changes", "actual"),
    [
        ({"digest": "abc"}, "digest is 'abc'"),
        ({"node": ""}, "node is ''"),
        ({"serial": None}, "serial is None"),
        ({"erase": "yes"}, "erase is 'yes'"),
        ({"secure_boot": "maybe"}, "secure_boot is 'maybe'"),
        ({"image": None}, ("image is None; image.name is None; image.url is None; image.sha256 is None; image.size is "
         "None; image.unpacked is None")),
        ({"disks": {"system": []}}, "disks.system has 0 disks"),
        ({"disks": {"system": [{"serial": "S1"}] * 2}}, "disks has one disk twice"),
        ({"disks": {"system": [{"path": "/dev/sda"}]}}, ("disks.system[0] is {'path': '/dev/sda'}; disks.system has 0 "
         "disks")),
        ({"disks": {"system": [{"serial": "S1"}], "scratch_filesystem": "zfs"}}, "disks.scratch_filesystem is 'zfs'"),
        ({"disks": {"system": [{"serial": "S1"}], "scratch_mount": "../etc"}}, "disks.scratch_mount is '../etc'"),
        ({"kernel_options": ["a b"]}, "kernel_options is ['a b']"),
        ({"hostname": "-x"}, "hostname is '-x'"),
        ({"seed": {"user-data": "#cloud-config\n"}}, "seed.meta-data is None"),
    ],
)  # fmt: skip
def test_a_wrong_plan_is_refused(changes: dict[str, object], actual: str) -> None:
    with pytest.raises(ImagingError) as caught:
        parse(document(**changes))
    assert caught.value.code == "plan"
    assert caught.value.message == f"plan - Expected: rackready/imaging/v1 Actual: {actual}."


def test_another_schema_is_refused() -> None:
    for plan, actual in ((document(schema="rackready/imaging/v2"), "rackready/imaging/v2"), ([], "list")):
        with pytest.raises(ImagingError, match=f"Expected: schema rackready/imaging/v1 Actual: {actual}"):
            parse(plan)


def test_the_command_line_is_read() -> None:
    options = parse_cmdline(WORDS)
    assert (options.mac, options.ca_sha256) == ("52:54:00:aa:bb:cc", "ab" * 32)
    assert options.token == "SECRET"
    assert "SECRET" not in repr(options)


@pytest.mark.parametrize(
    ("before", "after", "actual"),
    [
        ("rackready.token=SECRET ", "", "rackready.token is missing"),
        ("https://192", "http://192", "rackready.plan is no https://.../plan.json"),
        ("AB" * 32, "AB", "rackready.ca_sha256 is no SHA-256"),
        ("01-52-54-00-AA-BB-CC", "eth0", "BOOTIF=eth0 is no MAC address"),
        ("BOOTIF=01-52-54-00-AA-BB-CC", "", "BOOTIF is missing"),
    ],
)
def test_a_wrong_command_line_is_refused(before: str, after: str, actual: str) -> None:
    with pytest.raises(ImagingError) as caught:
        parse_cmdline(WORDS.replace(before, after))
    assert caught.value.message == f"kernel command line: {actual}. Correct the boot service."
