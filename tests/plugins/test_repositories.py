"""Role base with several repositories: source files of apt and dnf, key files, and the refusal of a wrong key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROOT = Path(__file__).resolve().parents[2]
VARS: dict[str, Any] = yaml.safe_load((ROOT / "roles/base/vars/main.yml").read_text(encoding="utf-8"))
EL: dict[str, Any] = yaml.safe_load((ROOT / "roles/base/vars/Rocky_9.yml").read_text(encoding="utf-8"))
# Key and fingerprint of RFC 9580, A.3: the sample certificate of version 6.
FINGERPRINT = "CB186C4F0609A697E4D52DFA6C722B0C1F1E27C18A56708F6525EC27BAD9ACC9"
KEY = """-----BEGIN PGP PUBLIC KEY BLOCK-----

xioGY4d/4xsAAAAg+U2nu0jWCmHlZ3BqZYfQMxmZu52JGggkLq2EVD34laM=
-----END PGP PUBLIC KEY BLOCK-----
"""
CUDA = {"name": "cuda", "url": "http://m/cuda", "suite": "./", "components": [], "signed_index": True}
MORE = {
    "name": "more",
    "url": "http://m/more",
    "suite": "noble",
    "components": ["main", "extra"],
    "signed_index": False,
}
NONE = {"base_mirror_url": "", "base_mirror_suite": "./", "base_mirror_components": [], "base_mirror_key": ""}
ONE = NONE | {"base_mirror_url": "http://m", "base_mirror_key": "/k/m.asc"}


def said(template: str, **known: Any) -> Any:  # noqa: ANN401 - what a template gives
    variables = {
        key: trust_as_template(value) if isinstance(value, str) else value for key, value in (VARS | known).items()
    } | {"ansible_managed": "managed"}
    return Templar(loader=DataLoader(), variables=variables).template(trust_as_template(template))


def rendered(name: str, *repositories: dict[str, Any], **known: Any) -> str:
    given = [item | {"key": "/k/x.asc", "fingerprint": FINGERPRINT} for item in repositories]
    text = (ROOT / f"roles/base/templates/{name}.j2").read_text(encoding="utf-8")
    return str(said(text, base_repositories=given, **known))


def test_apt_trusts_each_repository_for_its_own_key_only() -> None:
    assert rendered("rackready.sources", CUDA, MORE, **NONE) == (
        "# managed\nTypes: deb\nURIs: http://m/cuda\nSuites: ./\n"
        "Signed-By: /etc/apt/keyrings/rackready-cuda.asc\n"
        "\nTypes: deb\nURIs: http://m/more\nSuites: noble\nComponents: main extra\n"
        "Signed-By: /etc/apt/keyrings/rackready-more.asc\n"
    )


def test_dnf_checks_packages_and_index_of_each_repository() -> None:
    text = rendered("rackready.repo", CUDA, MORE, **NONE, **EL)
    first, second = text.removeprefix("# managed\n").split("\n\n")
    assert first.startswith(
        "[rackready-cuda]\nname=rackready-cuda\nbaseurl=http://m/cuda\nenabled=1\ngpgcheck=1\nrepo_gpgcheck=1\n"
        "gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-rackready-cuda\n"
    )
    assert "[rackready-more]" in second
    assert "gpgcheck=1\nrepo_gpgcheck=0\n" in second


def test_the_single_form_writes_what_it_wrote_before() -> None:
    assert rendered("rackready.sources", **ONE) == (
        "# managed\nTypes: deb\nURIs: http://m\nSuites: ./\nSigned-By: /etc/apt/keyrings/rackready.asc\n"
    )
    assert rendered("rackready.repo", **ONE, **EL) == (
        "# managed\n[rackready]\nname=rackready\nbaseurl=http://m\nenabled=1\ngpgcheck=1\n"
        "gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-rackready\n"
        "# A package of the vendor comes from here or not at all.\nskip_if_unavailable=0\nmodule_hotfixes=0\n"
    )


@pytest.mark.parametrize("declared", [FINGERPRINT, "1" * 40])
def test_a_key_that_is_not_the_declared_one_is_named_with_both(declared: str, tmp_path: Path) -> None:
    key = tmp_path / "cuda.asc"
    key.write_text(KEY, encoding="utf-8")
    given = [CUDA | {"key": str(key), "fingerprint": declared}]
    wrong = said("{{ __base_wrong_keys }}", base_repositories=given, **NONE)
    expected = f"cuda: the key {declared} and no other in {key}"
    assert wrong == ([] if declared == FINGERPRINT else [{"expected": expected, "actual": FINGERPRINT}])


def test_keys_of_packages_belong_to_the_file_too(tmp_path: Path) -> None:
    key = tmp_path / "cuda.asc"
    key.write_text(KEY, encoding="utf-8")
    given = CUDA | {"key": str(key), "fingerprint": FINGERPRINT, "package_fingerprints": ["1" * 40]}
    wrong = "{{ __base_wrong_keys }}"
    expected = f"cuda: the keys {FINGERPRINT}, {'1' * 40} alone in {key}"
    assert said(wrong, base_repositories=[given], **NONE) == [{"expected": expected, "actual": FINGERPRINT}]
    given["package_fingerprints"] = [FINGERPRINT]
    assert said(wrong, base_repositories=[given], **NONE) == []


def test_each_key_goes_to_a_file_of_its_own(tmp_path: Path) -> None:
    key = tmp_path / "cuda.asc"
    key.write_text(KEY, encoding="utf-8")
    given = [CUDA | {"key": str(key), "fingerprint": FINGERPRINT}]
    files = said("{{ __base_sources | rackready_key_files }}", base_repositories=given, **NONE)
    assert files == [{"path": "/etc/apt/keyrings/rackready-cuda.asc", "content": KEY}]
