"""The kernel that runs, and the one that the next boot would bring."""

import msgspec

from uncork.model.unknown import Unknown


class InstalledKernel(msgspec.Struct, frozen=True):
    """A kernel under /lib/modules; `gpu_modules` are the GPU drivers built for it."""

    release: str
    gpu_modules: tuple[str, ...] | Unknown


class KernelVersionFacts(msgspec.Struct, frozen=True):
    """The kernel that runs, and the one that the next boot would bring."""

    release: str | Unknown  # uname -r
    version: str | Unknown  # uname -v: build number, SMP, PREEMPT…
    os_release: dict[str, str] | Unknown
    parameters: tuple[str, ...] | Unknown  # of the kernel command line
    installed: tuple[InstalledKernel, ...] | Unknown  # oldest first
    gpu_driver: str | Unknown  # nvidia, amdgpu, "" where no GPU driver is loaded
    reboot_required: tuple[str, ...] | Unknown  # packages that ask for it; empty: none does
    reboot_flag: bool | Unknown
    livepatches: tuple[str, ...] | Unknown
    config: dict[str, str] | Unknown  # CONFIG_… → y, m, or a value
    preempt: str | Unknown  # the chosen word of debugfs sched/preempt
    tainted: int | Unknown
    page_bytes: int | Unknown
