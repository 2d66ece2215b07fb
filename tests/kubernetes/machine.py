"""A machine without a container: the node's part of a join, with every path of it below a folder, and its kubeadm.

kubeadm is that of the simulated rack. ``ran`` in the folder has a line for each time that it was begun.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rackready.drivers.remote import Answer
from rackready.ondevice import kube_join

ROOT = Path(__file__).resolve().parents[2]
_KUBEADM = """#!{python}
import sys
from pathlib import Path
sys.path.insert(0, "{programs}")
from hwsim.kube import kubeadm
folder = Path("{folder}")
kubeadm._KUBELET, kubeadm._BOOTSTRAP = folder / "kubelet.conf", folder / "bootstrap.conf"
kubeadm._gpus = lambda: 8
kubeadm._CA, kubeadm._PKI = folder / "ca.crt", folder / "pki"
with open("{folder}/ran", "a") as ran:
    ran.write("join\\n")
sys.exit(kubeadm.main(sys.argv[1:]))
"""


def nothing(_when: str) -> None:
    """Do nothing before and after a command."""


@dataclass
class Machine:
    """The machine behind every node; stands in for ``drivers.remote.Remote``.

    ``around`` is told before and after a command, and during it, once kubeadm has begun.
    """

    folder: Path
    around: Callable[[str], None] = nothing

    def run(self, _node: str, argv: Sequence[str], *, stdin: str, timeout_s: float, cleaning: bool) -> Answer:
        """Run the node's part, in a process of its own."""
        del cleaning
        self._install()
        secrets = [text for text in json.loads(stdin)["files"].values() if text in " ".join(argv)]
        assert secrets == []
        source = argv[2].replace("/run/rackready", f"{self.folder}/rackready")
        source = source.replace("/etc/kubernetes/kubelet.conf", f"{self.folder}/kubelet.conf")
        source = source.replace(kube_join.PLACES, f"{self.folder}/bin:{kube_join.PLACES}")
        self.around("before")
        words, pipe = [sys.executable, "-I", "-c", source], subprocess.PIPE
        with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as part:
            assert part.stdin is not None
            part.stdin.write(stdin)
            part.stdin.close()
            part.stdin = None
            while part.poll() is None and not (self.folder / "ran").exists():
                time.sleep(0.01)
            self.around("during")
            out, err = part.communicate(timeout=timeout_s)
        self.around("after")
        return Answer(part.returncode, out, err, 0.1)

    def close(self) -> None:
        """Do nothing."""

    def _install(self) -> None:
        program = self.folder / "bin/kubeadm"
        program.parent.mkdir(parents=True, exist_ok=True)
        programs = ROOT / "src/rackready_sim/programs"
        program.write_text(_KUBEADM.format(python=sys.executable, programs=programs, folder=self.folder))
        program.chmod(0o755)
