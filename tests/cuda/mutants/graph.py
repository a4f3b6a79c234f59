"""Mutants of decode steps as graphs, of where a step's numbers lie, and of grids that begin early; tests/cuda_mutate.py says
what the names mean."""
UNITS = ["graph", "step", "attention/workspace", "backend_compute", "attention/rope", "rows/rows", "gemm/embed", "gemm/skinny",
         "sampling/passage"]
PROGRAMS = ["graph", "engine_graphs", "launches"]

MUTANTS = [
    # which graph a step runs as, and when it is made
    ("graph.cu", "step->R != M || step->n_copies > 0", "step->R != M"),
    ("graph.cu", "step->R != M || step->n_copies > 0", "step->n_copies > 0"),
    ("graph.cu", "if (M > graphs->max_rows ||", "if ("),
    ("graph.cu", "rows / 2 >= M) rows /= 2;", "rows / 2 > M) rows /= 2;"),
    ("graph.cu", "return rows < graphs->max_rows ? rows : graphs->max_rows;", "return rows;"),
    ("graph.cu", "if (a->items[i] != b->items[i]) return false;", ""),
    ("graph.cu", "return a->rows == b->rows && a->sampled", "return a->sampled"),
    ("graph.cu", "graphs->all[i].used < place->used", "graphs->all[i].used > place->used"),
    ("graph.cu", "        drop(place);\n", ""),
    ("graph.cu", "    graph->used = ++graphs->runs;\n", "    graph->used = graphs->runs++ ? graph->used : 1;\n"),
    ("graph.cu", "if (known && !graph->exec && !graph->step && !graphs->failed)", "if (!graph->exec && !graph->step && !graphs->failed)"),
    ("graph.cu", "if (known && !graph->exec && !graph->step && !graphs->failed)", "if (known && !graph->exec && !graph->step)"),
    ("graph.cu", "if (known && !graph->exec && !graph->step && !graphs->failed)", "if (known && !graphs->failed)"),
    ("graph.cu", "if (error != cudaErrorMemoryAllocation) {", "if (true) {"),
    ("graph.cu", "    graph->exec = nullptr;\n    return false;", "    return false;"),
    ("graph.cu", "for (int i = 0; i < graphs->n; i++) drop(&graphs->all[i]);\n    graphs->n = 0;", "for (int i = 0; i < graphs->n; i++) drop(&graphs->all[i]);"),
    ("backend_compute.cu", "const int rows = graphs_rows(&cuda->graphs, step);", "const int rows = graphs_rows(&cuda->graphs, step) > 0 ? step->M : 0;"),
    ("backend_compute.cu", "padded.M = padded.R = rows;", "padded.M = padded.R = step->M;"),
    ("backend_compute.cu", "    cuda->laid_out = false;\n    b->", "    b->"),
    ("backend_compute.cu", "    if (cuda->laid_out) return;\n", ""),
    ("backend_compute.cu", "key.items[w] = cuda->attention.plan[w].n_items;", "key.items[w] = 0;"),
    # what a warm-up records
    ("graph.cu", "if (before >= graphs->max_rows) return 0;", "if (before > graphs->max_rows) return 0;"),
    ("graph.cu", "const int rows = i < N_FINE ? 1 << i :", "const int rows = i <= N_FINE ? 1 << i :"),
    ("backend_compute.cu", "if (n == 0 || i >= cuda->graphs.max_graphs) return false;", "if (n == 0) return false;"),
    ("backend_compute.cu", "context / 2 < longest);", "false);"),
    ("backend_compute.cu", "(int64_t)SPAN << doublings;", "(int64_t)SPAN;"),
    # where a step's numbers lie
    ("step.cu", "at->slot[kind] = put(to, blocks.slot, (size_t)step->M, room, -1);", "at->slot[kind] = put(to, blocks.slot, (size_t)step->M, room, 0);"),
    ("step.cu", "at->position = put(to, step->position, M, M + more, -1);", "at->position = put(to, step->position, M, M + more, 0);"),
    ("step.cu", "at->token = put(to, step->token, M, M + more, 0);", "at->token = put(to, step->token, M, M + more, -9);"),
    ("step.cu", "at->token = put(to, step->token, M, M + more, 0);", "at->token = put(to, step->token, M, M, 0);"),
    ("step.cu", "    put_items(to, step, rows, stride, work);\n    at->table = on_device(to, to->host + to->used);\n",
     "    at->table = on_device(to, to->host + to->used);\n    reserve(to, (size_t)step->S * (size_t)stride);\n"
     "    put_items(to, step, rows, stride, work);\n    to->used -= (size_t)step->S * (size_t)stride;\n"),
    ("step.cu", "items[i].sequence = first + items[i].sequence * stride;", "items[i].sequence = first + items[i].sequence;"),
    ("step.cu", "at[m] = first + s * stride;", "at[m] = first + s;"),
    ("step.cu", "at[i] = from++;", "at[i] = from;"),
    ("step.cu", "    memory->turn = (turn + 1) % MAX_IN_FLIGHT;\n", "", "one piece is enough, and the host waits"),
    ("step.cu", "cuda_check(cudaEventSynchronize(memory->copied[turn]), \"waiting for a step's copy\");", ";",
     "who submits has waited for the step that had the piece before: what the wait would find is the caller's mistake"),
    ("attention/workspace.cu", "    for (int i = plan->n_items; i < room; i++) items[i] = {};\n", ""),
    ("attention/workspace.cu", "    plan->n_items = room;\n", ""),
    ("attention/workspace.cu", "while (room < plan->n_items && room < work->max_items) room *= 2;",
     "while (room < plan->n_items && room < work->max_items) room++;"),
    ("attention/workspace.cu", "    if (room > work->max_items) room = work->max_items;\n", ""),
    ("attention/workspace.cu", "args.table_stride = 1;", "args.table_stride = 2;"),
    # the settings that travel with it
    ("step.cu", "    put_settings(to, step, &work->limits);\n", "    (void)put_settings;\n"),
    ("step.cu", "if (bytes > settings_room(most)) return;", "if (bytes > SIZE_MAX - settings_room(most)) return;"),
    ("step.cu", "if (bytes > settings_room(most)) return;", "if (bytes + settings_room(most) > 0) return;"),
    ("step.cu", "+ items + settings;", "+ items + settings / 64;"),
    ("step.cu", "(uint8_t *)on_device(to, at)};", "(uint8_t *)on_device(to, at) + 16};"),
    # padding rows
    ("attention/heads.cuh", "    if (a.slot[m] < 0) return; /* padding */\n", ""),
    # grids that begin early
    ("rows/rows.cu", "gather_kernel(const gather_args<T> a) {\n    grid_begin();\n",
     "gather_kernel(const gather_args<T> a) {\n    grid_let_next();\n"),
    ("attention/rope.cu", "prepare_kernel(const heads_args<T> a) {\n    grid_begin();\n", "prepare_kernel(const heads_args<T> a) {\n"),
    ("gemm/skinny.cuh", "    grid_wait(); /* for the previous grid, which writes x */\n", ""),
    # settings that follow by themselves
    ("sampling/passage.cu", "cudaMemcpyHostToDevice,\n                               passages->copies)", "cudaMemcpyHostToDevice,\n                               stream)"),
]
