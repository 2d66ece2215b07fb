"""The meaning of dnf's words.

Outputs are of the real programs: dnf 4.14.0, rpm 4.18.0 and dnf-plugins-core 4.3.1 of Debian 12, with a signed
repository of modular packages.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.ondevice.dnf_words import explain
from tests.unit.ondevice.test_dnf import EXCLUDED, MODULAR, NEW, UNSIGNED

OTHER_KEY = """Importing GPG key 0xC8651FC8:
 Userid     : "other key"
 Fingerprint: 4AA7 F2B1 EF6B CF69 C0BE 877D 6D38 40ED C865 1FC8
 From       : /etc/pki/rpm-gpg/K
Public key for demo-580.173.02-1.el9.x86_64.rpm is not installed. Failing package is: demo-3:580.173.02-1.el9.x86_64
 GPG Keys are configured as: file:///etc/pki/rpm-gpg/K
Error: GPG check FAILED
"""
NO_KEY = (
    "Curl error (37): Couldn't read a file:// file for file:///etc/pki/rpm-gpg/K "
    "[Couldn't open file /etc/pki/rpm-gpg/K]\n"
)
FULL = """Error: Transaction test error:
  installing package demo-common-3:580.173.02-1.el9.noarch needs 36KB more space on the /usr/share/demo filesystem

Error Summary
-------------
Disk Requirements:
   At least 1MB more space needed on the /usr/share/demo filesystem.

"""
DOWN = (
    "Error: Failed to download metadata for repo 'rackready': Cannot download repomd.xml: Cannot download "
    "repodata/repomd.xml: All mirrors were tried\n"
)
DOWN_OS = DOWN.replace("'rackready'", "'baseos'")
LEFT_OUT = (
    DOWN_OS
    + """Ignoring repositories: baseos
Last metadata expiration check: 0:00:04 ago on Mon Nov 30 15:54:25 2026.
"""
)
NO_MATCH = "No match for argument: libnuma\nError: Unable to find a match: libnuma\n"
UNMET = """Error:
 Problem: conflicting requests
  - nothing provides nowhere = 2 needed by broken-1-1.x86_64
(try to add '--skip-broken' to skip uninstallable packages or '--nobest' to use not only best candidate packages)
"""
WAITED = "Waiting for process with pid 4711 to finish.\n"
NO_PLUGIN = """No such command: versionlock. Please use /usr/bin/dnf --help
It could be a DNF plugin command, try: "dnf install 'dnf-command(versionlock)'"
"""


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (
            UNSIGNED,
            "packages signed by the mirror's key Actual: Package demo-580.173.02-1.el9.x86_64.rpm is not signed",
        ),
        (OTHER_KEY, "Actual: Public key for demo-580.173.02-1.el9.x86_64.rpm is not installed. Sign the packages"),
        (NO_KEY, "Actual: Couldn't open file /etc/pki/rpm-gpg/K. Sign"),
        (
            FULL,
            "room on the node's disk for the packages Actual: needs 36KB more space on the /usr/share/demo filesyst",
        ),
        (DOWN, "the package mirror answers Actual: Failed to download metadata for repo 'rackready': Cannot download"),
        (
            DOWN_OS,
            (
                "Expected: the node's package source baseos answers Actual: Failed to download metadata for repo "
                "'baseos': Cannot download repomd.xml: Cannot download repodata/repomd.xml: All mirrors were tried. "
                "Correct that repository below /etc/yum.repos.d on the node, give the node a way to it or disable it "
                "(enabled=0); then run again."
            ),
        ),
        (DOWN_OS + DOWN, "the package mirror answers Actual: Failed to download metadata for repo 'rackready': Cannot"),
        (
            LEFT_OUT + NO_MATCH,
            (
                "Expected: libnuma on the mirror Actual: no such package or version there; no metadata from baseos "
                "(Cannot download repomd.xml: Cannot download repodata/repomd.xml: All mirrors were tried). Put it on "
                "the mirror, or choose a version set whose packages it carries (software.set). Or give the node a way "
                "to baseos, if it is there."
            ),
        ),
        (
            LEFT_OUT + UNMET,
            "Actual: conflicting requests - nothing provides nowhere = 2 needed by broken-1-1.x86_64; no metadata from",
        ),
        (LEFT_OUT + UNSIGNED, "Actual: Package demo-580.173.02-1.el9.x86_64.rpm is not signed. Sign the packages"),
        (EXCLUDED, f"nvidia-driver-cuda-{NEW} may be installed Actual: excluded on the node by others. Look for it in"),
        (WAITED + EXCLUDED, f"Expected: nvidia-driver-cuda-{NEW} may be installed Actual: excluded on the node by oth"),
        (WAITED, "Expected: dnf's lock is free Actual: Waiting for process with pid 4711 to finish. End the process"),
        (MODULAR, "demo-3:595.91.07-1.el9 in the enabled module stream Actual: another stream is enabled. Compare"),
        (
            UNMET,
            "can meet Actual: conflicting requests - nothing provides nowhere = 2 needed by broken-1-1.x86_64. Put",
        ),
        (NO_PLUGIN, "dnf with the plugin versionlock Actual: no such command. Install python3-dnf-plugin-versionlock"),
        (
            "No match for argument: demo-9:1-1\nError: Unable to find a match: demo-9:1-1 other\n",
            "Expected: demo-9:1-1, other on the mirror Actual: no such package or version there. Put it on the mirror",
        ),
        (
            "Error: Problems in request:\nmissing groups or modules: nvidia-driver:999-open\n",
            "Expected: nvidia-driver:999-open on",
        ),
        ("x\nError: Strange thing\n", "dnf ends without an error Actual: Error: Strange thing. See /var/log/dnf.log"),
        ("", "Actual: no output"),
    ],
)
def test_dnf_s_words_become_one_problem(out: str, words: str, tmp_path: Path) -> None:
    text = str(explain(out, tmp_path))
    assert words in text
    assert text.startswith("Expected: ")
