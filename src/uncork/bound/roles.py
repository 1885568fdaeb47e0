"""What a tensor is for, by its name."""

import re
from collections.abc import Iterable

from uncork.model.bound import Role, Sharding


def role_of(name: str, table: Iterable[tuple[str, Role, Sharding]]) -> tuple[Role, Sharding]:
    """The first row whose pattern is in the name; a name without one counts as not read: the safe side of a bound."""
    return next(
        ((role, how) for pattern, role, how in table if re.search(pattern, name)),
        (Role.OTHER, Sharding.TENSOR),
    )
