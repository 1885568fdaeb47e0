"""What the loop tells whoever drives it: a person's terminal, an assistant, or nobody."""

from typing import Any, Protocol

from uncork.model.plan import Plan, Step


class Say(Protocol):
    """Where progress goes, and who answers the one question."""

    def step(self, step: Step, state: str) -> None:
        """A step began (`running`) or ended (its status)."""
        ...

    def explorer(self, name: str, state: str) -> None:
        """An explorer began (`running`), ended (`ok`), or why its facts are missing."""
        ...

    def bench(self, progress: Any) -> None:
        """Where a benchmark is (`uncork.bench.suite.Progress`)."""
        ...

    def gate(self, text: str) -> None:
        """What the gate does now."""
        ...

    def note(self, text: str) -> None:
        """A line that a person should see."""
        ...

    def approve(self, plan: Plan) -> bool:
        """Show the exact changes and ask once. False where nobody answered yes."""
        ...

    def revert_worse(self, says: str) -> bool:
        """The run after the change is worse: whether to put the changes back."""
        ...


class Silent:
    """Tells nobody and answers no."""

    def step(self, step: Step, state: str) -> None:
        pass

    def explorer(self, name: str, state: str) -> None:
        pass

    def bench(self, progress: Any) -> None:
        pass

    def gate(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def approve(self, plan: Plan) -> bool:
        return False

    def revert_worse(self, says: str) -> bool:
        return False
