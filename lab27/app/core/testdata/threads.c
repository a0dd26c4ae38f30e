/* Runs the core with real threads and a real clock: the main thread ticks as fast as it can, four others call handlers. Built with
 * ThreadSanitizer by threads_test.go, and without it to see what a handler costs.
 *
 *   threads run DOCUMENTS     runs the request that is pending there and prints why it ended
 *   threads cost DOCUMENTS    begins that run and prints what a handler takes: ns, the mean of 1,000 calls
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../lab27.h"

enum { THREADS = 4, RING = 1024, AHEAD = 64 };

static const char *root;
static lab27_core *core;
static int output = -1;

/* Submissions on their way to the handlers, and those that have returned: a slot holds a submission's number. 0 = taken. */
static atomic_uint ring[RING], done[RING];
static atomic_bool over;

static uint64_t nanoseconds(void *context)
{
    struct timespec t;
    (void)context;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static double seconds(void *context) { return (double)nanoseconds(context) / 1e9; }

static int64_t wall(void *context)
{
    struct timespec t;
    (void)context;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static unsigned available(void *context)
{
    (void)context;
    return LAB27_FOREGROUND | LAB27_CANVAS | LAB27_METAL_DEVICE | LAB27_METAL_QUEUE;
}

static int cool(void *context)
{
    (void)context;
    return 0;
}

static bool usage(void *context, uint64_t *cpu_ns, uint64_t *footprint)
{
    struct timespec t;
    (void)context;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    *cpu_ns = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
    *footprint = 1;
    return true;
}

static void set_rate(void *context, uint32_t hz)
{
    (void)context;
    (void)hz;
}

static bool present(void *context, uint32_t n, uint32_t phase, bool reference, uint64_t *drawable_id)
{
    (void)context;
    (void)phase;
    (void)reference;
    *drawable_id = n;
    /* On a busy machine a handler may stand still in the middle: not so many may overtake it that the queue's bound is passed. */
    while (n > AHEAD && atomic_load(&done[(n - AHEAD) % RING]) != n - AHEAD) usleep(10);
    atomic_store(&ring[n % RING], n);
    return true;
}

static void delay(void *context, uint32_t ms)
{
    (void)context;
    usleep(ms * 1000);
}

static bool release(void *context)
{
    (void)context;
    return true;
}

static void path_of(char path[512], const char *name) { snprintf(path, 512, "%s/%s", root, name); }

static bool list(void *context, const char *directory, void (*each)(void *, const char *), void *argument)
{
    char path[512];
    (void)context;
    path_of(path, directory);
    DIR *d = opendir(path);
    if (!d) return false;
    for (struct dirent *e; (e = readdir(d));) each(argument, e->d_name);
    closedir(d);
    return true;
}

static int exists(void *context, const char *name)
{
    char path[512];
    struct stat s;
    (void)context;
    path_of(path, name);
    return stat(path, &s) == 0;
}

static int64_t read_file(void *context, const char *name, char *to, size_t size)
{
    char path[512];
    (void)context;
    path_of(path, name);
    int f = open(path, O_RDONLY);
    ssize_t n = read(f, to, size);
    close(f);
    return n;
}

static bool make_directory(void *context, const char *name)
{
    char path[512];
    (void)context;
    path_of(path, name);
    return mkdir(path, 0755) == 0;
}

static bool move(void *context, const char *from, const char *to)
{
    char a[512], b[512];
    (void)context;
    path_of(a, from);
    path_of(b, to);
    return link(a, b) == 0 && unlink(a) == 0;
}

static bool create(void *context, const char *name)
{
    char path[512];
    (void)context;
    path_of(path, name);
    output = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    return output >= 0;
}

static bool write_file(void *context, const char *data, size_t length)
{
    (void)context;
    return write(output, data, length) == (ssize_t)length;
}

static bool close_file(void *context)
{
    (void)context;
    return fsync(output) == 0 && close(output) == 0;
}

static void *handlers(void *argument)
{
    unsigned start = (unsigned)(uintptr_t)argument * (RING / THREADS);
    while (!atomic_load(&over)) {
        for (unsigned i = 0; i < RING; i++) {
            unsigned n = atomic_exchange(&ring[(start + i) % RING], 0);
            if (n == 0) continue;
            lab27_presented(core, n, n, 0, (int64_t)nanoseconds(NULL));
            atomic_store(&done[n % RING], n);
        }
        usleep(50);
    }
    return NULL;
}

static int measure_handler(void)
{
    enum { BATCHES = 10, CALLS = LAB27_MAX_PRESENTED / BATCHES };
    uint64_t best = UINT64_MAX;
    for (uint32_t batch = 0; batch < BATCHES; batch++) { /* one that is interrupted tells nothing */
        uint64_t begin = nanoseconds(NULL);
        for (uint32_t i = 1; i <= CALLS; i++) lab27_presented(core, i, i, 289, 1);
        uint64_t took = nanoseconds(NULL) - begin;
        if (took < best) best = took;
    }
    printf("%.1f\n", (double)best / CALLS);
    return 0;
}

static int run(void)
{
    pthread_t threads[THREADS];
    lab27_state state;
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, handlers, (void *)i);
    while ((state = lab27_tick(core)) == LAB27_RUNNING || state == LAB27_DRAINING) usleep(200);
    atomic_store(&over, true);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("%s\n", lab27_get_status(core).reason);
    return state != LAB27_SEALED;
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    root = argv[2];
    lab27_platform platform = {.mach_absolute = nanoseconds, .mach_continuous = nanoseconds, .media_seconds = seconds, .wall_unix_ns = wall,
                               .available = available, .thermal_state = cool, .usage = usage, .set_rate = set_rate, .present = present,
                               .delay_main_thread = delay, .release_workload = release, .list = list, .exists = exists, .read = read_file,
                               .make_directory = make_directory, .move = move, .create = create, .write = write_file, .close = close_file};
    lab27_app app = {"com.framebridge.lab27", "1.0", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "threads", "0",
                     1, 0, true, 1, 1};
    int failed = 1;
    core = lab27_init(malloc(lab27_core_size()), &platform, &app);
    if (lab27_poll(core) != LAB27_RUNNING) printf("refused: %s\n", lab27_get_status(core).refusal);
    else if (strcmp(argv[1], "run") == 0) failed = run();
    else failed = measure_handler();
    free(core);
    return failed;
}
