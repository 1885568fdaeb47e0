"""Runs in the guest: each case of test_knobs.py from standard input, one JSON line of what happened each.

The value is written by the knob, looked at by a command that knows nothing of uncork, put back by the command
that the plan shows, looked at, written again, put back by the bare recipe in an interpreter of its own, and
looked at.
"""

import json
import subprocess
import sys
import traceback

from uncork.knobs import KNOBS

UNDO = """
import json, sys
sys.path.insert(0, sys.argv[1])
import recipes
for one in reversed(json.load(sys.stdin)):
    recipes.write(one["recipe"], one["before"])
    if not recipes.same(one["recipe"], one["before"], recipes.read(one["recipe"])):
        raise SystemExit(f"{one} is not back")
"""


def shell(line: str) -> str:
    """What a line of shell prints."""
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, encoding="utf-8", timeout=100, check=True
    )
    return done.stdout.strip()


def write(name: str, pattern: str, want: str) -> list[dict]:
    """Write every target of a pattern; what is needed to undo each."""
    knob, done = KNOBS[name], []
    for target in knob.targets(pattern):
        before = knob.read(target)
        one = {"recipe": knob.recipe(target), "command": knob.undo_command(target, before), "before": before}
        one["veto"] = knob.veto(target, want)
        knob.write(target, want)
        one["same"] = knob.same(want, knob.read(target))
        done.append(one)
    return done


def play(case: dict, undo: str) -> dict:
    """One case; what each look saw."""
    target = shell(f'echo "{case["target"]}"')
    seen = {"before": shell(case["look"])}
    done = write(case["knob"], target, case["want"])
    seen |= {"targets": len(done), "same": all(one["same"] for one in done)}
    seen |= {"veto": "".join(one["veto"] for one in done), "after": shell(case["look"])}
    if case["paste"]:
        shell("; ".join(one["command"] for one in reversed(done)))
        seen["pasted"] = shell(case["look"])
        done = write(case["knob"], target, case["want"])
    bare = ["/usr/bin/python3", "-I", "-S", "-c", UNDO, undo]
    subprocess.run(bare, input=json.dumps(done), encoding="utf-8", timeout=100, check=True)
    return seen | {"undone": shell(case["look"])}


for line in sys.stdin:
    try:
        print(json.dumps(play(json.loads(line), sys.argv[1])), flush=True)
    except Exception:
        print(json.dumps({"error": traceback.format_exc()}), flush=True)
