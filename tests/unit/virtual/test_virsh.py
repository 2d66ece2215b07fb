"""virsh on a hypervisor: exact commands, what is read from its answers, and the refusal for each way to fail."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers.remote import Answer
from rackready.drivers.virsh import HypervisorError, SeenDomain, Virsh, seed_request
from rackready.ondevice import passthrough_facts, virtual_disk

URI = "qemu:///system"
VIRSH = ["env", "LC_ALL=C", "virsh", "-q", "-c", URI]
STEP = "Correct this on the hypervisor, then run again: it continues here."
OURS = (
    "<domain><name>guest01</name><metadata>"
    "<r:domain xmlns:r='urn:rackready:domain:1' owner='lab/guest01' digest='{digest}'/></metadata></domain>"
)
THEIRS = "<domain><name>guest01</name><metadata/></domain>"


def answer(code: int | None, stdout: str = "", stderr: str = "", **more: Any) -> Answer:
    return Answer(code, stdout, stderr, 0.1, **more)


class Fake:
    """A hypervisor that answers by command; an unknown command succeeds without output."""

    def __init__(self, **answers: Answer | str) -> None:
        self.answers = answers
        self.asked: list[tuple[str, list[str], str, float]] = []

    def run(self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float) -> Answer:
        self.asked.append((node, list(argv), stdin, timeout_s))
        words = [word for word in argv if word not in {*VIRSH, "guest01"}]
        found = self.answers.get("_".join(words).replace("-", ""), "")
        return found if isinstance(found, Answer) else answer(0, found)


def virsh(fake: Fake) -> Virsh:
    return Virsh(fake, "train-1", URI)


@pytest.mark.parametrize(
    ("do", "words", "seconds"),
    [
        (lambda host: host.start("guest01"), ["start", "guest01"], 600.0),
        (lambda host: host.shutdown("guest01"), ["shutdown", "guest01"], 60.0),
        (lambda host: host.cut("guest01"), ["destroy", "guest01"], 600.0),
        (lambda host: host.undefine("guest01"), ["undefine", "guest01", "--nvram", "--managed-save"], 60.0),
    ],
)
def test_each_verb_is_one_exact_command(do: Callable[[Virsh], None], words: list[str], seconds: float) -> None:
    fake = Fake()
    do(virsh(fake))
    assert fake.asked == [("train-1", VIRSH + words, "", seconds)]


def test_a_definition_goes_in_by_standard_input_and_is_validated() -> None:
    fake = Fake()
    virsh(fake).define("<domain/>")
    command = 'cat | exec virsh -q -c "$1" define /dev/stdin --validate'
    assert fake.asked == [("train-1", ["env", "LC_ALL=C", "sh", "-c", command, "virsh", URI], "<domain/>", 60.0)]


def test_a_domain_that_is_not_listed_is_absent_and_asked_no_more() -> None:
    fake = Fake(list_name_all="guest010\nother\n")
    assert virsh(fake).look("guest01") is None
    assert [argv[6:] for _, argv, _, _ in fake.asked] == [["list", "--name", "--all"]]


def test_of_a_running_domain_both_definitions_are_read() -> None:
    later, now = OURS.format(digest="new"), OURS.format(digest="old")
    fake = Fake(list_name_all="guest01\n", list_name="guest01\n", dumpxml_inactive=later, dumpxml=now)
    text = hashlib.sha256(later.encode()).hexdigest()
    assert virsh(fake).look("guest01") == SeenDomain(
        active=True, owner="lab/guest01", digest="new", live="old", text=text
    )


def test_a_domain_that_is_off_has_no_live_definition() -> None:
    fake = Fake(list_name_all="guest01\n", dumpxml_inactive=OURS.format(digest="d"))
    seen = virsh(fake).look("guest01")
    assert seen is not None
    assert (seen.active, seen.live, seen.digest) == (False, "", "d")


def test_a_domain_of_others_has_no_owner() -> None:
    seen = virsh(Fake(list_name_all="guest01\n", dumpxml_inactive=THEIRS)).look("guest01")
    assert seen is not None
    assert (seen.owner, seen.digest) == ("", "")


@pytest.mark.parametrize(
    ("failed", "actual"),
    [
        (answer(1, "", "error: Failed to start domain 'guest01'\nerror: no access to vfio.\n"),
         "Failed to start domain 'guest01'; no access to vfio"),
        (answer(1, "", "error: one\n\nerror: two\nerror: three\n"), "one; two"),
        (answer(1, "", ""), "exit status 1"),
        (answer(None, "", "", timed_out=True), "none within 600 s"),
        (answer(None, "", "ignored", failure="no route to host"), "no route to host"),
    ],
)  # fmt: skip
def test_a_failure_says_where_what_and_why(failed: Answer, actual: str) -> None:
    with pytest.raises(HypervisorError) as caught:
        virsh(Fake(start=failed)).start("guest01")
    wanted = f"train-1 {URI}: virsh start - Expected: it succeeds Actual: {actual}. {STEP}"
    assert str(caught.value) == wanted


def test_disk_and_seed_are_made_by_our_script_with_its_request() -> None:
    asked = seed_request(Path("/d/g.qcow2"), Path("/b.qcow2"), 64, Path("/d/g.iso"), {"user-data": "x"})
    fake = Fake()
    fake.run = lambda node, argv, stdin, timeout_s: (  # type: ignore[method-assign,assignment]
        fake.asked.append((node, list(argv), stdin, timeout_s)) or answer(0, '{"disk": true, "seed": false}\n', "")
    )
    assert virsh(fake).prepare(asked) == {"disk": True, "seed": False}
    node, argv, source, seconds = fake.asked[0]
    assert (node, argv[:2], seconds) == ("train-1", ["python3", "-"], 600.0)
    assert json.loads(argv[2]) == {
        "disk": "/d/g.qcow2",
        "base": "/b.qcow2",
        "size_gib": 64,
        "seed": "/d/g.iso",
        "files": {"user-data": "x"},
    }
    assert source == Path(virtual_disk.__file__).read_text(encoding="utf-8")


def test_the_preflight_is_our_script_with_its_request() -> None:
    fake = Fake()
    fake.run = lambda node, argv, stdin, timeout_s: (  # type: ignore[method-assign,assignment]
        fake.asked.append((node, list(argv), stdin, timeout_s)) or answer(0, '{"tools": []}', "")
    )
    assert virsh(fake).facts({"devices": ["0000:9d:00.0"]}) == {"tools": []}
    _, argv, source, seconds = fake.asked[0]
    assert (json.loads(argv[2]), seconds) == ({"devices": ["0000:9d:00.0"]}, 60.0)
    assert source == Path(passthrough_facts.__file__).read_text(encoding="utf-8")


def test_a_script_that_fails_is_named_by_its_work() -> None:
    failed = answer(1, "", "no base image /b.qcow2\n")
    fake = Fake()
    fake.run = lambda *_args, **_more: failed  # type: ignore[method-assign,assignment]
    with pytest.raises(HypervisorError) as caught:
        virsh(fake).prepare({})
    wanted = f"train-1 {URI}: disk and seed - Expected: it succeeds Actual: no base image /b.qcow2. {STEP}"
    assert str(caught.value) == wanted


VERSION = """Compiled against library: libvirt 8.0.0
Using library: libvirt 8.0.0
Using API: QEMU 8.0.0
Running hypervisor: QEMU 6.2.0
"""


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        (VERSION, {"libvirt": [8, 0, 0], "qemu": [6, 2, 0]}),
        ("Using library: libvirt 11.3.0\nUsing API: Test 11.3.0\n", {"libvirt": [11, 3, 0], "qemu": []}),
    ],
)
def test_versions_are_those_that_virsh_shows(text: str, versions: dict[str, list[int]]) -> None:
    fake = Fake(version=text)
    assert virsh(fake).versions() == versions
    assert [argv for _, argv, _, _ in fake.asked] == [[*VIRSH, "version"]]
