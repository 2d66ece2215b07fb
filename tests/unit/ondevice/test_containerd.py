"""containerd of a Kubernetes site: NVIDIA runtime and CDI, judged by what containerd 1.7 and 2.1 answered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.container_engines import Engines
from rackready.ondevice.containerd import CONFIG, DROP_IN, parse

CAPTURED = Path(__file__).parents[2] / "fixtures/captured/containerd"
CONFIGURE = [
    "nvidia-ctk",
    "runtime",
    "configure",
    "--runtime=containerd",
    "--drop-in-config=/etc/containerd/conf.d/99-nvidia.toml",
    "--cdi.enabled",
]
WHOLE = (
    "`containerd config default > /etc/containerd/config.toml`, then SystemdCgroup and what else the cluster needs "
    "(kubernetes.io, Container Runtimes). Then run again."
)
RESTART = ["systemctl", "try-restart", "containerd.service"]


def captured(name: str) -> str:
    return (CAPTURED / f"{name}.txt").read_text(encoding="utf-8")


def printed() -> str:
    """Return what a real nvidia-ctk prints as its file."""
    lines = [line for line in captured("nvidia_ctk_dry_run").splitlines() if not line.startswith(("#", "time="))]
    return "\n".join(lines[: lines.index('            BinaryName = "/usr/bin/nvidia-container-runtime"') + 1]) + "\n"


class Node:
    """A node with containerd. ``kind``: bare or full, its config.toml; its answers are those of a real containerd."""

    def __init__(self, root: Path, kind: str = "full") -> None:
        self.root, self.kind, self.ran = root, kind, list[list[str]]()
        self.version = "containerd github.com/containerd/containerd 1.7.28 b98a3aace656320842a23f4a392a33f46af97866\n"
        self.users, self.dump, self.written, self.broken, self.idle = "", "", printed(), "", False
        self.breaks = self.after = ""
        self.put("usr/lib/systemd/system/containerd.service", "")
        self.put("usr/lib/systemd/system/docker.service", "")
        self.put("etc/docker/daemon.json", '{"runtimes": {"nvidia": {}}}')
        self.put(CONFIG, "version = 2\n")

    def put(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def text(self, name: str) -> str | None:
        path = self.root / name
        return path.read_text(encoding="utf-8") if path.exists() else None

    def run(self, argv: Sequence[str]) -> Done:
        words = list(argv)
        if words[:2] == ["containerd", "--version"]:
            return Done(0, self.version)
        if words == ["containerd", "config", "dump"]:
            when = "before" if self.text(DROP_IN) is None else "after"
            answer = self.broken or self.dump or captured(f"containerd_1_7_{self.kind}_{when}")
            return Done(1 if self.broken else 0, answer)
        if words[-1] == "--dry-run":
            log = 'time="2026-11-28T05:01:05Z" level=info msg="Drop-in config:"\n'
            return Done(0, f'{log}{self.written}\ntime="x" level=info msg="Top-level config:"\nversion = 2\n')
        if words[0] == "nvidia-smi" or words[:2] in (["systemctl", "show"], ["systemctl", "is-active"]):
            return Done(0, self.users if words[0] == "nvidia-smi" else "")
        self.ran.append(words)
        if words == CONFIGURE and not self.idle:
            self.put(DROP_IN, self.written)
            self.put(CONFIG, 'imports = ["/etc/containerd/conf.d/*.toml"]\nversion = 2\n')
            self.broken, self.dump = self.breaks, self.after or self.dump
        return Done(0, "")

    def ensure(self, *, kubelet: bool = True, check: bool = False) -> dict[str, tuple[str, str]]:
        return Engines(self.run, self.root, kubelet).ensure(check=check)

    def refusal(self) -> str:
        with pytest.raises(NodeProblem) as refused:
            self.ensure()
        return str(refused.value)


def test_what_a_dump_shows() -> None:
    before, after = parse(captured("containerd_1_7_full_before")), parse(captured("containerd_1_7_full_after"))
    assert (before.default, sorted(before.runtimes), before.nvidia, before.cdi) == ("runc", ["runc"], False, False)
    assert (after.default, sorted(after.runtimes), after.nvidia, after.cdi) == ("runc", ["nvidia", "runc"], True, True)
    newer = parse(captured("containerd_2_1_bare_after"))
    assert (newer.default, sorted(newer.runtimes), newer.nvidia, newer.cdi) == ("runc", ["nvidia", "runc"], True, True)
    assert parse("disabled_plugins = ['cri', 'zfs']\n").off == ("cri",)


def test_containerd_gets_runtime_and_cdi_once(tmp_path: Path) -> None:
    node = Node(tmp_path)
    found = {"containerd": ("containerd with the NVIDIA runtime", "none in `containerd config dump`")}
    assert node.ensure(check=True) == found
    assert node.ran == []
    assert node.ensure() == found
    assert node.ran == [CONFIGURE, RESTART]
    node.ran.clear()
    assert node.ensure() == {}
    assert node.ran == []


def test_below_docker_containerd_counts_only_for_kubernetes(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.ensure(kubelet=False) == {}
    assert list(node.ensure(check=True)) == ["containerd"]


def test_without_kubernetes_cdi_is_not_asked_for(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "usr/lib/systemd/system/docker.service").unlink()
    node.put(DROP_IN, node.written)
    node.dump = captured("containerd_1_7_full_after").replace("enable_cdi = true", "enable_cdi = false")
    assert node.ensure(kubelet=False) == {}
    assert node.ensure(check=True) == {
        "containerd": ("containerd with CDI", "enable_cdi is not true in `containerd config dump`")
    }


def test_a_copy_of_older_settings_is_written_again(tmp_path: Path) -> None:
    """Up to containerd 2.0 nvidia-ctk's file hides later changes of config.toml."""
    node = Node(tmp_path)
    node.put(DROP_IN, printed())
    node.written = printed().replace("enable_cdi = true", 'enable_cdi = true\n    sandbox_image = "pause:3.10"')
    expected = "/etc/containerd/conf.d/99-nvidia.toml as nvidia-ctk writes it from /etc/containerd/config.toml"
    assert node.ensure() == {"containerd": (expected, "another text")}
    assert node.ran == [CONFIGURE, RESTART]
    assert node.ensure() == {}


def test_a_config_that_would_lose_runc_is_put_back(tmp_path: Path) -> None:
    """With containerd 1.7 the CRI plug-in would not load: no runtime for default_runtime_name."""
    node = Node(tmp_path, "bare")
    assert node.refusal() == (
        "Expected: runtime runc beside the NVIDIA runtime Actual: containerd would lose it, because "
        "/etc/containerd/config.toml does not name it. Name it there: `containerd config default > "
        "/etc/containerd/config.toml`, then SystemdCgroup and what else the cluster needs (kubernetes.io, Container "
        "Runtimes). Then run again. Both files are as before."
    )
    assert node.text(CONFIG) == "version = 2\n"
    assert node.text(DROP_IN) is None
    assert RESTART not in node.ran


@pytest.mark.parametrize(
    ("text", "actual"),
    [
        ("# Docker\ndisabled_plugins = []\n", "no version, which means 1"),
        ("version = 1\n", "version = 1"),
        ("[plugins]\n  [plugins.x]\n    version = 2\n", "no version, which means 1"),
    ],
)
@pytest.mark.parametrize("kubelet", [True, False])
def test_a_config_of_the_first_format_is_refused(tmp_path: Path, text: str, actual: str, *, kubelet: bool) -> None:
    """nvidia-ctk would write a file that containerd never reads, run after run."""
    node = Node(tmp_path)
    if not kubelet:
        (tmp_path / "usr/lib/systemd/system/docker.service").unlink()
    node.put(CONFIG, text)
    with pytest.raises(NodeProblem) as refused:
        node.ensure(kubelet=kubelet)
    assert str(refused.value) == (
        f"Expected: /etc/containerd/config.toml of version 2 or newer Actual: {actual}. Write a whole one: {WHOLE} "
        "Nothing was changed."
    )
    assert node.ran == []


def test_a_config_of_the_first_format_that_has_everything_is_left(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.put(CONFIG, "disabled_plugins = []\n")
    node.dump = captured("containerd_1_7_full_after")
    assert node.ensure() == {}


@pytest.mark.parametrize("text", ["", "# nothing\n\n", "'version' = 3\n"])
def test_an_empty_config_is_no_first_format(tmp_path: Path, text: str) -> None:
    node = Node(tmp_path)
    node.put(CONFIG, text)
    assert node.ensure()
    assert node.ran == [CONFIGURE, RESTART]


def cgroups(**systemd: str) -> str:
    """Return what containerd 2.1 runs with, its runtimes with these values of SystemdCgroup."""
    text = captured("containerd_2_1_bare_after")
    for name, value in systemd.items():
        head = f"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}.options]\n"
        assert head in text
        text = text.replace(head, f"{head}            SystemdCgroup = {value}\n")
    return text


OTHER_CGROUPS = (
    "Expected: SystemdCgroup of runtime nvidia as of runc: true Actual: false. nvidia-ctk takes it from "
    "/etc/containerd/config.toml alone: name runc with its SystemdCgroup there, and not in a file that it imports, "
    "then run again. "
)


def test_another_cgroup_driver_than_runcs_is_refused(tmp_path: Path) -> None:
    """It merges runc's options from another drop-in from 2.1 on, which nvidia-ctk did not read."""
    node = Node(tmp_path)
    node.dump = cgroups(runc="true")
    node.put(DROP_IN, printed())
    assert node.refusal() == f"{OTHER_CGROUPS}Nothing was changed."
    assert node.ran == []
    for dump in (cgroups(runc="true", nvidia="true"), cgroups(runc="false"), cgroups()):
        node.dump = dump
        assert node.ensure() == {}
    node.dump = cgroups(runc="true")
    (tmp_path / "usr/lib/systemd/system/docker.service").unlink()
    assert node.ensure(kubelet=False) == {}


def test_runc_is_no_yardstick_where_nvidia_is_the_default(tmp_path: Path) -> None:
    """No pod uses runc's options then."""
    node = Node(tmp_path)
    node.put(DROP_IN, printed())
    named = "default_runtime_name = 'runc'"
    node.dump = cgroups(runc="false", nvidia="true")
    assert named in node.dump
    assert "of runc: false Actual: true" in node.refusal()
    node.dump = node.dump.replace(named, "default_runtime_name = 'nvidia'")
    assert node.ensure() == {}
    node.dump = cgroups(runc="true", nvidia="false").replace(named, "default_runtime_name = 'nvidia'")
    assert "of runc: true Actual: false" in node.refusal(), "nvidia-ctk found no options of runc"
    node.dump = cgroups(runc="true", nvidia="false").replace(named, "default_runtime_name = 'kata'")
    assert "of runc: true Actual: false" in node.refusal(), "kata is by no runc"
    node.dump = cgroups(runc="false", nvidia="true").replace(named, "")
    assert "of runc: false Actual: true" in node.refusal()


def test_a_change_that_makes_another_cgroup_driver_is_put_back(tmp_path: Path) -> None:
    node = Node(tmp_path)
    before = node.text(CONFIG)
    node.after = cgroups(runc="true")
    assert node.refusal() == f"{OTHER_CGROUPS}Both files are as before."
    assert (node.text(CONFIG), node.text(DROP_IN)) == (before, None)
    assert RESTART not in node.ran


def test_a_config_that_lost_runc_earlier_is_refused_too(tmp_path: Path) -> None:
    node = Node(tmp_path, "bare")
    node.put(DROP_IN, printed())
    assert node.refusal().startswith("Expected: runtime runc beside the NVIDIA runtime")
    assert node.text(DROP_IN) == printed()
    assert RESTART not in node.ran


def test_files_are_put_back_when_containerd_refuses_them_after_the_change(tmp_path: Path) -> None:
    """nvidia-ctk makes config.toml import a folder in which an old broken file lay unread."""
    node = Node(tmp_path)
    before = node.text(CONFIG)
    node.breaks = "containerd: failed to load TOML: /etc/containerd/conf.d/old.toml: (1, 1): unexpected token\n"
    assert node.refusal() == (
        "Expected: `containerd config dump` succeeds Actual: exit 1: containerd: failed to load TOML: "
        "/etc/containerd/conf.d/old.toml: (1, 1): unexpected token. Correct /etc/containerd/config.toml and the files "
        "that it imports; then run again. Both files are as before."
    )
    assert (node.text(CONFIG), node.text(DROP_IN)) == (before, None)
    assert RESTART not in node.ran


def test_refusals_before_a_change(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.version = "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n"
    assert node.refusal() == (
        "Expected: containerd 1.7 or newer, which has CDI Actual: 1.6.20. Install a newer containerd on the node."
    )
    node.version = "containerd: Permission denied\n"
    assert node.refusal() == (
        "Expected: containerd 1.7 or newer, which has CDI Actual: `containerd --version`: containerd: Permission "
        "denied. Install a newer containerd on the node."
    )
    node.version = "containerd github.com/containerd/containerd/v2 v2.1.4 75cb2b7193e4e490e9fbdc236c0e811ccaba3376\n"
    node.dump = 'disabled_plugins = ["cri"]\n'
    assert node.refusal() == (
        "Expected: containerd with its CRI plug-in Actual: disabled_plugins: cri. Take it out of disabled_plugins in "
        "/etc/containerd/config.toml on the node: kubelet needs it. If the file names no version, as that of Docker's "
        f"package, write a whole one: {WHOLE} Nothing was changed."
    )
    node.broken = "containerd: failed to load TOML: /etc/containerd/config.toml: (3, 1): unexpected token\n"
    assert node.refusal() == (
        "Expected: `containerd config dump` succeeds Actual: exit 1: containerd: failed to load TOML: "
        "/etc/containerd/config.toml: (3, 1): unexpected token. Correct /etc/containerd/config.toml and the files that "
        "it imports; then run again. Nothing was changed."
    )
    node.broken = node.dump = ""
    node.users = "4711, python3\n"
    assert node.refusal() == (
        "Expected: no process on the GPUs while containerd restarts Actual: 4711 python3. "
        "Drain the node and wait until its jobs end, then run again. Nothing was changed."
    )
    assert node.ran == []


def test_a_call_without_effect_is_reported(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.idle = True
    assert node.refusal() == (
        "Expected: containerd with the NVIDIA runtime Actual: none in `containerd config dump`. Run `nvidia-ctk "
        "runtime configure --runtime=containerd --drop-in-config=/etc/containerd/conf.d/99-nvidia.toml --cdi.enabled` "
        "on the node and read its output."
    )
    assert RESTART not in node.ran
