"""The largest run there is: 11 levels of 5 repeats, before and after, 8 GPUs, every check answered on each."""

import math
import random
from functools import cache
from pathlib import Path

import msgspec

from uncork import checks
from uncork.bench.compare import compare
from uncork.bound import hardware, model_bytes
from uncork.gate import verify
from uncork.gate.simulated import HOSTS, SimulatedFabric, parse_fault
from uncork.model.bench import BenchRun, ClientCheck, Distribution, LevelResult
from uncork.model.bound import Parallel
from uncork.model.findings import Answer, Audit, Change, ChangeClass, Evidence, Priority, Result
from uncork.model.gate import GateResult
from uncork.model.plan import (
    Approval,
    Deferred,
    Directive,
    Hold,
    Kind,
    Plan,
    PlannedChange,
    Shown,
    Status,
    Step,
    StepEvidence,
)
from uncork.record.report.story import Limits, Story
from uncork.record.topology import Device, Node, Topology

MODEL = Path(__file__).parents[1] / "bound/models/Llama-3.1-70B-FP8"
USERS = tuple(2**power for power in range(11))
REPEATS = 5
START_NS = 1_790_000_000_000_000_000
BDFS = tuple(f"0000:{0x10 + 0x10 * gpu:02x}:00.0" for gpu in range(8))
PEOPLE_SAY = 'skip the governor, it is "theirs" <b>now</b>'


def spread(middle: float, noise: random.Random, n: int = 512) -> Distribution:
    """A sample around `middle` with the tail that latencies have."""
    middle *= 1 + noise.gauss(0, 0.02)
    steps = (0.5, 1.0, 1.4, 1.7, 2.4, 3.1, 3.3)
    low, p50, p90, p95, p99, p999, top = (middle * step for step in steps)
    return Distribution(n, middle * 1.05, middle * 0.2, low, p50, p90, p95, p99, p999, top)


def level(users: int, repeat: int, order: int, tok_s: float, noise: random.Random) -> LevelResult:
    """One level of a server that gives `tok_s` over all users."""
    itl_ms = users * 1e3 / tok_s
    tok_s *= 1 + noise.gauss(0, 0.02)
    return LevelResult(
        level=f"c{users}",
        repeat=repeat,
        order=order,
        phase="mixed",
        arrival="closed",
        concurrency=users,
        rate_s=None,
        seed=1,
        input_len=1024,
        output_len=1024,
        started_unix_s=START_NS / 1e9 + 90 * order,
        wall_s=80.0,
        requests=4 * users,
        completed=4 * users,
        failed={},
        flags={},
        input_tokens=4096 * users,
        cached_tokens=0,
        output_tokens=4096 * users,
        token_source="usage",
        tokens_per_chunk=1.0,
        output_tok_s=tok_s,
        total_tok_s=2 * tok_s,
        request_s=tok_s / 1024,
        steady_output_tok_s=tok_s,
        achieved_concurrency=float(users),
        per_user_tok_s=spread(tok_s / users, noise),
        ttft_ms=spread(80 + 3 * users, noise),
        ttft_intended_ms=None,
        first_answer_ms=None,
        chunk_interval_ms=None,
        itl_ms=spread(itl_ms, noise),
        tpot_ms=spread(itl_ms, noise),
        e2e_ms=spread(1024 * itl_ms, noise),
        e2e_intended_ms=None,
        normalised_ms=spread(itl_ms, noise),
        goodput_s=None,
        attainment=None,
        client=ClientCheck(
            stamp_source="kernel",
            processes=1,
            cpu_s=4.0,
            cpu_us_per_token=20.0,
            cpu_share=0.05 + users / 4096,
            lag_p50_ms=0.01,
            lag_p99_ms=0.05,
            lag_max_ms=0.4,
            turn_p99_ms=0.2,
            turn_max_ms=1.0,
            merged_share=0.0,
            merged_late_share=0.0,
            dispatch_late_p99_ms=None,
            peak_memory_mb=90.0,
        ),
        valid=True,
        telemetry={
            "gpus": {
                str(gpu): {
                    name: {"min": value - 1, "mean": value, "max": value + 1}
                    for name, value in (
                        ("sm_clock_mhz", 2400.0 - 20 * gpu - users / 10),
                        ("power_mw", 300_000.0 + 200 * users),
                        ("temperature_c", 55.0 + gpu + users / 100),
                    )
                }
                for gpu in range(8)
            },
            "host": {"cpu_busy_mean": 0.2 + users / 4096, "steal_share": 0.0},
        },
    )


def bench(factor: float, run_id: str) -> BenchRun:
    """A run whose throughput grows with users and is `factor` of the reference."""
    noise = random.Random(run_id)
    order = iter(range(1000))
    levels = tuple(
        level(users, repeat, next(order), factor * 60 * users / (1 + users / 90), noise)
        for repeat in range(REPEATS)
        for users in USERS
    )
    return BenchRun(
        schema=1,
        metrics=1,
        version="0.1.0",
        run_id=run_id,
        started_unix_s=START_NS / 1e9,
        started_monotonic_ns=0,
        spec={"repeats": REPEATS},
        workload_hash="5e" * 32,
        model="meta-llama/Llama-3.1-70B-Instruct-FP8",
        endpoints=("http://127.0.0.1:8000",),
        warmup={},
        levels=levels,
        finished=True,
        fingerprint={"kernel": "6.8.0-52-generic"},
    )


def audit() -> Audit:
    """Every check of the catalogue: each ninth fails on all eight GPUs, each third could not be read."""
    results = []
    for at, one in enumerate(checks.load().values()):
        answer = Answer.FAIL if at % 9 == 0 else Answer.UNKNOWN if at % 3 == 0 else Answer.PASS
        for bdf in BDFS:
            results.append(
                Result(
                    id=one.id,
                    answer=answer,
                    priority=one.priority,
                    change_class=one.change_class,
                    dimension=one.dimension,
                    says=one.title,
                    subject=bdf,
                    evidence=(
                        Evidence(f"/sys/bus/pci/devices/{bdf}/current_link_width", "8\nx16 is possible"),
                    ),
                    reason="root would be needed" if answer is Answer.UNKNOWN else "",
                    changes=(Change("sysfs", f"/sys/{bdf}/thing", "on", "auto"),)
                    if answer is Answer.FAIL
                    else (),
                )
            )
    order = list(Priority)
    results.sort(key=lambda one: (one.answer is not Answer.FAIL, order.index(one.priority), one.id))
    return Audit(1, "0.1.0", "gpu-node-17", tuple(results), {"pcie": "ok"}, {"pcie": "all links are up"})


def gates() -> tuple[GateResult, GateResult]:
    """A simulated host of eight GPUs with one slow link, and the same one repaired."""
    before = verify(SimulatedFabric(HOSTS["pro6000-8x"], (parse_fault("slow@gpu3 tx*0.5"),)), "full", nonce=1)
    return before, verify(SimulatedFabric(HOSTS["pro6000-8x"], seed=2), "full", nonce=2)


def topology() -> Topology:
    """Two sockets, four switches, eight GPUs, two network cards."""
    devices = [
        Device(
            bdf=bdf,
            kind="gpu",
            name="NVIDIA RTX PRO 6000",
            node=at // 4,
            root=f"0000:{at // 2}0:01.1",
            switches=(f"0000:{at // 2}1:00.0",),
            speed_gt_s=32.0,
            max_speed_gt_s=32.0,
            width=8 if at == 3 else 16,
            max_width=16,
            index=at,
            note="96 GiB",
        )
        for at, bdf in enumerate(BDFS)
    ]
    devices += [
        Device(f"0000:e{at}:00.0", "nic", "ConnectX-7", at, f"0000:e{at}:00.1", (), 32.0, 32.0, 16, 16)
        for at in range(2)
    ]
    nodes = tuple(Node(at, f"{64 * at}-{64 * at + 63}", 768 * 2**30) for at in range(2))
    levels = tuple(
        tuple("X" if a == b else "PIX" if a // 2 == b // 2 else "SYS" for b in range(8)) for a in range(8)
    )
    return Topology(2, nodes, tuple(devices), levels)


def step(at: int, kind: Kind, title: str, status: Status, changes: tuple[PlannedChange, ...] = ()) -> Step:
    """A step that has ended."""
    began = START_NS + at * 60_000_000_000
    done = status is Status.COMPLETED
    return Step(
        id=at,
        name=f"step-{at}",
        position=at,
        kind=kind,
        title=title,
        why="it was found wrong",
        priority=Priority.P1,
        status=status,
        shown=Shown(status.value),
        detail="",
        reason="" if done else "a person said so",
        attempt=1,
        policy="all_or_nothing",
        needs=(),
        changes=changes,
        digest="ab" * 32,
        evidence=(StepEvidence("pass", f"{title}: done", "x.json", 1, began + 10**9),) if done else (),
        redo_of=None,
        started_ns=began,
        ended_ns=began + 42 * 10**9,
    )


def plan() -> Plan:
    """A closed plan: one group was written and confirmed, one was skipped on a person's word."""
    governor = tuple(
        PlannedChange("cpufreq_governor", str(cpu), "performance", "powersave", "low", "runtime", ("tuned",))
        for cpu in range(128)
    )
    acs = tuple(PlannedChange("pci_acs", bdf, "0x0000", "0x001d", "medium", "runtime") for bdf in BDFS)
    titles = (
        (Kind.EXPLORE, "Look at the host"),
        (Kind.GATE, "Verify that the GPUs talk to each other"),
        (Kind.BENCHMARK, "Measure before"),
        (Kind.DOCUMENT, "Write the record"),
        (Kind.APPROVE, "Approve the exact changes"),
    )
    steps = [step(at, kind, title, Status.COMPLETED) for at, (kind, title) in enumerate(titles, 1)]
    steps.append(step(6, Kind.APPLY, "Let peers write directly", Status.COMPLETED, acs))
    steps.append(step(7, Kind.APPLY, "Set every CPU to performance", Status.SKIPPED, governor))
    steps.append(step(8, Kind.DECIDE, "Keep or put back", Status.COMPLETED))
    return Plan(
        id="20260921-120000-abcd",
        host="gpu-node-17",
        revision=5,
        state="closed",
        steps=tuple(steps),
        deferred=(
            Deferred(
                "pcie.link-width", BDFS[3], "x8 of x16", Priority.P1, ChangeClass.FIRMWARE, "reseat the card"
            ),
        ),
        digest="cd" * 32,
        record_sha256="ef" * 32,
        approvals=(Approval(1, "cd" * 32, "alice", "uncork run --yes", START_NS + 5, None, ("step-6",), {}),),
        holds=(Hold("t1", 6, "confirmed", "boot", 1, ""),),
        directives=(Directive(1, "skip", "step-7", PEOPLE_SAY, "alice", 4, "done", START_NS + 7),),
        created_ns=START_NS,
    )


@cache
def story(name: str = "20260921-120000-abcd", factor: float = 1.31) -> Story:
    """The whole of it."""
    before, after = bench(1.0, f"{name}-1"), bench(factor, f"{name}-2")
    gate_before, gate_after = gates()
    device = hardware.by_name("rtx_pro_6000_ws")
    undo = {f"pci_acs:{bdf}": f"setpci -s {bdf} ECAP_ACS+6.w=001d" for bdf in BDFS}
    return Story(
        name=name,
        plan=plan(),
        audit=audit(),
        gate_before=gate_before,
        gate_after=gate_after,
        before=before,
        after=after,
        comparison=compare(before, after, tested=()),
        topology=topology(),
        limits=Limits(model_bytes(MODEL), device, Parallel(tp=8)),
        record="/var/lib/uncork/records/x/system-improve.md",
        chain_head="Journal head: row 40, " + "0a" * 32,
        rows=tuple(
            {"seq": at, "kind": "applied", "target": bdf, "before": "0x001d", "want": "0x0000",
             "wall_ns": START_NS + 6 * 60 * 10**9 + at * math.floor(1e6), "actor": {"kind": "human", "name": "alice"}}
            for at, bdf in enumerate(BDFS, 1)
        ),
        undo=undo,
        written_at="2026-09-21 12:34:56 +0000",
    )  # fmt: skip


HOSTILE = (
    "<script>window.pwned = 1</script>",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "A" * 1_000_000,
    "x8 \u202egnp.exe\u202c \u2066of\u2069 x16",
    '"><img src=http://example.invalid/x onerror=window.pwned=1>',
    "]]> --> </style></svg></title> $x^2$ & &amp; `code` | pipe",
)


def hostile() -> Story:
    """A run whose every text was chosen by somebody who does not mean well."""
    says = " ".join(text for text in HOSTILE if len(text) < 1000)
    whole = story()
    assert whole.audit and whole.plan and whole.before and whole.gate_after and whole.topology
    failing = [one for one in whole.audit.results if one.answer is Answer.FAIL]
    results = [
        msgspec.structs.replace(
            one,
            says=text,
            subject=text,
            reason=text,
            evidence=(Evidence(text, text),),
            changes=(Change(text, text, text, text),),
        )
        for one, text in zip(failing, HOSTILE * 3, strict=False)
    ]
    steps = [
        msgspec.structs.replace(one, title=says, why=says, reason=says, detail=says)
        for one in whole.plan.steps
    ]
    devices = [msgspec.structs.replace(one, name=says, note=says) for one in whole.topology.devices]
    return msgspec.structs.replace(
        whole,
        name=says,
        audit=msgspec.structs.replace(
            whole.audit, host=says, results=tuple(results), explorers={says: says}, right={says: says}
        ),
        plan=msgspec.structs.replace(whole.plan, steps=tuple(steps), host=says),
        before=msgspec.structs.replace(whole.before, model=says, endpoints=(says,), run_id=says),
        gate_after=msgspec.structs.replace(whole.gate_after, tested=says, devices=(says,) * 8),
        topology=msgspec.structs.replace(whole.topology, devices=tuple(devices), why=HOSTILE),
        record=says,
        undo=dict.fromkeys(whole.undo, says),
    )
