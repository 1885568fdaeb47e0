"""Reads a model folder's JSON and asks for keys, so that what is missing or odd is named."""

from pathlib import Path
from typing import Any

import msgspec

from uncork.errors import BadInput


class Config:
    """A `config.json` (or a part of one) that names the key when it cannot answer."""

    def __init__(self, values: dict[str, Any], where: str) -> None:
        self.values = values
        self.where = where

    def has(self, key: str) -> bool:
        """Whether the key is there with a value other than null."""
        return self.values.get(key) is not None

    def integer(self, *keys: str, default: int | None = None) -> int:
        """A non-negative whole number under the first of the keys that is there. Raises BadInput naming it."""
        for key in keys:
            if self.has(key):
                value = self.values[key]
                if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                    raise BadInput(f"{self.where}: `{key}` is {value!r}, not a whole number")
                return value
        if default is None:
            raise BadInput(
                f"{self.where}: `{keys[0]}` is missing, so the model's size cannot be computed",
                next=f"add `{keys[0]}` or give the folder that the engine serves",
            )
        return default

    def positive(self, *keys: str, default: int | None = None) -> int:
        """As `integer`, and zero is refused too."""
        value = self.integer(*keys, default=default)
        if value == 0:
            raise BadInput(f"{self.where}: `{keys[0]}` is 0, which no such model can have")
        return value

    def count(self, *keys: str, default: int | None = None) -> int:
        """A number of layers: as `positive` where there is no default, and no more than a model can have."""
        value = self.integer(*keys, default=default) if default is not None else self.positive(*keys)
        if value > 2000:
            raise BadInput(f"{self.where}: `{keys[0]}` is {value}, more layers than any model has")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """A true or false value. Raises BadInput naming it."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise BadInput(f"{self.where}: `{key}` is {value!r}, not true or false")
        return value

    def words(self, key: str) -> list[str] | None:
        """A list of strings, or None where there is none. Raises BadInput naming it."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise BadInput(f"{self.where}: `{key}` is not a list of strings")
        return value


def read_json(path: Path) -> dict[str, Any]:
    """One JSON object from a file. Raises BadInput naming the file and the place."""
    try:
        # Some published configurations hold Infinity, which msgspec rightly refuses; the standard library reads it.
        import json

        text = path.read_bytes()
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError:
            value = json.loads(text)
    except OSError as error:
        raise BadInput(
            f"{path.name} cannot be read: {error.strerror}", next="give a folder with a config.json"
        ) from None
    except ValueError as error:
        raise BadInput(f"{path.name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadInput(f"{path.name} does not hold one JSON object")
    return value


def text_config(top: dict[str, Any]) -> Config:
    """The language model's own part: `text_config` or `llm_config` of a model that also sees or hears."""
    for key in ("text_config", "llm_config", "language_config"):
        inner = top.get(key)
        if isinstance(inner, dict):
            merged = {**{k: v for k, v in top.items() if not isinstance(v, dict)}, **inner}
            return Config(merged, f"config.json {key}")
    return Config(top, "config.json")
