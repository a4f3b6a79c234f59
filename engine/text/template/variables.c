/* The variables by which a client's wishes reach a template: for or against reasoning, its effort,
 * verbosity. Templates have several names for them. */
#include <assert.h>
#include <string.h>

#include "config/json.h"
#include "engine/text/template/template.h"

/* ---- the variables that a template reads ---------------------------------------------------- */

/* The first use of a name, in the order in which the template runs. */
enum use { USE_NONE, USE_READ, USE_SET };

static enum use first_use(const struct template_node *list, const char *name);

/* Does the target of a set, for or with bind the name? */
static bool binds(const struct template_node *target, const char *name) {
    if (target->kind == NODE_NAME) return string_is(target->name, name);
    if (target->kind != NODE_TUPLE) return false;
    for (const struct template_node *item = target->a; item; item = item->next)
        if (binds(item, name)) return true;
    return false;
}

static enum use first_of(const struct template_node *const *parts, int n, const char *name) {
    for (int i = 0; i < n; i++) {
        enum use use = first_use(parts[i], name);
        if (use != USE_NONE) return use;
    }
    return USE_NONE;
}

/* A value is read before its target is set. */
static enum use use_of_set(const struct template_node *node, const char *name) {
    const struct template_node *const value[] = {node->b, node->c};
    enum use use = first_of(value, 2, name);
    return use == USE_NONE && binds(node->a, name) ? USE_SET : use;
}

static enum use use_of_for(const struct template_node *node, const char *name) {
    const struct template_node *const rest[] = {node->e, node->c, node->d};
    enum use use = first_use(node->b, name);
    if (use != USE_NONE) return use;
    return binds(node->a, name) ? USE_SET : first_of(rest, 3, name);
}

static enum use use_of_with(const struct template_node *node, const char *name) {
    for (const struct template_node *at = node->a; at; at = at->next->next) {
        struct template_node value = *at->next; /* without the pairs after it */
        value.next = NULL;
        enum use use = first_use(&value, name);
        if (use != USE_NONE) return use;
        if (binds(at, name)) return USE_SET;
    }
    return first_use(node->c, name);
}

static enum use use_of(const struct template_node *node, const char *name) {
    const struct template_node *const parts[] = {node->a, node->b, node->c, node->d, node->e};
    switch (node->kind) {
    case NODE_NAME:
        return string_is(node->name, name) ? USE_READ : USE_NONE;
    case NODE_SET:
    case NODE_SET_BLOCK:
        return use_of_set(node, name);
    case NODE_FOR:
        return use_of_for(node, name);
    case NODE_WITH:
        return use_of_with(node, name);
    case NODE_PARAMETER:
        if (string_is(node->name, name)) return USE_SET;
        break;
    default:
        break;
    }
    return first_of(parts, 5, name);
}

static enum use first_use(const struct template_node *list, const char *name) {
    for (; list; list = list->next) {
        enum use use = use_of(list, name);
        if (use != USE_NONE) return use;
    }
    return USE_NONE;
}

/* Does a template read a variable before it sets it? Then the value is the caller's. */
static bool reads(const struct template_node *body, const char *name) {
    return first_use(body, name) == USE_READ;
}

/* ---- wishes --------------------------------------------------------------------------------- */

/* Switches of reasoning. Their values are booleans, or the words that the template compares. */
static const struct {
    const char *name, *on, *off;
} switches[] = {
    {"enable_thinking", NULL, NULL},          /* Qwen3, GLM 4.5, SmolLM3, Gemma 4 and others */
    {"thinking", NULL, NULL},                 /* DeepSeek V3.1, Granite 3, Kimi K2.5 and K3 */
    {"thinking_mode", "enabled", "disabled"}, /* MiniMax M3 */
    {"thinking_mode", "thinking", "chat"},    /* DeepSeek V4 */
};

static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
enum { N_SWITCHES = sizeof switches / sizeof *switches };
enum { N_EFFORTS = sizeof efforts / sizeof *efforts };
static_assert(N_SWITCHES <= TEMPLATE_SWITCHES_MAX, "template.h has room for each switch");

void template_find_wishes(struct template_wishes *wishes, const struct chat_template *from,
                          const struct template_node *body) {
    *wishes = (struct template_wishes){
        .reasoning_effort = reads(body, "reasoning_effort"),
        .thinking_effort = reads(body, "thinking_effort"), /* Kimi K3 */
        .thinking_budget = reads(body, "thinking_budget"), /* Seed OSS */
        .verbosity = reads(body, "verbosity"),
    };
    for (int i = 0; i < N_SWITCHES; i++) {
        const char *on = switches[i].on, *off = switches[i].off;
        wishes->switches[i] = reads(body, switches[i].name);
        if (on) wishes->switches[i] &= chat_template_names(from, on);
        if (off) wishes->switches[i] &= chat_template_names(from, off);
    }
}

struct chat_wishes template_known_wishes(const struct template_wishes *wishes) {
    struct chat_wishes known = {.effort = wishes->reasoning_effort || wishes->thinking_effort,
                                .thinking = wishes->thinking_budget,
                                .verbosity = wishes->verbosity};
    for (int i = 0; i < N_SWITCHES; i++) known.thinking |= wishes->switches[i];
    return known;
}

/* chat_template_kwargs decide before the client's fields. A template without an effort follows the
 * effort by its switch. */
static enum thinking wished_thinking(const struct template_wishes *wishes,
                                     const struct chat_input *input) {
    const struct json *own = json_member(input->extra, "enable_thinking");
    const char *effort = input->reasoning_effort;
    if (json_is(own, JSON_BOOL)) return json_true(own) ? THINKING_ON : THINKING_OFF;
    if (input->thinking != THINKING_UNSET || !effort) return input->thinking;
    if (strcmp(effort, "none") == 0) return THINKING_OFF;
    return template_known_wishes(wishes).effort ? THINKING_UNSET : THINKING_ON;
}

static void set_switches(struct render *r, const struct template_wishes *wishes, bool on) {
    for (int i = 0; i < N_SWITCHES; i++) {
        const char *word = on ? switches[i].on : switches[i].off;
        if (word && !wishes->switches[i]) continue;
        render_set(r, switches[i].name, word ? string_of(r, word) : VALUE_OF_BOOL(on));
    }
    if (!on) render_set(r, "thinking_budget", VALUE_OF_INT(0));
}

/* Kimi K3 raises an error for other efforts than these four. */
static const char *thinking_effort(const char *effort) {
    if (strcmp(effort, "minimal") == 0) return "low";
    return strcmp(effort, "xhigh") == 0 ? "max" : effort;
}

void template_set_wishes(struct render *r, const struct template_wishes *wishes,
                         const struct chat_input *input) {
    const char *effort = input->reasoning_effort;
    enum thinking thinking = wished_thinking(wishes, input);
    if (thinking != THINKING_UNSET) set_switches(r, wishes, thinking == THINKING_ON);
    if (input->verbosity) render_set(r, "verbosity", string_of(r, input->verbosity));
    if (!effort) return;
    render_set(r, "reasoning_effort", string_of(r, effort));
    if (strcmp(effort, "none") != 0)
        render_set(r, "thinking_effort", string_of(r, thinking_effort(effort)));
}

static int place_of(const char *effort) {
    for (int i = 0; i < N_EFFORTS; i++)
        if (strcmp(efforts[i], effort) == 0) return i;
    return 0;
}

const char *chat_template_other_effort(const struct chat_template *from, const char *effort) {
    const int place = place_of(effort);
    for (int away = 1; away < N_EFFORTS; away++) {
        int above = place + away, below = place - away;
        if (above < N_EFFORTS && chat_template_names(from, efforts[above])) return efforts[above];
        if (below > 0 && chat_template_names(from, efforts[below])) return efforts[below];
    }
    return NULL;
}
