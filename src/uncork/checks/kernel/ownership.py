"""Who else writes kernel settings, and policies that stand in an engine's way."""

from collections.abc import Iterator

from uncork.checks import INFO, NONE, P2, RUNTIME, Verdict, check, fails, not_applicable, passes
from uncork.checks.hosts import known, seen
from uncork.model.facts import Facts
from uncork.model.findings import Change
from uncork.model.unknown import is_unknown

# Program → what it writes again after anybody else did.
OWNERS = {
    "tuned": "sysctls, governors and huge pages of its profile",
    "ksmtuned": "same-page merging",
    "power-profiles-daemon": "governors and energy preferences",
    "tlp": "governors, PCIe power and disks",
    "thermald": "power limits of the package",
    "auto-cpufreq": "governors",
    "cpupower": "governors",
}
# Keys that checks of this dimension may plan to write.
KEYS = (
    "kernel.numa_balancing",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
    "vm.overcommit_memory",
    "vm.max_map_count",
)


@check("kernel.owner-conflict", INFO, NONE)
def owner_conflict(facts: Facts) -> Iterator[Verdict]:
    """Nobody else writes the settings that a plan would write.

    Effect: a value comes back after minutes or at the next boot, and a verification fails
    Sure: high
    Fix: change the owner's profile or file instead of the live value
    Undo: nothing to undo
    Source: tuned's documentation, reapply_sysctl; sysctl.d(5)
    """
    running = sorted(name for name in OWNERS if name in facts.kernel.programs)
    profile = facts.kernel.tuned_profile
    if "tuned" in running or not is_unknown(profile):
        named = "" if is_unknown(profile) else f" (profile {profile})"
        yield fails(
            f"tuned{named} owns {OWNERS['tuned']}",
            "tuned",
            evidence=seen("/etc/tuned/active_profile", profile),
        )
    for name in running:
        if name != "tuned":
            yield fails(f"{name} owns {OWNERS[name]}", name, evidence=seen("/proc/*/cmdline", name))
    files = facts.kernel.sysctl_files
    kept = {} if is_unknown(files) else {key: files[key] for key in KEYS if key in files}
    for key, (value, path) in sorted(kept.items()):
        yield fails(f"{path} sets {key}={value} at boot", key, evidence=seen(path, f"{key}={value}"))
    if not running and not kept and is_unknown(profile):
        yield passes(
            "no other program owns kernel settings",
            evidence=seen("/proc/*/cmdline", "none of the known ones"),
        )


@check("kernel.yama-ptrace-scope", P2, RUNTIME)
def ptrace_scope(facts: Facts) -> Iterator[Verdict]:
    """Ranks may take file descriptors of one another for CUDA tensors.

    Effect: pidfd_getfd is refused, and sharing tensors of expandable segments fails
    Sure: low
    Fix: sysctl kernel.yama.ptrace_scope=1; a 3 can only be changed by a reboot
    Undo: write the former value back
    Wrong when: ranks are parent and child, which scope 1 allows
    Source: pidfd_getfd(2); Linux admin-guide/LSM/Yama.rst
    """
    scope = facts.kernel.sysctls["kernel.yama.ptrace_scope"]
    if is_unknown(scope) and scope.absent:
        yield not_applicable("this kernel has no Yama")
        return
    scope = known(scope)
    shares = [
        server
        for server in facts.engine.servers
        if not is_unknown(server.environ)
        and any(
            "expandable_segments:True" in server.environ.get(name, "")
            for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
        )
    ]
    if not shares:
        yield not_applicable("no server uses expandable segments")
        return
    evidence = seen("/proc/sys/kernel/yama/ptrace_scope", scope)
    if scope in ("0", "1"):
        yield passes(f"ptrace scope {scope}", evidence=evidence)
        return
    change = Change("sysctl", "kernel.yama.ptrace_scope", "1", before=scope) if scope == "2" else None
    yield fails(f"ptrace scope {scope} refuses sharing of file descriptors", evidence=evidence, change=change)
