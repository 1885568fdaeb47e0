"""Screenshots of the report: report_pictures.py OUT.png SOURCE [--dark] [--size WxH].

SOURCE is a folder of a run or of a benchmark, as `uncork report` takes, or a recorded host (a snapshot or files
that people attached), of which the audit and the drawing are shown. Needs Chromium and matplotlib.
"""

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from uncork import audit
from uncork.cli.look import host_of, shown
from uncork.errors import BadInput
from uncork.explorers import explore
from uncork.record import topology
from uncork.record.report import reading
from uncork.record.report.page import page
from uncork.record.report.story import Story

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def story_of(source: Path) -> Story:
    """A run's story, else what an audit of a recorded host says."""
    try:
        return reading.any_of(source)
    except BadInput:
        host, _ = host_of([source])
        seen = explore(host, deadline_s=120)
        found = shown(audit.of(source.name, seen))
        return Story(name=source.name, audit=found, topology=topology.of(seen.facts))


def main() -> None:
    """Build the page and photograph its beginning."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--size", default="1280x1600")
    given = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("Chromium is not installed; no picture was made.")
    text = page([story_of(given.source)])
    if given.dark:
        text = text.replace('id="dark">', 'id="dark" checked>')
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(text, encoding="utf-8")
        size = given.size.replace("x", ",")
        profile = f"--user-data-dir={folder}/profile"
        picture = f"--screenshot={given.out.absolute()}"
        argv = [browser, *FLAGS, profile, f"--window-size={size}", picture, path.as_uri()]
        subprocess.run(argv, check=True, timeout=120, capture_output=True)
    print(f"{given.out}: {given.out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
