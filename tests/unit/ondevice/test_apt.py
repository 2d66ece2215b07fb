"""Exact packages: which commands run, in which order, and what is refused."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from rackready.ondevice.apt import Apt
from rackready.ondevice.apt_words import explain
from rackready.ondevice.command import Done, NodeProblem, run
from rackready.ondevice.locks import lock_holder, process_name
from rackready.ondevice.packages import Wish


class Node:
    """dpkg and apt of a machine: installed packages, the mirror's packages, and the commands that ran."""

    def __init__(self) -> None:
        self.installed: dict[str, tuple[str, str]] = {}
        self.lists: dict[str, list[str]] = {}
        self.mirror: dict[str, list[str]] = {
            "nvidia-open": ["595.1-1", "580.2-1", "580.1-1"],
            "dcgm": ["4-1"],
            "pin": ["1"],
        }
        self.audit = ""
        self.simulated = ""
        self.fails: dict[str, str] = {}
        self.ran: list[str] = []

    def __call__(self, argv: Sequence[str]) -> Done:
        words = [word for word in argv if not word.startswith(("-o", "DPkg::", "Dpkg::", "Dir::", "APT::", "-q", "-y"))]
        name = " ".join(words[:2])
        if name in self.fails:
            self.ran.append(" ".join(words))
            return Done(100, self.fails[name])
        answer = getattr(self, words[0].replace("-", "_"))(words[1:])
        if words[1] == "--compare-versions":
            return Done(0 if words[2].split(".") < words[4].split(".") else 1, "")
        if words[0] not in {"dpkg-query", "apt-cache"} and words[1] not in {"--audit", "showhold"}:
            self.ran.append(" ".join(words))
        return Done(0, answer)

    def dpkg_query(self, words: list[str]) -> str:
        return "".join(
            f"{name}\t{version}\t{state}\n"
            for name, (version, state) in self.installed.items()
            if {name, "*"} & set(words)
        )

    def dpkg(self, words: list[str]) -> str:
        if words[0] == "--audit":
            return self.audit
        self.audit = ""
        self.installed = {name: (version, state[0] + "i ") for name, (version, state) in self.installed.items()}
        return ""

    def apt_cache(self, words: list[str]) -> str:
        return "".join(
            f" {name} | {version} | http://mirror ./ Packages\n"
            for name in words[1:]
            for version in self.lists.get(name, [])
        )

    def apt_get(self, words: list[str]) -> str:
        if words[0] == "update":
            self.lists = dict(self.mirror)
        if "--simulate" in words:
            return self.simulated
        for word in words[1:]:
            if words[0] == "purge" or word.endswith("-"):
                self.installed.pop(word.removesuffix("-"), None)
            elif words[0] == "install" and not word.startswith("-"):
                name, _, version = word.partition("=")
                self.installed[name] = (version or self.lists[name][0], "ii ")
        return ""

    def apt_mark(self, words: list[str]) -> str:
        if words == ["showhold"]:
            return "".join(f"{name}\n" for name, (_, state) in self.installed.items() if state[0] == "h")
        for name in words[1:]:
            self.installed[name] = (self.installed[name][0], "hi ")
        return ""


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def apt(node: Node, tmp_path: Path) -> Apt:
    (tmp_path / "var/lib/dpkg/updates").mkdir(parents=True)
    return Apt(run=node, root=tmp_path, folder=tmp_path / "rackready", lock_wait_s=0.2)


WISH = Wish({"nvidia-open": "580.1-1"}, hold=True)


def test_exact_version_is_fetched_installed_and_held(apt: Apt, node: Node) -> None:
    change = apt.ensure(WISH, "install", 1, "a")
    assert change.changed == {"nvidia-open": ("absent", "580.1-1 held")}
    assert node.installed == {"nvidia-open": ("580.1-1", "hi ")}
    assert node.ran == [
        "apt-get update",
        "apt-get install --no-install-recommends --allow-change-held-packages nvidia-open=580.1-1",
        "apt-mark hold nvidia-open",
    ]


def test_lists_that_lack_one_of_many_versions_are_fetched_and_whole_ones_are_not(apt: Apt, node: Node) -> None:
    node.lists = dict(node.mirror) | {"dcgm": ["3-1"]}
    apt.ensure(Wish({"nvidia-open": "580.1-1", "dcgm": "4-1"}), "install", 1, "a")
    assert node.ran[0] == "apt-get update"
    node.ran.clear()
    node.installed.clear()
    apt.ensure(Wish({"nvidia-open": "580.1-1", "dcgm": "4-1"}), "install", 1, "a")
    assert [line.split()[1] for line in node.ran] == ["install"]
    apt.ensure(Wish({"pin": ""}), "install", 1, "a")
    assert [line.split()[1] for line in node.ran] == ["install", "update", "install"], "any version: the mirror's now"


def test_second_run_runs_nothing(apt: Apt, node: Node) -> None:
    apt.ensure(WISH, "install", 1, "a")
    node.ran.clear()
    assert apt.ensure(WISH, "install", 2, "a").changed == {}
    assert node.ran == []
    assert json.loads((apt.folder / "install.json").read_text())["token"] == 1


def test_check_mode_says_what_would_change_and_does_nothing(apt: Apt, node: Node) -> None:
    assert apt.ensure(WISH, "install", 1, "a", check=True).changed == {"nvidia-open": ("absent", "580.1-1 held")}
    assert node.ran == []
    assert not apt.folder.exists()


LOWER = (
    "Expected: nvidia-open 580.2-1 or newer Actual: nvidia-open 580.1-1 wanted. Choose a newer version set "
    "(software.set), or set software.allow_downgrade: true; then run again. No package was changed."
)


def test_lower_version_is_refused_and_nothing_runs(apt: Apt, node: Node) -> None:
    node.installed["nvidia-open"] = ("580.2-1", "ii ")
    with pytest.raises(NodeProblem) as caught:
        apt.ensure(WISH, "install", 1, "a")
    assert str(caught.value) == LOWER
    assert node.ran == []
    assert node.installed["nvidia-open"] == ("580.2-1", "ii ")


def test_dry_run_reports_a_lower_version_and_that_a_run_would_refuse(apt: Apt, node: Node) -> None:
    node.installed["nvidia-open"] = ("580.2-1", "ii ")
    change = apt.ensure(WISH, "install", 1, "a", check=True)
    assert change.changed == {"nvidia-open": ("580.2-1", "580.1-1 held")}
    assert change.notes == [f"a run would refuse: {LOWER}"]


def test_lower_version_is_installed_with_consent(apt: Apt, node: Node) -> None:
    node.installed["nvidia-open"] = ("580.2-1", "ii ")
    change = apt.ensure(dataclasses.replace(WISH, allow_downgrade=True), "install", 1, "a")
    assert change.changed == {"nvidia-open": ("580.2-1", "580.1-1 held")}
    assert "--allow-downgrades" in node.ran[1].split()


def test_lists_that_have_the_version_are_not_fetched_again(apt: Apt, node: Node) -> None:
    node.lists = dict(node.mirror)
    apt.ensure(WISH, "install", 1, "a")
    assert "apt-get update" not in node.ran


def test_missing_hold_alone_installs_nothing(apt: Apt, node: Node) -> None:
    node.installed["nvidia-open"] = ("580.1-1", "ii ")
    assert apt.ensure(WISH, "install", 1, "a").changed == {"nvidia-open": ("580.1-1", "580.1-1 held")}
    assert node.ran == ["apt-mark hold nvidia-open"]


def test_our_own_hold_does_not_stop_a_new_version(apt: Apt, node: Node) -> None:
    apt.ensure(WISH, "install", 1, "a")
    apt.ensure(Wish({"nvidia-open": "580.2-1"}, hold=True), "install", 2, "a")
    assert node.installed["nvidia-open"] == ("580.2-1", "hi ")


def test_somebody_else_s_hold_is_respected(apt: Apt, node: Node) -> None:
    node.installed["nvidia-open"] = ("580.0-1", "hi ")
    with pytest.raises(
        NodeProblem,
        match=r"Actual: nvidia-open held, not by rackready. Ask who set the hold; then `apt-mark unhold nvidia-open`",
    ):
        apt.ensure(WISH, "install", 1, "a")
    assert node.ran == []


def test_a_hold_of_others_on_a_dependency_is_named_as_the_obstacle(apt: Apt, node: Node) -> None:
    """Apt moves no held package that is not named, and reports unmet dependencies: it is asked without any hold."""
    node.lists = dict(node.mirror)
    node.installed = {"nvidia-open": ("580.0-1", "ii "), "libcuda1": ("580.0-1", "hi "), "bash": ("5", "hi ")}
    status = apt.root / "var/lib/dpkg/status"
    status.write_text("Package: libcuda1\nStatus: hold ok installed\n")
    node.simulated = "Inst libcuda1 [580.0-1] (580.1-1 mirror [amd64])\nInst nvidia-open [580.0-1] (580.1-1 mirror)\n"
    with pytest.raises(NodeProblem) as caught:
        apt.ensure(WISH, "install", 1, "a")
    assert str(caught.value) == (
        "Expected: no hold that others set Actual: libcuda1 held, not by rackready. Ask who set the hold; then "
        "`apt-mark unhold libcuda1` on the node and run again."
    )
    assert [line for line in node.ran if "--simulate" not in line] == []
    assert status.read_text() == "Package: libcuda1\nStatus: hold ok installed\n"
    assert not (apt.folder / "status-without-holds").exists()


def test_packages_that_other_roles_hold_at_the_old_version_may_follow(apt: Apt, node: Node) -> None:
    apt.ensure(WISH, "install", 1, "a")
    node.installed["nvidia-persistenced"] = ("580.1-1", "hi ")
    node.installed["dcgm"] = ("4-1", "hi ")
    apt.remember_holds(["nvidia-persistenced", "dcgm"])
    node.ran.clear()
    apt.ensure(Wish({"nvidia-open": "580.2-1"}, hold=True), "install", 1, "a")
    assert node.ran == [
        "apt-mark unhold nvidia-persistenced",
        "apt-get install --no-install-recommends --allow-change-held-packages nvidia-open=580.2-1",
        "apt-mark hold nvidia-persistenced",
        "apt-mark hold nvidia-open",
    ]


def test_conflicting_package_is_purged_first(apt: Apt, node: Node) -> None:
    node.installed["dcgm3"] = ("3", "ii ")
    change = apt.ensure(Wish({"dcgm": "4-1"}, absent=["dcgm3"]), "install", 1, "a")
    assert change.changed == {"dcgm": ("absent", "4-1"), "dcgm3": ("3", "absent")}
    assert node.ran[0] == "apt-get purge dcgm3"


def test_a_package_on_our_own_hold_is_released_before_it_is_purged(apt: Apt, node: Node) -> None:
    apt.ensure(Wish({"dcgm": "4-1"}, hold=True), "install", 1, "a")
    node.ran.clear()
    apt.ensure(Wish({}, absent=["dcgm"]), "install", 1, "a")
    assert node.ran == ["apt-mark unhold dcgm", "apt-get purge dcgm"]


def test_a_package_on_another_s_hold_is_not_purged(apt: Apt, node: Node) -> None:
    node.installed["dcgm3"] = ("3", "hi ")
    with pytest.raises(NodeProblem) as problem:
        apt.ensure(Wish({}, absent=["dcgm3"]), "install", 1, "a")
    assert str(problem.value) == (
        "Expected: no hold that others set Actual: dcgm3 held, not by rackready. Ask who set the hold; then `apt-mark "
        "unhold dcgm3` on the node and run again."
    )
    assert node.ran == []


def test_interrupted_dpkg_is_completed_and_said(apt: Apt, node: Node) -> None:
    node.installed["nvidia-open"] = ("580.1-1", "hF ")
    node.audit = "nvidia-open is half configured"
    change = apt.ensure(WISH, "install", 2, "a")
    assert change.notes == ["dpkg was interrupted: its configuration is completed"]
    assert node.ran == ["dpkg --configure -a --force-confold --force-confdef"]
    assert change.changed == {}


def test_dpkg_journal_counts_as_interrupted(apt: Apt) -> None:
    (apt.root / "var/lib/dpkg/updates/0001").touch()
    assert apt.interrupted()


def test_dpkg_that_cannot_be_completed_is_a_problem(apt: Apt, node: Node) -> None:
    node.audit = "broken"
    node.fails = {
        "dpkg --configure": "dpkg: error processing package nvidia-open (--configure):\n",
        "apt-get install": "E: Sub-process /usr/bin/dpkg returned an error code (1)",
    }
    with pytest.raises(
        NodeProblem, match="Expected: dpkg completes the interrupted configuration Actual: E: Sub-process"
    ):
        apt.ensure(WISH, "install", 1, "a")


def test_version_that_apt_did_not_install_is_seen(apt: Apt, node: Node) -> None:
    apt_get = node.apt_get
    node.apt_get = lambda words: apt_get(words) if words[0] == "update" else ""  # type: ignore[method-assign]
    node.apt_mark = lambda _: ""  # type: ignore[method-assign]
    with pytest.raises(NodeProblem, match=r"Expected: nvidia-open 580.1-1 held Actual: nvidia-open absent"):
        apt.ensure(WISH, "install", 1, "a")


@pytest.mark.parametrize(
    "lock", ["var/lib/dpkg/lock-frontend", "var/lib/dpkg/lock", "var/lib/apt/lists/lock", "var/cache/apt/archives/lock"]
)
def test_held_lock_is_waited_for_and_its_holder_named(apt: Apt, node: Node, lock: str) -> None:
    path = apt.root / lock
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert lock_holder(path) == 0
    code = (
        "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert lock_holder(path) == holder.pid
        with pytest.raises(NodeProblem) as caught:
            apt.ensure(WISH, "install", 1, "a")
        holder.communicate()
    assert f"Expected: /{lock} is free within 0 s Actual: held by process {holder.pid} (" in str(caught.value)
    assert str(caught.value).endswith("). Wait until that process has ended, or end it on the node; then run again.")
    assert node.ran == []
    assert apt.ensure(WISH, "install", 1, "a").changed


def test_lock_that_is_given_back_in_time_is_waited_for_and_said(apt: Apt, monkeypatch: pytest.MonkeyPatch) -> None:
    path = apt.root / "var/lib/apt/lists/lock"
    path.parent.mkdir(parents=True)
    path.touch()
    code = (
        "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        # It releases the lock once it is waited for, which is when apt_get first sleeps.
        clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _s: holder.communicate(timeout=60))
        monkeypatch.setattr("rackready.ondevice.locks.time", clock)
        change = dataclasses.replace(apt, lock_wait_s=300).ensure(WISH, "install", 1, "a")
    assert [note.partition(" (")[0] for note in change.notes] == [f"waited for process {holder.pid}"]
    assert change.notes[0].endswith("which held /var/lib/apt/lists/lock")


def test_name_of_a_process_says_its_script_and_no_other_argument(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text("print('runs', flush=True); import sys; sys.stdin.read()")
    with subprocess.Popen(
        [sys.executable, str(script), "secret"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"runs\n"
        comm = Path(f"/proc/{child.pid}/comm").read_text(encoding="utf-8").strip()
        assert process_name(child.pid) == f"{comm} {script}"
        child.kill()
    assert process_name(2**22 + 1) == "gone by now"


def test_newer_controller_s_token_wins(apt: Apt, node: Node) -> None:
    apt.ensure(WISH, "install", 7, "a")
    node.installed.clear()
    with pytest.raises(NodeProblem, match="Expected: fencing token 7 or newer Actual: token 6"):
        apt.ensure(WISH, "install", 6, "a")
    assert apt.ensure(WISH, "install", 1, "another ledger").changed


def test_command_of_another_run_is_waited_for(apt: Apt) -> None:
    apt.folder.mkdir()
    descriptor = os.open(apt.folder / "install.lock", os.O_RDWR | os.O_CREAT)
    (apt.folder / "install.json").write_text(json.dumps({"token": 3, "pid": 4711, "state": "begun", "ledger": "a"}))
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(NodeProblem, match="Actual: held by process 4711 of another run"):
        apt.ensure(WISH, "install", 4, "a")
    os.close(descriptor)
    assert apt.ensure(WISH, "install", 4, "a").notes == [
        "an earlier run (token 3) was interrupted here: its effect is observed first"
    ]


INVALID = "The following signatures were invalid: EXPKEYSIG 7A1C3F5B9D2E4F60 rackready mirror"
EXPIRED = f"""Get:1 http://10.0.0.2:8080 ./ InRelease [1543 B]
Err:1 http://10.0.0.2:8080 ./ InRelease
  {INVALID}
Reading package lists...
W: GPG error: http://10.0.0.2:8080 ./ InRelease: {INVALID}
E: The repository 'http://10.0.0.2:8080 ./ InRelease' is not signed.
"""


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (
            EXPIRED,
            "Actual: EXPKEYSIG 7A1C3F5B9D2E4F60 rackready mirror. The mirror's signing key has expired: renew it",
        ),
        (
            "E: GPG error: http://m ./ InRelease: The following signatures couldn't be verified: NO_PUBKEY 7A1C",
            "does not know",
        ),
        (
            "E: Version '580.1-1' for 'nvidia-open' was not found\n",
            "Expected: nvidia-open=580.1-1 on the mirror Actual: no such package or version there",
        ),
        ("E: Unable to locate package dcgm\n", "Expected: dcgm on the mirror"),
        (
            (
                "Err:1 http://10.0.0.2:8080 ./ InRelease\n  Could not connect to 10.0.0.2:8080 (10.0.0.2). "
                "- connect (111: Connection refused)\n"
            ),
            "the package mirror answers Actual: Could not connect",
        ),
        (
            "E: Write error - write (28: No space left on device)\n",
            "Expected: room on the node's disk for the packages Actual: No space left on device (/",
        ),
        (
            "E: You don't have enough free space in /var/cache/apt/archives/.\n",
            "Actual: You don't have enough free space in /var/cache/apt/archives/ (/",
        ),
        (
            "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 12 (apt)\n",
            "Actual: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 12 (apt)",
        ),
        (
            (
                "The following packages have unmet dependencies:\n nvidia-open : Depends: x (= 1) but 2 is to be "
                "installed\nE: Unable\n"
            ),
            "nvidia-open : Depends: x (= 1) but 2",
        ),
        (
            (
                "E: Conflicting values set for option Signed-By regarding source https://m/cuda/ /: /a.asc != /b.gpg\n"
                "E: The list of sources could not be read.\n"
            ),
            "Actual: Conflicting values set for option Signed-By regarding source https://m/cuda/ /: /a.asc != /b.gpg",
        ),
        (
            "something else\nE: Strange thing\n",
            "Expected: apt ends without an error Actual: E: Strange thing. See /var/log/apt",
        ),
        ("", "Actual: no output"),
    ],
)
def test_apt_s_words_become_one_problem(out: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    text = str(explain(out, tmp_path))
    assert words in text
    assert text.startswith("Expected: ")


PATHS = "E: Strange thing with" + " /a/b" * 400
"""One line of 2,000 characters full of paths."""


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (PATHS, f"Expected: apt ends without an error Actual: {PATHS}. See"),
        (f"{PATHS} /usr/last: No space left on device\n", "Actual: No space left on device (/"),
    ],
    ids=["without the words", "with them"],
)
def test_long_lines_are_read_in_one_go(out: str, words: str, tmp_path: Path) -> None:
    """Trying every pair of places takes a minute here, one pass under a millisecond: the limit is not about speed."""
    (tmp_path / "var").mkdir()
    begun = time.monotonic()
    text = str(explain(out, tmp_path))
    assert time.monotonic() - begun < 20
    assert words in text


def test_failed_update_is_explained(apt: Apt, node: Node) -> None:
    node.fails = {"apt-get update": EXPIRED}
    with pytest.raises(NodeProblem, match="EXPKEYSIG"):
        apt.ensure(Wish({}, refresh=True), "install", 1, "a")


def test_run_knows_missing_and_hanging_programs() -> None:
    assert run(["/no/such/program"]).returncode == 127
    assert run(["sleep", "5"], timeout_s=0.2).returncode == 124
    assert run(["sh", "-c", "echo out; echo err >&2; exit 3"]) == Done(3, "out\nerr\n")
