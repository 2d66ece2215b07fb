"""`rackready doctor`: each check finds what is wrong, says Expected, Actual and the next step, and shows no secret."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from rackready.cli import doctor_checks, doctor_keys, doctor_machine
from rackready.cli.doctor import exit_code
from rackready.cli.doctor_deploy import deployable
from rackready.cli.doctor_keys import judge_key
from rackready.cli.doctor_kubeconfig import kubeconfigs
from rackready.cli.doctor_scene import Answer, Report, Scene
from rackready.design.site import load_site
from rackready.drivers.mirror import keys
from rackready.evidence.store import EvidenceStore
from rackready.ledger.lock import ControllerLock
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.paths import Database, EnvPaths, setup_command, shipped
from tests import forked
from tests.postgres import PostgresServer, name_of
from tests.unit.design.secret_places import AS_ENCRYPTED, CANARY, FakeSops

ROOT = Path(__file__).resolve().parents[3]
MUNGE = base64.b64encode(bytes(128)).decode()
SECRET = "a-secret-that-must-not-be-shown"
NOW = 1_800_000_000.0
DAY = 86_400


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with one environment, `lab`, whose secrets are all in place."""
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "inventories/lab").mkdir(parents=True)
    (tmp_path / ".rackready").mkdir(mode=0o700)
    shutil.copy(ROOT / "inventories/sim/site.yml", tmp_path / "inventories/lab/site.yml")
    refs, private = doctor_keys.secret_places(load_site("lab", root=tmp_path))
    for path in [*(ref.file for ref in refs), *private]:
        assert path is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(MUNGE if path.name == "munge" else SECRET, encoding="utf-8")
        path.chmod(0o600)
    return tmp_path


def scene(project: Path) -> Scene:
    return Scene(EnvPaths(project, "lab"), load_site("lab", root=project))


def run_doctor(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "RACKREADY_ROOT": str(project), "COLUMNS": "200"}
    return forked.rackready("doctor", "--env", "lab", *arguments, env=environment, cwd=project)


def test_json_is_one_document_with_every_check(project: Path) -> None:
    done = run_doctor(project, "--output", "json")
    document = json.loads(done.stdout)
    assert [item["check"] for item in document["checks"]] == ["site file", *doctor_checks.CHECKS]
    assert {item["outcome"] for item in document["checks"]} <= {"pass", "fail", "error", "skip"}
    assert SECRET not in done.stdout + done.stderr


def test_unusable_site_file_exits_2_and_names_every_problem(project: Path) -> None:
    file = project / "inventories/lab/site.yml"
    site = yaml.safe_load(file.read_text(encoding="utf-8"))
    site["colour"] = "red"
    site["racks"][0]["nodes"][1]["address"] = site["racks"][0]["nodes"][0]["address"]
    file.write_text(yaml.safe_dump(site), encoding="utf-8")
    done = run_doctor(project)
    assert done.returncode == 2
    assert "colour" in done.stdout
    assert "racks[0].nodes[1].address" in done.stdout


def test_secret_that_others_can_read_fails(project: Path) -> None:
    secret = project / ".rackready/sim/secrets/leaf01"
    secret.chmod(0o644)
    outcome, text = doctor_keys.secrets(scene(project))
    assert outcome is Outcome.FAIL
    assert text == f"secret in file {secret} - Expected: mode 0600 Actual: 0644. Run: chmod 600 {secret}.".replace(
        "file ", "", 1
    )


def test_a_munge_key_that_is_not_in_base64_fails_before_any_node_is_measured(project: Path) -> None:
    (project / ".rackready/sim/secrets/munge").write_bytes(bytes(range(128, 256)))
    outcome, text = doctor_keys.secrets(scene(project))
    assert outcome is Outcome.FAIL
    assert (
        "Expected: the cluster's munge key in base64, on one line Actual: other bytes, as in munge.key itself." in text
    )
    assert "`base64 -w0 /etc/munge/munge.key`" in text


def test_missing_secret_and_key_are_both_named(project: Path) -> None:
    (project / ".rackready/sim/secrets/leaf01").unlink()
    (project / ".rackready/sim/keys/id_ed25519").unlink()
    outcome, text = doctor_keys.secrets(scene(project))
    assert outcome is Outcome.FAIL
    assert "secrets/leaf01" in text
    assert "private key in" in text
    assert "prepare.mk" not in text


def test_environment_with_a_preparation_says_so(project: Path) -> None:
    (project / "inventories/lab/prepare.mk").touch()
    (project / ".rackready/sim/secrets/leaf01").unlink()
    assert "`make deploy ENV=lab` runs inventories/lab/prepare.mk first" in doctor_keys.secrets(scene(project))[1]


def test_all_secrets_in_place_pass(project: Path) -> None:
    assert doctor_keys.secrets(scene(project)) == (
        Outcome.PASS,
        "7 secrets and 1 private keys are readable by their owner only",
    )


def key_listing(expiry: float | None, validity: str = "-", capabilities: str = "scSC") -> str:
    end = "" if expiry is None else str(int(expiry))
    public = f"pub:{validity}:255:22:0123456789ABCDEF:1700000000:{end}::-:::{capabilities}::::::23::0:"
    return f"tru::1:1700000000:0:3:1:5\n{public}\nuid:-::::1700000000::AA::mirror::::::::::0:\n"


@pytest.mark.parametrize(
    ("listing", "outcome", "words"),
    [
        (key_listing(None), Outcome.PASS, "valid, without expiry"),
        (key_listing(NOW + DAY), Outcome.PASS, "valid until 2027-01-16"),
        (key_listing(NOW - DAY), Outcome.FAIL, "Actual: expired on 2027-01-14."),
        (key_listing(NOW + DAY, validity="r"), Outcome.FAIL, "Actual: revoked."),
        ("", Outcome.FAIL, "Expected: an OpenPGP public key Actual: something else."),
    ],
    ids=["no-expiry", "valid", "expired", "revoked", "no-key"],
)
def test_mirror_key(listing: str, outcome: Outcome, words: str) -> None:
    found, text = judge_key("mirror.asc", listing, NOW)
    assert found is outcome
    assert words in text


@pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg is not installed")
@pytest.mark.parametrize(
    ("expiry", "words"), [("20200101T000000", "Actual: expired on 2020-01-01."), ("never", "valid, without expiry")]
)
def test_mirror_key_as_gpg_prints_it(
    project: Path, tmp_path_factory: pytest.TempPathFactory, expiry: str, words: str
) -> None:
    home = tmp_path_factory.mktemp("gpg")
    home.chmod(0o700)
    gpg = ["gpg", "--homedir", str(home), "--batch", "--passphrase", "", "--faked-system-time", "20190101T000000!"]
    subprocess.run([*gpg, "--quick-generate-key", "mirror", "ed25519", "sign", expiry], check=True, capture_output=True)
    key = project / ".rackready/sim/mirror/mirror.asc"
    key.parent.mkdir(parents=True)
    key.write_bytes(subprocess.run([*gpg, "--armor", "--export"], check=True, capture_output=True).stdout)
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False, capture_output=True)
    assert words in doctor_keys.mirror_key(scene(project))[1]


@pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg is not installed")
def test_each_repository_has_the_declared_key(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    key = tmp_path_factory.mktemp("keys") / "cuda.asc"
    with keys.home() as place:
        argv = place.argv("--quick-generate-key", "cuda", "ed25519", "sign", "never")
        subprocess.run(argv, check=True, capture_output=True)
        place.export(key, armored=True)
    path = project / "inventories/lab/site.yml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    del document["software"]["mirror"]
    entry = {"kind": "apt", "url": "http://m.example", "key": str(key)}
    for declared, outcome in ((keys.fingerprints(key)[0], Outcome.PASS), ("1" * 40, Outcome.FAIL)):
        names = ("cuda", "toolkit")
        document["software"]["repositories"] = [entry | {"name": name, "fingerprint": declared} for name in names]
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        found, text = doctor_keys.mirror_key(scene(project))
        assert found is outcome, text
        assert text.count("Expected: the key ") == (2 if outcome is Outcome.FAIL else 0)


def test_what_a_deploy_refuses_is_named_with_the_command_that_helps(project: Path) -> None:
    site = project / "inventories/lab/site.yml"
    assert deployable(scene(project)) == (Outcome.PASS, "4 nodes")
    text = site.read_text(encoding="utf-8").replace("platform: dgx_h100", "platform: sys_821ge_h100")
    site.write_text(text.replace("        serial: SIM-DGXH100-0003\n", ""), encoding="utf-8")
    outcome, told = deployable(scene(project))
    assert (outcome, told.splitlines()) == (
        Outcome.FAIL,
        [
            (
                "profiles/platform/sys_821ge_h100.yml: the PCI addresses of its GPUs and the device names of its "
                "compute NICs - Expected: known Actual: not published. Read them from a machine that runs: "
                "`rackready profile learn node01 --write`."
            ),
            (
                "node03: serial number - Expected: known Actual: not given yet. Import the vendor's manifest "
                "(`rackready import manifest FILE.csv`), or exclude them with --limit."
            ),
        ],
    )
    result = run_doctor(project)
    assert result.returncode == 1
    assert "`rackready profile learn node01 --write --env lab`" in " ".join(result.stdout.split())
    assert deployable(Scene(EnvPaths(project, "lab"), None)) == (Outcome.SKIP, "the site file cannot be used")


def test_nodes_of_several_tenants_and_virtual_nodes_do_not_fail(project: Path) -> None:
    example = ROOT / "inventories/examples/b200-4su-roce.yml"
    _, told = deployable(Scene(EnvPaths(project, "lab"), load_site("lab", site_file=example, root=project)))
    assert "tenant" not in told
    mixed = ROOT / "inventories/examples/mixed-metal-virtual.yml"
    _, told = deployable(Scene(EnvPaths(project, "lab"), load_site("lab", site_file=mixed, root=project)))
    assert "kind virtual" not in told
    assert told.count("profile learn host-1") == 1
    assert "profile learn vm" not in told


def test_a_kubeconfig_is_looked_at_before_the_deploy_that_needs_it_at_its_end(project: Path) -> None:
    assert kubeconfigs(scene(project)) == (Outcome.PASS, "the site file names none")
    site = project / "inventories/lab/site.yml"
    text = site.read_text(encoding="utf-8")
    handover = "handover: {kind: kubernetes, kubeconfig: kc, context: prod}\n"
    site.write_text(text[: text.index("handover:")] + handover, encoding="utf-8")
    assert kubeconfigs(scene(project)) == (
        Outcome.FAIL,
        (
            f"kubeconfig {project}/kc - Expected: a kubeconfig Actual: no such file. "
            "Put the kubeconfig of rackready's user there (mode 0600), or correct handover.kubeconfig."
        ),
    )
    cluster = {"name": "c", "cluster": {"server": "https://192.0.2.1"}}
    context = {"name": "prod", "context": {"cluster": "c", "user": "u"}}
    (project / "kc").write_text(json.dumps({"clusters": [cluster], "contexts": [context]}), encoding="utf-8")
    (project / "kc").chmod(0o600)
    assert kubeconfigs(scene(project)) == (Outcome.PASS, f"{project}/kc, context prod")


def test_full_disk_fails(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "MIN_FREE_GIB", 1e9)
    outcome, text = doctor_checks.disk(scene(project))
    assert outcome is Outcome.FAIL
    assert "Expected: at least 1000000000 GiB free" in text


def test_state_that_others_may_enter_fails(project: Path) -> None:
    before = scene(project)
    (project / ".rackready").chmod(0o755)
    assert "Expected: mode 0700 Actual: 0755" in doctor_checks.private_state(before)[1]


def test_held_lock_names_its_holder(project: Path) -> None:
    paths = EnvPaths(project, "lab")
    with ControllerLock(paths.lock, "rackready deploy", paths.database):
        outcome, text = doctor_checks.controller_lock(scene(project))
    assert outcome is Outcome.FAIL
    assert f"held by pid {os.getpid()} (`rackready deploy`)" in text
    assert doctor_checks.controller_lock(scene(project)) == (Outcome.PASS, "free")


@pytest.mark.parametrize(("locked", "named"), [("state.sqlite", "state.sqlite"), ("lab", "lab")])
def test_a_ledger_that_cannot_be_written_fails(
    project: Path, monkeypatch: pytest.MonkeyPatch, locked: str, named: str
) -> None:
    path = EnvPaths(project, "lab").database.file
    Ledger.open(path).close()
    monkeypatch.setattr(
        os, "access", lambda place, mode: Path(place).name != locked or mode != os.W_OK
    )  # root may write anywhere
    place = next(item for item in (path, path.parent) if item.name == named)
    assert doctor_checks.ledger(scene(project)) == (
        Outcome.FAIL,
        (
            f"{place} - Expected: writable by user {os.geteuid()} Actual: read-only. "
            f"Run as its owner, or: chmod u+w {place}"
        ),
    )


def test_a_ledger_that_is_damaged_or_of_another_version_fails(project: Path) -> None:
    path = EnvPaths(project, "lab").database.file
    assert doctor_checks.ledger(scene(project)) == (Outcome.PASS, "none yet: nothing was deployed")
    ledger = Ledger.open(path)
    assert doctor_checks.ledger(scene(project)) == (Outcome.PASS, str(path))
    with ledger.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE nodes DROP COLUMN epoch")
    ledger.close()
    assert "Actual: made by another version, it lacks nodes.epoch. Restore " in doctor_checks.ledger(scene(project))[1]
    path.write_bytes(b"not a database, and long enough to be looked at as one")
    outcome, text = doctor_checks.ledger(scene(project))
    assert outcome is Outcome.FAIL
    assert "Actual: file is not a database. Restore " in text


def test_doctor_looks_at_the_server(postgres: PostgresServer, project: Path) -> None:
    database = postgres.database(project)
    assert doctor_checks.ledger(scene(project)) == (Outcome.PASS, "none yet: nothing was deployed")
    ledger = Ledger.open(database)
    EvidenceStore.open(ledger, project / "raw")
    assert doctor_checks.ledger(scene(project)) == (
        Outcome.PASS,
        f"PostgreSQL database {name_of(database)} on {postgres.folder}:{postgres.port}",
    )
    with ControllerLock(EnvPaths(project, "lab").lock, "rackready deploy", database):
        outcome, text = doctor_checks.controller_lock(scene(project))
    assert outcome is Outcome.FAIL
    assert "Expected: free Actual: held by pid " in text
    assert " (`rackready deploy`, for 0 min). Wait for it" in text
    assert doctor_checks.controller_lock(scene(project)) == (Outcome.PASS, "free")
    (project / "inventories/lab/secrets/database").chmod(0o644)
    assert (
        "inventories/lab/secrets/database - Expected: mode 0600 Actual: 0644." in doctor_keys.secrets(scene(project))[1]
    )
    postgres.settings(project, password={"env": "NOT_SET"})
    outcomes = {
        report.check: (report.outcome, report.text) for report in doctor_checks.examine(EnvPaths(project, "lab"))
    }
    assert outcomes["ledger"] == (
        Outcome.ERROR,
        (
            "check could not run: secret in environment variable NOT_SET - Expected: a value Actual: not set. "
            "Export NOT_SET and run again."
        ),
    )


def test_evidence_that_could_be_changed_is_no_evidence(project: Path, database: Database) -> None:
    ledger = Ledger.open(database)
    EvidenceStore.open(ledger, project / "raw")
    assert doctor_checks.ledger(scene(project))[0] is Outcome.PASS
    server = ledger.engine.name == "postgresql"
    with ledger.engine.begin() as connection:
        connection.exec_driver_sql(
            "ALTER TABLE evidence DISABLE TRIGGER evidence_no_delete" if server else "DROP TRIGGER evidence_no_delete"
        )
    outcome, text = doctor_checks.ledger(scene(project))
    assert outcome is Outcome.FAIL
    assert text.startswith(
        "Expected: evidence that the database keeps from being changed Actual: without evidence_no_delete. "
        "Find out who "
    )


def test_wrong_engine_version_fails(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project / ".rackready/tools/bin"
    folder.mkdir(parents=True)
    program = folder / "pulumi"
    program.write_text("#!/bin/sh\necho v3.1.0\n", encoding="utf-8")
    program.chmod(0o755)
    outcome, text = doctor_machine.engine(scene(project))
    assert outcome is Outcome.FAIL
    assert "Actual: 3.1.0" in text
    program.unlink()
    monkeypatch.setenv("PATH", "")
    assert "Actual: none. Run: rackready setup (" in doctor_machine.engine(scene(project))[1]


def test_only_a_checkout_gets_its_engine_by_make(project: Path) -> None:
    assert (setup_command(), setup_command(shipped())) == ("make setup", "make setup")
    assert setup_command(project) == "rackready setup", "make would install it below the checkout"


def test_package_that_differs_from_the_lock_fails(project: Path) -> None:
    lines = (
        'pydantic==0.0.1 \\\n    --hash=sha256:00\nnot-installed==1 ; python_version < "3" \\\n    --hash=sha256:00\n'
    )
    (project / "requirements.lock").write_text(lines, encoding="utf-8")
    outcome, text = doctor_machine.packages(scene(project))
    assert outcome is Outcome.FAIL
    assert "1 differ: pydantic 0.0.1 (installed: " in text


def test_check_that_cannot_look_is_an_error_and_others_go_on(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_scene: Scene) -> Answer:
        raise OSError(5, "Input/output error")

    monkeypatch.setitem(doctor_checks.CHECKS, "disk space", broken)
    found = {item.check: item for item in doctor_checks.examine(EnvPaths(project, "lab"))}
    assert found["disk space"].outcome is Outcome.ERROR
    assert "Input/output error" in found["disk space"].text
    assert found["private state"].outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("outcomes", "refused", "code"),
    [
        ([Outcome.PASS, Outcome.SKIP], False, 0),
        ([Outcome.PASS, Outcome.FAIL], False, 1),
        ([Outcome.ERROR], False, 1),
        ([Outcome.FAIL], True, 2),
    ],
)
def test_exit_codes(outcomes: list[Outcome], refused: bool, code: int) -> None:  # noqa: FBT001
    assert exit_code([Report("x", outcome, "", refused=refused) for outcome in outcomes]) == code


def test_doctor_is_quick() -> None:
    began = time.monotonic()
    doctor_checks.examine(EnvPaths(ROOT, "example"))
    assert time.monotonic() - began < 30


def test_secrets_of_a_sops_file_are_read_and_the_program_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sops = FakeSops(project / "bin", monkeypatch)
    sops.prints(json.dumps({"bmc": {"node01": CANARY}}))
    file = project / "secrets.sops.yml"
    file.write_text(AS_ENCRYPTED, encoding="utf-8")
    overlay = {"switches": [{"name": "leaf01", "password": {"sops": "secrets.sops.yml#bmc.node01"}}]}
    path = EnvPaths(project, "lab").overlay
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(overlay), encoding="utf-8")
    outcome, text = doctor_keys.secrets(scene(project))
    assert (outcome, text.rpartition("; ")[2]) == (Outcome.PASS, "sops 3.13.3"), text
    sops.answers("exit 128")
    file.write_text(AS_ENCRYPTED + "#\n", encoding="utf-8")
    outcome, text = doctor_keys.secrets(scene(project))
    assert outcome is Outcome.FAIL
    assert (
        f"secret in sops file {file}#bmc.node01 - Expected: a key for this file Actual: no key here opens it." in text
    )
