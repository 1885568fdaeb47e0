"""What is asked: prompts with their lengths, made from a seed."""

import msgspec


class Prompt(msgspec.Struct, frozen=True):
    """One prompt and how long an answer it asks for.

    `input_len` is what was aimed at; what the server counted stands in its usage record. `history` holds the
    earlier turns of a conversation; `at_s` is the send time of a trace.
    """

    text: str
    input_len: int
    output_len: int
    history: tuple[dict[str, str], ...] = ()
    tokens: tuple[int, ...] = ()
    at_s: float = 0.0

    def whole_text(self) -> str:
        """The conversation as plain text, for servers that take no messages."""
        return "\n".join([*(turn["content"] for turn in self.history), self.text])
