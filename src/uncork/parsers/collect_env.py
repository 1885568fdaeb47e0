"""Environment reports: vLLM's collect_env (flat and sectioned), torch's, sglang's check_env."""

import re

import msgspec

from uncork.parsers import cpu, environment, packages
from uncork.parsers.numbers import integer

_KERNEL = re.compile(r"Linux-(\d+\.\d+[\w.-]*?)(?:-(?:x86_64|aarch64|ppc64le))?-with")
_GPU = re.compile(r"^\s*GPU (\d{1,3}): (.+?)\s*$", re.MULTILINE)
_GPUS = re.compile(r"^\s*GPU ([\d,]+): (.+?)\s*$", re.MULTILINE)
_NOTHING = ("", "Could not collect", "N/A", "None")


class Report(msgspec.Struct, frozen=True):
    """What the report says; None where it could not collect. `gpus` empty means not listed, not none."""

    os: str | None = None
    kernel: str | None = None
    python: str | None = None
    torch: str | None = None
    torch_cuda: str | None = None
    rocm: str | None = None
    driver: str | None = None
    vllm: str | None = None
    sglang: str | None = None
    gpus: tuple[str, ...] = ()
    cpus: int | None = None
    sockets: int | None = None
    hypervisor: str | None = None
    open_files: int | None = None
    packages: dict[str, str] = {}
    environment: dict[str, str] = {}


def parse(text: str) -> Report:
    """Read a report, indented or not."""
    found = _fields(text)

    def said(*names: str) -> str | None:
        for name in names:
            value = found.get(name, "")
            if value not in _NOTHING:
                return value
        return None

    processor = cpu.parse_lscpu(text)
    kernel = _KERNEL.search(found.get("Python platform", "") or text)
    vllm = said("vLLM Version", "vLLM version", "vllm")
    return Report(
        os=_without_arch(said("OS")),
        kernel=kernel[1] if kernel else None,
        python=_first(said("Python version", "Python")),
        torch=said("PyTorch version", "PyTorch"),
        torch_cuda=said("CUDA used to build PyTorch"),
        rocm=_rocm(said("ROCM used to build PyTorch", "HIP runtime version")),
        driver=said("Nvidia driver version", "CUDA Driver Version", "NVIDIA Driver"),
        vllm=_first(vllm),
        sglang=said("sglang"),
        gpus=_gpus(text),
        cpus=processor.cpus,
        sockets=processor.sockets,
        hypervisor=processor.hypervisor or said("Hypervisor vendor"),
        open_files=integer(said("ulimit soft")),
        packages=packages.parse(
            "\n".join(line for line in text.split("\n") if "[pip" in line or "[conda" in line)
        ),
        environment=environment.parse(text),
    )


def _fields(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.split("\n"):
        key, colon, value = line[:1000].partition(":")
        if colon and "=" not in key:
            found.setdefault(key.strip(), value.strip())
    return found


def _first(text: str | None) -> str | None:
    return text.split()[0] if text else None


def _rocm(text: str | None) -> str | None:
    """`6.2.41133-dd7f95766` → the version without its commit."""
    return text.partition("-")[0] if text else None


def _without_arch(text: str | None) -> str | None:
    """`Ubuntu 22.04.5 LTS (x86_64)` → `Ubuntu 22.04.5`."""
    return re.sub(r"(?: LTS)?(?: \([^)]*\))*$", "", text) if text else None


def _gpus(text: str) -> tuple[str, ...]:
    names = [name for _, name in _GPU.findall(text) if "UUID" not in name]
    if names:
        return tuple(names)
    return tuple(name for numbers, name in _GPUS.findall(text) for _ in numbers.split(","))
