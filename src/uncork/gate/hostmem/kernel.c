/* The compiled half of the host-memory fabric: copies, reads, pointer chase, flags, keyed patterns.
 *
 * Built at first use by `uncork.gate.hostmem.kernel` with the machine's own compiler; every figure is timed here,
 * between barriers of the working threads.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void pin(int cpu)
{
	cpu_set_t set;
	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
}

static inline void relax(void)
{
#if defined(__x86_64__)
	_mm_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Which store the copy uses; the caller reports it beside the figure. */
const char *uk_copy_name(void)
{
#if defined(__AVX512F__)
	return "non-temporal AVX-512 copy";
#elif defined(__AVX2__)
	return "non-temporal AVX2 copy";
#elif defined(__x86_64__)
	return "non-temporal SSE2 copy";
#else
	return "memcpy";
#endif
}

static void copy_nt(char *dst, const char *src, size_t n)
{
	/* Both ends are 64-byte aligned here: buffers are page-aligned and cut at 64 bytes. */
	size_t i = 0;
#if defined(__AVX512F__)
	for (; i + 256 <= n; i += 256) {
		__m512i a = _mm512_load_si512(src + i), b = _mm512_load_si512(src + i + 64);
		__m512i c = _mm512_load_si512(src + i + 128), d = _mm512_load_si512(src + i + 192);
		_mm512_stream_si512((void *)(dst + i), a);
		_mm512_stream_si512((void *)(dst + i + 64), b);
		_mm512_stream_si512((void *)(dst + i + 128), c);
		_mm512_stream_si512((void *)(dst + i + 192), d);
	}
	_mm_sfence();
#elif defined(__AVX2__)
	for (; i + 128 <= n; i += 128) {
		__m256i a = _mm256_load_si256((const void *)(src + i)), b = _mm256_load_si256((const void *)(src + i + 32));
		__m256i c = _mm256_load_si256((const void *)(src + i + 64)), d = _mm256_load_si256((const void *)(src + i + 96));
		_mm256_stream_si256((void *)(dst + i), a);
		_mm256_stream_si256((void *)(dst + i + 32), b);
		_mm256_stream_si256((void *)(dst + i + 64), c);
		_mm256_stream_si256((void *)(dst + i + 96), d);
	}
	_mm_sfence();
#elif defined(__x86_64__)
	for (; i + 64 <= n; i += 64) {
		__m128i a = _mm_load_si128((const void *)(src + i)), b = _mm_load_si128((const void *)(src + i + 16));
		__m128i c = _mm_load_si128((const void *)(src + i + 32)), d = _mm_load_si128((const void *)(src + i + 48));
		_mm_stream_si128((void *)(dst + i), a);
		_mm_stream_si128((void *)(dst + i + 16), b);
		_mm_stream_si128((void *)(dst + i + 32), c);
		_mm_stream_si128((void *)(dst + i + 48), d);
	}
	_mm_sfence();
#endif
	if (i < n)
		memcpy(dst + i, src + i, n - i);
}

static uint64_t read_all(const uint64_t *p, size_t words)
{
	uint64_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
	size_t i = 0;
#if defined(__AVX512F__)
	__m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
	for (; i + 32 <= words; i += 32) {
		a = _mm512_or_si512(a, _mm512_loadu_si512(p + i));
		b = _mm512_or_si512(b, _mm512_loadu_si512(p + i + 8));
		c = _mm512_or_si512(c, _mm512_loadu_si512(p + i + 16));
		d = _mm512_or_si512(d, _mm512_loadu_si512(p + i + 24));
	}
	s0 = (uint64_t)_mm512_reduce_or_epi64(_mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d)));
#endif
	for (; i + 4 <= words; i += 4) {
		s0 |= p[i];
		s1 |= p[i + 1];
		s2 |= p[i + 2];
		s3 |= p[i + 3];
	}
	return s0 | s1 | s2 | s3;
}

enum { COPY, READ, PLAIN_COPY };
struct work {
	int kind, cpu, loops;
	char *dst;
	const char *src;
	size_t n;
	double start_s, end_s;
	long preempted;
	uint64_t sink;
	pthread_barrier_t *barrier;
};

static void *work(void *arg)
{
	struct work *w = arg;
	pin(w->cpu);
	pthread_barrier_wait(w->barrier);
	w->start_s = now_s();
	for (int i = 0; i < w->loops; i++) {
		if (w->kind == READ)
			w->sink |= read_all((const uint64_t *)w->src, w->n / 8);
		else if (w->kind == COPY)
			copy_nt(w->dst, w->src, w->n);
		else
			memcpy(w->dst, w->src, w->n);
		/* Without this the compiler may hoist the loop body. */
		__asm__ volatile("" ::: "memory");
	}
	w->end_s = now_s();
	/* A fresh thread's count starts at 0; switches at the barrier are voluntary. */
	struct rusage used;
	w->preempted = getrusage(RUSAGE_THREAD, &used) ? 0 : used.ru_nivcsw;
	return NULL;
}

/* Run `kind` over n bytes with one thread on each of cpus[0..threads); seconds from first start to last end, < 0 on error. */
double uk_stream(int kind, char *dst, const char *src, size_t n, const int *cpus, int threads, int loops,
		 long *preempted)
{
	struct work *w = calloc(threads, sizeof *w);
	pthread_t *t = calloc(threads, sizeof *t);
	pthread_barrier_t barrier;
	size_t each = n / threads & ~(size_t)63;
	double first = 1e300, last = 0;
	int started = 0;

	pthread_barrier_init(&barrier, NULL, threads);
	for (int i = 0; i < threads; i++) {
		size_t at = each * i, len = i == threads - 1 ? n - at : each;
		w[i] = (struct work){ .kind = kind, .cpu = cpus[i], .loops = loops, .dst = dst ? dst + at : NULL,
				     .src = src + at, .n = len, .barrier = &barrier };
		if (pthread_create(&t[i], NULL, work, &w[i]) == 0)
			started++;
		else
			_exit(71); /* threads already wait at the barrier; the coordinator reports the dead rank */
	}
	for (int i = 0; i < started; i++) {
		pthread_join(t[i], NULL);
		first = w[i].start_s < first ? w[i].start_s : first;
		last = w[i].end_s > last ? w[i].end_s : last;
		*preempted += w[i].preempted;
	}
	pthread_barrier_destroy(&barrier);
	free(t);
	free(w);
	return last - first;
}

/* Word i of the pattern that (k0, k1) names. Two keys never give shifted copies of each other, so data from the
 * wrong place or the wrong source differs in almost every word. */
static inline uint32_t word(uint32_t i, uint32_t k0, uint32_t k1)
{
	uint32_t x = (i ^ k0) * 0x9E3779B1u + k1;
	x ^= x >> 16;
	x *= 0x85EBCA6Bu;
	x ^= x >> 13;
	x *= 0xC2B2AE35u;
	return x ^ x >> 16;
}

void uk_fill(uint32_t *p, size_t words, uint32_t k0, uint32_t k1)
{
	for (size_t i = 0; i < words; i++)
		p[i] = word((uint32_t)i, k0, k1);
}

/* How many words differ from the pattern; *first is the index of the first one. */
uint64_t uk_check(const uint32_t *p, size_t words, uint32_t k0, uint32_t k1, uint64_t *first)
{
	uint64_t wrong = 0;
	for (size_t at = 0; at < words; at += 4096) {
		size_t end = at + 4096 < words ? at + 4096 : words;
		uint32_t bad = 0;
		for (size_t i = at; i < end; i++)
			bad += p[i] != word((uint32_t)i, k0, k1);
		if (bad && !wrong)
			for (size_t i = at; i < end; i++)
				if (p[i] != word((uint32_t)i, k0, k1)) {
					*first = i;
					break;
				}
		wrong += bad;
	}
	return wrong;
}

/* One cycle through all cache lines of the buffer (a power of two), each visited once in an order that no prefetcher
 * follows: a linear congruential generator of full period (Hull and Dobell: c odd, a - 1 divisible by 4). */
void uk_chase_prepare(char *p, size_t bytes)
{
	uint64_t lines = bytes / 64;
	for (uint64_t i = 0; i < lines; i++)
		*(uint64_t *)(p + i * 64) = ((i * 6364136223846793005ull + 1442695040888963407ull) & (lines - 1)) * 64;
}

/* Nanoseconds a dependent load takes. */
double uk_chase(const char *p, uint64_t steps, int cpu)
{
	uint64_t at = 0;
	pin(cpu);
	double start = now_s();
	for (uint64_t i = 0; i < steps; i++)
		at = *(const volatile uint64_t *)(p + at);
	double ns = (now_s() - start) * 1e9 / steps;
	return at == UINT64_MAX ? -1 : ns;
}

/* Two sides of a ping-pong over shared memory. Each side writes `words` of payload, then its flag (release); it
 * waits for the other's flag (acquire) and checks the other's payload. Returns rounds done; *stale counts payload
 * words that were older than their flag; *ns is the one-way time over the rounds done. */
uint64_t uk_flag(_Atomic uint64_t *mine, _Atomic uint64_t *theirs, uint64_t *my_payload, const uint64_t *their_payload,
		 int words, uint64_t rounds, int first, int cpu, double limit_s, uint64_t *stale, double *ns)
{
	pin(cpu);
	double start = now_s(), begun = 0;
	*stale = 0;
	for (uint64_t round = 1; round <= rounds; round++) {
		if (first) {
			for (int i = 0; i < words; i++)
				my_payload[i] = round * 31 + i;
			atomic_store_explicit(mine, round, memory_order_release);
		}
		for (uint32_t spins = 0; atomic_load_explicit(theirs, memory_order_acquire) < round; spins++) {
			relax();
			/* On fewer free cores than sides the peer needs this core. */
			if ((spins & 0x3ff) == 0x3ff) {
				sched_yield();
				if (now_s() - start > limit_s) {
					*ns = round > 2 ? (now_s() - begun) * 1e9 / (2.0 * (round - 2)) : 0;
					return round - 1;
				}
			}
		}
		for (int i = 0; i < words; i++)
			*stale += their_payload[i] != round * 31 + i;
		if (!first) {
			for (int i = 0; i < words; i++)
				my_payload[i] = round * 31 + i;
			atomic_store_explicit(mine, round, memory_order_release);
		}
		if (round == 1)
			begun = now_s();
	}
	*ns = rounds > 1 ? (now_s() - begun) * 1e9 / (2.0 * (rounds - 1)) : 0;
	return rounds;
}

long uk_bind(void *p, size_t bytes, int node)
{
	unsigned long mask[16] = { 0 };
	mask[node / (8 * sizeof(long))] |= 1ul << node % (8 * sizeof(long));
	/* MPOL_BIND 2, MPOL_MF_STRICT 1 | MPOL_MF_MOVE 2 (uapi/linux/mempolicy.h) */
	return syscall(SYS_mbind, p, bytes, 2, mask, sizeof mask * 8, 3);
}

struct wake {
	int cpu, pipe_in;
	_Atomic int ready;
	double *woke_s;
	int count;
};

static void *sleeper(void *arg)
{
	struct wake *w = arg;
	char byte;
	pin(w->cpu);
	for (int i = 0; i < w->count; i++) {
		atomic_store(&w->ready, i + 1);
		while (read(w->pipe_in, &byte, 1) < 0 && errno == EINTR)
			;
		w->woke_s[i] = now_s();
	}
	return NULL;
}

/* Microseconds from a write to the moment when a thread that slept for idle_us wakes on `cpu`; out[count]. */
int uk_wake(int cpu, int waker_cpu, int idle_us, int count, double *out)
{
	int ends[2];
	pthread_t t;
	double *woke = calloc(count, sizeof *woke);
	if (pipe(ends))
		return -1;
	struct wake w = { cpu, ends[0], 0, woke, count };
	if (pthread_create(&t, NULL, sleeper, &w))
		return -1;
	pin(waker_cpu);
	for (int i = 0; i < count; i++) {
		while (atomic_load(&w.ready) < i + 1)
			sched_yield();
		struct timespec pause = { idle_us / 1000000, idle_us % 1000000 * 1000L };
		nanosleep(&pause, NULL);
		out[i] = now_s();
		if (write(ends[1], "x", 1) != 1)
			return -1;
	}
	pthread_join(t, NULL);
	for (int i = 0; i < count; i++)
		out[i] = (woke[i] - out[i]) * 1e6;
	close(ends[0]);
	close(ends[1]);
	free(woke);
	return 0;
}
