"""What keeps a trial slurmctld away from the cluster's own."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from rackready.ondevice import slurm_conf
from rackready.ondevice.slurm_trial import SCRIPT, drop_accounting, own_settings, own_state, with_slurmdbd

ME = pwd.getpwuid(os.getuid()).pw_name


def test_a_trial_is_kept_away_from_accounting() -> None:
    found = slurm_conf.settings({"slurm.conf": "AccountingStorageType=accounting_storage/slurmdbd\n"})
    own = own_settings("/t", Path("/t/state"), found)
    assert own == (
        "SlurmctldPidFile=/t/pid\nSlurmctldLogFile=/t/log\nStateSaveLocation=/t/state\n"
        "SlurmctldDebug=info\nAccountingStorageType=accounting_storage/none\nAccountingStorageTRES=cpu\n"
    )


def test_a_trial_without_slurmdbd_leaves_the_tres_that_end_the_real_slurmctld_too() -> None:
    found = slurm_conf.settings({"slurm.conf": "AccountingStorageType=accounting_storage/none\n"})
    assert not with_slurmdbd(found)
    assert "AccountingStorageTRES" not in own_settings("/t", Path("/t/state"), found)


def test_what_needs_slurmdbd_leaves_the_copy_and_nothing_else_does(tmp_path: Path) -> None:
    """The first three lines are as in public clusters' files. With each of them slurmctld 22.05.8 ended."""
    (tmp_path / "slurm.conf").write_text(
        "accountingstorageenforce = associations,limits,qos # who may\n"
        "PriorityWeightTRES=CPU=1000,GRES/gpu=3000\n"
        'NodeName=n1 Gres=gpu:8 TRESWeights="CPU=1.0,GRES/gpu=2.0" State=UNKNOWN\n'
        '# TRESBillingWeights="CPU=1.0\n'
        "Include parts/of.gpus\n"
    )
    (tmp_path / "parts").mkdir()
    parts = tmp_path / "parts/of.gpus"
    parts.write_text(
        'PartitionName=a Nodes=n1 TRESBillingWeights="CPU=1.0,\\\nGRES/gpu=2.0" \\\n  State=UP\n'
        "PartitionName=b TRESBillingWeights=GRES/gpu=2.0\\\n Nodes=n1\n"
    )
    parts.chmod(0o640)
    key = tmp_path / "key"
    key.write_bytes(bytes(range(256)))
    drop_accounting(tmp_path)
    files = {"slurm.conf": (tmp_path / "slurm.conf").read_text(), "parts/of.gpus": parts.read_text()}
    assert [line.split() for line in slurm_conf.every_line(files) if line.strip()] == [
        ["NodeName=n1", "Gres=gpu:8", "State=UNKNOWN"],
        ["PartitionName=a", "Nodes=n1", "State=UP"],
        ["PartitionName=b", "Nodes=n1"],
    ]
    assert '# TRESBillingWeights="CPU=1.0\n' in files["slurm.conf"]
    assert (parts.stat().st_mode & 0o777, key.read_bytes()) == (0o640, bytes(range(256)))


def test_a_trial_runs_no_program_of_the_site() -> None:
    text = "SlurmctldPrimaryOnProg = /site/move-address\nslurmctldprimaryoffprog=/site/drop-address\n"
    own = own_settings("/t", Path("/t/state"), slurm_conf.settings({"slurm.conf": text}))
    assert own.splitlines()[4:] == ["SlurmctldPrimaryOnProg=/bin/true", "SlurmctldPrimaryOffProg=/bin/true"]


def test_a_trial_says_that_it_runs_also_where_the_cluster_logs_errors_only() -> None:
    """Its line is one of level info (src/slurmctld/controller.c)."""
    found = slurm_conf.settings({"slurm.conf": "SlurmctldDebug=error\n"})
    assert "SlurmctldDebug=info\n" in own_settings("/t", Path("/t/state"), found)


@pytest.mark.parametrize(
    ("more", "copied"),
    [
        ({"authalttypes": "auth/jwt"}, True),
        ({"authalttypes": "auth/jwt", "authaltparameters": "disable_token_creation"}, True),
        ({"authalttypes": "auth/jwt", "authaltparameters": "jwt_key=/etc/slurm/k"}, False),
        ({}, False),
    ],
)
def test_a_trial_has_the_key_of_jwt_that_lies_among_the_states(
    tmp_path: Path, more: dict[str, str], *, copied: bool
) -> None:
    real, state = tmp_path / "real", tmp_path / "state"
    real.mkdir()
    (real / "jwt_hs256.key").write_bytes(b"secret")
    (real / "jwt_hs256.key").chmod(0o600)
    (real / "job_state").write_bytes(b"jobs")
    assert own_state(state, {"slurmuser": ME, "statesavelocation": str(real), **more}) == os.getuid()
    assert [path.name for path in state.iterdir()] == (["jwt_hs256.key"] if copied else [])
    if copied:
        key = state / "jwt_hs256.key"
        assert (key.read_bytes(), key.stat().st_mode & 0o777) == (b"secret", 0o600)


def test_a_trial_without_a_key_of_jwt_is_left_to_slurmctld(tmp_path: Path) -> None:
    found = {"slurmuser": str(os.getuid()), "statesavelocation": str(tmp_path / "none"), "authalttypes": "auth/jwt"}
    assert own_state(tmp_path / "state", found) == os.getuid()
    with pytest.raises(LookupError):
        own_state(tmp_path / "other", {"slurmuser": "nobody-at-all"})


@pytest.mark.parametrize("there", [True, False])
def test_a_trial_does_not_take_the_socket_of_a_running_slurmctld(tmp_path: Path, *, there: bool) -> None:
    """With auth/slurm slurmctld removes sack.socket of its folder below /run and binds its own (sack.c)."""
    run = tmp_path / "run"
    run.mkdir() if there else None
    calls, programs = tmp_path / "calls", tmp_path / "bin"
    programs.mkdir()
    for name in ("ip", "mount", "timeout"):
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {calls}\n')
        (programs / name).chmod(0o755)
    script = SCRIPT.replace("/run/slurmctld", str(run))
    argv = ["sh", "-c", script, "sh", "/new", "/etc/slurm", "30", "/sbin/slurmctld", "64030"]
    subprocess.run(argv, env={"PATH": f"{programs}:/bin:/usr/bin"}, check=True)
    assert calls.read_text().splitlines()[2:] == [
        "mount --bind /new /etc/slurm",
        *([f"mount -t tmpfs -o mode=0755,uid=64030 tmpfs {run}"] if there else []),
        "timeout 30 /sbin/slurmctld -D -c -f /etc/slurm/slurm.conf",
    ]
