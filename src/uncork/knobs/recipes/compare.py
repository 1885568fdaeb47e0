"""Whether two values mean the same: one rule a kind of value. Standard library only."""

from collections.abc import Callable

PAGE_BYTES = 4096


def number(word: str) -> int | str:
    """The number that a word is, or the word."""
    try:
        return int(word, 16) if word.lower().startswith("0x") else int(word)
    except ValueError:
        return word


def cpu_set(text: str) -> set[int]:
    """The CPUs of a list such as `0-3,8`. Raises ValueError."""
    cpus = set[int]()
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        cpus |= set(range(int(first), int(last if dash else first) + 1))
    return cpus


def cpu_list(cpus: set[int]) -> str:
    """The shortest list that names the CPUs, as the kernel prints it."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def words(want: str, got: str) -> bool:
    """Equal word by word, numbers as numbers."""
    return [number(word) for word in want.split()] == [number(word) for word in got.split()]


def pair(want: str, got: str) -> bool:
    """As `words`; 0 is also said of a key whose partner is in force (`vm.dirty_ratio=20`)."""
    return words(want, got) or (want == "0" and "=" in got)


def start(want: str, got: str) -> bool:
    """As `words` for the words that were asked for; the kernel may say more (cpu.max: `max` and a period)."""
    return words(want, " ".join(got.split()[: len(want.split())]))


def governor(want: str, got: str) -> bool:
    """A governor without a preference is the governor with any."""
    return want in (got, got.partition(" epp=")[0])


def limits(want: str, got: str) -> bool:
    """`SOFT:HARD` exactly; a single number speaks of the soft limit."""
    return want in (got, got.partition(":")[0])


def cpus(want: str, got: str) -> bool:
    """The same set of CPUs, however it is written."""
    try:
        return cpu_set(want) == cpu_set(got)
    except ValueError:
        return want == got


def pages(want: str, got: str) -> bool:
    """Equal after the kernel rounded up to a page."""
    wanted, had = number(want), number(got)
    if isinstance(wanted, str) or isinstance(had, str):
        return want == got
    return 0 <= had - wanted < PAGE_BYTES


RULES: dict[str, Callable[[str, str], bool]] = {
    "words": words,
    "pair": pair,
    "start": start,
    "governor": governor,
    "limits": limits,
    "cpus": cpus,
    "pages": pages,
}
