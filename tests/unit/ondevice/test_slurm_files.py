"""The program that changes Slurm's files on their controller, against a slurmctld that the tests make behave."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackready.ondevice import slurm_files

Ask = Callable[..., dict[str, Any]]
"""Sends a request to the program and returns its answer."""
OLD = "ClusterName=x\nPartitionName=admin State=UP\n"
NEW = {
    "slurm.conf": OLD + "Include rackready_nodes.conf\n",
    "rackready_nodes.conf": "NodeName=n1 State=DRAIN\nPartitionName=gpu Nodes=n1\n",
}


class Daemon:
    """slurmctld with its files: it knows the nodes of the included file from its last (re)load."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.up = True
        self.nodes: set[str] = set()
        self.loaded: dict[str, str] = {}
        self.dies_of = ""
        self.calls: list[str] = []
        self.at: dict[str, Callable[[], None]] = {}

    def run(self, *argv: str, timeout_s: float = 60) -> tuple[int, str]:
        del timeout_s
        line = " ".join(argv)
        self.calls.append(line)
        if line in self.at:
            self.at.pop(line)()
        if argv[0] == "systemctl":
            if argv[1] == "restart":
                self._load()
            return 0, "active\n" if argv[1] == "is-active" else ""
        if line == "scontrol ping":  # 0 also when it is down: Slurm 22.05.8
            return 0, f"Slurmctld(primary) at ctl is {'UP' if self.up else 'DOWN'}\n"
        if line == "scontrol reconfigure":
            self._load()
            return (0, "") if self.up else (1, "slurm_reconfigure error: Unable to contact slurm controller\n")
        if line.startswith("scontrol show node"):
            return 0, "".join(f"NodeName={node} Arch=x86_64 State=IDLE+DRAIN \n" for node in sorted(self.nodes))
        if line == "slurmctld -V":
            return 0, "slurm-wlm 22.05.8\n"
        if argv[0] == "journalctl":
            return 0, "slurmctld: error: x\nslurmctld: fatal: Duplicated NodeHostName n1 in config file\n"
        raise AssertionError(line)

    def _load(self) -> None:
        texts = self.loaded = slurm_files.texts(self.folder)
        self.up = not self.dies_of or self.dies_of not in "".join(texts.values())
        found = texts.get("rackready_nodes.conf", "") if self.up else ""
        self.nodes = {line.split()[0].removeprefix("NodeName=") for line in found.splitlines() if "NodeName" in line}


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    (tmp_path / "slurm.conf").write_text(OLD)
    made = Daemon(tmp_path)
    monkeypatch.setattr(slurm_files, "run", made.run)
    monkeypatch.setattr(slurm_files, "try_out", lambda *_: None)
    return made


def ask(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **more: Any
) -> dict[str, Any]:
    request = {"op": "apply", "folder": str(folder), "unit": "slurmctld.service", "wait_s": 0, **more}
    if request["op"] in {"apply", "begin"}:
        request = {
            "files": NEW, "seen": slurm_files.digest(slurm_files.texts(folder)), "reload": "restart", "nodes": ["n1"],
        } | request  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["slurm_files.py", json.dumps(request)])
    assert slurm_files.main() == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found.pop("complete") is True
    assert found.pop("format") == slurm_files.FORMAT
    return found


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    return lambda **more: ask(tmp_path, monkeypatch, capsys, **more)


def test_files_are_written_loaded_and_the_old_ones_kept(tmp_path: Path, daemon: Daemon, asking: Ask) -> None:
    found = asking()
    assert (found["result"], found["words"]) == ("applied", [])
    assert slurm_files.texts(tmp_path) == NEW
    assert slurm_files.texts(Path(found["kept"])) == {"slurm.conf": OLD}
    assert daemon.nodes == {"n1"}
    assert not (tmp_path / slurm_files.JOURNAL).exists()
    # Configless nodes fetch the files only when they are told to.
    assert "scontrol reconfigure" in daemon.calls
    assert asking()["result"] == "unchanged"


def test_what_slurmctld_dies_of_is_taken_back(tmp_path: Path, daemon: Daemon, asking: Ask) -> None:
    daemon.dies_of = "NodeName=n1"
    found = asking()
    assert found["result"] == "taken-back"
    assert found["words"] == [
        "after a restart slurmctld does not answer",
        "error: x",
        "fatal: Duplicated NodeHostName n1 in config file",
        "with the old files slurmctld runs again",
    ]
    assert slurm_files.texts(tmp_path) == {"slurm.conf": OLD}
    assert daemon.up
    assert not (tmp_path / slurm_files.JOURNAL).exists()


def test_a_slurmctld_without_the_promised_node_is_taken_back(tmp_path: Path, daemon: Daemon, asking: Ask) -> None:
    found = asking(nodes=["n1", "n2"])
    assert found["words"][0] == "slurmctld does not know n2"
    assert slurm_files.texts(tmp_path) == {"slurm.conf": OLD}
    assert daemon.nodes == set()


def test_files_that_somebody_changed_meanwhile_stay(tmp_path: Path, daemon: Daemon, asking: Ask) -> None:
    found = asking(seen="of before")
    assert (found["result"], found["words"]) == ("changed-meanwhile", ["the files are no longer as they were read"])
    assert slurm_files.texts(tmp_path) == {"slurm.conf": OLD}
    assert daemon.calls == []


def test_files_that_a_trial_refuses_are_never_written(
    tmp_path: Path,
    daemon: Daemon,
    asking: Ask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise slurm_files.StopError("refused", ["fatal: Unable to process configuration file"])

    monkeypatch.setattr(slurm_files, "try_out", refuse)
    assert asking()["result"] == "refused"
    assert slurm_files.texts(tmp_path) == {"slurm.conf": OLD}
    assert not (tmp_path / slurm_files.KEPT).exists()
    assert daemon.calls == []


class KilledError(BaseException):
    """The program was killed."""


def killed() -> None:
    raise KilledError


@pytest.mark.parametrize(
    ("how", "at"),
    [
        ("restart", "systemctl reset-failed slurmctld.service"),
        ("restart", "systemctl restart slurmctld.service"),
        ("restart", "scontrol ping"),
        ("restart", "scontrol reconfigure"),
        ("reconfigure", "scontrol reconfigure"),
        ("reconfigure", "scontrol ping"),
        ("reconfigure", "scontrol show node --oneliner"),
    ],
)
def test_a_change_killed_after_its_files_were_written_is_ended_by_the_next_run(
    tmp_path: Path, daemon: Daemon, asking: Ask, how: str, at: str
) -> None:
    daemon.at[at] = killed
    with pytest.raises(KilledError):
        asking(reload=how)
    assert (tmp_path / slurm_files.JOURNAL).exists()
    assert asking()["result"] == "journal"
    journal = json.loads((tmp_path / slurm_files.JOURNAL).read_text())  # as a version before hosts left it
    del journal["hosts"], journal["back"]
    (tmp_path / slurm_files.JOURNAL).write_text(json.dumps(journal))
    assert asking(op="recover")["words"] == ["an interrupted change was ended: slurmctld runs with it"]
    assert daemon.loaded == slurm_files.texts(tmp_path) == NEW
    assert daemon.nodes == {"n1"}
    assert not (tmp_path / slurm_files.JOURNAL).exists()
    assert asking(op="recover")["words"] == []


def test_settings_that_a_killed_change_wrote_are_loaded_by_the_next_run(
    tmp_path: Path, daemon: Daemon, asking: Ask
) -> None:
    asking()
    more = {"rackready_nodes.conf": "Prolog=/p\n" + NEW["rackready_nodes.conf"]}
    daemon.at["scontrol reconfigure"] = killed
    with pytest.raises(KilledError):
        asking(files=more, reload="reconfigure")
    # slurmctld answers and knows every node, and still it has the old files.
    assert daemon.loaded == NEW
    daemon.calls.clear()
    assert asking(op="recover")["words"] == ["an interrupted change was ended: slurmctld runs with it"]
    assert daemon.loaded == slurm_files.texts(tmp_path) == NEW | more
    assert "systemctl restart slurmctld.service" not in daemon.calls


def test_a_killed_change_that_slurmctld_dies_of_is_taken_back(tmp_path: Path, daemon: Daemon, asking: Ask) -> None:
    daemon.dies_of = "NodeName=n1"
    daemon.at["systemctl reset-failed slurmctld.service"] = killed
    with pytest.raises(KilledError):
        asking()
    assert asking(op="recover")["words"] == [
        "an interrupted change was taken back",
        "after a restart slurmctld does not answer",
        "error: x",
        "fatal: Duplicated NodeHostName n1 in config file",
        "with the old files slurmctld runs again",
    ]
    assert daemon.loaded == slurm_files.texts(tmp_path) == {"slurm.conf": OLD}
    assert not (tmp_path / slurm_files.JOURNAL).exists()


def test_a_change_killed_while_its_files_were_written_is_taken_back(
    tmp_path: Path, daemon: Daemon, asking: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:

        def one(folder: Path, found: dict[str, str | None]) -> None:
            slurm_files.replace(folder / "rackready_nodes.conf", str(found["rackready_nodes.conf"]))
            killed()

        context.setattr(slurm_files, "write", one)
        with pytest.raises(KilledError):
            asking()
    assert asking(op="recover")["words"] == [
        "an interrupted change was taken back",
        "with the old files slurmctld runs again",
    ]
    assert daemon.loaded == slurm_files.texts(tmp_path) == {"slurm.conf": OLD}


def test_a_killed_change_without_reload_needs_none(tmp_path: Path, daemon: Daemon, asking: Ask) -> None:
    asking()
    settled = {"rackready_nodes.conf": NEW["rackready_nodes.conf"].replace(" State=DRAIN", "")}
    with pytest.MonkeyPatch.context() as context:
        context.setattr(slurm_files, "reload", lambda _request: killed())
        with pytest.raises(KilledError):
            asking(files=settled, reload="none", nodes=[])
    daemon.calls.clear()
    assert asking(op="recover")["words"] == ["an interrupted change was ended: slurmctld runs with it"]
    assert daemon.calls == []
    assert slurm_files.texts(tmp_path) == NEW | settled


def test_a_killed_change_over_which_somebody_wrote_is_left_to_people(
    tmp_path: Path, daemon: Daemon, asking: Ask
) -> None:
    daemon.at["systemctl reset-failed slurmctld.service"] = killed
    with pytest.raises(KilledError):
        asking()
    (tmp_path / "slurm.conf").write_text("# by hand\n")
    found = asking(op="recover")
    assert found["result"] == "journal"
    assert found["words"] == [
        (
            f"slurm.conf changed since; look at {tmp_path / 'rackready.kept'}, correct it, remove "
            f"{tmp_path / 'rackready.journal'}"
        )
    ]
    assert (tmp_path / "slurm.conf").read_text() == "# by hand\n"


def test_reading_says_what_slurmctld_knows(tmp_path: Path, daemon: Daemon, asking: Ask) -> None:
    daemon.nodes = {"n1"}
    found = asking(op="read")
    assert found["files"] == {"slurm.conf": OLD}
    assert (found["release"], found["answers"], found["known"], found["journal"]) == (
        "slurm-wlm 22.05.8", True, ["n1"], False,
    )  # fmt: skip
    daemon.up = False
    assert asking(op="read")["answers"] is False
    (tmp_path / "slurm.conf").unlink()
    assert asking(op="read")["result"] == "no-slurm-conf"


def test_bytes_of_others_come_back_as_they_were(tmp_path: Path, daemon: Daemon, asking: Ask) -> None:
    del daemon
    (tmp_path / "slurm.conf").write_bytes(b"# caf\xe9 \xc3\xa9\n")
    text = asking(op="read")["files"]["slurm.conf"]
    assert (
        asking(files={"slurm.conf": text + "Include x.conf\n", "x.conf": "NodeName=n1\n"}, nodes=[])["result"]
        == "applied"
    )
    assert (tmp_path / "slurm.conf").read_bytes() == b"# caf\xe9 \xc3\xa9\nInclude x.conf\n"


def try_out(folder: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> list[str]:
    """Try NEW with a slurmctld that says this; return why it was refused."""
    monkeypatch.setattr(slurm_files.shutil, "which", lambda _: "/usr/sbin/slurmctld")
    monkeypatch.setattr(slurm_files, "watched", lambda *_: said)
    (folder / "slurm.conf").write_text(OLD)
    try:
        slurm_files.try_out(folder, {**NEW, "rackready_nodes.conf": "Prolog=/p\nNodeName=n1\n"})
    except slurm_files.StopError as stop:
        return [stop.args[0], *stop.args[1]]
    return []


def test_a_setting_of_ours_that_somebody_else_sets_too_is_refused_by_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of two lines Slurm takes the last, so a setting of somebody else would be lost in silence.
    up = f"slurmctld: {slurm_files.UP}\n"
    words = "error: {} 1 specified more than once, latest value used"
    both = f"slurmctld: {words.format('Prolog')}\n{up}"
    assert try_out(tmp_path, monkeypatch, both) == ["refused", words.format("Prolog")]
    own = f"slurmctld: {words.format('StateSaveLocation')}\n{up}"
    assert try_out(tmp_path, monkeypatch, own) == []


@pytest.mark.parametrize("what", ["switches", "blocks", "Blocks"])
def test_a_topology_of_ours_that_leaves_nodes_out_is_refused_by_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    words = f"{what} lack access to 2 nodes: cpu[01-02]"  # Slurm, topology/tree and topology/block
    said = f"slurmctld: warning: {words}\nslurmctld: warning: {words}\nslurmctld: {slurm_files.UP}\n"
    (tmp_path / "topology.conf").write_text("# Written by rackready: x\nSwitchName=su1 Nodes=n1\n")
    assert try_out(tmp_path, monkeypatch, said) == ["refused", words]
    (tmp_path / "topology.yaml").write_text("- topology: theirs\n")  # Slurm reads this one instead
    assert try_out(tmp_path, monkeypatch, said) == []
    (tmp_path / "topology.yaml").unlink()
    (tmp_path / "topology.conf").write_text("SwitchName=s0 Nodes=n1\n")
    assert try_out(tmp_path, monkeypatch, said) == []


def test_a_trial_copies_what_lies_beside_the_files_but_not_the_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[tuple[Path, str]] = []

    def copy(folder: Path, place: Path, without: str) -> None:
        copies.append((folder, without))
        place.mkdir()
        (place / "slurm.conf").write_text(OLD)

    monkeypatch.setattr(slurm_files, "copy_folder", copy)
    assert try_out(tmp_path, monkeypatch, slurm_files.UP) == []
    assert copies == [(tmp_path, slurm_files.KEPT)]


@pytest.mark.parametrize(("dbd", "weight"), [("slurmdbd", ""), ("none", "TRESBillingWeights=GRES/gpu=1")])
def test_a_trial_of_a_cluster_with_slurmdbd_does_without_its_tres(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dbd: str, weight: str
) -> None:
    tried: list[str] = []

    def watched(*argv: str) -> str:
        tried.append((Path(argv[-5]) / "slurm.conf").read_text())
        return slurm_files.UP

    monkeypatch.setattr(slurm_files.shutil, "which", lambda _: "/usr/sbin/slurmctld")
    monkeypatch.setattr(slurm_files, "watched", watched)
    text = (
        f"AccountingStorageType=accounting_storage/{dbd}\nAccountingStorageTRES=gres/gpu\n"
        "PartitionName=p TRESBillingWeights=GRES/gpu=1\n"
    )
    (tmp_path / "slurm.conf").write_text(text)
    slurm_files.try_out(tmp_path, {"x.conf": ""})
    found = slurm_files.settings({"slurm.conf": tried[0]})
    assert found["accountingstoragetres"] == ("cpu" if dbd == "slurmdbd" else "gres/gpu")
    assert f"PartitionName=p {weight}\n" in tried[0]
    assert (tmp_path / "slurm.conf").read_text() == text


def test_what_always_comes_is_no_complaint() -> None:
    # Printed by slurmctld 22.05.8 in a trial of ours.
    out = (
        "slurmctld: error: Couldn't load specified plugin name for mpi/pmix_v4: Plugin init() callback failed\n"
        "slurmctld: error: MPI: Cannot create context for mpi/pmix_v4\n"
        "slurmctld: error: StateSaveLocation 1 specified more than once, latest value used\n"
        "slurmctld: error: _parse_next_key: Parsing error at unrecognized key: Bad\n"
        "slurmctld: fatal: Unable to process configuration file\n"
    )
    assert slurm_files.complaints(out) == [
        "error: _parse_next_key: Parsing error at unrecognized key: Bad",
        "fatal: Unable to process configuration file",
    ]


# --- nodes with files of their own ------------------------------------------------------------------------------------


def test_with_hosts_slurmctld_stops_before_the_files_change_and_starts_after_the_nodes(
    tmp_path: Path, daemon: Daemon, asking: Ask
) -> None:
    daemon.at["systemctl stop slurmctld.service"] = lambda: seen.append(slurm_files.texts(tmp_path)["slurm.conf"])
    seen: list[str] = []
    assert asking(op="begin", hosts=["n1", "n2"])["result"] == "begun"
    assert seen == [OLD]
    assert slurm_files.texts(tmp_path) == NEW
    assert "systemctl restart slurmctld.service" not in daemon.calls
    assert asking(op="begin", hosts=["n1"])["result"] == "journal"
    assert asking(op="finish", reload="restart", nodes=["n1"])["result"] == "applied"
    assert daemon.nodes == {"n1"}
    assert not (tmp_path / slurm_files.JOURNAL).exists()


def test_a_reconfigure_needs_no_stop(daemon: Daemon, asking: Ask) -> None:
    assert asking(op="begin", hosts=["n1"], reload="reconfigure")["result"] == "begun"
    assert not [call for call in daemon.calls if call.startswith("systemctl")]


def test_with_hosts_a_change_that_is_taken_back_stays_open_until_the_nodes_have_it(
    tmp_path: Path, daemon: Daemon, asking: Ask
) -> None:
    daemon.dies_of = "NodeName=n1"
    asking(op="begin", hosts=["n1", "n2"])
    found = asking(op="finish", reload="restart", nodes=["n1"])
    assert (found["result"], found["words"][-1]) == ("taken-back", "with the old files slurmctld runs again")
    assert slurm_files.texts(tmp_path) == {"slurm.conf": OLD}
    rest = asking(op="recover")
    assert rest["words"] == ["an interrupted change was taken back, not yet on every node"]
    assert rest["pending"] == {
        "hosts": ["n1", "n2"],
        "files": {"rackready_nodes.conf": None, "slurm.conf": OLD},
        "instead": NEW,
    }
    assert asking(op="close")["result"] == "closed"
    assert not (tmp_path / slurm_files.JOURNAL).exists()
    assert daemon.calls[-3:-1] == ["scontrol reconfigure", "scontrol ping"]
    assert daemon.calls.count("systemctl restart slurmctld.service") == 2, "it has the old files since they are back"


def test_a_run_killed_while_slurmctld_stood_still_starts_it_with_the_old_files(
    tmp_path: Path, daemon: Daemon, asking: Ask
) -> None:
    asking(op="begin", hosts=["n1"])
    daemon.up = False
    found = asking(op="recover")
    assert found["words"] == [
        "an interrupted change was taken back",
        "slurmctld does not answer",
        "with the old files slurmctld runs again",
    ]
    assert found["pending"]["files"] == {"rackready_nodes.conf": None, "slurm.conf": OLD}
    assert daemon.up
    # Killed again: what is left to do is the same.
    assert asking(op="recover")["pending"] == found["pending"]
    assert slurm_files.texts(tmp_path) == {"slurm.conf": OLD}


def test_a_run_killed_after_slurmctld_came_up_goes_forward(tmp_path: Path, daemon: Daemon, asking: Ask) -> None:
    asking(op="begin", hosts=["n1"])
    daemon.at["scontrol reconfigure"] = killed
    with pytest.raises(KilledError):
        asking(op="finish", reload="restart", nodes=["n1"])
    found = asking(op="recover")
    assert found["words"] == ["an interrupted change continues"]
    assert found["pending"] == {
        "hosts": ["n1"], "files": NEW, "instead": {"rackready_nodes.conf": None, "slurm.conf": OLD},
    }  # fmt: skip
    assert (tmp_path / slurm_files.JOURNAL).exists()
