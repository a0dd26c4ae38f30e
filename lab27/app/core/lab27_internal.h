/* The core's memory, shared by its two halves: lab27.c runs, lab27_bundle.c writes. */
#ifndef LAB27_INTERNAL_H
#define LAB27_INTERNAL_H

#include <stdatomic.h>

#include "lab27.h"
#include "lab27_request.h"
#include "lab27_sha256.h"

typedef struct {
    const char *name;
    uint32_t seconds, hz, delay_ms, delay_every; /* one delay of delay_ms in every delay_every-th request; 0 = none */
} lab27_phase;

/* Recipe p95-140.v1. A rehearsal scales the seconds alone: a shorter delay would no longer lengthen an interval. */
extern const lab27_phase lab27_phases[LAB27_PHASES];

typedef struct {
    uint64_t request_mach, commit_mach, drawable_id;
    uint8_t phase, delay_ms;
} lab27_submission;

/* A handler's report: written by that handler until ready is set, and only read from then on. */
typedef struct {
    uint64_t callback_mach, drawable_id, surface_id;
    int64_t presented_ns;
    uint32_t n, cost_ticks;
    uint32_t waiting; /* reports not collected yet when this one came, itself among them */
    atomic_bool ready;
} lab27_report;

typedef struct {
    uint64_t before, continuous, after; /* ticks */
    int64_t media_ns;
} lab27_bracket;

typedef enum {
    LAB27_EVENT_ADMITTED,
    LAB27_EVENT_PHASE,
    LAB27_EVENT_CANCEL,
    LAB27_EVENT_THERMAL,
    LAB27_EVENT_BACKGROUND,
    LAB27_EVENT_STOP,
    LAB27_EVENT_DRAIN,
    LAB27_EVENT_SEALED
} lab27_event_kind;

typedef struct {
    uint64_t mach;
    const char *word; /* phase, reason or state */
    int64_t number;   /* thermal state, or handlers outstanding */
    lab27_event_kind kind;
} lab27_event;

typedef struct {
    uint64_t bytes;
    char sha256[65];
} lab27_file;

enum { LAB27_FILE_PLAN, LAB27_FILE_EVENTS, LAB27_FILE_REQUESTS, LAB27_FILE_PRESENTED, LAB27_FILES };

struct lab27_core {
    lab27_platform platform;
    lab27_app app;
    lab27_state state;
    const char *reason, *refusal, *fault; /* fault: the first thing that must stop the run */
    lab27_request request;
    bool refuse_all; /* two requests were pending at once, and pending has not been empty since */

    uint64_t start_mach, stop_mach, drained_mach, next_usage_mach;
    bool started;        /* the first tick came: start_mach is set */
    uint32_t phase;      /* of the phases below, the current one */
    uint64_t phase_start[LAB27_PHASES], phase_end[LAB27_PHASES];
    uint32_t phase_requests[LAB27_PHASES];

    lab27_submission submissions[LAB27_MAX_REQUESTS];
    uint32_t submitted, committed;

    /* What handlers touch, and nothing else. */
    lab27_report reports[LAB27_MAX_PRESENTED];
    atomic_bool accepting;
    atomic_uint claimed;   /* reports begun; may pass the bound, the excess is only counted */
    atomic_uint collected; /* reports at the front that the main thread has taken */

    uint16_t report_of[LAB27_MAX_REQUESTS]; /* of submission n, at n - 1: index of its report + 1; 0 = none came back */
    uint32_t presented, dropped, stray, queue_peak, first_report;

    lab27_event events[LAB27_MAX_EVENTS];
    uint32_t event_count;
    uint64_t bundle_bytes;

    lab27_bracket bracket_before, bracket_after;
    uint64_t cpu_start_ns, cpu_stop_ns, footprint_start, footprint_peak, footprint_end;
    bool usage_failed, workload_released;
    uint64_t writes_while_running;

    lab27_file files[LAB27_FILES];
};

/* ticks * numer / denom, and back, without leaving 64 bits for any time that a phone can show. */
uint64_t lab27_ns_from_ticks(const lab27_core *, uint64_t ticks);
uint64_t lab27_ticks_from_ns(const lab27_core *, uint64_t ns);

uint64_t lab27_phase_start_ns(const lab27_core *, uint32_t phase);
uint64_t lab27_phase_length_ns(const lab27_core *, uint32_t phase);

uint32_t lab27_outstanding(const lab27_core *);

/* Sizes of what the bundle will hold, for the bound: exact for a row that is known, an upper bound for what is still to come. */
enum { LAB27_REQUEST_ROW_MAX = 96, LAB27_PRESENTED_ROW_MAX = 128, LAB27_SEAL_RESERVE = 8192 };
size_t lab27_request_row_length(const lab27_core *, uint32_t n);
size_t lab27_event_length(const lab27_event *);

/* Each is true when its file is on disk. */
bool lab27_write_plan(lab27_core *);
bool lab27_write_bundle(lab27_core *);
bool lab27_write_refusal(lab27_core *, const char *path, const char *name, const char *detail, int64_t unix_ns);

#endif
