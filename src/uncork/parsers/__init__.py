"""Text that people attach to bug reports → structures. Pure functions, one file a tool; nothing here reads.

Every parser takes text and returns frozen structs; it never raises on bad text, takes linear time and leaves
out (None, or an empty tuple) what the text does not say. `None` in a parsed structure means *not in this text*;
an explorer turns it into `Unknown("not among the attached files")`, never into a default.

Interface: how an explorer reads a pile of attachments (`AttachedHost`). It asks exactly what it would ask the
live machine; what nobody attached is `Unknown(..., absent=False)`.

    read   /proc/cmdline  /proc/version  /proc/meminfo  /proc/interrupts  /proc/cpuinfo  /proc/modules
           /proc/sys/...  (from `sysctl -a` or sysctl.conf lines)  /proc/self/limits (from `ulimit` or a limits file)
           /proc/driver/nvidia/{version,params}  /sys/fs/cgroup/{cpu.max,cpu.stat,memory.max,pids.max}
           /sys/kernel/mm/transparent_hugepage/{enabled,defrag}
           /sys/devices/system/clocksource/clocksource0/{available,current}_clocksource
           /etc/modprobe.d/attached.conf  /etc/os-release, and any path of a sosreport tree, of a bug report's
           `*** /path` section, or behind a `$ cat /path` prompt
    list   folders of a sosreport tree, `ls /folder` behind a prompt; else Unknown.  `glob` cannot be Unknown and
           answers (): ask `list` of the folder first, and do not conclude from an empty glob that nothing is there
    run    lspci (any flags)  lspci -t…  nvidia-smi  nvidia-smi -q  nvidia-smi -q -x  nvidia-smi topo -m
           nvidia-smi topo -p2p r|w|n|a|p  nvidia-smi nvlink -s  nvidia-smi --query-gpu=…  dmesg  dmidecode  lscpu
           numactl --hardware  lsmod  sysctl -a  uname -a  ip addr  ibstat  ibv_devinfo  rocm-smi …  amd-smi …
           dpkg -l  pip list  free  df  ps …  systemctl …; the spelling of flags does not matter
    query  attached:KIND → [{"name": file, "hint": the command or title above the text or "", "text": …}, …], for
           every kind below (also those that a read or run answers):
           statements          "key: value" lines in a reporter's own words       parsers.statements
           nccl-log            NCCL_DEBUG output, NCCL WARN lines                    parsers.nccl_log
           nccl-tests          all_reduce_perf and sisters                          parsers.nccl_tests
           nccl-topo           NCCL topology XML                                    parsers.nccl_topo
           p2p-test            simpleP2P, p2pBandwidthLatencyTest, torch copy test,  parsers.p2p_test
                               bandwidth tables by pair, nvbandwidth
           collect-env         vLLM, sglang and torch environment reports            parsers.collect_env
           engine-log          server logs of vLLM, sglang, TRT-LLM, TGI, llama.cpp  parsers.engine_log
           engine-command      command lines, compose/Kubernetes files, engine YAML  parsers.engine_command
           environment         NAME=value lines                                      parsers.environment
           limits              ulimit and /proc/PID/limits                           parsers.limits
           fabricmanager       fabric-manager log or journal                         parsers.fabricmanager
           ucx                 UCX log                                               parsers.ucx
           container           docker/podman inspect, device rules                   parsers.container_text
           profile             perf, funclatency, bpftrace output                    (plain text)
           bios                BIOS set-up keys a reporter lists                     (plain text)
           packages            dpkg -l, rpm -qa, pip list/freeze                     parsers.packages
           modprobe            modprobe.d lines                                      parsers.modprobe
           nvlink-query        timed NVML NVLink queries                             parsers.nvlink
           history             shell history                                         (plain text)
           application-log     tracebacks, torch and CUDA errors, thread errors      parsers.container_text
           lspci               parsers.lspci.parse, parents, path                    lspci-tree: parsers.lspci_tree
           nvidia-smi nvidia-smi-q nvidia-smi-xml: parsers.nvidia_smi.parse          nvidia-csv: .parse_csv
           topo topo-p2p: parsers.topo   nvlink-status: parsers.nvlink   dmesg: parsers.dmesg (GPU, PCIe, IOMMU),
           parsers.kernel_events (the rest)   dmidecode: parsers.smbios   lscpu: parsers.cpu
           lsmod sysctl cmdline numactl: host.derived   ip-addr: parsers.ip_addr   rocm: parsers.rocm
           amd-smi: parsers.rocm reads it too   uname proc-version ibstat ibv-devinfo df cpupower swaps: plain text
    The hint keeps the whole command: `lsmod | grep peermem` above an empty text says that nothing matched, and is
    not answered as `lsmod`. `statements` is whatever no tool printed, in the reporter's words.
    On a live or recorded host `attached:…` is Unknown(absent=True).

A fragment is as good as a file: one `LnkSta:` line without its device is a device whose `bdf` is "".
"""
