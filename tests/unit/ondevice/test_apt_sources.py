"""Package sources of other files that apt refuses beside rackready's."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.ondevice.apt_sources import Entry, entries, files, refuse_conflicts
from rackready.ondevice.command import NodeProblem

KEY = "/etc/apt/keyrings/rackready-cuda.asc"
CUDA = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64"
KEYRING = "/usr/share/keyrings/cuda-archive-keyring.gpg"
WANTED = [{"url": CUDA, "suite": "/", "keyring": KEY, "name": "cuda"}]
IMAGE = f"# NVIDIA\ndeb [signed-by={KEYRING}] {CUDA}/ /\n"
"""As package cuda-keyring 1.1-1 writes it."""


def write(root: Path, name: str, text: str) -> Path:
    path = root / "etc/apt" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_source_of_the_image_with_another_key_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "sources.list.d/cuda-ubuntu2404-x86_64.list", IMAGE)
    with pytest.raises(NodeProblem) as caught:
        refuse_conflicts(WANTED, tmp_path)
    assert str(caught.value) == (
        f"Expected: the source {CUDA} / in /etc/apt/sources.list.d/rackready.sources alone: apt refuses two values of "
        "Signed-By Actual: also in /etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.list line 2, with Signed-By "
        f"{KEYRING}. Remove it from there, or the package that brings the file (`dpkg -S "
        "/etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.list`): rackready writes this source itself. Then run again."
    )


@pytest.mark.parametrize(
    ("name", "text", "at"),
    [
        ("sources.list", f"deb [arch=amd64 signed-by={KEYRING}] {CUDA} / \n", "sources.list line 1, with Signed-By"),
        ("sources.list", f"deb-src [signed-by={KEYRING}] http://user:pw@{CUDA[8:]} /\n", "sources.list line 1"),
        (
            "sources.list.d/x.sources",
            (
                f"# one\nTypes: deb\nURIs: http://m\nSuites: noble\n\n\n# two\nTypes: deb\nURIs:\n {CUDA}/\n"
                "Suites: a/ /\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n x\n"
            ),
            "x.sources line 9, with Signed-By a key in the file",
        ),
        ("sources.list.d/zz.list", f"deb {CUDA} /\n", "zz.list line 1, with no Signed-By"),
    ],
)
def test_it_is_found_in_every_form(name: str, text: str, at: str, tmp_path: Path) -> None:
    write(tmp_path, name, text)
    with pytest.raises(NodeProblem) as caught:
        refuse_conflicts(WANTED, tmp_path)
    assert at in str(caught.value)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sources.list.d/rackready.sources", f"Types: deb\nURIs: {CUDA}\nSuites: /\nSigned-By: {KEYRING}\n"),
        ("sources.list.d/same.list", f"deb [signed-by={KEY}] {CUDA}/ /\n"),
        ("sources.list.d/other-suite.list", f"deb [signed-by={KEYRING}] {CUDA} ./\n"),
        ("sources.list.d/other.list", f"deb [signed-by={KEYRING}] {CUDA}-extra /\n"),
        ("sources.list.d/off.list", f"# deb [signed-by={KEYRING}] {CUDA} /\n"),
        (
            "sources.list.d/off.sources",
            f"Enabled: no\nTypes: deb\nURIs: {CUDA}\nSuites: /\nSigned-By: {KEYRING}\n",
        ),
        ("sources.list.d/cuda.list.save", IMAGE),
        ("sources.list.d/before.list", f"deb {CUDA} /\n"),
    ],
)
def test_what_apt_accepts_is_not_refused(name: str, text: str, tmp_path: Path) -> None:
    write(tmp_path, name, text)
    refuse_conflicts(WANTED, tmp_path)


@pytest.mark.parametrize(
    ("version", "refused"), [("2.7.14build2", True), ("2.6.1", True), ("2.8.3", False), ("3.0.3", False)]
)
def test_a_later_source_without_a_key_conflicts_with_an_older_apt_alone(
    version: str,
    refused: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    write(tmp_path, "sources.list.d/zz.list", f"deb {CUDA} /\n")
    status = tmp_path / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(
        "Package: adduser\nStatus: install ok installed\nVersion: 3.137\n\n"
        f"Package: apt\nStatus: install ok installed\nDepends: libc6,\n libx\nVersion: {version}\nBreaks: x\n\n"
        "Package: zlib\nVersion: 1.3.1\n"
    )
    if refused:
        with pytest.raises(NodeProblem):
            refuse_conflicts(WANTED, tmp_path)
    else:
        refuse_conflicts(WANTED, tmp_path)


def test_a_password_of_the_site_is_not_shown(tmp_path: Path) -> None:
    write(tmp_path, "sources.list", IMAGE)
    with pytest.raises(NodeProblem) as caught:
        refuse_conflicts([WANTED[0] | {"url": f"https://user:pw@{CUDA[8:]}"}], tmp_path)
    assert "pw" not in str(caught.value)


def test_entries_of_a_line_and_of_a_stanza(tmp_path: Path) -> None:
    line = write(tmp_path, "sources.list", "deb [ arch=amd64 ] http://one noble main\n")
    stanza = write(tmp_path, "sources.list.d/a.sources", "Types: deb\nURIs: http://two\nSuites: x y\nSigned-By: /k\n")
    write(tmp_path, "sources.list.d/readme", "deb http://no x\n")
    assert [entry for path in files(tmp_path) for entry in entries(path)] == [
        Entry(line, 1, "deb", "http://one", "noble", ""),
        Entry(stanza, 2, "deb", "http://two", "x", "/k"),
        Entry(stanza, 2, "deb", "http://two", "y", "/k"),
    ]
