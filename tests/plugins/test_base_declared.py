"""Role base: what a site declares is refused before the first change, with the exact text."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from rackready.ondevice import huge_pages
from rackready.ondevice.command import NodeProblem

ROOT = Path(__file__).resolve().parents[2]
DEFAULTS: dict[str, Any] = yaml.safe_load((ROOT / "roles/base/defaults/main.yml").read_text(encoding="utf-8"))
TASKS: list[dict[str, Any]] = yaml.safe_load((ROOT / "roles/base/tasks/declared.yml").read_text(encoding="utf-8"))
BEFORE: list[dict[str, Any]] = yaml.safe_load((ROOT / "roles/base/tasks/preflight.yml").read_text(encoding="utf-8"))


def refusals(tasks: Sequence[dict[str, Any]] = TASKS, **declared: object) -> list[str]:
    """Return what the checks say about a declaration, as the action rackready_check words it."""
    found = []
    for check in [task["rackready_check"] for task in tasks if "rackready_check" in task]:
        templar = Templar(loader=DataLoader(), variables={**DEFAULTS, **declared})
        conditions = check["that"] if isinstance(check["that"], list) else [check["that"]]
        if all(templar.template(trust_as_template(f"{{{{ {condition} }}}}")) for condition in conditions):
            continue
        texts = [templar.template(trust_as_template(check[name])) for name in ("expected", "actual", "next_step")]
        found.append("Expected: {} Actual: {}. {}".format(*texts))
    return found


def test_the_defaults_pass() -> None:
    assert refusals() == []


@pytest.mark.parametrize("servers", [["ntp1.example", "192.0.2.5", "2001:db8::5"]])
def test_names_and_addresses_are_time_servers(servers: list[str]) -> None:
    assert refusals(base_ntp_servers=servers) == []


def test_a_time_server_with_options_is_refused() -> None:
    [said] = refusals(base_ntp_servers=["ntp1.example", "ntp2.example iburst", ""])
    assert said == (
        'Expected: base_ntp_servers with names or addresses of time servers Actual: "ntp2.example iburst", "". '
        "Correct base_ntp_servers in the group_vars of the environment: one name or address per item, without options."
    )


@pytest.mark.parametrize(("servers", "more"), [([], ", and declare base_ntp_servers"), (["192.0.2.5"], "")])
def test_a_clock_that_is_off_asks_for_time_servers_only_where_none_are_declared(servers: list[str], more: str) -> None:
    clock = [task for task in BEFORE if task["name"] == "preflight | Check the clock"]
    assert refusals(clock, base_ntp_servers=servers, __base_skew=120) == []
    [said] = refusals(clock, base_ntp_servers=servers, __base_skew=121)
    assert said == (
        "Expected: node clock within 120 s of the controller's clock Actual: 121 s apart. "
        f"Set the node's clock once (`date --set`){more}; then run again."
    )


@pytest.mark.parametrize("pages", [{"2M": 4096, "1G": 2}, {"64K": 0}])
def test_numbers_by_size_are_huge_pages(pages: dict[str, int]) -> None:
    assert refusals(base_huge_pages=pages) == []


@pytest.mark.parametrize(
    ("pages", "shown"), [({"2048": 4096}, "2048: 4096"), ({"2M": -1}, "2M: -1"), ({"1G": "two"}, "1G: two")]
)
def test_other_sizes_and_numbers_are_refused(pages: dict[str, object], shown: str) -> None:
    [said] = refusals(base_huge_pages=pages)
    assert said == (
        f"Expected: base_huge_pages with a number of pages by size, such as 2M: 4096 Actual: {shown}. "
        "Correct base_huge_pages in the group_vars of the environment."
    )


def test_a_governor_is_one_word() -> None:
    assert refusals(base_cpu_governor="performance") == []
    [said] = refusals(base_cpu_governor="performance; reboot")
    assert said == (
        "Expected: base_cpu_governor with the name of a governor, such as performance, or empty "
        "Actual: performance; reboot. Correct base_cpu_governor in the group_vars of the environment."
    )


def script(**declared: object) -> list[str]:
    """Return the shell's lines in the unit that sets at boot what the site declares, as systemd hands them over."""
    variables = yaml.safe_load((ROOT / "roles/base/vars/main.yml").read_text(encoding="utf-8"))
    text = (ROOT / "roles/base/templates/rackready-host-tuning.service.j2").read_text(encoding="utf-8")
    templar = Templar(
        loader=DataLoader(), variables={**variables, **DEFAULTS, **declared, "ansible_managed": "managed"}
    )
    rows = templar.template(trust_as_template(text))
    command = re.search(r"^ExecStart=/bin/sh -c '([^']*)'$", rows, re.MULTILINE)
    assert command
    return command[1].replace("$$", "$").replace(" \\\n", "\n").splitlines()


def boot(root: Path, **declared: object) -> subprocess.CompletedProcess[str]:
    """Run the unit's command below a root."""
    text = re.sub(r"/(sys|proc)/", rf"{root}/\1/", "\n".join(script(**declared)))
    return subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, check=False)


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")
    return path


def test_the_unit_sets_what_is_declared_and_nothing_else() -> None:
    pools = "/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages"
    assert [line for line in script(base_huge_pages={"2M": 4096, "1G": 2}) if line.startswith("echo")][1:] == [
        f"echo 2 >{pools.format(1048576)} || failed=1;",
        f"echo 4096 >{pools.format(2048)} || failed=1;",
    ]
    ports = {"ports": ["0000:17:00.0", "0000:17:02.0"]}
    assert script(__base_acs=ports)[1:-1] == [
        f"setpci -s {port} ECAP_ACS+0x6.w=0000 || failed=1;" for port in ports["ports"]
    ]
    assert script(__base_acs={"skipped": True}) == ["failed=0;", 'exit "$failed"']


def test_a_step_of_the_unit_that_fails_stops_no_later_one_and_fails_the_unit(tmp_path: Path) -> None:
    top = tmp_path / "sys/devices/system/cpu/cpufreq"
    for number, cpus in enumerate(("0", "", "2")):
        put(top / f"policy{number}/affected_cpus", cpus)
        put(top / f"policy{number}/scaling_governor", "powersave")
    wanted: dict[str, Any] = {"base_cpu_governor": "performance", "base_huge_pages": {"2M": 8}}
    pool = put(tmp_path / "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0")
    put(tmp_path / "proc/meminfo", "MemTotal:  16384000 kB\nMemAvailable:  8192000 kB")
    assert boot(tmp_path, **wanted).returncode == 0
    found = [(top / f"policy{number}/scaling_governor").read_text() for number in range(3)]
    assert found == ["performance\n", "powersave\n", "performance\n"]
    pool.write_text("0\n")
    (top / "policy0/scaling_governor").unlink()
    (top / "policy0/scaling_governor").mkdir()
    done = boot(tmp_path, **wanted)
    assert (done.returncode, pool.read_text()) == (1, "8\n")
    assert "scaling_governor" in done.stderr


def test_the_unit_leaves_memory_to_spare_as_install_does(tmp_path: Path) -> None:
    put(tmp_path / "proc/meminfo", "MemTotal:       16384000 kB\nMemFree:  1 kB\nMemAvailable:    8192000 kB")
    pools = [tmp_path / f"sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages" for size in (2048, 1048576)]
    for pool in pools:
        put(pool, "0")
    wanted = {"2M": 512, "1G": 6}
    done = boot(tmp_path, base_huge_pages=wanted)
    assert (done.returncode, done.stderr) == (
        1,
        "No huge page was reserved: 7340032 kB more, 8192000 kB of 16384000 kB available\n",
    )
    assert [pool.read_text() for pool in pools] == ["0\n", "0\n"]
    with pytest.raises(NodeProblem):
        huge_pages.refuse_too_many(tmp_path, wanted)
    for pages in ({"2M": 512, "1G": 5}, {"2M": 0, "1G": 6}, {"1G": 0}):
        assert boot(tmp_path, base_huge_pages=pages).returncode == 0
        huge_pages.refuse_too_many(tmp_path, pages)
    variables = yaml.safe_load((ROOT / "roles/base/vars/main.yml").read_text(encoding="utf-8"))
    assert variables["__base_spare"] == huge_pages.SPARE
