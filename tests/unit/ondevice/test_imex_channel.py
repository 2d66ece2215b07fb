"""The default IMEX channel: made once, with the number that the loaded driver has."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rackready.ondevice import imex_channel
from rackready.ondevice.command import NodeProblem

DEVICES = "Character devices:\n  1 mem\n195 nvidia\n{major} nvidia-caps-imex-channels\n\nBlock devices:\n  8 sd\n"


class Node:
    """A file system without the right to make devices: it remembers them."""

    def __init__(self, root: Path, major: int = 234) -> None:
        self.root, self.made = root, list[tuple[int, int, int]]()
        (root / "proc").mkdir()
        (root / "dev").mkdir()
        self.load(major)

    def load(self, major: int) -> None:
        (self.root / "proc/devices").write_text(DEVICES.format(major=major))

    def mknod(self, path: Path, mode: int, device: int) -> None:
        path.write_text("")
        self.made.append((mode, os.major(device), os.minor(device)))

    def ensure(self, *, check: bool = False) -> str:
        return imex_channel.ensure(self.root, check=check, mknod=self.mknod)


def test_the_channel_is_made_for_every_user(tmp_path: Path) -> None:
    node = Node(tmp_path)
    absent = "/dev/nvidia-caps-imex-channels/channel0: absent"
    assert node.ensure(check=True) == absent
    assert not (tmp_path / "dev/nvidia-caps-imex-channels").exists()
    assert node.ensure() == absent
    assert node.made == [(stat.S_IFCHR | 0o666, 234, 0)]
    assert (tmp_path / imex_channel.CHANNEL).stat().st_mode & 0o777 == 0o666


@pytest.mark.parametrize(("major", "said"), [(234, ""), (235, "another device or mode")])
def test_a_channel_stays_until_the_driver_has_another_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, major: int, said: str
) -> None:
    """The kernel's devtmpfs keeps a device that was made by hand when the driver is unloaded."""
    node = Node(tmp_path)
    node.ensure()
    seen = os.stat_result((stat.S_IFCHR | 0o666, *(0,) * 9), {"st_rdev": os.makedev(234, 0)})
    monkeypatch.setattr(Path, "lstat", lambda _: seen)
    node.load(major)
    assert node.ensure().partition(": ")[2] == said
    assert [device for _, device, _ in node.made] == [234, 235][: 2 if said else 1]


def test_a_node_whose_driver_is_not_loaded_is_refused(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "proc/devices").write_text("Character devices:\n195 nvidia\n")
    with pytest.raises(NodeProblem, match="nvidia-caps-imex-channels in /proc/devices Actual: not there"):
        node.ensure()
