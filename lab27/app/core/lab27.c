#include "lab27_internal.h"

#include <stdio.h>
#include <string.h>

const lab27_phase lab27_phases[LAB27_PHASES] = {
    {"baseline", 20, 30, 0, 0}, {"normal", 40, 60, 0, 0}, {"tail", 40, 60, 80, 12}, {"recovery", 40, 60, 0, 0}};

enum { MAX_PENDING = 16, NAME_SIZE = 256, PATH_SIZE = 384, BRACKET_TRIES = 8 };

size_t lab27_core_size(void) { return sizeof(lab27_core); }

lab27_core *lab27_init(void *memory, const lab27_platform *platform, const lab27_app *app)
{
    lab27_core *core = memory;
    memset(core, 0, sizeof *core);
    core->platform = *platform;
    core->app = *app;
    core->reason = core->refusal = "";
    return core;
}

/* Time */

uint64_t lab27_ns_from_ticks(const lab27_core *core, uint64_t ticks)
{
    uint64_t numer = core->app.timebase_numer, denom = core->app.timebase_denom;
    return ticks / denom * numer + ticks % denom * numer / denom;
}

uint64_t lab27_ticks_from_ns(const lab27_core *core, uint64_t ns)
{
    uint64_t numer = core->app.timebase_numer, denom = core->app.timebase_denom;
    return ns / numer * denom + ns % numer * denom / numer;
}

int64_t lab27_ns_from_seconds(double seconds)
{
    return seconds > 0 && seconds < 9.2e9 ? (int64_t)(seconds * 1e9 + 0.5) : 0;
}

static uint64_t absolute(const lab27_core *core) { return core->platform.mach_absolute(core->platform.context); }

/* The narrowest of a few tries: one that was interrupted says less about the offset. */
static lab27_bracket take_bracket(const lab27_core *core)
{
    const lab27_platform *p = &core->platform;
    lab27_bracket best = {0};
    for (int i = 0; i < BRACKET_TRIES; i++) {
        lab27_bracket b = {.before = absolute(core)};
        double media = p->media_seconds(p->context);
        b.continuous = p->mach_continuous(p->context);
        b.after = absolute(core);
        b.media_ns = lab27_ns_from_seconds(media);
        if (i == 0 || b.after - b.before < best.after - best.before) best = b;
    }
    return best;
}

uint64_t lab27_phase_length_ns(const lab27_core *core, uint32_t phase)
{
    return (uint64_t)lab27_phases[phase].seconds * core->request.duration_permille * 1000000;
}

uint64_t lab27_phase_start_ns(const lab27_core *core, uint32_t phase)
{
    uint64_t start = 0;
    while (phase > 0) start += lab27_phase_length_ns(core, --phase);
    return start;
}

/* Recording */

static void fault(lab27_core *core, const char *reason)
{
    if (core->fault == NULL) core->fault = reason;
}

/* The last events of a run have their place in LAB27_SEAL_RESERVE and in the table, whatever came before. */
enum { LAST_EVENTS = 8 };

static void record_event(lab27_core *core, lab27_event_kind kind, uint64_t mach, const char *word, int64_t number)
{
    lab27_event event = {.mach = mach, .word = word, .number = number, .kind = kind};
    if (kind < LAB27_EVENT_STOP) {
        size_t length = lab27_event_length(&event);
        if (core->event_count >= LAB27_MAX_EVENTS - LAST_EVENTS) {
            fault(core, "events-bound");
            return;
        }
        if (core->bundle_bytes + length > LAB27_MAX_BUNDLE_BYTES) {
            fault(core, "bundle-bound");
            return;
        }
        core->bundle_bytes += length;
    }
    core->events[core->event_count++] = event;
}

void lab27_presented(lab27_core *core, uint32_t n, uint64_t drawable_id, uint64_t surface_id, int64_t presented_ns)
{
    uint64_t begin = absolute(core);
    if (!atomic_load_explicit(&core->accepting, memory_order_acquire)) return;
    uint32_t slot = atomic_fetch_add_explicit(&core->claimed, 1, memory_order_relaxed);
    if (slot >= LAB27_MAX_PRESENTED) return;
    lab27_report *report = &core->reports[slot];
    report->callback_mach = begin;
    report->drawable_id = drawable_id;
    report->surface_id = surface_id;
    report->presented_ns = presented_ns;
    report->n = n;
    report->waiting = slot + 1 - atomic_load_explicit(&core->collected, memory_order_relaxed);
    report->cost_ticks = (uint32_t)(absolute(core) - begin);
    atomic_store_explicit(&report->ready, true, memory_order_release);
}

static void take_report(lab27_core *core, uint32_t slot)
{
    const lab27_report *report = &core->reports[slot];
    uint64_t limit = lab27_ticks_from_ns(core, LAB27_MAX_DRAIN_NS);
    if (core->state == LAB27_DRAINING && report->callback_mach > core->stop_mach + limit) return; /* too late: stays outstanding */
    if (report->waiting > core->queue_peak) core->queue_peak = report->waiting;
    if (report->waiting > LAB27_MAX_QUEUE) fault(core, "queue-bound");
    if (report->n == 0 || report->n > core->submitted || core->report_of[report->n - 1] != 0) {
        core->stray++;
        fault(core, "stray-callback");
        return;
    }
    if (core->presented + core->dropped == 0) core->first_report = slot;
    core->report_of[report->n - 1] = (uint16_t)(slot + 1);
    if (report->presented_ns > 0) core->presented++;
    else core->dropped++;
}

/* Takes the reports at the front that are whole; finally also those behind one that a handler has begun and not finished. */
static void collect(lab27_core *core, bool finally)
{
    uint32_t claimed = atomic_load_explicit(&core->claimed, memory_order_relaxed);
    uint32_t collected = atomic_load_explicit(&core->collected, memory_order_relaxed);
    if (claimed > LAB27_MAX_PRESENTED) {
        fault(core, "presented-bound");
        claimed = LAB27_MAX_PRESENTED;
    }
    for (uint32_t slot = collected; slot < claimed; slot++) {
        bool ready = atomic_load_explicit(&core->reports[slot].ready, memory_order_acquire);
        if (!ready && !finally) break;
        if (ready) take_report(core, slot);
        if (slot == collected) collected++;
        if (!finally) atomic_store_explicit(&core->collected, collected, memory_order_relaxed);
    }
}

uint32_t lab27_outstanding(const lab27_core *core)
{
    return core->request.reference_enabled ? core->submitted - core->presented - core->dropped : 0;
}

static void sample_usage(lab27_core *core, uint64_t *cpu_ns, uint64_t *footprint)
{
    *cpu_ns = *footprint = 0;
    if (!core->platform.usage(core->platform.context, cpu_ns, footprint)) core->usage_failed = true;
    if (*footprint > core->footprint_peak) core->footprint_peak = *footprint;
}

/* Running */

static void stop(lab27_core *core, const char *reason)
{
    core->stop_mach = absolute(core);
    core->reason = reason;
    if (core->started) core->phase_end[core->phase] = core->stop_mach;
    record_event(core, LAB27_EVENT_STOP, core->stop_mach, reason, 0);
    sample_usage(core, &core->cpu_stop_ns, &core->footprint_end);
    core->workload_released = core->platform.release_workload(core->platform.context);
    core->state = LAB27_DRAINING;
}

static void enter_phase(lab27_core *core, uint32_t phase, uint64_t now)
{
    if (phase > 0) core->phase_end[phase - 1] = now;
    core->phase = phase;
    core->phase_start[phase] = now;
    record_event(core, LAB27_EVENT_PHASE, now, lab27_phases[phase].name, 0);
    core->platform.set_rate(core->platform.context, lab27_phases[phase].hz);
}

static void submit(lab27_core *core, uint64_t now, uint64_t elapsed_ns)
{
    const lab27_phase *phase = &lab27_phases[core->phase];
    bool delayed = phase->delay_every > 0 && (core->phase_requests[core->phase] + 1) % phase->delay_every == 0;
    uint64_t delay_ns = delayed ? (uint64_t)phase->delay_ms * 1000000 : 0;
    /* A delay that would run into the next phase is not begun: every delayed request then lies in its phase whole, and the phase
     * ends in time. */
    if (elapsed_ns + delay_ns > lab27_phase_start_ns(core, core->phase) + lab27_phase_length_ns(core, core->phase)) return;

    if (core->submitted == LAB27_MAX_REQUESTS) {
        stop(core, "requests-bound");
        return;
    }
    if (core->bundle_bytes + LAB27_REQUEST_ROW_MAX + LAB27_PRESENTED_ROW_MAX > LAB27_MAX_BUNDLE_BYTES) {
        stop(core, "bundle-bound");
        return;
    }
    uint32_t n = ++core->submitted;
    lab27_submission *s = &core->submissions[n - 1];
    *s = (lab27_submission){.request_mach = now, .phase = (uint8_t)core->phase, .delay_ms = delayed ? (uint8_t)phase->delay_ms : 0};
    core->phase_requests[core->phase]++;
    if (delayed) core->platform.delay_main_thread(core->platform.context, phase->delay_ms);
    if (core->platform.present(core->platform.context, n, core->phase, core->request.reference_enabled, &s->drawable_id)) {
        s->commit_mach = absolute(core);
        core->committed++;
    }
    core->bundle_bytes += lab27_request_row_length(core, n) + LAB27_PRESENTED_ROW_MAX;
    if (s->commit_mach == 0) stop(core, "no-drawable");
}

static void run(lab27_core *core)
{
    uint64_t now = absolute(core);
    if (!core->started) {
        core->started = true;
        core->start_mach = now;
        sample_usage(core, &core->cpu_start_ns, &core->footprint_start);
        core->next_usage_mach = now + lab27_ticks_from_ns(core, 1000000000);
        enter_phase(core, 0, now);
    }
    collect(core, false);
    if (core->fault) {
        stop(core, core->fault);
        return;
    }
    uint64_t elapsed_ns = lab27_ns_from_ticks(core, now - core->start_mach);
    while (elapsed_ns >= lab27_phase_start_ns(core, core->phase) + lab27_phase_length_ns(core, core->phase)) {
        if (core->phase == LAB27_PHASES - 1) {
            stop(core, "finished");
            return;
        }
        enter_phase(core, core->phase + 1, now);
    }
    if (now >= core->next_usage_mach) {
        uint64_t cpu_ns, footprint;
        core->next_usage_mach += lab27_ticks_from_ns(core, 1000000000);
        sample_usage(core, &cpu_ns, &footprint);
    }
    submit(core, now, elapsed_ns);
}

static void drain(lab27_core *core)
{
    uint64_t now = absolute(core);
    bool over = now - core->stop_mach >= lab27_ticks_from_ns(core, LAB27_MAX_DRAIN_NS);
    collect(core, over);
    uint32_t coming = core->request.reference_enabled ? core->committed - core->presented - core->dropped : 0;
    if (coming > 0 && !over) return;

    atomic_store_explicit(&core->accepting, false, memory_order_release);
    core->drained_mach = now;
    uint32_t outstanding = lab27_outstanding(core);
    if (strcmp(core->reason, "finished") == 0) {
        if (core->fault) core->reason = core->fault;
        else if (outstanding > 0) core->reason = "outstanding";
    }
    record_event(core, LAB27_EVENT_DRAIN, now, "", outstanding);
    core->bracket_after = take_bracket(core);
    record_event(core, LAB27_EVENT_SEALED, absolute(core), strcmp(core->reason, "finished") == 0 ? "complete" : "partial", 0);
    if (lab27_write_bundle(core)) {
        core->state = LAB27_SEALED;
    } else {
        core->state = LAB27_FAILED;
        core->reason = "write-failed";
    }
}

lab27_state lab27_tick(lab27_core *core)
{
    if (core->state == LAB27_RUNNING) run(core);
    else if (core->state == LAB27_DRAINING) drain(core);
    return core->state;
}

void lab27_cancel(lab27_core *core)
{
    if (core->state != LAB27_RUNNING) return;
    record_event(core, LAB27_EVENT_CANCEL, absolute(core), "", 0);
    stop(core, "cancelled");
}

void lab27_background(lab27_core *core)
{
    if (core->state != LAB27_RUNNING) return;
    record_event(core, LAB27_EVENT_BACKGROUND, absolute(core), "", 0);
    stop(core, "background");
}

void lab27_thermal(lab27_core *core, int state)
{
    if (core->state != LAB27_RUNNING) return;
    record_event(core, LAB27_EVENT_THERMAL, absolute(core), "", state);
    if (state < 0 || state > 1) stop(core, "thermal");
}

/* Admission */

typedef struct {
    char names[MAX_PENDING][NAME_SIZE];
    int count;
} pending_list;

/* Hidden files, and those that are still being copied in, are not requests yet. */
static void each_pending(void *argument, const char *name)
{
    pending_list *list = argument;
    size_t length = strlen(name);
    bool unfinished = length >= 5 && strcmp(name + length - 5, ".part") == 0;
    if (length == 0 || length >= NAME_SIZE || name[0] == '.' || unfinished || list->count == MAX_PENDING) return;
    memcpy(list->names[list->count++], name, length + 1);
}

static void path_of(char path[PATH_SIZE], const char *directory, const char *name, const char *suffix)
{
    snprintf(path, PATH_SIZE, "%s/%s%s", directory, name, suffix);
}

/* A refused request leaves pending for good, so that nothing starts by itself when the reason has passed. */
static void refuse(lab27_core *core, const char *name, const char *reason, const char *detail)
{
    char from[PATH_SIZE], to[PATH_SIZE], note[PATH_SIZE], directory[32];
    int64_t unix_ns = core->platform.wall_unix_ns(core->platform.context);
    core->refusal = reason;
    snprintf(directory, sizeof directory, "refused/%lld", (long long)unix_ns);
    snprintf(to, sizeof to, "%s-%s", directory, name);
    snprintf(note, sizeof note, "%s-%s.reason", directory, name);
    path_of(from, "pending", name, "");
    /* Where it cannot leave, it is refused again at the next look, and one note will do. */
    if (core->platform.move(core->platform.context, from, to) || core->platform.exists(core->platform.context, from) == 0)
        lab27_write_refusal(core, note, name, detail, unix_ns);
}

static const char *read_request(lab27_core *core, const char *name, const char **detail)
{
    const lab27_platform *p = &core->platform;
    char path[PATH_SIZE], text[LAB27_MAX_REQUEST_BYTES];
    path_of(path, "pending", name, "");
    int64_t length = p->read(p->context, path, text, sizeof text);
    if (length < 0) return "unreadable";
    const char *malformed = lab27_request_parse(text, (size_t)length, &core->request);
    if (malformed) {
        *detail = malformed;
        return "malformed";
    }
    if (strncmp(name, core->request.nonce, 36) != 0 || strcmp(name + 36, ".json") != 0) return "file-name-is-not-the-nonce";
    return NULL;
}

static const char *check_request(lab27_core *core)
{
    const lab27_platform *p = &core->platform;
    const lab27_request *r = &core->request;
    char path[PATH_SIZE];
    path_of(path, "consumed", r->nonce, ".json");
    if (p->exists(p->context, path) != 0) return "nonce-used";
    path_of(path, "runs", r->run_name, "");
    if (p->exists(p->context, path) != 0) return "run-name-used";
    int64_t now = p->wall_unix_ns(p->context);
    if (now >= r->expires_unix_ns) return "expired";
    /* A phone's clock may be a little behind; a request from further ahead is as wrong as one from the past. */
    if (r->issued_unix_ns - now > (int64_t)60 * 1000000000) return "not-yet-valid";
    if (strcmp(r->app_version, core->app.app_version) != 0 || strcmp(r->source_digest, core->app.source_digest) != 0) return "other-build";
    return NULL;
}

static const char *check_surroundings(const lab27_core *core)
{
    unsigned available = core->platform.available(core->platform.context);
    int thermal = core->platform.thermal_state(core->platform.context);
    if (core->state != LAB27_IDLE) return "already-ran";
    if (available & LAB27_OTHER_WORKLOAD) return "other-workload";
    if (!(available & LAB27_FOREGROUND)) return "not-foreground";
    if (thermal < 0 || thermal > 1) return "thermal";
    if (!(available & LAB27_CANVAS)) return "no-canvas";
    if (!(available & LAB27_METAL_DEVICE)) return "no-metal-device";
    if (!(available & LAB27_METAL_QUEUE)) return "no-metal-queue";
    return NULL;
}

static const char *begin(lab27_core *core, const char *name)
{
    const lab27_platform *p = &core->platform;
    char from[PATH_SIZE], to[PATH_SIZE], directory[PATH_SIZE];
    path_of(from, "pending", name, "");
    path_of(to, "consumed", name, "");
    path_of(directory, "runs", core->request.run_name, "");
    if (!p->move(p->context, from, to)) return "not-consumed";
    if (!p->make_directory(p->context, directory)) return "no-run-directory";
    if (!lab27_write_plan(core)) return "no-plan";
    core->bracket_before = take_bracket(core);
    atomic_store_explicit(&core->accepting, true, memory_order_release);
    core->state = LAB27_RUNNING;
    record_event(core, LAB27_EVENT_ADMITTED, absolute(core), "", 0);
    return NULL;
}

lab27_state lab27_poll(lab27_core *core)
{
    pending_list pending = {.count = 0};
    if (core->state == LAB27_RUNNING || core->state == LAB27_DRAINING) return core->state;
    if (!core->platform.list(core->platform.context, "pending", each_pending, &pending)) return core->state;
    if (pending.count == 0) core->refuse_all = false;
    if (pending.count > 1) core->refuse_all = true; /* until none is left: the last of many must not run either */
    if (pending.count == 0) return core->state;
    if (core->refuse_all) {
        for (int i = 0; i < pending.count; i++) refuse(core, pending.names[i], "two-pending", "");
        return core->state;
    }
    const char *name = pending.names[0], *detail = "", *reason = check_surroundings(core);
    if (!reason) reason = read_request(core, name, &detail);
    if (!reason) reason = check_request(core);
    if (!reason) reason = begin(core, name);
    if (reason) refuse(core, name, reason, detail);
    return core->state;
}

lab27_status lab27_get_status(const lab27_core *core)
{
    return (lab27_status){.state = core->state,
                          .reason = core->reason,
                          .refusal = core->refusal,
                          .run_name = core->request.run_name,
                          .phase = core->started ? lab27_phases[core->phase].name : "",
                          .submitted = core->submitted,
                          .presented = core->presented,
                          .dropped = core->dropped,
                          .bundle_bytes = core->bundle_bytes};
}
