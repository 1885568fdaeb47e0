"""Libraries that stand between a server and CUDA."""

import re
from collections.abc import Iterator

from uncork.checks import P1, SERVICE_RESTART, Verdict, check, fails, not_applicable, passes
from uncork.checks.hosts import no_server, seen
from uncork.model.facts import Facts
from uncork.model.unknown import is_unknown

# GPU-sharing layers: HAMi, volcano vGPU, GaiaGPU and its heirs, KubeShare, NVShare, run:ai.
_LAYERS = re.compile(r"lib(vgpu|cuda-control|vcuda\w*|gemhook|nvshare|vgpu-control|xpu\w*|runai\w*)\.so")


@check("container.cuda-intercept-library", P1, SERVICE_RESTART)
def intercept(facts: Facts) -> Iterator[Verdict]:
    """No GPU-sharing library intercepts a server's CUDA calls.

    Effect: NCCL deadlocks, wrong figures of free memory
    Sure: high
    Fix: take the pod off the sharing layer (a whole GPU), or a version of it that its makers tested with NCCL
    Undo: put it back
    Wrong when: the layer is a version known to be good
    Source: Project-HAMi/HAMi issue 2641
    """
    if layer := facts.container.said.intercepted:
        yield fails("a GPU-sharing layer intercepts CUDA calls", evidence=seen("attached text", layer))
        return
    if reason := no_server(facts):
        yield not_applicable(reason)
        return
    for server in facts.engine.servers:
        preload = "" if is_unknown(server.environ) else server.environ.get("LD_PRELOAD", "")
        mapped = () if is_unknown(server.libraries) else server.libraries
        found = next(
            (path for path in (*preload.replace(":", " ").split(), *mapped) if _LAYERS.search(path)), ""
        )
        name = f"{server.kind} ({server.pid})"
        if found:
            evidence = seen(f"/proc/{server.pid}/maps, LD_PRELOAD", found)
            yield fails(f"{found.rpartition('/')[2]} intercepts its CUDA calls", name, evidence=evidence)
        elif is_unknown(server.libraries) and not preload:
            bool(server.libraries)
        else:
            yield passes(
                "nothing intercepts CUDA",
                name,
                evidence=seen(f"/proc/{server.pid}/maps", f"{len(mapped)} libraries"),
            )
