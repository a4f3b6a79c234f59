/* The bounds that a template is read and run under. */
#include <stdarg.h>
#include <stdio.h>

#include "engine/text/template.h"

_Noreturn void guard_fail(struct guard *guard, const char *format, ...) {
    char cause[512]; /* as long as err->message, so that a cut is made there, between characters */
    va_list list;
    va_start(list, format);
    vsnprintf(cause, sizeof cause, format, list);
    va_end(list);
    err_set(guard->err, guard->status, "chat_template", "chat template, line %d: %s", guard->line,
            cause);
    longjmp(guard->escape, 1);
}

void *guard_alloc(struct guard *guard, size_t bytes) {
    void *memory = arena_alloc(guard->arena, bytes);
    if (!memory) guard_fail(guard, "the template needs more memory than it may have");
    return memory;
}

void *guard_array(struct guard *guard, size_t n, size_t bytes) {
    if (n > SIZE_MAX / bytes) guard_fail(guard, "the template needs more memory than it may have");
    return guard_alloc(guard, n * bytes);
}

void guard_charge(struct guard *guard, size_t steps) {
    guard->steps += steps;
    if (guard->steps > TEMPLATE_STEPS_MAX) guard_fail(guard, "the template takes too many steps");
}

void guard_enter(struct guard *guard) {
    if (++guard->depth > TEMPLATE_DEPTH_MAX) guard_fail(guard, "the template is nested too deeply");
}

void guard_leave(struct guard *guard) {
    guard->depth--;
}
