"""What a tenant left on a node: found by kind, removed, and what may not be touched."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rackready.ondevice import safe_files, tenant_traces
from rackready.ondevice.tenant_traces import answer
from rackready.ondevice.tenants import Machine, Tenants

TENANT, OPERATOR, SLURM, NOBODY = 20001, 1000, 64030, 65534
OURS = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOURS"
THEIRS = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAITHEIRS eve@laptop"
PARAMS = 'ResmanDebugLevel: 4294967295\nRegistryDwords: ""\nExcludedGpus: ""\n'


class Made(Machine):
    """A node below a folder, with users, mounts and processes that the test makes."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.ended: list[int] = []
        self.ran: list[tuple[str, ...]] = []
        self.survives = False
        self.directory: list[Any] = []
        self.sshd = "port 22\nauthorizedkeysfile .ssh/authorized_keys .ssh/authorized_keys2\n"
        self.write("etc/login.defs", "UID_MIN\t\t\t 1000\nUID_MAX 60000\n")
        self.write("proc/driver/nvidia/params", PARAMS)
        self.write("proc/self/mounts", "/dev/md1 / ext4 rw 0 0\n")
        self.write("root/.ssh/authorized_keys", f"# rackready\n{OURS} rackready\n")

    def write(self, path: str, text: str, owner: int = 0) -> Path:
        place = self.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        os.lchown(place, owner, owner)
        return place

    def process(self, pid: int, uid: int, name: str = "python3", state: str = "S (sleeping)") -> None:
        uids = f"{uid}\t{uid}\t{uid}\t{uid}"
        self.write(f"proc/{pid}/status", f"Name:\t{name}\nUmask:\t0022\nState:\t{state}\nUid:\t{uids}\n")

    def users(self) -> list[Any]:
        rows = [("root", 0, "/root"), ("operator", OPERATOR, "/homes/operator"), ("eve", TENANT, "/homes/eve")]
        rows += [("slurm", SLURM, "/nonexistent"), ("nobody", NOBODY, "/nonexistent")]
        return [SimpleNamespace(pw_name=name, pw_uid=uid, pw_dir=home) for name, uid, home in rows]

    def user(self, name: str) -> Any:  # noqa: ANN401 - as the method that it replaces
        return next((user for user in [*self.users(), *self.directory] if user.pw_name == name), None)

    def run(self, *argv: str) -> tuple[int, str]:
        self.ran.append(argv)
        if argv[0] == "sshd":
            return 0, self.sshd
        if argv[0] == "ipcrm":
            self.at("proc/sysvipc/shm").unlink()
        return 0, ""

    def end(self, pid: int) -> None:
        self.ended.append(pid)
        if not self.survives:
            self.at(f"proc/{pid}/status").unlink()


@pytest.fixture
def node(tmp_path: Path) -> Made:
    return Made(tmp_path)


def ask(node: Made, op: str = "look", **more: Any) -> dict[str, Any]:
    request = {"op": op, "keep_users": ["root", "operator"], "keep_keys": [OURS], "login": "root"}
    request |= {"empty": [], "spare": [], **more}
    return answer(node, request)


def what(found: dict[str, Any]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for item in found["found"]:
        out.setdefault(item["kind"], []).append(item["what"])
    return out


def test_a_node_without_traces_has_none(node: Made) -> None:
    node.process(10, 0, "sshd")
    node.process(11, SLURM, "slurmctld")
    node.process(12, OPERATOR, "bash")
    node.write("tmp/mine", "x", OPERATOR)
    node.write("tmp/systemd-private/x", "x", NOBODY)
    found = ask(node)
    assert (found["found"], found["counts"], found["refused"], found["complete"]) == ([], {}, "", True)


def test_each_kind_is_found_and_a_look_changes_nothing(node: Made) -> None:
    filled(node)
    found = what(ask(node, empty=["/scratch"], spare=["/homes"]))
    keys = ["/homes/eve/.ssh/authorized_keys (eve): eve@laptop", "/root/.ssh/authorized_keys (root): eve@laptop"]
    assert found.pop("key", []) in (keys, keys[::-1])
    assert found == {
        "process": ["77 miner (eve)"],
        "ipc": ["shm 5 (eve)"],
        "schedule": ["/var/spool/cron/crontabs/eve (eve)", "/var/lib/systemd/linger/eve (eve)"],
        "file": ["/tmp/ours/deep (eve)", "/dev/shm/nccl-x (uid 20007)"],  # noqa: S108 - below the test's folder
        "folder": ["/scratch/data"],
    }
    assert node.ended == []
    assert node.at("dev/shm/nccl-x").exists()


def filled(node: Made) -> None:
    node.process(77, TENANT, "miner")
    node.process(78, TENANT, "gone", "Z (zombie)")
    node.write("proc/sysvipc/shm", "       key      shmid perms       size  cpid  lpid nattch   uid   gid\n"
               "         0          5   600    1048576    77    77      1 20001 20001\n"
               "         0          6   600    1048576    10    10      1     0     0\n")  # fmt: skip
    node.write("var/spool/cron/crontabs/eve", "* * * * * x\n", TENANT)
    node.write("var/spool/cron/crontabs/root", "@daily y\n")
    node.write("var/lib/systemd/linger/eve", "")
    node.at("tmp/ours").mkdir(parents=True)
    node.write("tmp/ours/deep", "x", TENANT)
    node.write("tmp/ours/root", "x")
    node.write("dev/shm/nccl-x", "x", 20007)
    node.write("scratch/data", "x")
    node.at("scratch/lost+found").mkdir()
    node.write("root/.ssh/authorized_keys", f"# rackready\n{OURS} rackready\n{THEIRS}\n")
    node.write("homes/eve/.ssh/authorized_keys", f'command="sh",no-pty {THEIRS}\n', TENANT)


def test_a_scrub_leaves_nothing_of_a_tenant_and_all_of_others(node: Made) -> None:
    filled(node)
    found = ask(node, "scrub", empty=["/scratch"], spare=["/homes"])
    assert (found["found"], found["refused"]) == ([], "")
    assert node.ended == [77]
    assert ("ipcrm", "-m", "5") in node.ran
    assert node.at("root/.ssh/authorized_keys").read_text() == f"# rackready\n{OURS} rackready\n"
    assert node.at("homes/eve/.ssh/authorized_keys").stat().st_uid == TENANT
    assert [path.name for path in node.at("scratch").iterdir()] == ["lost+found"]
    assert node.at("tmp/ours/root").exists()
    assert node.at("var/spool/cron/crontabs/root").exists()
    assert found["gone"] == 9


def test_a_process_that_does_not_end_is_told(node: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_traces, "_END_S", 0.3)
    node.survives = True
    node.process(77, TENANT, "miner")
    assert what(ask(node, "scrub")) == {"process": ["77 miner (eve)"]}


def test_without_a_key_of_ours_nothing_is_changed(node: Made) -> None:
    filled(node)
    node.write("root/.ssh/authorized_keys", f"{THEIRS}\n")
    found = ask(node, "scrub")
    assert found["refused"] == "no authorized_keys file of root has a key that is kept: the next login would fail"
    assert (found["gone"], node.ended) == (0, [])


def test_a_folder_on_the_storage_of_the_site_is_refused(node: Made) -> None:
    node.write("proc/self/mounts", "/dev/md1 / ext4 rw 0 0\nstore@tcp:/fs /homes lustre rw 0 0\n")
    node.write("homes/eve/thesis", "x", TENANT)
    node.write("homes/eve/.ssh/authorized_keys", f"{THEIRS}\n", TENANT)
    found = ask(node, "scrub", empty=["/homes"])
    assert found["refused"] == "/homes lies on lustre, mounted at /homes: it is not this node's own"
    assert node.at("homes/eve/thesis").exists()
    assert "key" not in what(found), "keys in homes on the site's storage are the site's"


def test_a_folder_that_is_a_link_is_refused(node: Made) -> None:
    node.at("etc").mkdir(exist_ok=True)
    node.at("scratch").symlink_to(node.at("etc"))
    assert ask(node, "scrub", empty=["/scratch"], spare=["/homes"])["refused"] == "/scratch is a symbolic link"
    assert node.at("etc/login.defs").exists()


def test_homes_that_are_kept_stay(node: Made) -> None:
    node.write("homes/operator/.profile", "x", OPERATOR)
    node.write("homes/eve/thesis", "x", TENANT)
    assert ask(node, "scrub", empty=["/homes"])["found"] == []
    assert [path.name for path in node.at("homes").iterdir()] == ["operator"]


def test_keys_in_a_home_that_goes_whole_are_no_trouble(node: Made) -> None:
    node.write("homes/eve/.ssh/authorized_keys", f"{THEIRS}\n", TENANT)
    found = ask(node, "scrub", empty=["/homes"])
    assert (found["found"], found["gone"]) == ([], 2), "the key first, then the home"


def test_what_cannot_be_removed_is_told(node: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    node.write("tmp/x", "x", TENANT)

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")  # as of a file that chattr made immutable

    monkeypatch.setattr(safe_files, "remove", refuse)
    found = ask(node, "scrub")
    assert (found["counts"], found["gone"]) == ({"file": 1}, 0)


def test_files_of_tenants_anywhere_else_are_told_and_stay(node: Made) -> None:
    node.write("srv/models/weights", "x", TENANT)
    node.write("opt/x/y/z", "x", 20007)
    node.write("var/lib/containers/image/file", "x", TENANT)
    node.write("homes/operator/mine", "x", TENANT)
    found = ask(node, "scrub", spare=["/var/lib/containers"])
    assert (found["counts"], found["gone"]) == ({"elsewhere": 2}, 0)
    assert sorted(what(found)["elsewhere"]) == ["/opt/x/y/z (uid 20007)", "/srv/models/weights (eve)"]
    assert node.at("srv/models/weights").exists()


def test_mail_and_locks_of_tenants_go(node: Made) -> None:
    node.write("var/mail/eve", "x", TENANT)
    node.write("run/lock/eve.lck", "x", TENANT)
    node.at("var/spool").mkdir(parents=True, exist_ok=True)
    node.at("var/spool/mail").symlink_to(node.at("var/mail"))
    assert (ask(node)["counts"], ask(node, "scrub")["found"]) == ({"file": 2}, [])


def test_a_link_that_waits_beside_the_keys_is_not_written_through(node: Made) -> None:
    node.write("etc/shadow", "root:x\n")
    node.write("homes/eve/.ssh/authorized_keys", f"{THEIRS}\n", TENANT)
    node.at("homes/eve/.ssh/.authorized_keys.rackready").symlink_to(node.at("etc/shadow"))
    found = ask(node, "scrub", spare=["/homes"])
    assert found["found"] == []
    assert node.at("etc/shadow").read_text() == "root:x\n"
    keys = node.at("homes/eve/.ssh/authorized_keys")
    assert (keys.read_text(), keys.is_symlink(), keys.stat().st_uid) == ("", False, TENANT)


def test_a_link_in_place_of_the_keys_is_removed_and_not_read(node: Made) -> None:
    node.write("etc/shadow", "root:secret\n")
    node.at("homes/eve/.ssh").mkdir(parents=True)
    node.at("homes/eve/.ssh/authorized_keys").symlink_to(node.at("etc/shadow"))
    os.lchown(node.at("homes/eve/.ssh/authorized_keys"), TENANT, TENANT)
    spare = ["/homes"]
    assert what(ask(node, spare=spare)) == {"key": ["/homes/eve/.ssh/authorized_keys (eve): a link"]}
    assert ask(node, "scrub", spare=spare)["found"] == []
    assert node.at("etc/shadow").read_text() == "root:secret\n"


def test_without_sshds_word_nothing_is_changed(node: Made) -> None:
    filled(node)
    node.sshd = ""
    found = ask(node, "scrub")
    expected = "`sshd -T` names no file of authorized keys, so nothing tells whose keys let somebody in"
    assert (found["refused"], found["gone"], node.ended) == (expected, 0, [])


def test_memory_of_gpus_that_is_not_cleared_cannot_be_scrubbed(node: Made) -> None:
    node.write("proc/driver/nvidia/params", PARAMS.replace('""', '"RmX=1;RMDisableScrubOnFree=0x1"', 1))
    text = "RMDisableScrubOnFree=0x1: the driver does not clear memory that is freed"
    assert what(ask(node, "scrub")) == {"gpu-memory": [text]}
    node.write("proc/driver/nvidia/params", PARAMS.replace('""', '"RMDisableScrubOnFree=0"', 1))
    assert ask(node)["found"] == []
    node.at("proc/driver/nvidia/params").unlink()
    text = "/proc/driver/nvidia/params: not there, so nothing tells that freed memory is cleared"
    assert what(ask(node)) == {"gpu-memory": [text]}


def test_names_that_a_tenant_chose_cannot_harm_a_terminal(node: Made) -> None:
    folder = os.fsencode(node.at("tmp"))
    node.at("tmp").mkdir()
    path = folder + b"/\x1b[2J\xff\n"
    Path(os.fsdecode(path)).write_text("x")
    os.lchown(path, TENANT, TENANT)
    assert what(ask(node)) == {"file": ["/tmp/?[2J?? (eve)"]}  # noqa: S108 - below the test's folder
    assert ask(node, "scrub")["found"] == []


def test_a_link_in_tmp_is_removed_and_not_followed(node: Made) -> None:
    node.write("etc/passwd", "root:x:0:0\n")
    node.at("tmp/d").mkdir(parents=True)
    for place in ("tmp/l", "tmp/d/l"):
        node.at(place).symlink_to(node.at("etc"))
        os.lchown(node.at(place), TENANT, TENANT)
    os.lchown(node.at("tmp/d"), TENANT, TENANT)
    assert ask(node, "scrub")["found"] == []
    assert node.at("etc/passwd").exists()
    assert list(node.at("tmp").iterdir()) == []


def test_many_traces_are_counted_and_some_named(node: Made) -> None:
    for number in range(60):
        node.write(f"tmp/f{number:02}", "x", TENANT)
    found = ask(node)
    assert (len(found["found"]), found["counts"]) == (tenant_traces.LIMIT, {"file": 60})


@pytest.mark.parametrize("uid", [0, 999, 61184, SLURM, NOBODY, OPERATOR])
def test_who_is_no_tenant(node: Made, uid: int) -> None:
    assert not Tenants(node, ["operator"]).has(uid)


@pytest.mark.parametrize("uid", [1001, 60000, 100000, 1_000_000_001])
def test_who_is_a_tenant(node: Made, uid: int) -> None:
    assert Tenants(node, ["operator"]).has(uid)


def test_what_is_mounted_below_a_folder_is_not_emptied(node: Made) -> None:
    node.write("proc/self/mounts", "/dev/md1 / ext4 rw 0 0\nnfs:/h /homes/eve nfs4 rw 0 0\n")
    node.write("homes/eve/thesis", "x", TENANT)
    assert ask(node, "scrub", empty=["/homes"])["refused"] == "/homes/eve is mounted below /homes"
    assert node.at("homes/eve/thesis").exists()


def test_a_mount_below_a_folder_to_spare_is_not_searched(node: Made) -> None:
    rows = "/dev/md1 / ext4 rw 0 0\n/dev/md2 /var/lib/containers/x ext4 rw 0 0\n/dev/md3 /data\\040two xfs rw 0 0\n"
    node.write("proc/self/mounts", rows)
    node.write("var/lib/containers/x/file", "x", TENANT)
    assert ask(node, spare=["/var/lib/containers"])["found"] == []
    node.write("data two/file", "x", TENANT)
    found = what(ask(node, spare=["/var/lib/containers"]))
    assert found == {"elsewhere": ["/data two/file (eve)", "/data two/file (eve)"]}, "no mount here: seen from / too"


def test_a_user_of_a_directory_that_is_kept_is_no_tenant(node: Made) -> None:
    node.process(77, 5000, "exporter")
    assert what(ask(node)) == {"process": ["77 exporter (uid 5000)"]}
    node.directory = [SimpleNamespace(pw_name="monitoring", pw_uid=5000, pw_dir="/homes/monitoring")]
    node.write("homes/monitoring/file", "x", 5000)
    node.write("var/lib/systemd/linger/monitoring", "")
    assert ask(node, keep_users=["root", "operator", "monitoring"])["found"] == []


def test_a_user_to_keep_that_nobody_knows_is_refused(node: Made) -> None:
    filled(node)
    found = ask(node, "scrub", keep_users=["root", "monitorin"])
    expected = "the node knows no user monitorin, who is to be kept"
    assert (found["refused"], found["gone"], node.ended) == (expected, 0, [])


def test_while_a_process_lives_on_no_file_is_removed(node: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_traces, "_END_S", 0.3)
    filled(node)
    node.survives = True
    found = ask(node, "scrub", empty=["/scratch"], spare=["/homes"])
    assert sorted(found["counts"]) == ["file", "folder", "ipc", "process"], "keys and schedules went first"
    assert node.at("scratch/data").exists()


def test_logins_are_closed_until_the_next_boot(node: Made) -> None:
    node.at("run").mkdir(exist_ok=True)
    ask(node)
    assert not node.at("run/nologin").exists()
    ask(node, "scrub")
    assert node.at("run/nologin").read_text() == (
        "This node is being handed back. Only root may log in until it has rebooted.\n"
    )


def test_logins_stay_open_where_rackready_itself_does_not_log_in_as_root(node: Made) -> None:
    node.at("run").mkdir(exist_ok=True)
    node.write("homes/operator/.ssh/authorized_keys", f"{OURS}\n", OPERATOR)
    assert ask(node, "scrub", login="operator")["refused"] == ""
    assert not node.at("run/nologin").exists()


def test_memory_of_crashed_programs_goes_whoever_owns_it(node: Made) -> None:
    node.write("var/lib/systemd/coredump/core.train.20001.zst", "x")
    node.write("var/crash/202611280000/dump.202611280000", "x")
    node.write("var/crash/kexec_cmd", "x")
    assert what(ask(node)) == {"dump": ["/var/lib/systemd/coredump/core.train.20001.zst", "/var/crash/202611280000"]}
    assert ask(node, "scrub")["found"] == []
    assert node.at("var/crash/kexec_cmd").exists(), "kdump-config's own"


def test_a_tenants_mount_is_told_and_taken_away(node: Made) -> None:
    fuse = "sshfs /srv/m fuse.sshfs rw,nosuid,nodev,user_id=20001,group_id=20001 0 0\n"
    node.write("proc/self/mounts", f"/dev/md1 / ext4 rw 0 0\n{fuse}lxcfs /x fuse.lxcfs rw,user_id=0,group_id=0 0 0\n")
    assert what(ask(node)) == {"mount": ["/srv/m (fuse.sshfs, eve)"]}
    ask(node, "scrub")
    assert ("umount", "--lazy", "/srv/m") in node.ran


def test_files_that_move_while_they_are_looked_at_are_refused(node: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(*_: object) -> None:
        raise safe_files.ChangedError("x was moved")

    monkeypatch.setattr(safe_files, "below", moved)
    assert ask(node)["refused"] == "its files cannot be looked at: x was moved"


@pytest.mark.parametrize("kind", ["fuse.glusterfs", "smb3", "panfs"])
def test_a_folder_on_a_file_system_that_no_list_names_is_not_emptied(node: Made, kind: str) -> None:
    node.write("proc/self/mounts", f"/dev/md1 / ext4 rw 0 0\nstore:/h /homes {kind} rw 0 0\n")
    node.write("homes/eve/thesis", "x", TENANT)
    expected = f"/homes lies on {kind}, mounted at /homes: it is not this node's own"
    assert ask(node, "scrub", empty=["/homes"])["refused"] == expected
    assert node.at("homes/eve/thesis").exists()
