"""Each part of the waterfall → the audit's checks that speak about it, and what to measure or change next."""

ADVICE: dict[str, tuple[tuple[str, ...], str]] = {
    "ideal sharding": (
        ("engine.tp-shape", "driver.gpu-count"),
        "fewer bytes a weight (another quantisation), more devices, or speculative decoding",
    ),
    "expert spread": (
        ("engine.batch-limits",),
        "the price of a batch that disagrees about experts; more users share it better",
    ),
    "replication": (
        ("engine.tp-shape",),
        "data-parallel attention, or a checkpoint that quantises attention too",
    ),
    "kv cache": (
        ("engine.mem-fraction", "engine.kv-pressure", "engine.tp-shape"),
        "an FP8 cache, decode-context parallelism, shorter contexts",
    ),
    "compute": (
        ("power.gpu-clock-under-load", "engine.batch-limits"),
        "a narrower number format for the matrices; check clocks under load",
    ),
    "achieved bandwidth": (
        (
            "power.gpu-power-limit",
            "power.gpu-clock-under-load",
            "power.gpu-clock-lock",
            "power.gpu-throttle-reasons",
            "power.gpu-temperature",
            "driver.ecc",
        ),
        "measure a device copy on this host; look at power cap, memory clock, temperature, ECC",
    ),
    "all-reduce floor": (
        ("nvlink.topology-vs-tp", "cuda.visible-devices-topology", "numa.cross-socket-tp"),
        "physics of this link: fewer ranks, a closer set of devices, or NVLink",
    ),
    "all-reduce excess": (
        (
            "pcie.acs-redirect",
            "pcie.iommu-domain",
            "p2p.status-matrix",
            "p2p.bandwidth",
            "pcie.link-width",
            "pcie.link-speed",
            "nccl.transport-used",
            "nccl.channels-graph",
            "nccl.custom-allreduce",
            "nccl.env-leftovers",
        ),
        "measure the all-reduce here; then P2P (ACS, IOMMU), NCCL channels, a one-shot kernel",
    ),
    "kernel floor": (
        (
            "engine.cuda-graph-disabled",
            "engine.attention-backend-fallback",
            "engine.moe-config-missing",
            "engine.arch-not-compiled",
        ),
        "what the best engines still pay a layer: CUDA graphs, fused kernels, a tuned MoE backend",
    ),
    "drafting": (
        ("engine.speculative-missing",),
        "fewer draft tokens where few are accepted",
    ),
    "unexplained": (
        (
            "engine.cuda-graph-disabled",
            "engine.gpu-idle-gaps",
            "engine.api-bottleneck",
            "engine.overlap-disabled",
            "engine.cpu-core-budget",
            "power.governor",
            "power.c-state-latency",
            "power.gpu-throttle-reasons",
            "numa.rank-cpu-affinity",
            "numa.rank-memory-locality",
            "kernel.numa-balancing",
        ),
        "trace one step for gaps: eager mode, CPU clocks and pinning, scheduler, tokenizer, throttling",
    ),
}
