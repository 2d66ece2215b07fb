"""Role base: the kernel options of the site are in force, whatever the image says."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from rackready.ondevice.reboot_reasons import REPEATED, lacking

ROOT = Path(__file__).resolve().parents[2]
VARS: dict[str, Any] = yaml.safe_load((ROOT / "roles/base/vars/main.yml").read_text(encoding="utf-8"))


def drop_in(options: list[str]) -> str:
    known = {key: trust_as_template(value) if isinstance(value, str) else value for key, value in VARS.items()}
    templar = Templar(loader=DataLoader(), variables=known | {"base_kernel_options": options})
    text = (ROOT / "roles/base/templates/grub.cfg.j2").read_text(encoding="utf-8")
    found: str = templar.template(trust_as_template(text))
    return found


@pytest.mark.parametrize(
    ("options", "image", "line"),
    [
        (["iommu=pt"], "quiet iommu=nopt splash", "earlier iommu=pt quiet splash"),
        (["iommu=pt"], "iommu", "earlier iommu=pt "),
        (["iommu=pt"], "iommu.strict=1 xiommu=1", "earlier iommu=pt iommu.strict=1 xiommu=1"),
        (["init_on_alloc=0"], "init-on-alloc=1 *", "earlier init_on_alloc=0 *"),
        (
            ["console=ttyS1", "pci=realloc"],
            "console=tty1 pci=noaer",
            "earlier console=ttyS1 pci=realloc console=tty1 pci=noaer",
        ),
        (["rd.driver.blacklist=x"], "rd.driver.blacklist=y", "earlier rd.driver.blacklist=x rd.driver.blacklist=y"),
        ([], "iommu=nopt", "earlier iommu=nopt"),
    ],
)
def test_words_of_the_image_give_way(options: list[str], image: str, line: str, tmp_path: Path) -> None:
    # As grub-mkconfig reads them (Debian's grub2 2.06): with sh -e, the line has LINUX, then LINUX_DEFAULT.
    (tmp_path / "90-rackready.cfg").write_text(drop_in(options))
    script = f'GRUB_CMDLINE_LINUX=earlier GRUB_CMDLINE_LINUX_DEFAULT="{image}"; . ./90-rackready.cfg; '
    script += 'printf "%s" "$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"; set -- *; [ "$1" = 90-rackready.cfg ]'
    done = subprocess.run(["sh", "-euc", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (line, "")
    assert lacking(done.stdout.split(), options) == []


def test_the_role_knows_the_same_repeated_options() -> None:
    assert VARS["__base_repeated"] == list(REPEATED)
