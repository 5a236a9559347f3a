// What the kernels need from the machine they run on. Two machines are supported: a CUDA device, through clang and
// without the headers of the CUDA toolkit, and the host, where a test calls each kernel once for each thread of the grid.
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

// From now on the calling thread stands for this thread of the grid.
extern "C" void set_thread_number(u64 number)
{
    host_thread_number = number;
}

HERE u64 thread_number()
{
    return host_thread_number;
}

#endif

// ORs bits into a word that other threads change at the same time. The operation orders nothing: only the next kernel of
// the stream reads what this one wrote.
HERE void atomic_or(u64 *word, u64 bits)
{
    __atomic_fetch_or(word, bits, __ATOMIC_RELAXED);
}
