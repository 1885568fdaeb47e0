"""The demo's server process: llama.cpp's own HTTP server around a small model, on loopback.

Run as `python -m uncork.loop.demo_server MODEL SLOTS CONTEXT_PER_SLOT`; it prints its address once it
listens, and ends when its standard input closes, so that it never outlives whoever started it.
"""

import os
import sys


def main() -> None:
    """Serve until standard input closes."""
    import xllamacpp

    model, slots, context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.model_alias = {"SmolLM2-135M-Instruct"}
    params.port = 0
    params.n_parallel = slots
    params.n_ctx = slots * context
    threads = len(os.sched_getaffinity(0))
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.n_threads_http = slots + 4
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.warmup = False
    params.offline = True
    server = xllamacpp.Server(params)  # stops when it is collected: the name keeps it alive
    print(server.listening_address, flush=True)
    sys.stdin.buffer.read()
    # The server's own threads do not end with the interpreter.
    os._exit(0)


if __name__ == "__main__":
    main()
