"""GPUs as their driver tells them, and the driver itself."""

import msgspec

from uncork.model.unknown import Unknown

NOT_READ = Unknown("nothing that was read tells it")


class GpuProcess(msgspec.Struct, frozen=True):
    """A process that holds memory of a GPU; `pid` is the host's, and may be hidden in a container."""

    pid: int
    kind: str  # compute, graphics
    used_bytes: int | Unknown = NOT_READ
    name: str = ""


class NvLink(msgspec.Struct, frozen=True):
    """One NVLink of a GPU. Counters are since the driver was loaded; `speed_gb_s` is one direction."""

    number: int
    active: bool | Unknown
    speed_gb_s: float | Unknown = NOT_READ
    remote_bdf: str | Unknown = NOT_READ
    remote_type: int | Unknown = NOT_READ  # 0 GPU, 1 IBM NPU, 2 switch
    replay_errors: int | Unknown = NOT_READ
    recovery_errors: int | Unknown = NOT_READ
    crc_errors: int | Unknown = NOT_READ
    recovery_events: int | Unknown = NOT_READ
    power_state: int | Unknown = NOT_READ


class Gpu(msgspec.Struct, frozen=True):
    """One GPU as its driver tells it, whatever the source: NVML, nvidia-smi text, amdgpu's sysfs, rocm-smi.

    Units stand in the names. Whatever the source does not tell is Unknown.
    """

    index: int
    vendor: str = "nvidia"  # nvidia, amd, intel
    name: str | Unknown = NOT_READ
    lost: str = ""  # why the driver refuses it; empty where it answers
    bdf: str | Unknown = NOT_READ
    uuid: str | Unknown = NOT_READ
    vbios: str | Unknown = NOT_READ
    device_id: int | Unknown = NOT_READ
    compute_capability: str | Unknown = NOT_READ
    memory_total_bytes: int | Unknown = NOT_READ
    memory_used_bytes: int | Unknown = NOT_READ
    memory_free_bytes: int | Unknown = NOT_READ
    memory_reserved_bytes: int | Unknown = NOT_READ
    bar1_total_bytes: int | Unknown = NOT_READ
    bar1_used_bytes: int | Unknown = NOT_READ
    persistence: bool | Unknown = NOT_READ
    compute_mode: str | Unknown = NOT_READ  # default, exclusive-thread, prohibited, exclusive-process
    mig: bool | Unknown = NOT_READ
    mig_pending: bool | Unknown = NOT_READ
    ecc: bool | Unknown = NOT_READ
    ecc_pending: bool | Unknown = NOT_READ
    ecc_uncorrected_volatile: int | Unknown = NOT_READ
    ecc_uncorrected_aggregate: int | Unknown = NOT_READ
    ecc_corrected_volatile: int | Unknown = NOT_READ
    sram_threshold_exceeded: bool | Unknown = NOT_READ
    remap_uncorrected: int | Unknown = NOT_READ
    remap_pending: bool | Unknown = NOT_READ
    remap_failure: bool | Unknown = NOT_READ
    retired_pending: bool | Unknown = NOT_READ
    recovery_action: int | Unknown = NOT_READ  # NVML_GPU_RECOVERY_ACTION_…, 0 is none
    pstate: int | Unknown = NOT_READ
    utilization_percent: int | Unknown = NOT_READ
    temperature_c: int | Unknown = NOT_READ
    memory_temperature_c: int | Unknown = NOT_READ
    slowdown_temperature_c: int | Unknown = NOT_READ
    shutdown_temperature_c: int | Unknown = NOT_READ
    memory_limit_temperature_c: int | Unknown = NOT_READ
    temperature_margin_c: int | Unknown = NOT_READ
    power_mw: int | Unknown = NOT_READ
    power_limit_mw: int | Unknown = NOT_READ
    power_enforced_mw: int | Unknown = NOT_READ
    power_default_mw: int | Unknown = NOT_READ
    power_min_mw: int | Unknown = NOT_READ
    power_max_mw: int | Unknown = NOT_READ
    sm_clock_mhz: int | Unknown = NOT_READ
    memory_clock_mhz: int | Unknown = NOT_READ
    max_sm_clock_mhz: int | Unknown = NOT_READ
    max_memory_clock_mhz: int | Unknown = NOT_READ
    app_sm_clock_mhz: int | Unknown = NOT_READ
    app_memory_clock_mhz: int | Unknown = NOT_READ
    default_app_sm_clock_mhz: int | Unknown = NOT_READ
    default_app_memory_clock_mhz: int | Unknown = NOT_READ
    event_reasons: int | Unknown = NOT_READ  # bit mask nvmlClocksEventReason…
    thermal_slowdown_ns: int | Unknown = NOT_READ
    power_brake_ns: int | Unknown = NOT_READ
    link_gen: int | Unknown = NOT_READ
    link_gen_max: int | Unknown = NOT_READ
    link_gen_device_max: int | Unknown = NOT_READ
    link_width: int | Unknown = NOT_READ
    link_width_max: int | Unknown = NOT_READ
    replays: int | Unknown = NOT_READ
    replay_rollovers: int | Unknown = NOT_READ
    link_correctable_errors: int | Unknown = NOT_READ
    link_bad_tlps: int | Unknown = NOT_READ
    link_fatal_errors: int | Unknown = NOT_READ
    display_active: bool | Unknown = NOT_READ
    display_mode: bool | Unknown = NOT_READ
    virtualization: int | Unknown = (
        NOT_READ  # NVML: 0 none, 1 passed through, 2 vGPU, 3 vGPU host, 4 vSGA host
    )
    addressing_mode: str | Unknown = NOT_READ
    gsp_version: str | Unknown = NOT_READ
    gsp_enabled: bool | Unknown = NOT_READ
    fabric_state: int | Unknown = NOT_READ  # 0 not supported, 1 not started, 2 in progress, 3 completed
    fabric_status: int | Unknown = NOT_READ
    fabric_clique: str | Unknown = NOT_READ
    fabric_health: int | Unknown = NOT_READ
    nvlink_count: int | Unknown = NOT_READ
    c2c_links: int | Unknown = NOT_READ
    c2c_status: int | Unknown = NOT_READ
    c2c_errors: int | Unknown = NOT_READ
    power_cap_path: str = ""  # the file of amdgpu that sets the limit, in microwatts
    perf_level: str | Unknown = NOT_READ  # amdgpu power_dpm_force_performance_level
    processes: tuple[GpuProcess, ...] | Unknown = NOT_READ
    nvlinks: tuple[NvLink, ...] | Unknown = NOT_READ


class Xid(msgspec.Struct, frozen=True):
    """An Xid or SXid line of the kernel log."""

    number: int
    bdf: str
    line: str
    switch: bool = False  # an NVSwitch's (SXid)


class DriverFacts(msgspec.Struct, frozen=True):
    """GPUs as their driver tells them, and the driver itself."""

    gpus: tuple[Gpu, ...] | Unknown
    source: str  # where the GPUs come from: NVML, nvidia-smi -q, …
    nvml_error: str  # what NVML or nvidia-smi answered instead, empty where nothing
    module_version: str | Unknown  # the loaded kernel module
    module_open: bool | Unknown  # the open kernel module
    library_versions: tuple[tuple[str, str], ...]  # where, version of libcuda, libnvidia-ml and their like
    cuda_version: str | Unknown  # the newest CUDA runtime this driver serves
    fabric_manager_version: str | Unknown
    fabric_manager_mismatch: str  # the line in which it refuses the driver, "" where none
    fabric_manager_errors: tuple[str, ...] | Unknown
    fabric_manager_state: (
        str  # systemd's word for its unit: active, inactive, failed, absent; "" where not told
    )
    cuda_errors: tuple[str, ...]  # attached lines in which CUDA refuses to start (802, 803, 804)
    imex_channels: bool | Unknown
    params: dict[str, str] | Unknown  # /proc/driver/nvidia/params
    modprobe: dict[str, str]  # NVreg_… options in /etc/modprobe.d
    modules: dict[str, str] | Unknown  # loaded modules that matter, with version ("" where none is shown)
    amd_params: dict[str, str] | Unknown
    runtime_d3: tuple[tuple[str, str], ...]  # bus address, status line
    xids: tuple[Xid, ...] | Unknown
    log: dict[str, tuple[str, ...]] | Unknown  # kernel log lines by what they tell (explorers.gpu_log)
    log_piece: bool  # a few lines of the kernel log: what they leave out proves nothing
    log_from_boot: bool  # whether the kernel log still holds its beginning
    confidential: bool | Unknown
    nvlink_bw_mode: int | Unknown
    uvm_hmm_disabled: bool | Unknown
    patched: str  # what says that the module is patched for peer access; empty where nothing does
    models: tuple[str, ...]  # GPU models that anything names
    words: str  # all of a reporter's own words
    stated: dict[str, tuple[str, str]]  # what a reporter states of it: field → value, line
    bar1_stated: tuple[tuple[str, int, str], ...]  # about, bytes, line
    log_excerpt: bool = False  # a few attached lines of a log, whose silence proves nothing
