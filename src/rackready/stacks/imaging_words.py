"""Reports of the ramdisk in words: progress, refusals with what the disks hold, and silence. Pure."""

from __future__ import annotations

from rackready.drivers.boot_service import Report, ReportedDisk
from rackready.model.problems import Message, quoted
from rackready.stacks.boot_jobs import ImagingJob

_GB = 1_000_000_000
_HOLDS_DATA = "disk-has-data"
_STEPS = {
    "disk-missing": "Correct its disks in the site file, or look at the drive.",
    "disk-ambiguous": "Name the disk by a serial number or path that only one disk has.",
    "serial-mismatch": "Correct its serial or boot_mac in the site file.",
    "image-hash": "Build or import the image again.",
    "image-too-large": "Use a larger disk, or a smaller image.",
    "secure-boot": "Set Secure Boot in its firmware setup, or provisioning.secure_boot: any.",
    "network": "Look at its cable, switch port and the boot service's logs, then run again.",
}
_OTHER_STEP = "Look at its console through the BMC, then run again."


def disk_words(disk: ReportedDisk) -> str:
    """Return one disk with its content, e.g. ``/dev/sda (serial S1, 480 GB): gpt, 3 partitions; ext4 'root'``."""
    serial = f"serial {disk.serial}, " if disk.serial else ""
    return f"{disk.path} ({serial}{disk.size / _GB:.0f} GB): {'; '.join(disk.holds) or 'empty'}"


def progress_words(report: Report) -> str:
    """Return the line of progress for a report."""
    percent = f" {report.percent} %" if report.percent is not None else ""
    text = report.message
    if report.step == "disks":
        text = "; ".join(f"{disk.chosen} {disk_words(disk)}" for disk in report.disks if disk.chosen) or text
    return f"ramdisk: {report.step}{percent}{f', {text}' if text else ''}"


def held(last: Report | None) -> str:
    """Return the last report in a message."""
    return f"last report: {progress_words(last).removeprefix('ramdisk: ')}" if last is not None else "no report"


def refusal(node: str, last: Report, erase: str) -> Message:
    """Return the message for an installation that the ramdisk refused or could not finish."""
    written = "nothing was written" if last.step == "refused" else "its disk is half written and does not boot"
    what = f"imaging {last.step}, {written}"
    if last.code == _HOLDS_DATA:
        full = [disk for disk in last.disks if disk.chosen and disk.holds]
        actual = ", ".join(map(disk_words, full)) or last.message
        step = f"If nobody needs it, `{erase}` erases these disks."
        return Message(node, what, "empty disks", actual, step)
    step = _STEPS.get(last.code, _OTHER_STEP)
    said = quoted(last.message).rstrip(".")
    return Message(node, what, "the image on its disks", f"{last.code or 'an error'}: {said}", step)


def silence(node: str, last: Report | None, silent_s: float, total_s: float, job: ImagingJob) -> Message:
    """Return the message for an installation that makes no progress: what came last, and what was waited for."""
    if total_s > job.timeout_s:
        actual = f"not done after {total_s:.0f} s (provisioning.timeout_s), {held(last)}"
        step = "Give it more time, or look at its console through the BMC. Run again: it goes on."
        return Message(node, "imaging is not done", "done", actual, step)
    if last is None:
        step = (
            f"Look at its console through the BMC, and whether {job.mac} is the port that it boots from (boot_mac). "
            "Power it off before you run again: it then boots again."
        )
        actual = f"none {silent_s:.0f} s after power-on"
        return Message(node, "the ramdisk does not report", "a first report", actual, step)
    step = "Look at its console through the BMC. Power it off before you run again: it then boots again."
    return Message(
        node, "imaging makes no progress", "the next report", f"none for {silent_s:.0f} s, {held(last)}", step
    )
