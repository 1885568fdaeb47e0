"""Facts as text for a model."""

from typing import Any

import msgspec

from uncork.model.unknown import Unknown


def facts_text(facts: Any) -> str:
    """The facts of a dimension as JSON; an Unknown becomes {"unknown": reason}."""
    plain = msgspec.to_builtins(facts, str_keys=True, enc_hook=_unknown)  # some tables have numbers as keys
    return msgspec.json.encode(plain, order="deterministic").decode()


def _unknown(value: object) -> object:
    if isinstance(value, Unknown):
        return {"unknown": value.reason}
    return repr(value)
