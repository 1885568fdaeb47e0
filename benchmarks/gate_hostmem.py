"""The host-memory fabric against a C program of its own: non-temporal copy and STREAM's kernels, in the same run.

    .venv/bin/python benchmarks/gate_hostmem.py [rounds]

Both sides alternate in each round, so that a busy machine slows both; the ratio of their second-best results is
printed. The reference is the text below, compiled by this script; it shares no code with the fabric's kernel.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from uncork.compiler import compiler
from uncork.gate.fabric import Direction, Engine, Move
from uncork.gate.hostmem import HostMemory
from uncork.gate.hostmem.fabric import second_best

REFERENCE = r"""
#include <immintrin.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static double now(void) { return omp_get_wtime(); }
int main(int argc, char **argv)
{
	size_t n = strtoull(argv[1], 0, 10) / 8; /* doubles an array */
	double *a, *b;
	if (argc < 2 || posix_memalign((void **)&a, 4096, n * 8) || posix_memalign((void **)&b, 4096, n * 8))
		return 1;
#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < n; i++)
		a[i] = 1, b[i] = 2;
	char line[64];
	while (fgets(line, sizeof line, stdin)) {
		double t = now(), sum = 0;
		if (line[0] == 'n') {
#pragma omp parallel for schedule(static)
			for (size_t i = 0; i < n; i += 8)
#ifdef __AVX512F__
				_mm512_stream_pd(b + i, _mm512_load_pd(a + i));
#else
				for (size_t j = i; j < i + 8; j += 2)
					_mm_stream_pd(b + j, _mm_load_pd(a + j));
#endif
		} else if (line[0] == 'c') {
#pragma omp parallel for schedule(static)
			for (size_t i = 0; i < n; i++)
				b[i] = a[i];
		} else {
#pragma omp parallel for schedule(static) reduction(+ : sum)
			for (size_t i = 0; i < n; i++)
				sum += a[i];
		}
		t = now() - t;
		printf("%.9f %g\n", t, sum);
		fflush(stdout);
	}
}
"""


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    cc = compiler()
    if cc is None:
        sys.exit("no C compiler: nothing to compare with")
    with tempfile.TemporaryDirectory() as folder, HostMemory() as host:
        source, program = Path(folder, "stream.c"), str(Path(folder, "stream"))
        source.write_text(REFERENCE, encoding="utf-8")
        subprocess.run(
            [cc, "-O3", "-march=native", "-ffast-math", "-fopenmp", str(source), "-o", program], check=True
        )
        size = host.bandwidth_bytes // 64 * 64
        reference = subprocess.Popen(
            [program, str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert reference.stdin and reference.stdout

        def theirs(kind: str) -> float:
            assert reference.stdin and reference.stdout
            reference.stdin.write(kind + "\n")
            return size / float(reference.stdout.readline().split()[0]) / 1e9

        def ours() -> float:
            (moved,) = host.move([Move(0, 0, Engine.COPY, Direction.PUSH, size)], deadline_s=60)
            return size / moved.seconds / 1e9

        def our_read() -> float:
            reply = host.ranks.call({0: {"op": "read", "size": size, "loops": 1}}, deadline_s=60)[0]
            return size / float(reply.value["seconds"]) / 1e9

        results: dict[str, list[float]] = {"fabric copy": [], "non-temporal copy": [], "STREAM copy": []}
        results |= {"fabric read": [], "compiled read": []}
        for _ in range(rounds):
            results["fabric copy"].append(ours())
            results["non-temporal copy"].append(theirs("nt"))
            results["STREAM copy"].append(theirs("copy"))
            results["fabric read"].append(our_read())
            results["compiled read"].append(theirs("read"))
        reference.stdin.close()
        reference.wait()
        print(
            f"{size / 1e6:.0f} MB, {rounds} alternating rounds, second best; GB/s of payload (copies move it twice)"
        )
        best = {name: second_best(samples) or 0.0 for name, samples in results.items()}
        for name, value in best.items():
            print(f"  {name:<20}{value:8.2f}")
        print(f"fabric copy / non-temporal copy  {best['fabric copy'] / best['non-temporal copy']:.3f}")
        print(f"fabric read / compiled read      {best['fabric read'] / best['compiled read']:.3f}")


if __name__ == "__main__":
    main()
