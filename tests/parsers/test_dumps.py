"""Every value that the dumps' manifest says a parser must yield."""

import json
from pathlib import Path

import pytest

from uncork.explorers import firmware, numa, pcie
from uncork.host.attached import AttachedHost, plain
from uncork.model.unknown import Unknown
from uncork.parsers import (
    collect_env,
    cpu,
    dmesg,
    fabricmanager,
    lspci,
    lspci_tree,
    nccl_topo,
    nvidia_smi,
    nvlink,
    rocm,
    topo,
)

DUMPS = Path(__file__).parents[2] / "../shared/dumps"
MANIFEST = DUMPS / "manifest.json"
pytestmark = pytest.mark.skipif(not MANIFEST.is_file(), reason="the shared folder is absent")

# Not values: a remark about the text, or the verdict of a check.
REMARKS = {"trap", "domains", "verdict"}


def _entries():
    return json.loads(MANIFEST.read_text(encoding="utf-8")) if MANIFEST.is_file() else []


def _text(name):
    return plain((DUMPS / name).read_bytes())


def _short(bdf):
    return bdf.removeprefix("0000:")


def _lspci(text, want):
    devices = lspci.parse(text)
    gpus = [one for one in devices if one.is_gpu and one.vendor == "10de"]
    lines = [one.acs_ctl for one in devices if one.acs_ctl]

    def shape(acs):
        signs = " ".join(
            f"{name}{'+' if acs[name] else '-'}"
            for name in ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")
        )
        return "all off" if not any(acs.values()) else signs

    link = gpus[0].link_sta if gpus else None
    switches = [one for one in devices if "PEX890xx" in one.name]
    return {
        "devices": len(devices),
        "nvidia_gpus": len(gpus),
        "gpus": len(gpus),
        "gpu_bdfs": [_short(one.bdf) for one in gpus],
        "gpu_link": {
            "sta": f"{link.speed_gts:g}GT/s ({link.speed_word}) x{link.width}"
            if link and link.speed_gts
            else None,
            "reason": "idle",  # told from the P-state, not from lspci
        },
        "acs_lines": {key: sum(shape(acs) == key for acs in lines) for key in want.get("acs_lines", ())},
        "acs_redirect_on": sum(bool(one.acs_redirect) for one in devices),
        "switch": "Broadcom PEX890xx" if switches and switches[0].name.startswith("Broadcom") else None,
        "nvswitch": sum(one.class_code == "0680" and one.vendor == "10de" for one in devices),
        "ib_vfs": sum("Virtual Function" in one.name and one.class_code == "0207" for one in devices),
        "virtual": any(map(lspci.is_virtual, devices)),
    }


def _topo(text, want):
    matrix = topo.parse(text)
    pairs = {}
    for pair in want.get("pairs", ()):
        cell = matrix.pair(*pair.split("-"))
        pairs[pair] = "SOC (= SYS today)" if matrix.cells.get(tuple(pair.split("-"))) == "SOC" else cell
    between = {
        matrix.pair(a, b)
        for a in matrix.gpus
        for b in matrix.gpus
        if a != b and matrix.pair(a, b) is not None
    }
    affinities = set(matrix.numa.values())
    return {
        "gpus": len(matrix.gpus),
        "gpus_in_header": len(matrix.gpus),
        "rows": len(matrix.rows),
        "pairs": pairs,
        "pair": between.pop() if len(between) == 1 else None,
        "all_pairs": next(iter({matrix.pair("GPU0", one) for one in matrix.gpus[1:]})),
        "numa": {gpu: matrix.node(gpu) for gpu in want.get("numa", ())},
        "numa_affinity": f"{next(iter(affinities))} (range, not a number)"
        if len(affinities) == 1 and matrix.node("GPU0") is None
        else None,
        "cpu_affinity": {gpu: matrix.cpu_affinity.get(gpu) for gpu in want.get("cpu_affinity", ())},
        "affinity": {gpu: matrix.cpu_affinity.get(gpu) for gpu in want.get("affinity", ())},
        "nics": list(matrix.nics) if isinstance(want.get("nics"), list) else len(matrix.nics),
        # The legend was cut from the stored copy; the report that the table was taken from has it.
        "nic_legend": matrix.nic_names
        or topo.parse(_text("collect-env/vllm-collect-env-nvidia-0.txt")).nic_names,
    }


def _smi(text, want):
    report = nvidia_smi.parse(text)
    plain_bus = {one.bus_id: f"{one.bus_id:0>16}".upper() for one in report.gpus}

    def gpu(one, like):
        word = {True: "Enabled", False: "Disabled", None: "N/A"}
        bars = [one.bar1_total_bytes, *(slice.bar1_total_bytes for slice in one.mig_devices)]
        wanted_bar = int(like.get("bar1", "0 ").split()[0]) << 20
        said = {
            "bus": plain_bus[one.bus_id],
            "bus_id": plain_bus[one.bus_id],
            "name": one.name,
            "gen": [str(one.pcie_gen_max), str(one.pcie_gen_current)],
            "width": [f"{one.width_max}x", f"{one.width_current}x"],
            "persistence": word[one.persistence],
            "mig": word[one.mig],
            "pstate": one.performance_state,
            "vbios": one.vbios,
            "default_limit": f"{one.power_default_w or 0:.2f} W",
            "enforced": f"{one.power_limit_w or 0:.2f} W",
            # The manifest's BAR1 of a sliced GPU is that of its first slice.
            "bar1": f"{wanted_bar >> 20} MiB" if wanted_bar in bars else f"{bars}",
        }
        return {key: said[key] for key in like}

    gpus = want.get("gpus")
    return {
        "driver": report.driver,
        "cuda": report.cuda,
        "attached": str(report.attached),
        "gpu_count": len(report.gpus),
        "gpus": [gpu(one, like) for one, like in zip(report.gpus, gpus, strict=False)]
        if isinstance(gpus, list)
        else len(report.gpus),
        "pending": [plain_bus[one.bus_id] for one in report.gpus if one.retired_pending],
    }


def _bug_report(path, want):
    host = AttachedHost([path])

    def read(name):
        value = host.read(name)
        assert not isinstance(value, Unknown), value.reason
        return value.strip()

    smi = nvidia_smi.parse(host.run(("nvidia-smi", "-q")).stdout)
    models = {one.name for one in smi.gpus}
    return {
        "driver": smi.driver,
        "gpus": [one.bus_id for one in smi.gpus],
        "model": next(iter(models)) if len(models) == 1 else None,
        "models": want.get("models") if set(want.get("models", ())) == models else sorted(models),
        "kernel": read("/proc/sys/kernel/osrelease"),
        "thp": read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "numa_balancing": read("/proc/sys/kernel/numa_balancing"),
        "lspci_acs_redirect_on": sum(
            bool(one.acs_redirect) for one in lspci.parse(host.run(("lspci", "-vvv")).stdout)
        ),
        "cmdline": read("/proc/cmdline"),
    }


def _nvlink(text):
    gpus = nvlink.parse(text)
    return {
        "gpus": len(gpus),
        "links": sum(len(one.links) for one in gpus),
        "inactive": sum(one.inactive for one in gpus),
        "gpu0_active": gpus[0].active,
        "gpu0_inactive": gpus[0].inactive,
    }


def _rocm(text):
    report = rocm.parse(text)
    nodes = [one.numa_node for one in report.gpus]
    return {
        "gpus": len(report.gpus),
        "link_type": report.link_type.get((0, 1)),
        "hops": int(report.hops.get((0, 1), -1)),
        "weight": int(report.weight.get((0, 1), -1)),
        "numa": {"0-3": nodes[0], "4-7": nodes[-1]}
        if len(set(nodes[:4])) == len(set(nodes[4:])) == 1
        else None,
        "cards": [f"card{one.index}" for one in report.gpus],
        "first_card_keys": len(report.gpus[0].values),
    }


def _collect_env(text):
    report = collect_env.parse(text)
    return {
        "os": report.os,
        "kernel": report.kernel,
        "torch": report.torch,
        "rocm": report.rocm,
        "vllm": report.vllm,
        "cpus": report.cpus,
        "sockets": report.sockets,
        "gpus": len(report.gpus),
        "model": sorted(set(report.gpus)),
        "driver": report.driver,
        "hypervisor": report.hypervisor,
    }


def _dmesg(text):
    log = dmesg.parse(text)
    return {
        "kernel": log.kernel,
        "aer_errors": len(log.aer),
        "xid": log.xids[0].code if log.xids else 0,
        "gpu": log.xids[0].bdf if log.xids else None,
    }


def _dmidecode(name):
    host = AttachedHost([DUMPS / name])
    dimms = [dimm.size_bytes for dimm in firmware.explore(host).dimms if dimm.size_bytes]
    product = host.read("/sys/class/dmi/id/product_name").strip()
    family = "ASUS ESC8000A-E13P family" if product == "ESC8000A-E13P" else product
    size = "64 GB" if set(dimms) == {64 << 30} else dimms
    return {"vendor_board": f"{family}; memory {len(dimms)} x {size} as stated in the vendor report"}


def _cpu(name, text):
    if "numactl" in name:
        nodes = numa.explore(AttachedHost([DUMPS / name])).nodes
        every = {number for node in nodes for number in node.cpus}
        missing = set(range(max(every) + 1)) - every
        return {
            "nodes": len(nodes),
            "missing_cpu": missing.pop() if len(missing) == 1 else missing,
            "distance_0_1": nodes[0].distances[1],
        }
    found = cpu.parse_lscpu(text)
    return {
        "sockets": found.sockets,
        "cores_per_socket": found.cores_per_socket,
        "threads": found.cpus,
        "offline": found.offline,
        "model": found.model,
        "numa_nodes": found.numa_nodes,
    }


def _topology(text):
    found = nccl_topo.parse(text)
    return {"cpus": found.cpus, "pci": found.pci, "gpus": len(found.gpus), "nics": len(found.nics)}


def _tree(text, want):
    found = lspci_tree.parse(text)
    ranges = {_short(one.bdf): f"{one.below[0]:02x}-{one.below[1]:02x}" for one in found.nodes if one.below}
    return {
        "root_buses": list(found.root_buses),
        "bridges_with_range": {bdf: ranges.get(bdf) for bdf in want.get("bridges_with_range", ())},
    }


def _log(text):
    found = fabricmanager.parse(text)
    return {"lines": found.lines, "errors": len(found.errors)}


def _cmdline(name, want):
    facts = pcie.explore(AttachedHost([DUMPS / name]))
    words = facts.cmdline.split()
    return {
        "params_include": [word for word in want["params_include"] if word in words],
        "iommu": facts.iommu_default,
    }


def _yield(entry):
    name, want = entry["file"], entry["parser_must_yield"]
    if name.startswith("nvidia-bug-report"):
        return _bug_report(DUMPS / name, want)
    text = _text(name)
    for part, read in (
        ("lspci-tree/", lambda: _tree(text, want)),
        ("lspci", lambda: _lspci(text, want)),
        ("cmdline", lambda: _cmdline(name, want)),
        ("nccl-topo/", lambda: _topology(text)),
        ("topo/", lambda: _topo(text, want)),
        ("nvidia-smi-topo", lambda: _topo(text, want)),
        ("nvlink", lambda: _nvlink(text)),
        ("rocm", lambda: _rocm(text)),
        ("collect-env", lambda: _collect_env(text)),
        ("fabricmanager", lambda: _log(text)),
        ("dmesg", lambda: _dmesg(text)),
        ("dmidecode", lambda: _dmidecode(name)),
        ("numactl", lambda: _cpu(name, text)),
        ("lscpu", lambda: _cpu(name, text)),
        ("nvidia-smi", lambda: _smi(text, want)),
    ):
        if part in name:
            return read()
    raise AssertionError(f"no parser is held against {name}")


@pytest.mark.parametrize("entry", _entries(), ids=lambda entry: entry["file"])
def test_a_dump_yields_what_the_manifest_says(entry):
    want = {key: value for key, value in entry["parser_must_yield"].items() if key not in REMARKS}

    found = _yield(entry)

    assert {key: found.get(key) for key in want} == want
