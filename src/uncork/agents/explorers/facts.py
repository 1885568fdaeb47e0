"""Facts as text for a model."""

from typing import Any

import msgspec

from uncork.model.unknown import Unknown


def facts_text(facts: Any) -> str:
    """The facts of a dimension as JSON; an Unknown becomes {"unknown": reason}."""
    return msgspec.json.encode(facts, enc_hook=_unknown, order="deterministic").decode()


def _unknown(value: object) -> object:
    if isinstance(value, Unknown):
        return {"unknown": value.reason}
    return repr(value)
