"""Inside a private mount namespace: put the served files over the real ones, then run the unmodified engine.

`python fuse_drive.py STATE FILES apply|rollback CALL_LIMIT_S` with each file of FILES named as a sysctl key.
"""

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "plan"))

from uncork.apply.rollback import rollback
from uncork.apply.transaction import apply_step
from uncork.errors import UncorkError
from uncork.plan.store import Store


def main(state: Path, served: Path, keys: list[str], verb: str, limit_s: float) -> int:
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for key in keys:
        over = Path("/proc/sys") / key.replace(".", "/")
        subprocess.run(["mount", "--bind", served / key, over], check=True)
    with Store(state) as store:
        try:
            if verb == "apply":
                step = next(step for step in store.read().steps if step.kind == "apply")
                apply_step(store, step, guard=lambda *_: "none:", call_limit_s=limit_s)
            else:
                print(json.dumps([one.outcomes for one in rollback(store)]))
        except UncorkError as error:
            print(f"{error.code}: {error.says}")
            return error.exit
    return 0


if __name__ == "__main__":
    sys.exit(
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3].split(","), sys.argv[4], float(sys.argv[5]))
    )
