"""Small readings of text and of the controller that templates must not compute themselves."""

from __future__ import annotations

import importlib.util

from ansible.errors import AnsibleFilterError


def module_file(name: str) -> str:
    """Return the file of a single-file Python module of the controller's environment."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.origin:
        message = (
            f"Python module {name} - Expected: installed beside Ansible Actual: absent. "
            "Run `make setup`, then .venv/bin/ansible-playbook."
        )
        raise AnsibleFilterError(message)
    return spec.origin


def host_keys(known_hosts: str, addresses: list[str]) -> str:
    """Return the lines of a known_hosts file for these addresses, sorted, so that a second run changes nothing."""
    wanted = set(addresses)
    kept = {
        line.strip()
        for line in known_hosts.splitlines()
        if wanted & {name.strip("[]").split("]:")[0] for name in line.split(" ", 1)[0].split(",")}
    }
    return "".join(f"{line}\n" for line in sorted(kept))


def outside(rows: list[str], value: float) -> list[str]:
    """Return the rows ``lowest, highest`` of nvidia-smi without the value; a row without numbers does not have it."""
    return [row for row in rows if not _within(row.split(","), value)]


def _within(cells: list[str], value: float) -> bool:
    try:
        low, high = (float(cell) for cell in cells)
    except ValueError:
        return False
    return low <= value <= high


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, object]:
        """Return the filters by the names that templates use."""
        return {
            "rackready_module_file": module_file,
            "rackready_host_keys": host_keys,
            "rackready_outside": outside,
        }
