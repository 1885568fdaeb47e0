"""CPU and node lists as the kernel writes them: `0-3,8,10-14:2`."""

from collections.abc import Iterable

# A list that names more is not one of CPUs.
LIMIT = 1 << 16


def parse(text: str) -> tuple[int, ...] | None:
    """The numbers of a list, sorted; None where the text is not one. An empty text is an empty list."""
    found: set[int] = set()
    for part in text.strip().split(","):
        if not part.strip():
            continue
        span, _, step = part.partition(":")
        first, dash, last = span.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            return None
        begin, end = int(first[:9]), int(last[:9]) if dash else int(first[:9])
        # "0-31:1/4" means one of every four (Documentation/admin-guide/kernel-parameters.rst).
        used, _, group = step.partition("/")
        if step and not (used.isdecimal() and (not group or group.isdecimal())):
            return None
        if end - begin > LIMIT or len(found) > LIMIT:
            return None
        if group:
            found |= {n for n in range(begin, end + 1) if (n - begin) % max(1, int(group)) < int(used)}
        else:
            found |= set(range(begin, end + 1, max(1, int(used)) if step else 1))
    return tuple(sorted(found))


def render(numbers: Iterable[int]) -> str:
    """The shortest list that the kernel would print for these numbers."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(begin) if begin == end else f"{begin}-{end}" for begin, end in spans)
