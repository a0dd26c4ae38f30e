#include "cgo_platform.h"

#include "_cgo_export.h"

#define HANDLE ((uintptr_t)context)

static uint64_t mach_absolute(void *context) { return lab27GoMachAbsolute(HANDLE); }
static uint64_t mach_continuous(void *context) { return lab27GoMachContinuous(HANDLE); }
static double media_seconds(void *context) { return lab27GoMediaSeconds(HANDLE); }
static int64_t wall_unix_ns(void *context) { return lab27GoWallUnixNs(HANDLE); }
static unsigned available(void *context) { return lab27GoAvailable(HANDLE); }
static int thermal_state(void *context) { return lab27GoThermalState(HANDLE); }
static bool usage(void *context, uint64_t *cpu_ns, uint64_t *footprint) { return lab27GoUsage(HANDLE, cpu_ns, footprint); }
static void set_rate(void *context, uint32_t hz) { lab27GoSetRate(HANDLE, hz); }
static bool present(void *context, uint32_t n, uint32_t phase, bool reference, uint64_t *drawable_id)
{
    return lab27GoPresent(HANDLE, n, phase, reference, drawable_id);
}
static void delay_main_thread(void *context, uint32_t ms) { lab27GoDelay(HANDLE, ms); }
static bool release_workload(void *context) { return lab27GoRelease(HANDLE); }

/* One call for each name, so that no memory changes hands. */
static bool list(void *context, const char *directory, void (*each)(void *, const char *), void *argument)
{
    char name[256];
    int count = lab27GoList(HANDLE, (char *)directory);
    for (int i = 0; i < count; i++)
        if (lab27GoListed(HANDLE, i, name, sizeof name)) each(argument, name);
    return count >= 0;
}
static int exists(void *context, const char *path) { return lab27GoExists(HANDLE, (char *)path); }
static int64_t read_file(void *context, const char *path, char *to, size_t size) { return lab27GoRead(HANDLE, (char *)path, to, size); }
static bool make_directory(void *context, const char *path) { return lab27GoMakeDirectory(HANDLE, (char *)path); }
static bool move(void *context, const char *from, const char *to) { return lab27GoMove(HANDLE, (char *)from, (char *)to); }
static bool create(void *context, const char *path) { return lab27GoCreate(HANDLE, (char *)path); }
static bool write_file(void *context, const char *data, size_t length) { return lab27GoWrite(HANDLE, (char *)data, length); }
static bool close_file(void *context) { return lab27GoClose(HANDLE); }

lab27_core *lab27_init_for_go(void *memory, uintptr_t handle, const lab27_app *app)
{
    lab27_platform platform = {.context = (void *)handle,
                               .mach_absolute = mach_absolute,
                               .mach_continuous = mach_continuous,
                               .media_seconds = media_seconds,
                               .wall_unix_ns = wall_unix_ns,
                               .available = available,
                               .thermal_state = thermal_state,
                               .usage = usage,
                               .set_rate = set_rate,
                               .present = present,
                               .delay_main_thread = delay_main_thread,
                               .release_workload = release_workload,
                               .list = list,
                               .exists = exists,
                               .read = read_file,
                               .make_directory = make_directory,
                               .move = move,
                               .create = create,
                               .write = write_file,
                               .close = close_file};
    return lab27_init(memory, &platform, app);
}
