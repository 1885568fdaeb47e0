"""What strace runs: `python act.py FOLDER apply|rollback|confirm|recover`; exit status as of the command line."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "plan"))

from test_crash_points import apply, confirm, put_in_order, roll_back

from uncork.errors import UncorkError

if __name__ == "__main__":
    act = {"apply": apply, "rollback": roll_back, "confirm": confirm, "recover": put_in_order}[sys.argv[2]]
    try:
        act(Path(sys.argv[1]))
    except UncorkError as error:
        print(f"{error.code}: {error.says}", file=sys.stderr)
        sys.exit(error.exit)
