"""`rackready report acceptance`: what is in it, who signed it, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from rackready.handover import acceptance_files
from rackready.ledger.store import Ledger
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.handover import certified

Call = Callable[..., tuple[int, str, str]]
LOST = Finding(where="node02 gpu1", what="GPU <lost>", expected="2", actual="1", next_step="See the runbook.")
NEXT = "Run `rackready report acceptance --rack RACK --out DIR`."


def rack_of(root: Path) -> str:
    from rackready.design.site import load_site  # noqa: PLC0415

    return str(load_site("sim", root=root).racks[0].name)


def test_a_report_has_evidence_alone_and_is_signed(call: Call, tmp_path: Path) -> None:
    keys, rack, out = certified.certify(tmp_path), rack_of(tmp_path), tmp_path / "out"
    certified.measure(tmp_path, "node02", verdicts={certified.MEASURED: Verdict(outcome=Outcome.FAIL, findings=[LOST])})
    with Ledger.open(EnvPaths(tmp_path, "sim").database) as ledger:
        ledger.set_state("node02", NodeState.QUARANTINED, "gpu1 lost")
    words = ("report", "acceptance", "--rack", rack, "--out", str(out))
    code, said, _ = call(*words, "--no-pdf", "--output", "json")
    document = json.loads(said)
    page = Path(document["files"]["html"])
    text = re.sub(r"<[^>]+>", " ", page.read_text(encoding="utf-8"))
    assert (code, document["accepted"], document["files"]["pdf"]) == (1, 1, None)
    for part in ("1 of 4 nodes have a certificate that counts.", "54.5 GB/s", "at least 52 GB/s", "PCIe 5.0 x16, 82 %"):
        assert part in text
    assert "GPU &lt;lost&gt;" in page.read_text(encoding="utf-8"), "values are escaped"
    assert "node02: quarantined: gpu1 lost" in text
    nodes = {node["name"]: node for node in document["nodes"]}
    assert nodes["node03"]["left_out"] == [{"what": "every gate", "why": "no evidence on record"}]
    assert (nodes["node03"]["seen"], nodes["node03"]["gates"]) == (None, [])
    assert certified.MEASURED in [item["what"] for item in nodes["node02"]["left_out"]]
    assert not re.search(r"(src|href)=|https?://(?!github.com/rackready)", page.read_text(encoding="utf-8"))
    envelope = json.loads(Path(document["files"]["bundle"]).read_text())["dsseEnvelope"]
    payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode()
    public = load_pem_public_key((keys.folder / "signing.pub.pem").read_bytes())
    pae = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    public.verify(base64.b64decode(envelope["signatures"][0]["sig"]), pae)  # type: ignore[union-attr,call-arg]
    digest = hashlib.sha256(page.read_bytes()).hexdigest()
    assert json.loads(payload)["subject"] == [{"name": page.name, "digest": {"sha256": digest}}]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Debian's chromium is not installed")
def test_the_pdf_is_signed_too(call: Call, tmp_path: Path) -> None:
    certified.certify(tmp_path)
    code, said, _ = call("report", "acceptance", "--rack", rack_of(tmp_path), "--out", str(tmp_path / "out"))
    _, page, pdf, proof = said.splitlines()
    assert (code, Path(pdf).read_bytes()[:5]) == (1, b"%PDF-")
    payload = json.loads(base64.b64decode(json.loads(Path(proof).read_text())["dsseEnvelope"]["payload"]))
    digests = {item["name"]: item["digest"]["sha256"] for item in payload["subject"]}
    assert digests == {Path(f).name: hashlib.sha256(Path(f).read_bytes()).hexdigest() for f in (page, pdf)}


def test_without_a_browser_nothing_is_written(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certified.certify(tmp_path)
    monkeypatch.setattr(acceptance_files, "BROWSERS", ("no-such-browser",))
    assert call("report", "acceptance", "--rack", rack_of(tmp_path), "--out", str(tmp_path / "out")) == (
        2,
        "",
        (
            "report acceptance - Expected: a browser that prints PDF on the PATH: one of no-such-browser Actual: none. "
            "Install one (apt: chromium), or give --no-pdf.\n"
        ),
    )
    assert not (tmp_path / "out").exists()


def test_a_browser_that_prints_nothing_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "browser"
    program.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(acceptance_files.AcceptanceError) as caught:
        acceptance_files.printed(str(program), b"x")
    assert str(caught.value) == (
        f"{program}: printing the report - Expected: a PDF Actual: exit code 3: broken. "
        "Run it by hand, or give --no-pdf."
    )


SNAP = """#!/bin/sh
# exec /snap/bin/chromium
for word in "$@"; do
    case "$word" in
        --print-to-pdf=*) target="${word#*=}" ;;
        file://*) source="${word#file://}" ;;
    esac
done
case "$target $source" in
    "$HOME"/[!.]*" $HOME"/[!.]*) test -r "$source" && echo %PDF-1.4 >"$target" ;;
    *) echo "no such file" >&2; exit 1 ;;
esac
"""
"""Ubuntu's wrapper of its Chromium, and what that snap sees: visible folders of the home, and another /tmp."""


def browser(folder: Path, text: str) -> Path:
    program = folder / "chromium-browser"
    program.write_text(text)
    program.chmod(0o755)
    return program


def test_a_browser_that_is_a_snap_prints_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, home = browser(tmp_path, SNAP), tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    assert acceptance_files.printed(str(program), b"x").startswith(b"%PDF-")
    assert list(home.iterdir()) == []
    monkeypatch.setenv("HOME", str(tmp_path / "home/.hidden"))
    (home / ".hidden").mkdir()
    browser(tmp_path, SNAP.replace('"$HOME"/[!.]', f'"{home}"/[!.]'))
    with pytest.raises(acceptance_files.AcceptanceError, match=r"no such file\. This browser is a snap, which reads"):
        acceptance_files.printed(str(program), b"x")


def test_a_link_to_the_program_snap_is_a_snap(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/snap").write_bytes(b"\x7fELF")
    (tmp_path / "chromium").symlink_to(tmp_path / "bin/snap")
    assert acceptance_files.is_snap(str(tmp_path / "chromium"))
    assert not acceptance_files.is_snap(str(browser(tmp_path, "#!/bin/sh\nexec /usr/lib/chromium/chromium\n")))


def test_an_earlier_report_stays_signed_when_the_new_one_is_not_printed(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certified.certify(tmp_path)
    out, place = tmp_path / "out", tmp_path / "bin"
    place.mkdir()
    words = ("report", "acceptance", "--rack", rack_of(tmp_path), "--out", str(out))
    monkeypatch.setattr(acceptance_files, "browser", lambda: str(place / "chromium-browser"))
    browser(place, SNAP.replace("/snap/bin/", "/usr/bin/").replace('"$HOME"/[!.]*" $HOME"/[!.]*', "*"))
    assert call(*words)[0] == 1
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert len(before) == 3
    browser(place, "#!/bin/sh\nexit 3\n")
    assert call(*words)[0] == 2
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert call(*words, "--no-pdf")[0] == 1
    assert sorted(path.suffix for path in out.iterdir()) == [".html", ".json"]


def test_a_rack_that_was_never_measured_is_refused(call: Call, tmp_path: Path) -> None:
    rack = rack_of(tmp_path)
    with Ledger.open(EnvPaths(tmp_path, "sim").database):
        pass
    assert call("report", "acceptance", "--rack", rack, "--out", str(tmp_path / "out"), "--no-pdf") == (
        2,
        "",
        (
            f"rack {rack} - Expected: evidence of at least one node Actual: none on record. "
            "Run `rackready deploy`, then report again.\n"
        ),
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("acceptance",),
            "report acceptance - Expected: --rack RACK and --out DIR Actual: no --rack and no --out. Give both.",
        ),
        (
            ("acceptance", "--again"),
            (
                "report acceptance - Expected: only --rack, --out, --no-pdf, --env and --output Actual: --again. "
                "Remove the other options."
            ),
        ),
        (
            ("--rack", "x"),
            "report - Expected: --rack, --out and --no-pdf only with `report acceptance` Actual: no word after report. "
            + NEXT,
        ),
    ],
)
def test_words_that_do_not_fit_are_refused(call: Call, words: tuple[str, ...], text: str) -> None:
    assert call("report", *words) == (2, "", f"{text}\n")


def test_another_rack_is_refused(call: Call, tmp_path: Path) -> None:
    code, _, err = call("report", "acceptance", "--rack", "x", "--out", str(tmp_path), "--no-pdf")
    assert (code, err) == (2, f"--rack - Expected: one of {rack_of(tmp_path)} Actual: x. Correct the name.\n")
