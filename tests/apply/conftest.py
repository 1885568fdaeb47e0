import os
import signal
import sys
from pathlib import Path

import pytest

from uncork.apply import chain, guard

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "plan"))


@pytest.fixture
def world(tmp_path):
    from fake_kernel import World

    made = World(tmp_path)
    yield made
    assert chain.broken(made.store.db) == []
    for held in made.store.db.execute("SELECT guard FROM hold").fetchall():
        how, _, name = held["guard"].partition(":")
        if how == "process" and guard.armed(held["guard"]):
            os.kill(int(name.partition(":")[0]), signal.SIGKILL)
    made.store.close()
