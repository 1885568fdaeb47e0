"""What must not be stored or shown: secrets always, serial numbers and MACs always, names when asked.

Two stages. Secrets go when a value is read, before anything else sees it. Identifiers go when a result is
shown or a snapshot is stored: until then the program needs them, to name the GPU that a change is for.

The same input gives the same output on every machine and in every run, and a second pass changes nothing, so
that a replay answers byte for byte what the live audit answered. UUIDs become a hash of themselves (128 random
bits cannot be guessed back), MACs lose their lower half (24 bits could be), serial numbers are blanked.
"""

import hashlib
import re
from collections.abc import Callable
from typing import Any

from uncork.host import Output

GONE = "[redacted]"
# Names of an environment that say how a server runs. Anything else may be a secret and is left out.
ALLOWED = re.compile(
    r"^(?:NCCL|RCCL|CUDA|HIP|HSA|ROCR|ROCM|AMD|GPU|NVIDIA|VLLM|SGLANG|SGL|TORCH|TORCHINDUCTOR|PYTORCH|OMP|MKL|KMP|GOMP"
    r"|OPENBLAS|NUMEXPR|UCX|FI|IBV|MLX5|OMPI|FLASHINFER|TRITON|TRTLLM|TLLM|LLAMA|GGML|XLA|MALLOC|GLIBC|JEMALLOC|RAYON"
    r"|TOKENIZERS|PYTHON|RAY_NUM|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_PORT|COMPUTE_SANITIZER|NSYS|CUPTI|DEBUG)[A-Z0-9_]*$"
    r"|^(?:LD_PRELOAD|LD_LIBRARY_PATH|PATH|container|HF_HUB_OFFLINE|TRANSFORMERS_OFFLINE|HF_HOME|HF_HUB_ENABLE_HF_TRANSFER"
    r"|LANG|LC_ALL|TMPDIR|VIRTUAL_ENV|CONDA_PREFIX|INVOCATION_ID|http_proxy|https_proxy|no_proxy|HTTP_PROXY|HTTPS_PROXY"
    r"|NO_PROXY|LOG_LEVEL|NSPR_LOG_MODULES|TF_CPP_MIN_LOG_LEVEL)$"
)
SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE)", re.IGNORECASE)
# `--hf-token X`, `api_key: X`; not `--max-tokens 512`, nor "tokens per second" in a log.
_SECRET_ARGUMENT = re.compile(
    r"((?:api[_-]?key|token|secret|passw(?:or)?d|credentials?)(?:[\"']?\s?[=:]\s?|[\s\0]+(?:- )?)[\"']?)"
    r"(?!-)([^\s\0\"',]{3,})",
    re.IGNORECASE,
)
_TOKENS = (
    r"hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|AKIA[0-9A-Z]{16}|xox[abprs]-[\w-]{10,}|AIza[\w-]{30,}|nvapi-[\w-]{20,}"
    r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}|[Bb]earer +[\w.~+/-]{8,}=*"
)
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_MAC = r"(?<![0-9a-fA-F:.])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![0-9a-fA-F:])"
_SECRET = re.compile(rf"{_TOKENS}|(?<=://)[^\s/@:]+:[^\s/@]+(?=@)")
_IDENTIFIER = re.compile(
    rf"(?P<uuid>{_UUID})|(?P<mac>{_MAC})"
    r"|(?P<label>\b(?:Board |Chassis |Tray )?[Ss]erial(?: [Nn]umber)?\s*:\s*|<serial>|<board_serial>|\bGUID:?\s+(?=0x)"
    r"|\b(?:node|sys_image|port)_guid:\s*|Device Serial Number )(?P<value>[^\s<][^\n<]*)"
)
# Cheap signs that an expression could match at all: most answers are a number in sysfs, or long and harmless.
_TOKEN_SIGNS = (
    *("://", "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "nvapi-"),
    *("eyJ", "AKIA", "AIza", "earer "),
)
_TOKEN_SK = re.compile(r"sk-[A-Za-z0-9_-]{16}")  # "disk-" and "task-" are everywhere
_IDENTIFIER_HINT = re.compile(r"[0-9a-fA-F]-[0-9a-fA-F]{4}-|(?:[0-9a-fA-F]{2}:){4}|erial|GUID|guid")
_SECRET_WORDS = ("apikey", "api_key", "api-key", "token", "secret", "passw", "credential")
_SERIAL_FILE = re.compile(
    r"/(?:\w+_serial|serial|serial_number|unique_id|wwid|wwn|node_guid|sys_image_guid|gids/\d+|machine-id)$"
)
_ENVIRON = re.compile(r"^/proc/(?:\d+|self)/environ$")
_CONFIG = re.compile(r"^/sys/.*/config$")


def secrets(value: str) -> str:
    """Text without tokens, and without passwords in URLs and arguments."""
    if len(value) < 8:
        return value
    low = value.lower()
    if any(word in low for word in _SECRET_WORDS):
        value = _SECRET_ARGUMENT.sub(_argument, value)
    known = any(sign in value for sign in _TOKEN_SIGNS) or ("sk-" in value and _TOKEN_SK.search(value))
    return _SECRET.sub(GONE, value) if known else value


def _argument(found: re.Match[str]) -> str:
    """The name stays, its value goes, unless it is a number or the name is only a word in a sentence."""
    if found[2].isdecimal():
        return found[0]
    if not re.search("[=:]", found[1]):
        before = re.search(r"[\w-]*$", found.string[max(0, found.start() - 80) : found.start()])
        flag = before[0] if before else ""
        if not (flag or found[1]).startswith("-"):
            return found[0]
    return found[1] + GONE


def text(value: str) -> str:
    """Text without secrets and identifiers (serial numbers, MACs, UUIDs)."""
    value = secrets(value)
    return _IDENTIFIER.sub(_replace, value) if len(value) >= 8 and _IDENTIFIER_HINT.search(value) else value


def cut(value: str, most: int) -> str:
    """The first `most` characters without identifiers: one that is cut in two would no longer be known as one.

    It would be shown, and a replay, whose answers were cleaned before anything cut them, would answer other bytes.
    """
    return text(value)[:most]


def _replace(found: re.Match[str]) -> str:
    if found["uuid"]:
        return uuid(found["uuid"])
    if found["mac"]:
        return found["mac"][:9] + "00:00:00"
    # "Serial Number: N/A" says that there is none, which is worth knowing.
    blank = found["value"].strip() in ("N/A", "[N/A]", "Not Specified", "0", "None")
    return str(found["label"]) + (found["value"] if blank else GONE)


def uuid(value: str) -> str:
    """A UUID that stands for this one everywhere, marked by a first group of zeros; such a one stays."""
    if value.startswith("00000000-"):
        return value
    digest = hashlib.sha256(b"uncork uuid " + value.lower().encode()).hexdigest()
    return "-".join(("00000000", digest[:4], digest[4:8], digest[8:12], digest[12:24]))


def environment(value: bytes) -> bytes:
    """NUL-separated NAME=value, only the allowed names; a value whose name smells of a secret is blanked."""
    kept = []
    for pair in value.split(b"\0"):
        name, equals, rest = pair.decode("utf-8", "replace").partition("=")
        if equals and ALLOWED.match(name):
            kept.append(f"{name}={GONE if SECRET_NAME.search(name) else secrets(rest)}")
    return "".join(f"{pair}\0" for pair in kept).encode()


def config_space(value: bytes) -> bytes:
    """PCI configuration space with its Device Serial Number (extended capability 3, often a MAC) blanked."""
    at, seen = 0x100, set()
    while 0x100 <= at <= len(value) - 12 and at not in seen:
        seen.add(at)
        header = int.from_bytes(value[at : at + 4], "little")
        if header in (0, 0xFFFFFFFF):
            break
        if header & 0xFFFF == 3:
            value = value[: at + 4] + bytes(8) + value[at + 12 :]
        at = header >> 20 & 0xFFC
    return value


# SMBIOS type → offsets of the string numbers that are serials or tags (DMTF DSP0134).
_SMBIOS_SERIALS = {
    1: (0x07, 0x1A),
    2: (0x07, 0x08),
    3: (0x07, 0x08),
    4: (0x20, 0x21),
    17: (0x18, 0x19),
    22: (0x07,),
    39: (0x09, 0x0A),
}


def smbios(value: bytes) -> bytes:
    """An SMBIOS table with serial numbers, asset tags and the system's UUID blanked, same length."""
    table = bytearray(value)
    at = 0
    while at + 4 <= len(table):
        kind, length = table[at], table[at + 1]
        end = table.find(b"\0\0", at + length)
        if length < 4 or end < 0:
            break
        if kind == 1 and length >= 0x18:
            table[at + 8 : at + 24] = bytes(16)
        numbers = {table[at + offset] for offset in _SMBIOS_SERIALS.get(kind, ()) if offset < length}
        start = at + length
        for number, string in enumerate(bytes(table[start:end]).split(b"\0"), 1):
            if number in numbers or kind == 11:
                table[start : start + len(string)] = b"x" * len(string)
            start += len(string) + 1
        at = end + 2
    return bytes(table)


def _text_bytes(value: bytes, clean: Callable[[str], str]) -> bytes:
    if len(value) < 8:
        return value
    try:
        return clean(value.decode()).encode()
    except UnicodeDecodeError:
        return value if b"\0" in value[:64] else clean(value.decode("utf-8", "replace")).encode()


def when_read(kind: str, name: str, value: Any) -> Any:
    """An answer without secrets: `kind` is read, run or query, `name` the path of a file."""
    if kind == "read":
        return environment(value) if _ENVIRON.match(name) else _text_bytes(value, secrets)
    if kind == "run":
        return Output(value.rc, secrets(value.stdout), secrets(value.stderr))
    return _reading(value, secrets)


def when_stored(kind: str, name: str, value: Any) -> Any:
    """An answer without secrets and without identifiers, as a snapshot may hold it."""
    if kind == "read":
        return _file(name, value)
    if kind == "run":
        return Output(value.rc, text(value.stdout), text(value.stderr))
    return _reading(value, text) if kind == "query" else value


def _file(path: str, value: bytes) -> bytes:
    if _ENVIRON.match(path):
        return environment(value)
    if _SERIAL_FILE.search(path):
        return GONE.encode() + b"\n" if value.strip() else value
    if _CONFIG.match(path):
        return config_space(value)
    if path.endswith("/tables/DMI"):
        return smbios(value)
    return _text_bytes(value, text)


def _reading(value: Any, clean: Callable[[str], str]) -> Any:
    """A JSON-shaped reading, its strings cleaned, what stands under a serial's name blanked."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {str(key): _named(str(key), item, clean) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_reading(item, clean) for item in value]
    return value


def _named(name: str, value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str) and value and re.search(r"serial|node_guid", name):
        return GONE
    return _reading(value, clean)


class Names:
    """Replaces the host's and users' names, each by the same stand-in throughout."""

    def __init__(self, host: str, users: tuple[str, ...] = ()) -> None:
        # Names of three letters and less would eat words, system accounts name no person.
        self._known = {name: f"user{number}" for number, name in enumerate(sorted(users), 1) if len(name) > 3}
        short = host.partition(".")[0]
        self.host = "host"
        self._known |= {name: self.host for name in (host, short) if len(name) > 1}
        words = "|".join(re.escape(name) for name in sorted(self._known, key=len, reverse=True))
        self._pattern = re.compile(rf"(?<![\w.-])(?:{words})(?![\w-])") if words else None

    def text(self, value: str) -> str:
        """Text with the names replaced."""
        return self._pattern.sub(lambda found: self._known[found[0]], value) if self._pattern else value
