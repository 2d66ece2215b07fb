"""Build the rpm side of the simulated mirror: signed packages, their index, and the streams of the driver's module."""

from __future__ import annotations

from pathlib import Path

from rackready_sim.host import run
from rackready_sim.packages import rpm
from rackready_sim.packages.deb import Deb

_STREAM = """---
document: modulemd
version: 2
data:
  name: {module}
  stream: "{stream}"
  version: 20250102000000
  context: rackready
  arch: x86_64
  summary: NVIDIA driver
  description: NVIDIA driver, branch and flavour {stream}
  license:
    module: [MIT]
  dependencies:
    - platform: [el9]
  artifacts:
    rpms:
{artifacts}
...
"""


def build(packages: list[Deb], module: str, streams: dict[str, list[str]], out: Path, sign: Path) -> None:
    """Write packages, ``repodata/`` and streams below ``out``; ``sign`` is the GnuPG home with the signing key.

    Raises SimError with the message of the tool that failed.
    """
    rpm.write(map(rpm.translated, packages), out)
    key = ("--define", f"_gpg_path {sign}", "--define", "_gpg_name rackready", "--define", "__gpg /usr/bin/gpg")
    run(["rpmsign", *key, "--addsign", *map(str, sorted(out.glob("*.rpm")))], timeout_s=300.0, shown="rpmsign")
    run(["createrepo_c", "--quiet", "--revision", "1", "--set-timestamp-to-revision", str(out)], timeout_s=120.0)
    listed = "".join(
        _STREAM.format(
            module=module, stream=stream, artifacts="\n".join(f'      - "{item}"' for item in sorted(artifacts))
        )
        for stream, artifacts in sorted(streams.items())
    )
    if not streams:
        return
    modules = out / "modules.yaml"
    modules.write_text(listed, encoding="utf-8")
    run(["modifyrepo_c", "--mdtype=modules", str(modules), str(out / "repodata")], timeout_s=60.0)
    modules.unlink()
