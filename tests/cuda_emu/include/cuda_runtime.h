/* The emulation's <cuda_runtime.h>: CUDA C++ for a plain C++ compiler. The keywords become
 * attributes or nothing. The headers included here define the built-in functions. A launch copies
 * its parameters and calls the emulation.
 *
 * A __shared__ variable is a static one, because one block runs at a time. Its mangled name
 * contains the tag "shared", by which the emulation finds it: to fill it with rubbish before each
 * block, and to know its bounds. The array before it keeps variables apart.
 */
#ifndef CUDA_EMU_RUNTIME_H
#define CUDA_EMU_RUNTIME_H

#define CUDA_EMULATED 1

#define EMU_JOIN2(a, b) a##b
#define EMU_JOIN(a, b) EMU_JOIN2(a, b)
#define __shared__                                                                                 \
    static __attribute__((abi_tag("guard"), used)) unsigned char EMU_JOIN(emu_guard_,              \
                                                                          __COUNTER__)[64];        \
    static __attribute__((abi_tag("shared"), used))
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __grid_constant__

#include <tuple>
#include <utility>

#include "emu.h"

#include "emu_threads.h"

#include "emu_atomics.h"

#include "emu_math.h"

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...),
                               A &&...args) {
    struct frozen {
        void (*kernel)(P...);
        std::tuple<P...> parameters;
        static void call(void *self) {
            auto *f = static_cast<frozen *>(self);
            std::apply(f->kernel, f->parameters);
        }
    };
    auto parameters =
        std::shared_ptr<frozen>(new frozen{kernel, std::tuple<P...>(std::forward<A>(args)...)});
    return emu::launch(*config, reinterpret_cast<const void *>(kernel),
                       {parameters, sizeof(frozen), frozen::call});
}

template <class... P>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, void (*)(P...)) {
    return emu::get_attributes(attributes);
}

template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value) {
    return emu::set_attribute(reinterpret_cast<const void *>(kernel), attribute, value);
}

#endif
