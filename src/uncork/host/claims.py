"""What claims a line for a kind of text: what only one tool prints, tried at the start of a line."""

import re

# Order matters where two could match: the first wins.
CLAIMS: dict[str, tuple[str, ...]] = {
    "matrix-header": (r"\s*GPU0\s+(?:GPU\d+|CPU Affinity|mlx\w+|NIC0)\b",),
    "topo-p2p": (
        r"\s*GPU\d+\s+(?:X\s+)?(?:OK|CNS|GNS|TNS|NS|DR|U)\b",
        r"\s*(?:OK|CNS|GNS|TNS|NS|DR)\s+= \w",
    ),
    "topo": (
        r"\s*GPU\d+\s+(?:X\s+)?(?:NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|X)\b",
        r"\s*(?:mlx\w+|NIC\d+|ib\d+)\s+(?:X|PIX|PXB|PHB|NODE|SYS|SOC)\b",
        r"GPU\d+(?:, ?GPU\d+)*(?: ?- ?GPU\d+| to the others:?)\s+(?:NV\d+|PIX|PXB|PHB|NODE|SYS|"
        r"SOC)\b",
        r"\s*NIC\d+: (?:mlx|ib|roc|bnxt)\w*$",
    ),
    "rocm": (
        r"=+ ?ROCm System Management Interface",
        r"\s*=+ .*(?:two GPUs|Numa Nodes).* =+\s*",
        r"\s*GPU\[\d+\]\s*:",
        r"\s*GPU\d+\s+(?:0|\d+|XGMI|PCIE)\s+(?:0|\d+|XGMI|PCIE)\b",
        r"\s*\"card\d+\": \{",
        r".*ROCm System Management",
    ),
    "amd-smi": (
        r"GPU: \d+\s*$",
        r"\+?-*\| AMD-SMI ",
        r"(?:ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW) TABLE:?\s*$",
    ),
    "nccl-log": (
        r".*\bNCCL (?:INFO|WARN|TRACE|ERROR|version|VERSION)\b",
        r"Bootstrap : ",
    ),
    "history": (r"\s*\d*\s*(?:sudo )?systemctl (?:start|stop|restart|reload|daemon-reload|isolate)\b",),
    "ucx": (
        r".*\bUCX +(?:ERROR|WARN|INFO|DEBUG|DIAG|FATAL)\b",
        r".*pml_ucx\.c",
        r".*Please set max locked memory",
    ),
    "fabricmanager": (
        r"(?!nvidia-fabricmanager[\w-]*: ).*\b(?:nv-fabricmanager|fabricmanager)\b",
        r".*[Ff]abric [Mm]anager service",
        r"\[\w{3} \d\d \d{4} [\d:]{8}\] \[(?:INFO|ERROR|WARNING|NOTICE|CRITICAL|"
        r"DEBUG)\s*\] \[tid \d+\]",
    ),
    "dmesg": (
        r"(?:<\d+>)?\[ *\d+\.\d+\](?:\[.*?\])? ",
        r"\[\w{3} \w{3} +\d+ [\d:]{8} \d{4}\] ",
        r"(?:\w{3} +\d+ [\d:]{8} |\d{4}-\d\d-\d\d[T ][\d:.,+-]+ )?(?:[\w.-]+ )?kernel: (?!v?\d|"
        r"Linux )",
        r"\s*NVRM: ",
        r".*\bDMAR: ",
        r".*\bAMD-Vi: ",
    ),
    "nvidia-smi-xml": (
        r"<!DOCTYPE nvidia_smi_log",
        r"\s*<nvidia_smi_log",
    ),
    "nccl-topo": (r"\s*<system\b",),
    "nvidia-smi-q": (
        r"=+NVSMI LOG=+\s*",
        r"GPU (?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s*$",
        r"\s+(?:BAR1|FB) Memory Usage\s*$",
        r"\s+(?:Product Name|GPU UUID|Persistence Mode|Compute Mode|MIG Mode|VBIOS Version)\s+: ",
        r"(?:Driver Version|CUDA Version|Attached GPUs)\s{3,}: ",
    ),
    "nvidia-smi": (
        r"\| NVIDIA-SMI ",
        r"Failed to initialize NVML",
        r"NVIDIA-SMI has failed",
        r"No devices were found",
        r"Unable to determine the device handle for",
        r"\+-[-+]+\+\s*$",
        r"\|[=+]+\|\s*$",
    ),
    "nvlink-status": (
        r"GPU \d+: .*\(UUID: ",
        r"\s+Link \d+: ",
    ),
    "nvidia-csv": (
        r"(?:index|name|pci\.bus_id|driver_version|timestamp|uuid)(?:, [\w. ]+(?:\[[\w%/ ]+\])?)+\s*$",
        r"(?:power|clocks|pcie\.link|temperature|clocks_throttle_reasons|clocks_event_reasons|ecc)\.[a-z_.]+\b"
        r"[^:=]{0,60}[:=] ",
        r"name: (?:NVIDIA|AMD|Tesla|Quadro) ",
    ),
    "nvlink-query": (
        r".*(?:NVLINK query|SUPPORT P2P:|nvmlDeviceGetNvLink)",
        r"Found \d+ devices\s*$",
        r"Listing devices:\s*$",
    ),
    "lspci-tree": (
        r"[ |]*[-+\\ |]*[-+\\]-?\[(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}(?:-[0-9a-f]{2})?\]",
        r"[ |]+[+\\]-[0-9a-f]{2}\.[0-7]",
    ),
    "lspci": (
        r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] (?:\"|"
        r"[A-Z][\w/,. -]*(?: \[[0-9a-f]{4}\])?: |[0-9a-f]{4}: )?",
        r"\s*(?:LnkCap|LnkSta|LnkCtl|DevCap|DevCtl|DevSta|ACSCap|ACSCtl)2?:",
        r"\s+Capabilities: (?:\[|<)",
        r"\s+(?:Kernel driver in use|Kernel modules|Physical Resizable BAR|BAR \d: current size)",
        r"\s+Region \d: Memory at ",
        r"\s+Memory at [0-9a-f]+ \(",
    ),
    "dmidecode": (
        r"# dmidecode ",
        r"SMBIOS \d.* present\.",
        r"Handle 0x[0-9A-Fa-f]+, DMI type ",
    ),
    "lscpu": (
        r"\s*(?:Architecture|CPU op-mode\(s\)|Byte Order|CPU\(s\)|On-line CPU\(s\) list|"
        r"Thread\(s\) per core|Core\(s\) per socket|Socket\(s\)|NUMA node\(s\)):\s+\S",
    ),
    "numactl": (
        r"available: \d+ nodes? ",
        r"node \d+ (?:cpus|size|free):",
        r"node distances:",
        r"node +0 +1\b",
        r"nodebind: ",
    ),
    "lsmod": (r"Module +Size +Used by",),
    "sysctl": (r"(?:kernel|vm|net|fs|dev|user|abi|debug)\.[\w./:@*-]+ ?= ?",),
    "limits": (
        r"(?:-\w: |)(?:core file size|data seg size|scheduling priority|file size|pending signals|"
        r"max locked memory|open files|max user processes|virtual memory|real-time \w+|stack size|"
        r"max memory size)\s+\(",
        r"Limit +Soft Limit +Hard Limit",
        r"Max (?:locked memory|open files|processes|cpu time|stack size|address space)\s+\S",
    ),
    "swaps": (r"Filename\s+Type\s+Size\s+Used\s+Priority",),
    "df": (
        r"Filesystem +(?:Type +)?(?:Size|\d+[KM]?-blocks|1[KM]-blocks) +Used",
        r"\S+ +[\d.]+[KMGTP]? +[\d.]+[KMGTP]? .*\d+% /",
    ),
    "cpupower": (
        r"analyzing CPU \d+:",
        r"\s+current policy: frequency",
        r"\s+The governor \"\w+\" may decide",
    ),
    "meminfo": (r"MemTotal: +\d+ kB",),
    "interrupts": (r"\s+CPU0 +CPU1 ",),
    "cpuinfo": (r"processor\t+: \d+\s*$",),
    "nvidia-version": (r"NVRM version: ",),
    "nvidia-params": (
        r"(?:ResmanDebugLevel|RmLogonRC|ModifyDeviceFiles|DeviceFileUID|EnableGpuFirmware\w*|"
        r"RegistryDwords\w*|DynamicPowerManagement\w*|NVreg_\w+|EnableResizableBar|"
        r"PreserveVideoMemory\w*|EnableUserNUMAManagement): ",
    ),
    "modprobe": (r"(?:options|blacklist|softdep|install) [a-z]\w* ?",),
    "packages": (
        r"(?:ii|rc|iU|hi|un) +\S+ +\S+",
        r"\s*\[(?:pip3?|conda)\] ",
        r"(?![A-Z0-9_]+=)[A-Za-z][\w.-]*==[\w.+!-]+\s*$",
        r"(?:nvidia|cuda|kernel|libnccl|kmod|datacenter)[\w.-]*-\d[\w.~+]*-[\w.~+]+\.(?:x86_64|"
        r"aarch64|noarch)\s*$",
        r"Package +Version\b",
    ),
    "uname": (r"(?:uname: )?Linux [\w.-]+ \d+\.\d+\.\S+ ",),
    "proc-version": (r"Linux version \d+\.\d+",),
    "cmdline": (
        r"(?:BOOT_IMAGE=\S*|(?=.*\b(?:iommu|intel_iommu|amd_iommu|mitigations|initrd|root|pci|"
        r"hugepages|isolcpus|"
        r"nohz_full)=\S)(?![A-Z_]+=)(?!.* -)[\w.-]+(?:=\S*)?)(?: +[\w.-]+(?:=\S*)?)* *$",
    ),
    "ip-addr": (
        r"\d+: [\w.@-]+: <",
        r"[\w.@-]+: inet6? ",
        r"\s+inet6? [0-9a-f.:]+",
        r"\s+link/(?:ether|infiniband|loopback) ",
    ),
    "ibstat": (r"CA '\w+'\s*$",),
    "ibv-devinfo": (r"hca_id:\s+\w+",),
    "show-gids": (
        r"DEV\s+PORT\s+INDEX\s+GID\s",
        r"\w+\s+\d{1,3}\s+\d{1,3}\s+(?:[0-9a-f]{4}:){7}[0-9a-f]{4}\s",
    ),
    "nccl-tests": (
        r"# (?:nThread|Using devices|Rank +\d+|Out of bounds|Avg bus bandwidth|Collective test|"
        r"\s*(?:out-of-place|size))",
        r"# +(?:size +count|\(B\) +\(elements\))",
        r".* - Destroy COMPLETE",
    ),
    "p2p-test": (
        r"\[P2P \(Peer",
        r"Device: ?\d+, .*pciBusID",
        r".*Device=\d+ CAN(?:NOT)? Access Peer",
        r".*P2P=(?:En|Dis)abled",
        r".*P2P Connectivity Matrix",
        r"\s+(?:D\\D|GPU|CPU)\s+0\s+1\b",
        r".*Verification error @",
        r".*simpleP2P",
        r"tensor\(\[",
        r"Copy data back to host",
        r"Checking for multiple GPUs",
        r".*GPU ?\d+ ?(?:->|<->|→|↔) ?GPU ?\d.*\d",
        r"pair +attachment",
        r"scenario\s+.*GB/s",
        r"Running (?:host|device)_\w+\.",
        r".*(?:pci_p2pdma_distance|CanAccessPeer)",
        r".*\bdev-to-dev copy",
        r".*ACS redirect O(?:N|FF)",
        r".*posted (?:writes|reads).*\d",
        r"> (?:Peer access|Enabling peer|Disabling peer)",
        r"checksum\s+.*(?:PASS|FAIL|nothing)",
    ),
    "profile": (
        r"\s*\d+\.\d+%\s+\S*\s*\[?\S",
        r"\s+\w*secs +: count ",
        r"Tracing \d+ functions",
        r"\S.*\d+ cycles:",
        r"\s+[0-9a-f]{12,16} \w+",
        r"avg = \d+ \w?secs",
    ),
    "container": (
        r".*\"(?:PidsLimit|ShmSize|NanoCpus|CpuQuota|Ulimits|IpcMode|Privileged|Runtime|"
        r"SecurityOpt)\"",
        r".*nvidia-container-cli",
        r"docker: Error",
        r".*OCI runtime ",
        r"[abc] (?:\d+|\*):(?:\d+|\*) [rwm]+\s*$",
        r"(?:systemd|runc), \d, [abc] ",
    ),
    "engine-log": (
        r".*(?:is not compatible with the current PyTorch|no kernel image is available|Using default MoE)",
        r"(?:\(\S+ (?:pid=)?\d+\) )?(?:INFO|WARNING|ERROR|DEBUG|CRITICAL)(?: |:\s+)(?:\d\d-\d\d |"
        r"\d{4}-|127\.|\S+ - \")",
        r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d+)?(?: [TDP]P?\d+)*\] ",
        r"\[(?:TensorRT-LLM|TRT-LLM|TRT)\]",
        r".*text_generation_launcher",
        r"(?:main|srv|slot|llama_\w+|llm_load\w*|ggml_\w+|print_info|common_\w+|system_info|"
        r"load_\w+)\s*: ",
        r".*\b(?:selector|gpu_model_runner|cuda_communicator|custom_all_reduce|parallel_state|"
        r"worker|scheduler|loggers)\.py:\d+\]",
    ),
    "engine-command": (
        r"\s*(?:- )?image: *[\"']?\S*(?:vllm|sglang|tritonserver|tensorrt-llm|text-generation-inference|llama\.cpp)",
        r".*\b(?:vllm serve|(?:vllm|sglang)[.\w]* .*--model|sglang serve|python3? -m (?:vllm|"
        r"sglang)|sglang\.launch_server|trtllm-serve|text-generation-launcher|llama-server|"
        r"llama-cli)\b",
        r"""\s*(?:- )?[\"']?--[a-z][a-z-]+\b""",
        r"\s*(?:- )?\"?(?:enforce[_-]eager|gpu[_-]memory[_-]utilization|"
        r"tensor[_-]parallel[_-]size|max[_-]model[_-]len|disable[_-]custom[_-]all[_-]reduce|"
        r"mem[_-]fraction[_-]static|disable[_-]cuda[_-]graph|max[_-]num[_-]seqs)\"?\s*[:=]",
    ),
    "bios": (
        r"(?=.*(?:IOMMU|VT-d|NUMA|APBDIS|DLWM|xGMI|Above 4G|Re-?[Ss]ize|SR-IOV|ACS|SVM|NBIO|CBS|"
        r"C-state|SMT|Power)).*(?:->|→|>).*(?:[=:-]|->) ?(?:Enabled?|Disabled?|Auto|NPS\d|\d+)?\s*",
        r".*(?:->|→) .*IOMMU disabled",
    ),
    "environment": (r"\s*(?:export |declare -x |- |-e )?[A-Z][A-Z0-9_]{2,}=",),
    "application-log": (
        r".*(?:[Bb]us error|insufficient shared memory|out of shared memory|unable to open shared memory)",
        r"Traceback \(most",
        r".*UserWarning: ",
        r".*(?:CUDA|cuda)(?:Error| error|_ERROR| initialization)",
        r".*Check failed: ",
        r".*can't start new thread",
        r".*blas_thread_init",
        r"CUDA available: (?:True|False)\s*$",
        r".*(?:RuntimeError|OutOfMemoryError): ",
        r".*HPL ERROR",
        r".*[Uu]nexpected error from cuda",
    ),
    "collect-env": (
        r"\s*Collecting environment information",
        r"\s*PyTorch version\s*: ",
        r"\s*vLLM (?:Version|version)\s*: ",
        r"\s*PyTorch: \d",
        r"sglang: \d",
        r"\s*Is debug build\s*: ",
        r"\s*Python: 3\.\d+\.\d+ ",
    ),
    "statements": (
        r"(?:[#*-] )?(?:nvidia |host |guest |GPU |Linux )?(?i:driver|kernel|kernel cmdline|gpus?|"
        r"cards?|cuda|nccl|os|distro|board|motherboard|system|platform|machine|server|"
        r"virtuali[sz]ation|hypervisor|iommu|acs|bios|firmware|container|image|node|host \w|cpu|"
        r"vllm|sglang|torch|pytorch|persistence mode|state when read|works|fails|hang|name|"
        r"power\.\w+|nvidia-\w+(?:-\d+)?|/dev/shm|topology|numa|ram|memory)\b[^:=\n]{0,40}(?:: |"
        r"\s{2,})",
        r".*P2P-patched",
    ),
}

NAMES = tuple(CLAIMS)
# Patterns that may match in the middle of a line are dear: they are tried only where one of these words is.
WORDS = (
    *(
        "ROCm System",
        "NCCL ",
        "UCX",
        "pml_ucx",
        "max locked memory",
        "fabricmanager",
        "abric ",
        "DMAR: ",
        "AMD-Vi: ",
    ),
    *(
        "NVLINK",
        "SUPPORT P2P",
        "nvmlDevice",
        "Destroy COMPLETE",
        "Access Peer",
        "P2P",
        "Verification error",
        "GPU",
    ),
    *(
        "pci_p2pdma",
        "CanAccessPeer",
        "dev-to-dev",
        "ACS redirect",
        "posted ",
        " cycles:",
        "PidsLimit",
        "ShmSize",
    ),
    *(
        "NanoCpus",
        "CpuQuota",
        "Ulimits",
        "IpcMode",
        "Privileged",
        "Runtime",
        "SecurityOpt",
        "nvidia-container-cli",
    ),
    *(
        "OCI runtime",
        "current PyTorch",
        "kernel image",
        "default MoE",
        "text_generation",
        ".py:",
        "vllm",
        "sglang",
    ),
    *(
        "trtllm",
        "text-generation-launcher",
        "llama-",
        ">",
        "→",
        "us error",
        "shared memory",
        "UserWarning",
        "CUDA",
    ),
    *("cuda", "Check failed", "new thread", "blas_thread", "Error: ", "HPL ERROR"),
)


def _floats(pattern: str) -> bool:
    return pattern.startswith((".*", "(?=.*", r"\S.*", "(?!nvidia-fabricmanager"))


def _compiled(*, anchored_only: bool) -> re.Pattern[str]:
    groups = []
    for number, patterns in enumerate(CLAIMS.values()):
        kept = [pattern for pattern in patterns if not (anchored_only and _floats(pattern))]
        if kept:
            groups.append(f"(?P<k{number}>{'|'.join(kept)})")
    return re.compile("|".join(groups))


CLAIM = _compiled(anchored_only=False)
ANCHORED = _compiled(anchored_only=True)


def claimed(line: str) -> str | None:
    """The kind that a line claims itself for; None where it could be of any tool."""
    pattern = CLAIM if any(word in line for word in WORDS) else ANCHORED
    found = pattern.match(line)
    return None if found is None or found.lastgroup is None else NAMES[int(found.lastgroup[1:])]
