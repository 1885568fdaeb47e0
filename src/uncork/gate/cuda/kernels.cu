// Kernels of the CUDA fabric. kernels.ptx beside this file is made from it by scripts/make-ptx and is what runs.

typedef unsigned int u32;
typedef unsigned long long u64;

// Word i of the pattern that (k0, k1) names; the same words as in hostmem/kernel.c.
static __device__ u32 word(u32 i, u32 k0, u32 k1)
{
	u32 x = (i ^ k0) * 0x9E3779B1u + k1;
	x ^= x >> 16;
	x *= 0x85EBCA6Bu;
	x ^= x >> 13;
	x *= 0xC2B2AE35u;
	return x ^ x >> 16;
}

static __device__ u64 now_ns()
{
	u64 t;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

extern "C" __global__ void uk_fill(u32 *p, u64 words, u32 k0, u32 k1)
{
	u64 step = (u64)gridDim.x * blockDim.x;
	for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step)
		p[i] = word((u32)i, k0, k1);
}

// out[0] counts words that differ, out[1] is the lowest index of one (start it at ~0).
extern "C" __global__ void uk_check(const u32 *p, u64 words, u32 k0, u32 k1, u64 *out)
{
	u64 step = (u64)gridDim.x * blockDim.x;
	for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step)
		if (p[i] != word((u32)i, k0, k1)) {
			atomicAdd(&out[0], 1ull);
			atomicMin(&out[1], i);
		}
}

// out[0] counts words that are not `value`: the guards around a destination.
extern "C" __global__ void uk_differ(const u32 *p, u64 words, u32 value, u64 *out)
{
	u64 step = (u64)gridDim.x * blockDim.x;
	for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step)
		if (p[i] != value)
			atomicAdd(&out[0], 1ull);
}

// Copy with loads and stores: 16 bytes a thread where both ends allow it, else 4.
extern "C" __global__ void uk_copy(u32 *dst, const u32 *src, u64 words)
{
	u64 step = (u64)gridDim.x * blockDim.x, at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
	u64 wide = (((u64)dst | (u64)src) & 15) ? 0 : words / 4;
	for (u64 i = at; i < wide; i += step)
		((uint4 *)dst)[i] = ((const uint4 *)src)[i];
	for (u64 i = wide * 4 + at; i < words; i += step)
		dst[i] = src[i];
}

// One side of a ping-pong, one warp. Each round: 32 words of payload to the peer, then the flag (after a system
// fence); the peer sees the flag and must see the payload. `mine` and `my_payload` lie in the peer's memory, so
// that both sides poll their own. out: rounds done, stale words, nanoseconds from the end of round 1.
extern "C" __global__ void uk_flag(volatile u64 *mine, volatile u64 *theirs, volatile u32 *my_payload,
				   volatile u32 *their_payload, u64 rounds, u32 first, u64 limit_ns, u64 *out)
{
	u32 lane = threadIdx.x;
	u64 start = now_ns(), begun = start, stale = 0, round = 1;
	for (; round <= rounds; round++) {
		u32 salt = (u32)round * 31u;
		if (first) {
			my_payload[lane] = salt + lane;
			__threadfence_system();
			__syncwarp();
			if (lane == 0)
				*mine = round;
		}
		u32 late = 0;
		if (lane == 0)
			while (*theirs < round)
				if (now_ns() - start > limit_ns) {
					late = 1;
					break;
				}
		late = __shfl_sync(0xFFFFFFFFu, late, 0);
		if (late)
			break;
		__threadfence_system();
		stale += their_payload[lane] != salt + lane;
		__syncwarp();
		if (!first) {
			my_payload[lane] = salt + lane;
			__threadfence_system();
			__syncwarp();
			if (lane == 0)
				*mine = round;
		}
		if (round == 1)
			begun = now_ns();
	}
	atomicAdd(&out[1], stale);
	if (lane == 0) {
		out[0] = round - 1;
		out[2] = now_ns() - begun;
	}
}
