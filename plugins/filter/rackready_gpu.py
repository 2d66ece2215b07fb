"""GPUs that nvidia-smi lists: those set as wanted, and typed differences of the others."""

from __future__ import annotations


def tuned(rows: list[str], limit_w: float, clock_min_mhz: float) -> list[str]:
    """Return the rows ``index,W,MHz`` of nvidia-smi with the wanted power limit and at least the wanted clock."""
    return [row for row in rows if _tuned(row.split(","), limit_w, clock_min_mhz)]


def _tuned(cells: list[str], limit_w: float, clock_min_mhz: float) -> bool:
    try:
        _, watts, clock = (float(cell) for cell in cells)
    except ValueError:
        return False
    return abs(watts - limit_w) < 1 and clock >= clock_min_mhz  # nvidia-smi prints hundredths of a watt


def tuning_drift(rows: list[str], limit_w: float, clock_min_mhz: float, gpus: int) -> list[dict[str, str]]:
    """Return each GPU whose power limit or clock is not the wanted one, and GPUs that nvidia-smi does not list."""
    expected = f"{limit_w:g} W and at least {clock_min_mhz:g} MHz"
    bad = [row.split(",") for row in rows if not _tuned(row.split(","), limit_w, clock_min_mhz)]
    out = [
        {
            "kind": "gpu",
            "name": f"gpu{cells[0]} power limit and clock",
            "expected": expected,
            "actual": f"{cells[1]} W and {cells[2]} MHz" if len(cells) == 3 else ", ".join(cells),  # noqa: PLR2004 - index, W, MHz
        }
        for cells in bad
    ]
    if len(rows) < gpus:
        out.append({"kind": "gpu", "name": "GPUs listed", "expected": str(gpus), "actual": str(len(rows))})
    return out


def persistence_drift(rows: list[str], gpus: int, wanted: str = "Enabled") -> list[dict[str, str]]:
    """Return each GPU (``index, mode``) whose persistence mode is another, and GPUs that nvidia-smi does not list."""
    cells = [[cell.strip() for cell in row.split(",", 1)] for row in rows]
    out = [
        {"kind": "gpu", "name": f"gpu{row[0]} persistence mode", "expected": wanted, "actual": row[-1]}
        for row in cells
        if row[-1] != wanted
    ]
    if len(rows) < gpus:
        out.append({"kind": "gpu", "name": "GPUs listed", "expected": str(gpus), "actual": str(len(rows))})
    return out


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, object]:
        """Return the filters by the names that templates use."""
        return {
            "rackready_tuned": tuned,
            "rackready_tuning_drift": tuning_drift,
            "rackready_persistence_drift": persistence_drift,
        }
