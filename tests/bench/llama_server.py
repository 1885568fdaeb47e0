"""A real llama.cpp server from the xllamacpp wheel: `python llama_server.py MODEL SLOTS`; prints its address."""

import signal
import sys

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_parallel = int(sys.argv[2])
params.n_ctx = 512 * params.n_parallel
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.n_threads_http = params.n_parallel + 4
params.use_jinja, params.endpoint_metrics = True, True
params.warmup, params.offline = False, True
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
signal.sigwait({signal.SIGTERM})
