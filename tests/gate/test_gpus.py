"""What NVML adds: NVLink paths, error counters, who else uses the GPUs."""

from uncork.gate import verify
from uncork.gate.cuda import gpus as nvml
from uncork.gate.fabric import Device
from uncork.gate.limits import ceiling_gb_s, floor
from uncork.model.gate import Criterion, Verdict
from uncork.model.unknown import Unknown, is_unknown

ONE, OTHER = Device(0, "gpu0", "00000000:10:00.0"), Device(1, "gpu1", "0000:20:00.0")


def gpu(bdf, links=(), **more):
    return {"bdf": bdf, "nvlinks": list(links), "ecc": True, "ecc_uncorrected_volatile": 0, **more}


def link(remote="0000:a0:00.0", kind=2, speed=26562, **errors):
    return {"active": True, "remote_bdf": remote, "remote_type": kind, "speed_mb_s": speed, **errors}


def reading(*gpus):
    return {one["bdf"]: one for one in gpus}


def test_eighteen_links_to_a_switch_are_450_gb_s_nominal():
    both = reading(gpu("0000:10:00.0", [link()] * 18), gpu("0000:20:00.0", [link()] * 18))

    path = nvml.nvlink(both, ONE, OTHER)

    assert (path.kind, path.raw_gb_s) == ("nvlink", 450.0)
    # 371-389 GB/s are published for healthy H100 pairs.
    assert floor(path).fail_gb_s < 371 < ceiling_gb_s(path)


def test_only_links_to_the_peer_count_without_a_switch():
    to_peer, elsewhere = link("0000:20:00.0", 0, 25781), link("0000:30:00.0", 0, 25781)
    back = link("0000:10:00.0", 0, 25781)
    both = reading(gpu("0000:10:00.0", [to_peer, elsewhere]), gpu("0000:20:00.0", [back]))

    assert nvml.nvlink(both, ONE, OTHER).raw_gb_s == 25.0


def test_without_links_or_without_nvml_there_is_no_nvlink_path():
    assert nvml.nvlink(reading(gpu("0000:10:00.0"), gpu("0000:20:00.0")), ONE, OTHER) is None
    assert nvml.nvlink(Unknown("no NVML"), ONE, OTHER) is None


def test_counters_that_a_gpu_has_not_are_left_out_and_unreadable_ones_unknown():
    both = reading(gpu("0000:10:00.0", [link(crc_errors=3, replay_errors=1)]), gpu("0000:20:00.0", ecc=False))

    found = {(one.component, one.kind): one.value for one in nvml.counters(both, (ONE, OTHER))}
    blind = nvml.counters(Unknown("no NVML"), (ONE,))

    assert found == {("gpu0", "ecc"): 0, ("gpu0 NVLink", "replay"): 1, ("gpu0 NVLink", "crc"): 3}
    assert is_unknown(blind[0].value)


def test_a_busy_gpu_makes_the_verdict_inconclusive(gpus):
    fabric = gpus(2)
    fabric._gpus = reading(gpu("0000:10:00.0", utilization_percent=96), gpu("0000:20:00.0", mig=True))

    result = verify(fabric, "quick")

    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.warnings[:2] == (
        "gpu0 was 96 % busy before the run",
        "gpu1 is in MIG mode, which has no peer access",
    )


def test_an_ecc_error_during_the_run_fails(gpus):
    fabric = gpus(2)
    gpu0 = gpu("0000:10:00.0")
    fabric._host.nvml = {"gpus": [gpu0, gpu("0000:20:00.0")]}

    def creep(line):
        if line.startswith("integrity:"):
            gpu0["ecc_uncorrected_volatile"] = 1

    result = verify(fabric, "quick", progress=creep)

    counters = next(one for one in result.criteria if one.criterion is Criterion.COUNTERS)
    assert [trouble.component for trouble in counters.troubles] == ["gpu0"]
