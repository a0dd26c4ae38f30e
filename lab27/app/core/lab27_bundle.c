#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lab27_internal.h"

/* A file on its way out: hashed as it is written, through a small buffer. */
typedef struct {
    lab27_core *core;
    lab27_sha256 sha256;
    char buffer[4096];
    size_t used;
    uint64_t bytes;
    bool open, ok;
} writer;

static void open_file(writer *w, lab27_core *core, const char *path)
{
    w->core = core;
    w->used = 0;
    w->bytes = 0;
    lab27_sha256_begin(&w->sha256);
    if (core->state == LAB27_RUNNING) core->writes_while_running++;
    w->ok = w->open = core->platform.create(core->platform.context, path);
}

static void flush(writer *w)
{
    if (w->used == 0) return;
    lab27_sha256_add(&w->sha256, w->buffer, w->used);
    w->bytes += w->used;
    if (w->ok) w->ok = w->core->platform.write(w->core->platform.context, w->buffer, w->used);
    w->used = 0;
}

static void put(writer *w, const char *text, size_t length)
{
    while (length > 0) {
        size_t room = sizeof w->buffer - w->used, n = length < room ? length : room;
        memcpy(w->buffer + w->used, text, n);
        w->used += n;
        text += n;
        length -= n;
        if (w->used == sizeof w->buffer) flush(w);
    }
}

/* Formats at most 511 bytes; no line of ours is longer without a quoted text. */
__attribute__((format(printf, 2, 3))) static void print(writer *w, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof line) {
        w->ok = false;
        return;
    }
    put(w, line, (size_t)length);
}

/* At most 64 bytes of it, in printable ASCII: what is longer or stranger tells no more about a device. */
static void print_quoted(writer *w, const char *text)
{
    char quoted[68] = "\"";
    size_t length = 1;
    for (; *text && length < 65; text++) quoted[length++] = *text < 0x20 || *text > 0x7e || *text == '"' || *text == '\\' ? '?' : *text;
    quoted[length++] = '"';
    put(w, quoted, length);
}

static bool close_file(writer *w, lab27_file *file)
{
    flush(w);
    bool closed = w->open && w->core->platform.close(w->core->platform.context);
    if (file) {
        file->bytes = w->bytes;
        lab27_sha256_hex(&w->sha256, file->sha256);
    }
    return w->ok && closed;
}

static const char *truth(bool b) { return b ? "true" : "false"; }

static void run_path(const lab27_core *core, char path[128], const char *file)
{
    snprintf(path, 128, "runs/%s/%s", core->request.run_name, file);
}

/* An id that int64 cannot hold is as good as none, and 0 says that. */
static int64_t id(uint64_t value) { return value > INT64_MAX ? 0 : (int64_t)value; }

bool lab27_write_plan(lab27_core *core)
{
    writer w;
    const lab27_request *r = &core->request;
    const lab27_app *app = &core->app;
    char path[128];
    run_path(core, path, "plan.json");
    open_file(&w, core, path);
    print(&w, "{\"schema\":\"lab27.plan/1\",\"request\":{\"schema\":\"%s\",\"runName\":\"%s\",\"recipe\":\"%s\",", r->schema, r->run_name, r->recipe);
    if (r->duration_permille < 1000 || strcmp(r->recipe, LAB27_RECIPE) != 0) print(&w, "\"durationPermille\":%" PRIu32 ",", r->duration_permille);
    print(&w, "\"referenceEnabled\":%s,\"purpose\":\"%s\",\"appVersion\":\"%s\",\"sourceDigest\":\"%s\",", truth(r->reference_enabled), r->purpose,
          r->app_version, r->source_digest);
    print(&w, "\"issuedAt\":\"%s\",\"expiresAt\":\"%s\",\"nonce\":\"%s\"},\"app\":{\"bundleId\":", r->issued_at, r->expires_at, r->nonce);
    print_quoted(&w, app->bundle_id);
    print(&w, ",\"version\":");
    print_quoted(&w, app->app_version);
    print(&w, ",\"sourceDigest\":");
    print_quoted(&w, app->source_digest);
    print(&w, ",\"pid\":%" PRId32 "},\"device\":{\"model\":", app->pid);
    print_quoted(&w, app->device_model);
    print(&w, ",\"osVersion\":");
    print_quoted(&w, app->os_version);
    print(&w, ",\"maximumHz\":%" PRIu32 ",\"simulated\":%s},", app->maximum_hz, truth(app->simulated));
    print(&w, "\"timebase\":{\"numer\":%" PRIu32 ",\"denom\":%" PRIu32 "},\"phases\":[", app->timebase_numer, app->timebase_denom);
    for (uint32_t i = 0; i < LAB27_PHASES; i++) {
        const lab27_phase *p = &lab27_phases[i];
        print(&w, "%s{\"name\":\"%s\",\"startNs\":%" PRIu64 ",\"lengthNs\":%" PRIu64 ",\"requestedHz\":%" PRIu32 ",\"delayMs\":%" PRIu32
                  ",\"delayEvery\":%" PRIu32 "}",
              i ? "," : "", p->name, lab27_phase_start_ns(core, i), lab27_phase_length_ns(core, i), p->hz, p->delay_ms, p->delay_every);
    }
    print(&w, "]}\n");
    bool ok = close_file(&w, &core->files[LAB27_FILE_PLAN]);
    core->bundle_bytes = core->files[LAB27_FILE_PLAN].bytes + LAB27_SEAL_RESERVE;
    return ok;
}

enum { ROW_SIZE = 256 };

static int format_request_row(const lab27_core *core, uint32_t n, char row[ROW_SIZE])
{
    const lab27_submission *s = &core->submissions[n - 1];
    return snprintf(row, ROW_SIZE, "[%" PRIu32 ",\"%s\",%" PRIu64 ",%" PRIu64 ",%" PRId64 ",%u]\n", n, lab27_phases[s->phase].name, s->request_mach,
                    s->commit_mach, id(s->drawable_id), s->delay_ms);
}

size_t lab27_request_row_length(const lab27_core *core, uint32_t n)
{
    char row[ROW_SIZE];
    return (size_t)format_request_row(core, n, row);
}

static bool write_requests(lab27_core *core, writer *w)
{
    char path[128], row[ROW_SIZE];
    run_path(core, path, "requests.jsonl");
    open_file(w, core, path);
    print(w, "{\"columns\":[\"n\",\"phase\",\"requestMach\",\"commitMach\",\"drawableId\",\"delayMs\"]}\n");
    for (uint32_t n = 1; n <= core->submitted; n++) put(w, row, (size_t)format_request_row(core, n, row));
    return close_file(w, &core->files[LAB27_FILE_REQUESTS]);
}

/* One row for each submission, in its order: what a handler reported, or that none came back. */
static bool write_presented(lab27_core *core, writer *w)
{
    char path[128];
    run_path(core, path, "presented.jsonl");
    open_file(w, core, path);
    print(w, "{\"columns\":[\"n\",\"phase\",\"callbackMach\",\"drawableId\",\"surfaceId\",\"presentedTime\",\"status\"]}\n");
    for (uint32_t n = 1; n <= core->submitted && core->request.reference_enabled; n++) {
        const char *phase = lab27_phases[core->submissions[n - 1].phase].name;
        if (core->report_of[n - 1] == 0) {
            print(w, "[%" PRIu32 ",\"%s\",0,0,0,0,\"missing\"]\n", n, phase);
            continue;
        }
        const lab27_report *r = &core->reports[core->report_of[n - 1] - 1];
        print(w, "[%" PRIu32 ",\"%s\",%" PRIu64 ",%" PRId64 ",%" PRId64 ",", n, phase, r->callback_mach, id(r->drawable_id), id(r->surface_id));
        if (r->presented_ns > 0) print(w, "%" PRId64 ".%09" PRId64 ",\"presented\"]\n", r->presented_ns / 1000000000, r->presented_ns % 1000000000);
        else print(w, "0,\"dropped\"]\n");
    }
    return close_file(w, &core->files[LAB27_FILE_PRESENTED]);
}

static int format_event(const lab27_event *e, char line[ROW_SIZE])
{
    static const char *const names[] = {"admitted", "phase", "cancel", "thermal", "background", "stop", "drain", "sealed"};
    char more[96] = "";
    switch (e->kind) {
    case LAB27_EVENT_PHASE: snprintf(more, sizeof more, ",\"phase\":\"%s\"", e->word); break;
    case LAB27_EVENT_STOP: snprintf(more, sizeof more, ",\"reason\":\"%s\"", e->word); break;
    case LAB27_EVENT_SEALED: snprintf(more, sizeof more, ",\"state\":\"%s\"", e->word); break;
    case LAB27_EVENT_THERMAL: snprintf(more, sizeof more, ",\"thermalState\":%" PRId64, e->number); break;
    case LAB27_EVENT_DRAIN: snprintf(more, sizeof more, ",\"outstanding\":%" PRId64, e->number); break;
    default: break;
    }
    return snprintf(line, ROW_SIZE, "{\"event\":\"%s\",\"mach\":%" PRIu64 "%s}\n", names[e->kind], e->mach, more);
}

size_t lab27_event_length(const lab27_event *e)
{
    char line[ROW_SIZE];
    return (size_t)format_event(e, line);
}

static bool write_events(lab27_core *core, writer *w)
{
    char path[128], line[ROW_SIZE];
    run_path(core, path, "events.jsonl");
    open_file(w, core, path);
    for (uint32_t i = 0; i < core->event_count; i++) put(w, line, (size_t)format_event(&core->events[i], line));
    return close_file(w, &core->files[LAB27_FILE_EVENTS]);
}

static bool was_taken(const lab27_core *core, uint32_t n) { return core->report_of[n - 1] != 0; }

static uint32_t cost_of(const lab27_core *core, uint32_t n) { return core->reports[core->report_of[n - 1] - 1].cost_ticks; }

/* The rank-th smallest cost, found by halving the range of values: no memory, no sort. */
static uint32_t cost_of_rank(const lab27_core *core, uint32_t rank)
{
    uint32_t low = 0, high = UINT32_MAX;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2, at_most = 0;
        for (uint32_t n = 1; n <= core->submitted; n++) at_most += was_taken(core, n) && cost_of(core, n) <= middle;
        if (at_most >= rank) high = middle;
        else low = middle + 1;
    }
    return low;
}

static void print_handler_cost(lab27_core *core, writer *w)
{
    uint32_t count = core->presented + core->dropped, most = 0;
    uint64_t sum = 0;
    if (count == 0) {
        print(w, "\"handlerCost\":null,");
        return;
    }
    for (uint32_t n = 1; n <= core->submitted; n++) {
        if (!was_taken(core, n)) continue;
        sum += cost_of(core, n);
        if (cost_of(core, n) > most) most = cost_of(core, n);
    }
    print(w, "\"handlerCost\":{\"firstNs\":%" PRIu64 ",\"meanNs\":%" PRIu64 ",\"p95Ns\":%" PRIu64 ",\"maxNs\":%" PRIu64 "},",
          lab27_ns_from_ticks(core, core->reports[core->first_report].cost_ticks), lab27_ns_from_ticks(core, sum) / count,
          lab27_ns_from_ticks(core, cost_of_rank(core, (95 * count + 99) / 100)), lab27_ns_from_ticks(core, most));
}

static void print_bracket(writer *w, const char *name, const lab27_bracket *b)
{
    print(w, "\"%s\":{\"absoluteBeforeMach\":%" PRIu64 ",\"mediaTime\":%" PRId64 ".%09" PRId64 ",\"continuousMach\":%" PRIu64 ",\"absoluteAfterMach\":%" PRIu64 "}",
          name, b->before, b->media_ns / 1000000000, b->media_ns % 1000000000, b->continuous, b->after);
}

/* The summary comes last and seals the others by their digests, and itself by the digest of everything before its own last member. */
static bool write_summary(lab27_core *core, writer *w)
{
    static const char *const names[LAB27_FILES] = {"plan.json", "events.jsonl", "requests.jsonl", "presented.jsonl"};
    char path[128], seal[65];
    uint32_t outstanding = lab27_outstanding(core);
    run_path(core, path, "summary.json");
    open_file(w, core, path);
    print(w, "{\"schema\":\"lab27.summary/1\",\"state\":\"%s\",\"reason\":\"%s\",\"runName\":\"%s\",\"nonce\":\"%s\",\"phases\":[",
          strcmp(core->reason, "finished") == 0 ? "complete" : "partial", core->reason, core->request.run_name, core->request.nonce);
    for (uint32_t i = 0; core->started && i <= core->phase; i++)
        print(w, "%s{\"name\":\"%s\",\"startMach\":%" PRIu64 ",\"endMach\":%" PRIu64 ",\"requests\":%" PRIu32 "}", i ? "," : "", lab27_phases[i].name,
              core->phase_start[i], core->phase_end[i], core->phase_requests[i]);
    print(w, "],\"submitted\":%" PRIu32 ",\"committed\":%" PRIu32 ",\"presented\":%" PRIu32 ",\"dropped\":%" PRIu32 ",\"outstanding\":%" PRIu32 ",",
          core->submitted, core->committed, core->presented, core->dropped, outstanding);
    print(w, "\"strayCallbacks\":%" PRIu32 ",\"queuePeak\":%" PRIu32 ",", core->stray, core->queue_peak);
    print(w, "\"idleRecovery\":{\"recovered\":%s,\"tookNs\":%" PRIu64 "},\"workloadReleased\":%s,", truth(outstanding == 0 && core->workload_released),
          lab27_ns_from_ticks(core, core->drained_mach - core->stop_mach), truth(core->workload_released));
    print_handler_cost(core, w);
    if (core->usage_failed || !core->started) {
        print(w, "\"cpu\":null,\"footprint\":null,");
    } else {
        print(w, "\"cpu\":{\"usedNs\":%" PRIu64 ",\"wallNs\":%" PRIu64 "},", core->cpu_stop_ns - core->cpu_start_ns,
              lab27_ns_from_ticks(core, core->stop_mach - core->start_mach));
        print(w, "\"footprint\":{\"startBytes\":%" PRIu64 ",\"peakBytes\":%" PRIu64 ",\"endBytes\":%" PRIu64 "},", core->footprint_start,
              core->footprint_peak, core->footprint_end);
    }
    print(w, "\"fileWritesWhileRunning\":%" PRIu64 ",\"brackets\":{", core->writes_while_running);
    print_bracket(w, "before", &core->bracket_before);
    print(w, ",");
    print_bracket(w, "after", &core->bracket_after);
    print(w, "},\"files\":{");
    for (int i = 0; i < LAB27_FILES; i++)
        print(w, "%s\"%s\":{\"bytes\":%" PRIu64 ",\"sha256\":\"%s\"}", i ? "," : "", names[i], core->files[i].bytes, core->files[i].sha256);
    print(w, "}");
    flush(w);
    lab27_sha256_hex(&w->sha256, seal);
    print(w, ",\"seal\":\"%s\"}\n", seal);
    return close_file(w, NULL);
}

bool lab27_write_bundle(lab27_core *core)
{
    writer w;
    return write_requests(core, &w) && write_presented(core, &w) && write_events(core, &w) && write_summary(core, &w);
}

bool lab27_write_refusal(lab27_core *core, const char *path, const char *name, const char *detail, int64_t unix_ns)
{
    writer w;
    open_file(&w, core, path);
    print(&w, "{\"schema\":\"lab27.refusal/1\",\"file\":");
    print_quoted(&w, name);
    print(&w, ",\"reason\":\"%s\",\"detail\":", core->refusal);
    print_quoted(&w, detail);
    print(&w, ",\"atUnixNs\":%" PRId64 "}\n", unix_ns);
    return close_file(&w, NULL);
}
