"""Running the program as a person would."""

import os
import subprocess
import sys
from pathlib import Path

OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
SMALL = (
    "--concurrency",
    "1,2",
    "--requests",
    "3",
    "--repeats",
    "2",
    "--input-len",
    "16",
    "--output-len",
    "8",
)


def uncork(state: Path, *argv: str, **more: object) -> subprocess.CompletedProcess[str]:
    """Run the program as a person would, with its state in `state`."""
    command = [sys.executable, "-m", "uncork.cli.main", *argv]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | {"UNCORK_STATE": str(state)},
        timeout=400,
        **more,
    )
