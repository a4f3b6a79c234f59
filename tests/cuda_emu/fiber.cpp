/* Switches between stacks. Registers that the callee must save in the calling convention of x86-64
 * (System V) are pushed on the old stack. The compiler has saved the others around the call. */
#include "internal.h"

#ifndef __x86_64__
#error "the emulation switches stacks on x86-64 only"
#endif

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" void emu_switch_stack(void **save, void *load);
asm(R"(
.text
.globl emu_switch_stack
.type emu_switch_stack, @function
emu_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emu_switch_stack, . - emu_switch_stack
)");

namespace emu {

enum { SAVED_REGISTERS = 6 };

/* The entry's address is above the saved registers, for `ret`. A null return address is above it,
 * so that the stack is aligned as after a call. */
void fiber_prepare(fiber *f, char *stack, void (*entry)()) {
    f->stack = stack;
    f->stack_bytes = STACK_BYTES;
    f->fake_stack = nullptr;
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(stack, STACK_BYTES);
#endif
    /* Stack ends at equal distances would share the same few sets of the caches. */
    size_t apart = (uintptr_t)stack / STACK_BYTES % WARP * (4096 + 128);
    void **top = reinterpret_cast<void **>(stack + STACK_BYTES - apart) - 3;
    *top = nullptr;
    *--top = reinterpret_cast<void *>(entry);
    for (int i = 0; i < SAVED_REGISTERS; i++) *--top = nullptr;
    f->saved = top;
}

#ifdef __SANITIZE_ADDRESS__
static fiber *previous; /* after the switch the sanitizer reports this fiber's stack */

static void finish_switch(void *fake_stack) {
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &size);
    if (previous->stack) return;
    previous->stack = static_cast<char *>(const_cast<void *>(bottom)); /* the host thread's stack */
    previous->stack_bytes = size;
}

void fiber_switch(fiber *from, fiber *to, bool ends) {
    previous = from;
    __sanitizer_start_switch_fiber(ends ? nullptr : &from->fake_stack, to->stack, to->stack_bytes);
    emu_switch_stack(&from->saved, to->saved);
    finish_switch(from->fake_stack);
}

void fiber_started() {
    finish_switch(nullptr);
}
#else
void fiber_switch(fiber *from, fiber *to, bool) {
    emu_switch_stack(&from->saved, to->saved);
}

void fiber_started() {}
#endif

} // namespace emu
