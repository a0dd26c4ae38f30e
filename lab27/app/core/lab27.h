/* Lab27's core: everything the reference app decides and writes, in C11 without dependencies. Contract: lab27.md.
 *
 * Whatever it needs of its surroundings stands in lab27_platform, so that the same code runs on a phone, in a simulated one and under
 * sanitizers. One core lives as long as its process and runs at most once: a presented handler that comes late then never meets a
 * second run's memory, and the host starts each run in a new process life anyway.
 *
 * All functions belong to one thread, except lab27_presented, which any thread may call at any time.
 */
#ifndef LAB27_H
#define LAB27_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bounds of the contract. The recipe makes at most 7,800 requests in 140 s, so 10,000 leaves a quarter spare; the rest keeps a bundle
 * small enough to be pulled and judged as a whole. */
enum {
    LAB27_MAX_REQUESTS = 10000,
    LAB27_MAX_PRESENTED = 10000,
    LAB27_MAX_QUEUE = 128,         /* handlers' reports that the main thread has not collected yet */
    LAB27_MAX_EVENTS = 4096,       /* a run has about ten; a flapping thermal state may add some */
    LAB27_MAX_REQUEST_BYTES = 4096,
    LAB27_PHASES = 4
};
#define LAB27_MAX_BUNDLE_BYTES ((uint64_t)2 * 1024 * 1024)
#define LAB27_MAX_DRAIN_NS ((uint64_t)1000000000)
#define LAB27_MAX_REQUEST_LIFE_NS ((int64_t)600 * 1000000000)

/* What lab27_platform.available answers, bit by bit. */
enum {
    LAB27_FOREGROUND = 1,
    LAB27_CANVAS = 2,
    LAB27_METAL_DEVICE = 4,
    LAB27_METAL_QUEUE = 8,
    LAB27_OTHER_WORKLOAD = 16
};

/* Paths are relative to Documents/lab27 and use '/'; pending, consumed, refused and runs exist there from the start. */
typedef struct {
    void *context; /* first argument of every function below */

    /* Clocks, from any thread. */
    uint64_t (*mach_absolute)(void *);
    uint64_t (*mach_continuous)(void *);
    double (*media_seconds)(void *); /* CACurrentMediaTime */
    int64_t (*wall_unix_ns)(void *);

    unsigned (*available)(void *);
    int (*thermal_state)(void *); /* NSProcessInfoThermalState: 0 nominal, 1 fair, 2 serious, 3 critical */
    bool (*usage)(void *, uint64_t *cpu_ns, uint64_t *footprint_bytes);

    /* The stimulus. present draws one frame, commits it and gives the drawable's id; with reference, lab27_presented is called for n
     * when it was shown or dropped. release_workload ends submissions; ticks go on until the run is sealed. */
    void (*set_rate)(void *, uint32_t hz);
    bool (*present)(void *, uint32_t n, uint32_t phase, bool reference, uint64_t *drawable_id);
    void (*delay_main_thread)(void *, uint32_t ms);
    bool (*release_workload)(void *);

    /* Files. list names what a directory holds. exists is negative where it cannot tell. read returns the length, or -1 also for a file
     * longer than size. move and make_directory fail where the destination exists. create opens a new file for write, one at a time; it
     * fails where one exists; close returns only when the file is on disk. */
    bool (*list)(void *, const char *directory, void (*each)(void *, const char *name), void *argument);
    int (*exists)(void *, const char *path);
    int64_t (*read)(void *, const char *path, char *to, size_t size);
    bool (*make_directory)(void *, const char *path);
    bool (*move)(void *, const char *from, const char *to);
    bool (*create)(void *, const char *path);
    bool (*write)(void *, const char *data, size_t length);
    bool (*close)(void *);
} lab27_platform;

/* Facts about the app and the device; strings must outlive the core. At most 64 bytes of each are written. */
typedef struct {
    const char *bundle_id, *app_version, *source_digest, *device_model, *os_version;
    int32_t pid;
    uint32_t maximum_hz;
    bool simulated;
    uint32_t timebase_numer, timebase_denom; /* both at least 1: ns = ticks * numer / denom */
} lab27_app;

typedef enum { LAB27_IDLE, LAB27_RUNNING, LAB27_DRAINING, LAB27_SEALED, LAB27_FAILED } lab27_state;

typedef struct {
    lab27_state state;
    const char *reason;  /* why the run stopped, or what failed; "" before that */
    const char *refusal; /* why the last request was refused; "" if none was */
    const char *run_name;
    const char *phase;
    uint32_t submitted, presented, dropped;
    uint64_t bundle_bytes; /* what the bundle comes to at most if it were sealed now; checked against LAB27_MAX_BUNDLE_BYTES */
} lab27_status;

typedef struct lab27_core lab27_core;

size_t lab27_core_size(void);

/* memory holds lab27_core_size() bytes, aligned as malloc does, and stays while a handler may still run. */
lab27_core *lab27_init(void *memory, const lab27_platform *platform, const lab27_app *app);

/* Looks for a pending request: refuses it and says why in refused/, or consumes it and starts. Does nothing during a run. */
lab27_state lab27_poll(lab27_core *);

/* One beat of the display link: collects what handlers left, moves phases on, makes a request. After a stop: drains, then seals. */
lab27_state lab27_tick(lab27_core *);

/* A presented handler's report on submission n; presented_ns 0 = not presented. No allocation, no I/O, no lock, a bounded number of steps. */
void lab27_presented(lab27_core *, uint32_t n, uint64_t drawable_id, uint64_t surface_id, int64_t presented_ns);

void lab27_cancel(lab27_core *);
void lab27_background(lab27_core *);
void lab27_thermal(lab27_core *, int state);

lab27_status lab27_get_status(const lab27_core *);

/* drawable.presentedTime in ns, to the nearest; 0 where it is not positive, not a number, or beyond 292 years. */
int64_t lab27_ns_from_seconds(double seconds);

#endif
