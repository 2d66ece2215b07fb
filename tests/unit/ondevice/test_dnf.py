"""Exact packages with dnf: which commands run, and what is refused.

Outputs are of the real programs: dnf 4.14.0, rpm 4.18.0 and dnf-plugins-core 4.3.1 of Debian 12, with a signed
repository of modular packages.
"""

from __future__ import annotations

import dataclasses
import fcntl
import fnmatch
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.dnf import SKIP, Dnf
from rackready.ondevice.packages import Wish, family
from rackready.ondevice.rpm_version import compare, is_lower

OLD, NEW = "3:580.173.02-1.el9", "3:580.178.01-1.el9"
MIRROR = {
    "nvidia-driver-cuda": [OLD, NEW, "3:595.91.07-1.el9"],
    "dcgm": ["1:4.6.0-1"],
    "kernel-devel": ["0:5.14.0-570.el9"],
    "chrony": ["0:4.6-1.el9"],
}


class Node:
    """rpm and dnf of a machine: its rpm database, locks and streams, and the commands that ran."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.installed: dict[str, list[str]] = {"bash": ["0:5.1-9.el9"]}
        self.provides = {"kernel-devel-5.14.0-570.el9.x86_64": "kernel-devel", "nvidia-kmod": "nvidia-driver-cuda"}
        self.metadata: dict[str, list[str]] = {}
        self.fails: dict[str, str] = {}
        self.ran: list[str] = []
        self.deaf = False
        self.dead = ""
        self.list = root / "etc/dnf/plugins/versionlock.list"
        self.list.parent.mkdir(parents=True)
        self.list.write_text("")
        (root / "etc/dnf/modules.d").mkdir()

    def __call__(self, argv: Sequence[str]) -> Done:
        if argv[0] == "rpm":
            return self.rpm(argv)
        words = [
            word for word in argv[1:] if not word.startswith(("-q", "-y", "-C", "--setopt", "--disable", "--qf", "%"))
        ]
        line = " ".join(words)
        if words[0] != "repoquery" and words[:2] != ["versionlock", "list"]:
            self.ran.append(line)
        silent = self._silent(argv)
        if silent and "Ignoring" not in silent:
            return Done(1, silent)
        failed = next((Done(1, text) for start, text in self.fails.items() if line.startswith(start)), None)
        answer = failed or getattr(self, words[0])(words[1:])
        done = answer if isinstance(answer, Done) else Done(0, answer)
        done = Done(done.returncode, silent + done.out)
        return Done(done.returncode, _heard(done.out)) if "-q" in argv else done

    def rpm(self, argv: Sequence[str]) -> Done:
        names = argv[5:] if "--whatprovides" in argv else argv[4:]
        out, code = "", 0
        if argv[1] == "-qa":
            names = [name for name in self.installed if any(fnmatch.fnmatch(name, pattern) for pattern in argv[4:])]
        for name in names:
            full = name.startswith("kernel-devel-")  # a full name, which --whatprovides does not find (rpm 4.18)
            found = self.provides.get(name, name) if full != ("--whatprovides" in argv) else name
            if found in self.installed:
                out += "".join(f"{found}\t{version}\n" for version in self.installed[found])
            else:
                out += f"package {name} is not installed\n"
                code = 1
        return Done(code, out)

    def _silent(self, argv: Sequence[str]) -> str:
        """Return what dnf says of a repository of others that gives no metadata, when a command reads them all."""
        own = [word for word in argv if word in {"-C", "--disablerepo=*", "--repo"}]
        if not self.dead or own or argv[1:3] == ["-q", "-y"]:
            return ""
        last = [word for word in argv if word.endswith(("*.skip_if_unavailable=1", "*.skip_if_unavailable=0"))]
        why = f"Error: Failed to download metadata for repo '{self.dead}': Cannot prepare internal mirrorlist\n"
        return f"{why}Ignoring repositories: {self.dead}\n" if last == list(SKIP) else why

    def makecache(self, words: list[str]) -> str:
        assert words == ["--refresh", "--repo", "rackready*"]
        self.metadata = MIRROR
        return ""

    def repoquery(self, words: list[str]) -> Done:
        if not self.metadata:
            return Done(1, "Error: Cache-only enabled but no cache for 'rackready'\n")
        return Done(0, "".join(f"{name}\t{item}\n" for name in words for item in self.metadata.get(name, [])))

    def install(self, words: list[str]) -> str | Done:
        for word in [word for word in words if word != "--allowerasing"]:
            spec = self.provides.get(word, word)
            pairs = [(name, item) for name, items in MIRROR.items() for item in items]
            names = [pair for pair in pairs if spec in (pair[0], f"{pair[0]}-{pair[1]}", f"{pair[0]}-{pair[1][2:]}")]
            if not names:
                return Done(1, f"No match for argument: {word}\nError: Unable to find a match: {word}\n")
            if any(self._locked_out(*pair) for pair in names):
                return Done(1, EXCLUDED)
            self.installed[names[0][0]] = [names[0][1]]
        return ""

    def _locked_out(self, name: str, version: str) -> bool:
        locks = [line for line in self.list.read_text().splitlines() if line.rsplit("-", 2)[0] == name]
        return bool(locks) and not any(fnmatch.fnmatch(f"{name}-{version}.x86_64", lock) for lock in locks)

    def remove(self, words: list[str]) -> str:
        if words == ["--duplicates"]:
            self.installed = {name: items[-1:] for name, items in self.installed.items()}
        for word in words:
            self.installed.pop(word, None)
        return ""

    def module(self, words: list[str]) -> str:
        name, _, stream = words[1].partition(":")
        state = "enabled" if words[0] == "enable" else ""
        text = f"[{name}]\nname={name}\nstream={stream}\nprofiles=\nstate={state}\n"
        (self.root / "etc/dnf/modules.d" / f"{name}.module").write_text(text)
        return ""

    def versionlock(self, words: list[str]) -> str:
        lines = self.list.read_text().splitlines()
        if words[0] == "list":
            return "" if self.deaf else "".join(f"{line}\n" for line in lines if line and line[0] != "#")
        if words[0] == "add":
            assert words[1] == "--raw"
            lines += ["", "# Added lock on Thu Nov 26 01:27:27 2026", *words[2:]]
        else:
            lines = [line for line in lines if line not in words[1:]]
        self.list.write_text("\n".join(lines) + "\n")
        return ""


def _heard(out: str) -> str:
    """Return what is left of an output with -q: lines of level INFO are missing (dnf/logging.py, debuglevel 0)."""
    info = ("No match for argument: ", "All matches were filtered out by ")
    return "".join(line for line in out.splitlines(keepends=True) if not line.startswith(info))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def dnf(node: Node, tmp_path: Path) -> Dnf:
    return Dnf(run=node, root=tmp_path, folder=tmp_path / "rackready", lock_wait_s=0.2)


WISH = Wish({"nvidia-driver-cuda": OLD}, hold=True)
LOCK = f"nvidia-driver-cuda-{OLD}.*"


def locks(node: Node) -> list[str]:
    return [line for line in node.list.read_text().splitlines() if line and line[0] != "#"]


def test_exact_version_is_fetched_installed_and_locked(dnf: Dnf, node: Node) -> None:
    change = dnf.ensure(WISH, "install", 1, "a")
    assert change.changed == {"nvidia-driver-cuda": ("absent", f"{OLD} held")}
    assert node.ran == [
        "makecache --refresh --repo rackready*",
        f"install nvidia-driver-cuda-{OLD}",
        f"versionlock add --raw {LOCK}",
    ]
    assert locks(node) == [LOCK]


def test_second_run_runs_nothing(dnf: Dnf, node: Node) -> None:
    dnf.ensure(WISH, "install", 1, "a")
    node.ran.clear()
    assert dnf.ensure(WISH, "install", 2, "a").changed == {}
    assert node.ran == []
    assert json.loads((dnf.folder / "install.json").read_text())["token"] == 1


def test_check_mode_reports_what_would_change_and_does_nothing(dnf: Dnf, node: Node) -> None:
    wish = dataclasses.replace(WISH, streams=["nvidia-driver:580-open"])
    assert dnf.ensure(wish, "install", 1, "a", check=True).changed == {
        "module nvidia-driver": ("no stream", "580-open"),
        "nvidia-driver-cuda": ("absent", f"{OLD} held"),
    }
    assert node.ran == []
    assert not dnf.folder.exists()


def test_stream_is_enabled_first(dnf: Dnf, node: Node) -> None:
    wish = dataclasses.replace(WISH, streams=["nvidia-driver:580-open"])
    dnf.ensure(wish, "install", 1, "a")
    assert node.ran[:2] == ["makecache --refresh --repo rackready*", "module enable nvidia-driver:580-open"]
    assert dnf.ensure(wish, "install", 1, "a").changed == {}


def test_other_stream_is_reset_before(dnf: Dnf, node: Node) -> None:
    node.module(["enable", "nvidia-driver:595-open"])
    change = dnf.ensure(Wish({}, streams=["nvidia-driver:580-open"]), "install", 1, "a")
    assert change.changed == {"module nvidia-driver": ("595-open", "580-open")}
    assert node.ran[1:] == ["module reset nvidia-driver", "module enable nvidia-driver:580-open"]


def test_a_repository_of_others_that_gives_nothing_is_left_out_and_reported(dnf: Dnf, node: Node) -> None:
    node.dead = "baseos"
    node.module(["enable", "nvidia-driver:595-open"])
    wish = dataclasses.replace(WISH, streams=["nvidia-driver:580-open"])
    change = dnf.ensure(wish, "install", 1, "a")
    assert change.notes == [
        "package source baseos gives no metadata, so dnf left it out: Cannot prepare internal mirrorlist"
    ]
    assert node.installed["nvidia-driver-cuda"] == [OLD]
    with pytest.raises(
        NodeProblem, match=r"gone on the mirror Actual: no such .* there; no metadata from baseos \(Cannot"
    ):
        dnf.ensure(Wish({"gone": ""}), "install", 2, "a")


def test_own_lock_gives_way_to_an_upgrade(dnf: Dnf, node: Node) -> None:
    dnf.ensure(WISH, "install", 1, "a")
    node.ran.clear()
    change = dnf.ensure(Wish({"nvidia-driver-cuda": NEW}, hold=True), "install", 1, "a")
    assert change.changed == {"nvidia-driver-cuda": (f"{OLD} held", f"{NEW} held")}
    assert node.ran == [
        f"versionlock delete {LOCK}",
        f"install nvidia-driver-cuda-{NEW}",
        f"versionlock add --raw nvidia-driver-cuda-{NEW}.*",
    ]


def test_missing_lock_alone_installs_nothing(dnf: Dnf, node: Node) -> None:
    node.installed["nvidia-driver-cuda"] = [OLD]
    assert dnf.ensure(WISH, "install", 1, "a").changed == {"nvidia-driver-cuda": (OLD, f"{OLD} held")}
    assert node.ran == [f"versionlock add --raw {LOCK}"]


@pytest.mark.parametrize("lock", [LOCK, f"nvidia-driver-cuda-{OLD}.x86_64", f"nvidia-driver-cuda-{OLD}", "nvidia*580*"])
def test_lock_counts_in_every_form_that_keeps_the_version(dnf: Dnf, node: Node, lock: str) -> None:
    node.installed["nvidia-driver-cuda"] = [OLD]
    node.list.write_text(f"# by hand\n!nvidia-driver-cuda-{NEW}.*\n{lock}\n")
    assert dnf.ensure(WISH, "install", 1, "a").changed == {}


FOREIGN = (
    f"Expected: no version lock that others set Actual: nvidia-driver-cuda-{NEW}.*, not by rackready. Ask who set the "
    f"lock; then `dnf versionlock delete 'nvidia-driver-cuda-{NEW}.*'` on the node and run again."
)


@pytest.mark.parametrize("installed", [[], [OLD]])
def test_somebody_else_s_lock_is_respected(dnf: Dnf, node: Node, installed: list[str]) -> None:
    if installed:
        node.installed["nvidia-driver-cuda"] = installed
    node.list.write_text(f"nvidia-driver-cuda-{NEW}.*\n")
    with pytest.raises(NodeProblem) as caught:
        dnf.ensure(WISH, "install", 1, "a")
    assert str(caught.value) == FOREIGN
    assert node.ran == []
    assert locks(node) == [f"nvidia-driver-cuda-{NEW}.*"]


def test_lock_that_dnf_does_not_list_is_a_problem(dnf: Dnf, node: Node) -> None:
    node.deaf = True
    with pytest.raises(NodeProblem) as caught:
        dnf.ensure(WISH, "install", 1, "a")
    assert str(caught.value) == (
        f"Expected: version locks {LOCK} Actual: not listed by dnf; rolled back: packages and holds are "
        "as before. See `dnf versionlock list` and /etc/dnf/plugins/versionlock.conf on the node, then run again."
    )


LOWER = (
    f"Expected: nvidia-driver-cuda {NEW} or newer Actual: nvidia-driver-cuda {OLD} wanted. Choose a newer version set "
    "(software.set), or set software.allow_downgrade: true; then run again. No package was changed."
)


def test_lower_version_is_refused_and_nothing_runs(dnf: Dnf, node: Node) -> None:
    node.installed["nvidia-driver-cuda"] = [NEW]
    with pytest.raises(NodeProblem) as caught:
        dnf.ensure(WISH, "install", 1, "a")
    assert str(caught.value) == LOWER
    assert node.ran == []
    assert node.installed["nvidia-driver-cuda"] == [NEW]


def test_dry_run_reports_a_lower_version_and_that_a_run_would_refuse(dnf: Dnf, node: Node) -> None:
    node.installed["nvidia-driver-cuda"] = [NEW]
    change = dnf.ensure(WISH, "install", 1, "a", check=True)
    assert change.changed == {"nvidia-driver-cuda": (NEW, f"{OLD} held")}
    assert change.notes == [f"a run would refuse: {LOWER}"]


def test_lower_version_is_installed_with_consent(dnf: Dnf, node: Node) -> None:
    node.installed["nvidia-driver-cuda"] = [NEW]
    dnf.ensure(dataclasses.replace(WISH, allow_downgrade=True), "install", 1, "a")
    assert node.installed["nvidia-driver-cuda"] == [OLD]


def test_absent_is_removed_without_its_dependencies(dnf: Dnf, node: Node) -> None:
    node.installed["dcgm3"] = ["1:3.3.9-1"]
    change = dnf.ensure(Wish({"dcgm": "1:4.6.0-1"}, absent=["dcgm3", "never"]), "install", 1, "a")
    assert change.changed == {"dcgm": ("absent", "1:4.6.0-1"), "dcgm3": ("1:3.3.9-1", "absent")}
    assert node.ran[0] == "remove --noautoremove dcgm3"


def test_any_version_is_satisfied_by_a_name_a_full_name_or_what_provides_it(dnf: Dnf, node: Node) -> None:
    wish = Wish({"bash": "", "kernel-devel-5.14.0-570.el9.x86_64": ""})
    assert dnf.ensure(wish, "install", 1, "a").changed == {
        "kernel-devel-5.14.0-570.el9.x86_64": ("absent", "installed")
    }
    assert node.installed["kernel-devel"] == ["0:5.14.0-570.el9"]
    assert dnf.ensure(wish, "install", 1, "a").changed == {}
    node.installed["nvidia-driver-cuda"] = [OLD]
    assert dnf.installed(["nvidia-kmod"]) == {"nvidia-kmod": [OLD]}


def test_version_without_epoch_equals_epoch_0(dnf: Dnf, node: Node) -> None:
    node.installed["chrony"] = ["0:4.6-1.el9"]
    assert dnf.ensure(Wish({"chrony": "4.6-1.el9"}), "install", 1, "a").changed == {}
    assert dnf.ensure(Wish({"chrony": "0:4.6-1.el9"}), "install", 1, "a").changed == {}


def test_two_versions_left_by_an_interrupted_rpm_are_resolved_and_reported(dnf: Dnf, node: Node) -> None:
    node.installed["nvidia-driver-cuda"] = [NEW, OLD]
    node.list.write_text(f"{LOCK}\n")
    change = dnf.ensure(dataclasses.replace(WISH, allow_downgrade=True), "install", 1, "a")
    assert change.notes == ["rpm was interrupted: removed the older version of nvidia-driver-cuda"]
    assert node.ran == ["remove --duplicates"]


def test_version_that_dnf_did_not_install_is_seen(dnf: Dnf, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "install", lambda _: "")
    with pytest.raises(NodeProblem, match=r"Expected: dcgm 1:4.6.0-1 Actual: dcgm absent. See the end of /var/log/dnf"):
        dnf.ensure(Wish({"dcgm": "1:4.6.0-1"}), "install", 1, "a")


def test_lock_file_of_a_live_dnf_is_waited_for(dnf: Dnf, node: Node) -> None:
    path = dnf.root / "var/lib/dnf/rpmdb_lock.pid"
    path.parent.mkdir(parents=True)
    path.write_text(str(os.getpid()))
    with pytest.raises(
        NodeProblem,
        match=rf"Expected: /var/lib/dnf/rpmdb_lock.pid is free within 0 s Actual: held by process {os.getpid()} ",
    ):
        dnf.ensure(WISH, "install", 1, "a")
    assert node.ran == []
    path.write_text(str(2**22 + 1))
    assert dnf.ensure(WISH, "install", 1, "a").changed


def test_newer_controller_s_token_wins_and_another_run_is_waited_for(dnf: Dnf, node: Node) -> None:
    dnf.ensure(WISH, "install", 7, "a")
    del node.installed["nvidia-driver-cuda"]
    with pytest.raises(NodeProblem, match="Expected: fencing token 7 or newer Actual: token 6"):
        dnf.ensure(WISH, "install", 6, "a")
    descriptor = os.open(dnf.folder / "install.lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(NodeProblem, match="of another run"):
        dnf.ensure(WISH, "install", 8, "a")
    os.close(descriptor)


EXCLUDED = f"""All matches were filtered out by exclude filtering for argument: nvidia-driver-cuda-{NEW}
Error: Unable to find a match: nvidia-driver-cuda-{NEW}
"""
UNSIGNED = """Package demo-580.173.02-1.el9.x86_64.rpm is not signed
Package demo-common-580.173.02-1.el9.noarch.rpm is not signed
Error: GPG check FAILED
"""
MODULAR = """All matches were filtered out by modular filtering for argument: demo-3:595.91.07-1.el9
Error: Unable to find a match: demo-3:595.91.07-1.el9
"""


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (
            EXCLUDED,
            (
                f"Expected: nvidia-driver-cuda-{NEW} may be installed Actual: excluded on the node by others. Look for "
                "it in `dnf versionlock list` and in exclude= or excludepkgs= below /etc/dnf and /etc/yum.repos.d on "
                "the node, ask who excluded it, remove the entry and run again."
            ),
        ),
        (
            MODULAR,
            (
                "Expected: demo-3:595.91.07-1.el9 in the enabled module stream Actual: another stream is enabled. "
                "Compare `dnf module list --enabled` on the node with the version set (software.set)."
            ),
        ),
    ],
)
def test_a_package_that_the_node_hides_is_not_reported_as_absent(dnf: Dnf, node: Node, out: str, words: str) -> None:
    node.fails = {"install": out}
    with pytest.raises(NodeProblem) as caught:
        dnf.ensure(WISH, "install", 1, "a")
    assert str(caught.value) == words


def test_failed_install_is_explained(dnf: Dnf, node: Node) -> None:
    node.fails = {"install": UNSIGNED}
    with pytest.raises(NodeProblem, match="is not signed"):
        dnf.ensure(WISH, "install", 1, "a")


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        ("1.0", "1.0.1"),
        ("5.5p1", "5.5p10"),
        ("10xyz", "10.1xyz"),
        ("xyz10", "10xyz"),
        ("1.0~rc1", "1.0"),
        ("1.0", "1.0^git1"),
        ("1.0^git1", "1.01"),
        ("580.95.05", "580.173.02"),
        ("1.el9", "1.el9_5"),
    ],
)
def test_versions_are_compared_as_rpm_does(lower: str, higher: str) -> None:
    """Pairs of rpm's tests/rpmvercmp.at and of the driver; rpm.vercmp of rpm 4.18 gives the same."""
    assert (compare(lower, higher), compare(higher, lower), compare(lower, lower)) == (-1, 1, 0)


def test_epoch_is_compared_before_the_version_and_the_release_after_it() -> None:
    assert is_lower("580.173.02-1.el9", OLD)
    assert is_lower("1-1", "1-2")
    assert not is_lower("1-2", "1-1")
    assert not is_lower(OLD, OLD)


@pytest.mark.parametrize(
    ("dnf_there", "release", "wanted"),
    [
        (True, 'ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf"),
        (True, 'ID="rhel"\n', "dnf"),
        (True, "ID=debian\n", "apt"),
        (True, "ID=ubuntu\nID_LIKE=debian\n", "apt"),
        (False, "ID=debian\n", "apt"),
    ],
)
def test_package_manager_follows_dnf_and_the_system(
    tmp_path: Path, *, dnf_there: bool, release: str, wanted: str
) -> None:
    for name, text in {"usr/bin/dnf": "", "etc/os-release": release}.items():
        if name != "usr/bin/dnf" or dnf_there:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
    assert family(tmp_path) == wanted
