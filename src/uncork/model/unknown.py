"""A value that could not be read."""

from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from typing_extensions import TypeIs


class UnknownValue(Exception):
    """An unknown value was used as if it were known; `reason` says why it is not."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Unknown:
    """What stands where a value could not be read, with the reason.

    It is never a default and never a pass: using one in a comparison, a condition, arithmetic, a loop or as
    an object raises `UnknownValue`. A check therefore needs no guard: the runner turns the exception into the
    answer *unknown* with this reason. Equality raises too, since `unknown != 0` being true would be a false
    finding and `unknown == 0` being false a false pass. Ask with `is_unknown`.

    `absent` is true where the host was asked and has no such thing (ENOENT): a knob that this kernel lacks.
    """

    __slots__ = ("absent", "reason")

    def __init__(self, reason: str, *, absent: bool = False) -> None:
        self.reason = reason
        self.absent = absent

    def __repr__(self) -> str:
        return f"Unknown({self.reason!r})"

    def _raise(self, *_: Any) -> NoReturn:
        raise UnknownValue(self.reason)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # copy, pickle and repr probe for these; they are not uses of the value
            raise AttributeError(name)
        raise UnknownValue(self.reason)

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> NoReturn:
        raise UnknownValue(self.reason)

    def __ne__(self, other: object) -> NoReturn:
        raise UnknownValue(self.reason)

    def __bool__(self) -> NoReturn:
        raise UnknownValue(self.reason)

    def __len__(self) -> NoReturn:
        raise UnknownValue(self.reason)

    def __iter__(self) -> NoReturn:
        raise UnknownValue(self.reason)

    def __contains__(self, item: object) -> NoReturn:
        raise UnknownValue(self.reason)

    def __getitem__(self, key: object) -> NoReturn:
        raise UnknownValue(self.reason)

    def __int__(self) -> NoReturn:
        raise UnknownValue(self.reason)

    def __float__(self) -> NoReturn:
        raise UnknownValue(self.reason)

    def __str__(self) -> str:
        return f"unknown ({self.reason})"

    __lt__ = __le__ = __gt__ = __ge__ = _raise
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _raise
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _raise
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rshift__ = _raise
    __neg__ = __abs__ = __round__ = __index__ = _raise


def is_unknown(value: object) -> "TypeIs[Unknown]":
    """Whether the value is one that could not be read."""
    return isinstance(value, Unknown)
