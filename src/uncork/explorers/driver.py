"""GPU driver."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from uncork.explorers import gpu_log, gpus, reading, statements
from uncork.host import Host
from uncork.host.redact import cut
from uncork.model.facts.driver import NOT_READ, DriverFacts, Gpu
from uncork.model.unknown import Unknown

if TYPE_CHECKING:
    from uncork.parsers.statements import Statements

_MODULES = (
    "nvidia",
    "nvidia_uvm",
    "nvidia_drm",
    "nvidia_peermem",
    "nv_peer_mem",
    "gdrdrv",
    "nouveau",
    "nova_core",
    "vfio_pci",
    "amdgpu",
    "ib_core",
    "mlx5_ib",
)
_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
)
_LIBRARY = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.(\d{3,}\.\d+(?:\.\d+)?)$")
EXCERPT_LINES = 200
_VERSION = re.compile(r"\b(\d{3,}\.\d{2,3}(?:\.\d{2,3})?)\b")


def explore(host: Host) -> DriverFacts:
    """Read GPUs, driver versions, options and what the kernel log says."""
    read = gpus.read(host)
    log_text = reading.kernel_log(host)
    log = log_text if isinstance(log_text, Unknown) else gpu_log.lines_by_kind(log_text)
    words = statements.words(host)
    said = statements.about(host) if words else None
    module = _module(host, log, said)
    mismatch, errors, state = _fabric_log(host)
    return DriverFacts(
        gpus=read.gpus,
        source=read.source,
        nvml_error=read.error,
        module_version=module[0],
        module_open=module[1],
        library_versions=_libraries(host, read),
        cuda_version=read.cuda,
        fabric_manager_version=_fabric_manager(host, said),
        fabric_manager_mismatch=mismatch,
        fabric_manager_errors=errors,
        fabric_manager_state=state,
        cuda_errors=_cuda_errors(host, words),
        imex_channels=host.exists("/dev/nvidia-caps-imex-channels"),
        params=_params(host),
        modprobe=_modprobe(host),
        modules=_modules(host),
        amd_params=_amd_params(host),
        runtime_d3=_runtime_d3(host),
        xids=log if isinstance(log, Unknown) else gpu_log.xids(log),
        log=log,
        log_piece=isinstance(log_text, str)
        and "Linux version " not in log_text
        and log_text.count("\n") < 200,
        log_from_boot=isinstance(log_text, str) and "Linux version " in log_text,
        log_excerpt=isinstance(log_text, str) and not host.live and _is_excerpt(log_text),
        confidential=read.confidential,
        nvlink_bw_mode=read.nvlink_bw_mode,
        uvm_hmm_disabled=_flag(host, "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"),
        patched=_patched(words, host),
        models=_models(host, read.gpus, words),
        stated=statements.stated(said) if said else {},
        bar1_stated=tuple((one.about, one.bytes, one.text) for one in (said.bar1 if said else ())),
        words=words,
    )


def _is_excerpt(log: str) -> bool:
    """Whether an attached log is a few lines that somebody chose: neither its beginning nor much of it."""
    return "Linux version " not in log and log.count("\n") < EXCERPT_LINES


def _module(
    host: Host, log: dict[str, tuple[str, ...]] | Unknown, said: "Statements | None"
) -> tuple[str | Unknown, bool | Unknown]:
    """Version and flavour of the loaded kernel module."""
    text = host.read("/proc/driver/nvidia/version")
    if isinstance(text, Unknown) and not isinstance(log, Unknown) and log.get("module"):
        text = log["module"][-1]
    if not isinstance(text, Unknown):
        match = _VERSION.search(text)
        return (match[1] if match else Unknown("no version in /proc/driver/nvidia/version")), (
            "Open Kernel Module" in text
        )
    version = reading.text(host, "/sys/module/nvidia/version")
    if not isinstance(version, Unknown):
        return version, Unknown("only /sys/module/nvidia/version could be read")
    if said and said.driver:
        return said.driver, NOT_READ if said.driver_open is None else said.driver_open
    return version, version


def _libraries(host: Host, read: gpus.Reading) -> tuple[tuple[str, str], ...]:
    """Versions of the user-space driver: files by their names, NVML's own word, packages."""
    found: list[tuple[str, str]] = []
    for folder in _LIBRARIES:
        for path in host.glob(f"{folder}/libcuda.so.*.*") + host.glob(f"{folder}/libnvidia-ml.so.*.*"):
            if match := _LIBRARY.search(path):
                found.append((path, match[1]))
    if not isinstance(read.library, Unknown):
        found.append(("NVML", read.library))
    package = re.compile(
        r"^(?:ii\s+)?((?:nvidia-smi|libcuda1|libnvidia-ml1|nvidia-utils[-\d]*|nvidia-driver[-\d]*|libnvidia-compute-\d+)"
        r"\S*)\s+(\d{3,}\.\d+(?:\.\d+)?)",
        re.MULTILINE,
    )
    for text in reading.attached(host, "packages"):
        found += [(f"package {name}", version) for name, version in package.findall(text)]
    return tuple(dict.fromkeys(found))


def _fabric_manager(host: Host, said: "Statements | None") -> str | Unknown:
    """The fabric manager's version: its log, its package, or what a reporter says."""
    for text in reading.attached(host, "fabricmanager") + reading.attached(host, "packages"):
        for pattern in (
            r"driver interface version (\d+\.\d+(?:\.\d+)?)",
            r"[Ff]abric [Mm]anager (?:version|Version) ?:? ?(\d+\.\d+(?:\.\d+)?)",
            r"nvidia-fabricmanager[-\d]*[ :]\s*(\d+\.\d+(?:\.\d+)?)",
        ):
            if match := re.search(pattern, text):
                return match[1]
    if said and said.fabricmanager:
        return said.fabricmanager
    there = host.exists("/usr/bin/nv-fabricmanager")
    if isinstance(there, Unknown):
        return Unknown("no text names the fabric manager's version")
    if not there:
        return Unknown("nv-fabricmanager is not installed", absent=True)
    answer = host.run(("/usr/bin/nv-fabricmanager", "--version"))
    if isinstance(answer, Unknown):
        return answer
    match = _VERSION.search(answer.stdout + answer.stderr)
    return match[1] if match else Unknown("nv-fabricmanager names no version")


_CUDA_ERROR = re.compile(
    r"\b(?:Error|error|CUDA_ERROR\w*|cudaError\w*)[ :(=]*80[234]\b|system not yet initialized"
    r"|forward compatibility was attempted on non supported HW|system has unsupported display driver"
)


def _cuda_errors(host: Host, words: str) -> tuple[str, ...]:
    """Lines in which CUDA names errors 802 to 804, wherever they were attached."""
    kinds = ("engine-log", "application-log", "nccl-log", "container")
    texts = (words, *(text for kind in kinds for text in reading.attached(host, kind)))
    found = (
        cut(line.strip(), 300) for text in texts for line in text.splitlines() if _CUDA_ERROR.search(line)
    )
    return tuple(dict.fromkeys(found))[:10]


def _fabric_log(host: Host) -> tuple[str, tuple[str, ...] | Unknown, str]:
    """The line in which the fabric manager refuses the driver, its errors, and systemd's word for it."""
    texts = reading.attached(host, "fabricmanager")
    if not texts:
        return "", Unknown("no log of the fabric manager was given"), ""
    from uncork.parsers import fabricmanager

    log = fabricmanager.parse("".join(f"{text}\n" for text in texts))
    state = "absent" if log.installed is False else log.active or ""
    return log.mismatch, (*log.errors, *filter(None, (log.failed,))), state


def _params(host: Host) -> dict[str, str] | Unknown:
    text = host.read("/proc/driver/nvidia/params")
    if isinstance(text, Unknown):
        return text
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip().strip('"') for key, colon, value in pairs if colon}


def _modprobe(host: Host) -> dict[str, str]:
    """Options of NVIDIA's modules in modprobe.d, by name; the file is not said."""
    names = host.list("/etc/modprobe.d")
    texts = list(reading.attached(host, "modprobe"))
    for name in () if isinstance(names, Unknown) else names:
        text = host.read(f"/etc/modprobe.d/{name}")
        if name.endswith(".conf") and not isinstance(text, Unknown):
            texts.append(text)
    from uncork.parsers import modprobe

    found: dict[str, str] = {}
    for module, options in modprobe.parse("\n".join(texts)).items():
        if module.startswith(("nvidia", "amdgpu")):
            found |= options
    return found


def _modules(host: Host) -> dict[str, str] | Unknown:
    """Loaded modules that matter. A filtered `lsmod | grep X` that printed nothing says X is not loaded."""
    text = host.read("/proc/modules")
    if isinstance(text, Unknown):
        listed = host.query("attached:lsmod")
        pieces = listed if isinstance(listed, list) else []
        asked = {
            name
            for piece in pieces
            for name in _MODULES
            if "grep" in piece["hint"] and name[-7:] in piece["hint"]
        }
        shown = "\n".join(piece["text"] for piece in pieces)
        if asked:
            return {name: "" for name in asked if re.search(rf"^{name}\b", shown, re.MULTILINE)}
        return text
    loaded = {line.split(" ", 1)[0] for line in text.splitlines()}
    found = {}
    for name in _MODULES:
        if name in loaded:
            version = reading.text(host, f"/sys/module/{name}/version")
            found[name] = "" if isinstance(version, Unknown) else version
    return found


def _amd_params(host: Host) -> dict[str, str] | Unknown:
    names = ("pcie_p2p", "gpu_recovery", "noretry", "runpm", "hws_max_conc_proc")
    if isinstance(listed := host.list("/sys/module/amdgpu/parameters"), Unknown):
        return listed
    values = {
        name: reading.text(host, f"/sys/module/amdgpu/parameters/{name}") for name in names if name in listed
    }
    return {name: value for name, value in values.items() if not isinstance(value, Unknown)}


def _runtime_d3(host: Host) -> tuple[tuple[str, str], ...]:
    found = []
    for path in host.glob("/proc/driver/nvidia/gpus/*/power"):
        text = host.read(path)
        if not isinstance(text, Unknown) and (match := re.search(r"Runtime D3 status:\s*(.+)", text)):
            found.append((path.split("/")[-2], match[1].strip()))
    return tuple(found)


def _flag(host: Host, path: str) -> bool | Unknown:
    text = reading.text(host, path)
    return text if isinstance(text, Unknown) else text in ("1", "Y", "y")


def _patched(words: str, host: Host) -> str:
    """Words that say the module is patched for peer access."""
    texts = (words, *reading.attached(host, "environment"), *reading.attached(host, "packages"))
    for text in texts:
        for line in text.splitlines():
            if re.search(
                r"p2p[- ]?patch|patched.*(driver|module|p2p)|tinygrad|aikitoria", line, re.IGNORECASE
            ):
                return cut(line.strip(), 200)
    version = host.read("/proc/driver/nvidia/version")
    if not isinstance(version, Unknown) and "p2p" in version.lower():
        return cut(version.splitlines()[0], 200)
    return ""


_MODEL = re.compile(
    r"(?:NVIDIA |AMD )?(?:Tesla |GeForce |Quadro |Radeon |Instinct |Titan )*"
    r"(?:RTX PRO \d{4}[\w -]*|RTX A?\d{4}(?: (?:Ti|SUPER|Ada Generation|Max-Q|D)\b)*|GTX \d{3,4}(?: Ti)?"
    r"|TITAN \w+|GB\d{3}|MI\d{2,3}X?|[ABHKLMPTV]\d{1,3}(?:[sS]\b)?(?:[- ](?:PCIe|PCIE|SXM\d?|NVL|\d+GB))*)"
    r"(?![\w.])"
)


def _models(host: Host, read: tuple[Gpu, ...] | Unknown, words: str) -> tuple[str, ...]:
    """GPU models that anything names."""
    found: list[str] = []
    if not isinstance(read, Unknown):
        found += [gpu.name for gpu in read if not isinstance(gpu.name, Unknown)]
    for text in reading.attached(host, "p2p-test"):
        found += re.findall(r"^Device: \d+, ([^,]+), pciBusID", text, re.MULTILINE)
    for text in reading.attached(host, "nvlink-status"):
        found += re.findall(r"^GPU \d+: (.+?) \(UUID", text, re.MULTILINE)
    for text in (*reading.attached(host, "collect-env"), words, *reading.attached(host, "nvlink-query")):
        found += _named(text.splitlines())
    return tuple(dict.fromkeys(found))


def _named(lines: Iterable[str]) -> list[str]:
    """Models in lines that speak of GPUs."""
    found = []
    for line in lines:
        if (
            re.search(r"gpu|geforce|nvidia|tesla|rtx|radeon|instinct", line, re.IGNORECASE)
            and len(line) < 500
        ):
            found += [match[0].strip() for match in _MODEL.finditer(line) if len(match[0].strip()) > 2]
    return found
