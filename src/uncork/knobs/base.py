"""What most knobs share: reading and writing go through the recipe, and one target is one file."""

import glob as globbing
import re
import shlex

from uncork.host.live import unread
from uncork.knobs import Recipe, Risk, Scope, recipes
from uncork.model.unknown import Unknown


class RecipeKnob:
    """A knob whose `recipe` says all; subclasses give `recipe` and what differs."""

    compare = "words"

    def __init__(self, root: str = "/") -> None:
        self.root = root.rstrip("/")

    def recipe(self, target: str) -> Recipe:
        raise NotImplementedError

    def targets(self, pattern: str) -> tuple[str, ...]:
        return (pattern,)

    def read(self, target: str) -> str | Unknown:
        try:
            return recipes.read(self.recipe(target))
        except OSError as error:
            return unread(target, error)

    def same(self, want: str, got: str) -> bool:
        return recipes.same({"compare": self.compare}, want, got)

    def veto(self, target: str, value: str) -> str:
        return ""

    def write(self, target: str, value: str) -> None:
        recipes.write(self.recipe(target), value)

    def scope(self, target: str) -> Scope:
        return "runtime"

    def risk(self, target: str) -> Risk:
        return "low"

    def owners(self, target: str) -> tuple[str, ...]:
        return ()

    def undo_command(self, target: str, before: str) -> str:
        return f"echo {shlex.quote(before)} > {shlex.quote(self.recipe(target)['path'])}"

    def glob(self, pattern: str) -> tuple[str, ...]:
        """The paths under the root that match, in natural order of their numbers."""
        found = globbing.glob(self.root + pattern)
        return tuple(path[len(self.root) :] for path in sorted(found, key=natural))


def natural(text: str) -> list[tuple[int, str]]:
    """A sort key that puts cpu2 before cpu10."""
    return [(int(word), "") if word.isdigit() else (-1, word) for word in re.split(r"(\d+)", text)]
