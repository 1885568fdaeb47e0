"""What an explorer answers, and whether what it quotes was really there."""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec
from pydantic import BaseModel, Field

MIN_QUOTE_CHARS = 4


class Quote(BaseModel):
    """A piece of evidence, word for word as a tool returned it."""

    source: str = Field(max_length=300, description="The path or command that returned it")
    text: str = Field(min_length=1, max_length=500, description="Copied exactly from what the tool returned")


class Claim(BaseModel):
    """One thing that seems wrong."""

    finding: str = Field(min_length=1, max_length=400)
    evidence: list[Quote] = Field(min_length=1, max_length=6)
    proposed_check: str = Field(default="", max_length=400)


class Report(BaseModel):
    """All that an explorer claims; an empty list is a good answer."""

    claims: list[Claim] = Field(default_factory=list, max_length=10)


class SeenClaim(msgspec.Struct, frozen=True):
    """A claim whose every quote was found in what the tools returned; still a model's opinion."""

    dimension: str
    finding: str
    evidence: tuple[tuple[str, str], ...]
    proposed_check: str
    confirmed: Literal[False] = False


def check(report: Report, seen: Sequence[tuple[str, str]], dimension: str) -> tuple[list[SeenClaim], int]:
    """The claims all of whose quotes stand in `seen`, and how many were dropped.

    A quote is looked up in the answers of the source it names, with runs of white space made equal. A quote of
    fewer than four characters proves nothing and counts as missing.
    """
    texts: dict[str, str] = {}
    for source, text in seen:
        texts[_squeeze(source)] = texts.get(_squeeze(source), "") + " \0 " + _squeeze(text)
    kept, dropped = [], 0
    for claim in report.claims:
        if all(_stands(quote, texts) for quote in claim.evidence):
            quotes = tuple((quote.source, quote.text) for quote in claim.evidence)
            kept.append(SeenClaim(dimension, claim.finding, quotes, claim.proposed_check))
        else:
            dropped += 1
    return kept, dropped


def _stands(quote: Quote, texts: dict[str, str]) -> bool:
    text = _squeeze(quote.text)
    return len(text) >= MIN_QUOTE_CHARS and text in texts.get(_squeeze(quote.source), "")


def _squeeze(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
