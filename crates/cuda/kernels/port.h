// What the kernels need of the machine they run on. Two machines are known: a CUDA device, through clang and without
// the CUDA toolkit's headers, and the host, where a test calls each kernel once per thread of the grid.
#pragma once

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef __CUDA__

#define KERNEL extern "C" __attribute__((global)) void
#define HERE static inline __attribute__((device))

HERE u64 thread_number()
{
    return (u64)__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
}

#else

#define KERNEL extern "C" void
#define HERE static inline

static thread_local u64 host_thread_number;

// The calling thread is this one of the grid, from now on.
extern "C" void set_thread_number(u64 number)
{
    host_thread_number = number;
}

HERE u64 thread_number()
{
    return host_thread_number;
}

#endif

// ORs bits into a word that other threads change at the same time. Nothing is ordered by it: what one kernel wrote is
// read by the next one on the stream.
HERE void atomic_or(u64 *word, u64 bits)
{
    __atomic_fetch_or(word, bits, __ATOMIC_RELAXED);
}
