"""What a run was made on: machine, versions, date. Needs the standard library only."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["PACKAGES", "describe_machine", "installed_versions", "now", "source_commit"]

PACKAGES = (
    "libra-fabric",
    "numpy",
    "clarabel",
    "highspy",
    "numba",
    "polars",
    "pydantic",
    "scipy",
    "cvxpy",
    "pyscipopt",
    "gurobipy",
)


def describe_machine() -> dict[str, str | float]:
    """Processor, cores, memory, system, and how busy it is just now."""
    found: dict[str, str | float] = {
        "system": platform.platform(terse=True),
        "processor": _cpu_field("model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 0,
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found["memory_GB"] = round(
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1
        )
    if hasattr(os, "getloadavg"):
        found["load"] = round(os.getloadavg()[0], 2)
    return found


def _cpu_field(name: str) -> str:
    """Field of the processor's description, where the system has one."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def installed_versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that matter; None: not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def source_commit() -> str | None:
    """Commit that was measured, with a + if files differ from it; None: not in a repository."""
    root = Path(__file__).resolve().parents[2]
    command = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--match="]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None


def now() -> str:
    """Date and time, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
