"""Questions that a plain read cannot answer, asked without changing anything."""

import ctypes
import datetime
import os
import stat

from uncork.model.unknown import Unknown

# numa_maps walks every page table of the process and holds its map lock for reading meanwhile.
NUMA_MAPS_LIMIT_BYTES = 256 << 30

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
_STA_UNSYNC = 0x0040


def access(path: str) -> object | Unknown:
    """What a node is and whether it may be opened: asked with access(2), which runs the device cgroup's rule
    without opening the device (an open wakes a GPU)."""
    try:
        found = os.stat(path)
    except OSError as error:
        return Unknown(f"{path}: {error.strerror}", absent=isinstance(error, FileNotFoundError))
    answer: dict[str, object] = {
        "mode": oct(stat.S_IMODE(found.st_mode)),
        "read": os.access(path, os.R_OK),
        "write": os.access(path, os.W_OK),
    }
    if stat.S_ISCHR(found.st_mode):
        answer["device"] = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    return answer


def writable(path: str) -> object | Unknown:
    """Why an open for writing fails, "" where it does not; nothing is written, only settings are tried."""
    if not path.startswith(("/proc/sys/", "/sys/kernel/", "/sys/devices/system/")):
        return Unknown(f"{path}: not probed, an open could have an effect")
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            return Unknown(f"{path}: {error.strerror}", absent=True)
        return error.strerror
    return ""


def lines(path: str) -> object | Unknown:
    """How many lines a file of any length has."""
    count = 0
    try:
        with open(path, "rb", buffering=1 << 16) as file:
            while chunk := file.read(1 << 16):
                count += chunk.count(b"\n")
    except OSError as error:
        return Unknown(f"{path}: {error.strerror}", absent=isinstance(error, FileNotFoundError))
    return count


def entries(path: str) -> object | Unknown:
    """How many names a folder has (the open files of a process, without listing them)."""
    try:
        return len(os.listdir(path))
    except OSError as error:
        return Unknown(f"{path}: {error.strerror}", absent=isinstance(error, FileNotFoundError))


def numa_maps(pid: str) -> object | Unknown:
    """Resident bytes of a process: {"nodes": {node: bytes}, "policies": {policy: bytes}}."""
    path = f"/proc/{pid}/numa_maps"
    nodes: dict[str, int] = {}
    policies: dict[str, int] = {}
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        if resident > NUMA_MAPS_LIMIT_BYTES:
            return Unknown(f"{path}: not read, {resident >> 30} GiB resident would stall the process")
        with open(path, encoding="ascii", errors="replace") as file:
            for line in file:
                words = line.split()
                kilobytes = next((int(w[18:]) for w in words if w.startswith("kernelpagesize_kB=")), 4)
                here = 0
                for word in words:
                    name, equals, count = word.partition("=")
                    if equals and name[:1] == "N" and name[1:].isdigit():
                        here += int(count)
                        nodes[name[1:]] = nodes.get(name[1:], 0) + int(count) * kilobytes * 1024
                if here and len(words) > 1:
                    policies[words[1]] = policies.get(words[1], 0) + here * kilobytes * 1024
    except OSError as error:
        return Unknown(f"{path}: {error.strerror}", absent=isinstance(error, FileNotFoundError))
    return {"nodes": nodes, "policies": policies}


def mempolicy(_: str) -> object | Unknown:
    """Whether set_mempolicy(2) is let through: called with MPOL_DEFAULT, what a process starts with."""
    number = _SET_MEMPOLICY.get(os.uname().machine)
    if number is None:
        return Unknown(f"the number of set_mempolicy on {os.uname().machine} is not known here")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, 0, None, 0) == 0:
        return "allowed"
    return os.strerror(ctypes.get_errno())


def clock(_: str) -> object | Unknown:
    """Whether the kernel believes its clock to be synchronised (adjtimex(2), STA_UNSYNC)."""

    class Timex(ctypes.Structure):
        _fields_ = (
            ("modes", ctypes.c_uint),
            ("offset", ctypes.c_long),
            ("frequency", ctypes.c_long),
            ("maximum_error_us", ctypes.c_long),
            ("estimated_error_us", ctypes.c_long),
            ("status", ctypes.c_int),
            ("rest", ctypes.c_byte * 512),
        )

    answer = Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(answer)) < 0:
        return Unknown(f"adjtimex: {os.strerror(ctypes.get_errno())}")
    return {
        "synchronised": not answer.status & _STA_UNSYNC,
        "maximum_error_us": int(answer.maximum_error_us),
    }


def weights(folder: str) -> object | Unknown:
    """Bytes of model weights in a folder (safetensors, GGUF, PyTorch), or of the one file that is named.

    The folder of a Hugging Face cache holds its files in `blobs`, under their hashes.
    """
    try:
        if os.path.isfile(folder):
            return os.stat(folder).st_size
        blobs = os.path.join(folder, "blobs")
        hashed = os.path.isdir(blobs)
        names = os.listdir(blobs if hashed else folder)
        kinds = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
        chosen = [name for name in names if hashed or name.endswith(kinds)]
        return sum(os.stat(os.path.join(blobs if hashed else folder, name)).st_size for name in chosen)
    except OSError as error:
        return Unknown(f"{folder}: {error.strerror}", absent=isinstance(error, FileNotFoundError))


def today(_: str) -> object | Unknown:
    """The day of the reading, so that a recorded host is judged as of then."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()
