// Lab27's shell: a CAMetalLayer, a display link, and the platform that the core in ../core asks for. It decides nothing.

#import <IOSurface/IOSurfaceRef.h>
#import <Metal/Metal.h>
#import <QuartzCore/QuartzCore.h>
#import <UIKit/UIKit.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mach/mach.h>
#include <mach/mach_time.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "lab27.h"
#include "lab27_digest.h"

static NSString *const cancelNotification = @"framebridge.lab27.cancel";

@interface Canvas : UIView
@end

@implementation Canvas
+ (Class)layerClass { return CAMetalLayer.class; }
@end

@interface Lab : UIViewController
@property(nonatomic) lab27_core *core;
@property(nonatomic, copy) NSString *root; // Documents/lab27
@property(nonatomic) id<MTLDevice> device;
@property(nonatomic) id<MTLCommandQueue> queue;
@property(nonatomic) CADisplayLink *link;
@property(nonatomic) NSTimer *timer; // polls while idle, drains after a stop; no display link runs then
@property(nonatomic) UILabel *label;
@property(nonatomic) int output;
- (void)every:(NSTimeInterval)seconds call:(SEL)method;
- (void)tick;
@end

#pragma mark Platform: clocks and surroundings

static uint64_t machAbsolute(void *context) { return mach_absolute_time(); }

static uint64_t machContinuous(void *context) { return mach_continuous_time(); }

static double mediaSeconds(void *context) { return CACurrentMediaTime(); }

static int64_t wallUnixNs(void *context) { return (int64_t)clock_gettime_nsec_np(CLOCK_REALTIME); }

static unsigned available(void *context)
{
    Lab *lab = (__bridge Lab *)context;
    CGSize size = ((CAMetalLayer *)lab.view.layer).drawableSize;
    unsigned bits = 0;
    if (UIApplication.sharedApplication.applicationState == UIApplicationStateActive) bits |= LAB27_FOREGROUND;
    if (lab.view.window && size.width > 0 && size.height > 0) bits |= LAB27_CANVAS;
    if (lab.device) bits |= LAB27_METAL_DEVICE;
    if (lab.queue) bits |= LAB27_METAL_QUEUE;
    if (lab.link) bits |= LAB27_OTHER_WORKLOAD;
    return bits;
}

static int thermalState(void *context) { return (int)NSProcessInfo.processInfo.thermalState; }

static bool usage(void *context, uint64_t *cpuNs, uint64_t *footprint)
{
    struct rusage used;
    task_vm_info_data_t info;
    mach_msg_type_number_t count = TASK_VM_INFO_COUNT;
    if (getrusage(RUSAGE_SELF, &used) != 0 || task_info(mach_task_self(), TASK_VM_INFO, (task_info_t)&info, &count) != KERN_SUCCESS) return false;
    uint64_t seconds = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec), micros = (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    *cpuNs = seconds * NSEC_PER_SEC + micros * NSEC_PER_USEC;
    *footprint = info.phys_footprint;
    return true;
}

#pragma mark Platform: the stimulus

static void setRate(void *context, uint32_t hz)
{
    Lab *lab = (__bridge Lab *)context;
    lab.link.preferredFrameRateRange = CAFrameRateRangeMake(hz, hz, hz);
}

// A clear pass in a colour that changes with every frame: the cheapest drawing that no compositor can take for the frame before.
static bool present(void *context, uint32_t n, uint32_t phase, bool reference, uint64_t *drawableID)
{
    Lab *lab = (__bridge Lab *)context;
    @autoreleasepool {
        id<CAMetalDrawable> drawable = [(CAMetalLayer *)lab.view.layer nextDrawable];
        id<MTLCommandBuffer> buffer = [lab.queue commandBuffer];
        if (!drawable || !buffer) return false;
        MTLRenderPassDescriptor *pass = [MTLRenderPassDescriptor renderPassDescriptor];
        pass.colorAttachments[0].texture = drawable.texture;
        pass.colorAttachments[0].loadAction = MTLLoadActionClear;
        pass.colorAttachments[0].storeAction = MTLStoreActionStore;
        pass.colorAttachments[0].clearColor = MTLClearColorMake((n & 1) ? 0.8 : 0.2, (phase + 1) / 5.0, (n % 64) / 64.0, 1);
        [[buffer renderCommandEncoderWithDescriptor:pass] endEncoding];
        if (reference) {
            // The block takes numbers along and no drawable: one that is kept cannot go back to the layer's pool.
            lab27_core *core = lab.core;
            IOSurfaceRef surface = drawable.texture.iosurface;
            uint64_t surfaceID = surface ? IOSurfaceGetID(surface) : 0;
            [drawable addPresentedHandler:^(id<MTLDrawable> shown) {
                lab27_presented(core, n, shown.drawableID, surfaceID, lab27_ns_from_seconds(shown.presentedTime));
            }];
        }
        *drawableID = drawable.drawableID;
        [buffer presentDrawable:drawable];
        [buffer commit];
    }
    return true;
}

static void delayMainThread(void *context, uint32_t ms)
{
    mach_timebase_info_data_t timebase;
    mach_timebase_info(&timebase);
    mach_wait_until(mach_absolute_time() + (uint64_t)ms * NSEC_PER_MSEC * timebase.denom / timebase.numer + 1);
}

static bool releaseWorkload(void *context)
{
    Lab *lab = (__bridge Lab *)context;
    [lab.link invalidate];
    lab.link = nil;
    [lab every:1.0 / 60 call:@selector(tick)]; // until the run is sealed
    return true;
}

#pragma mark Platform: files below Documents/lab27

static NSString *pathOf(void *context, const char *path) { return [((__bridge Lab *)context).root stringByAppendingPathComponent:@(path)]; }

static bool listDirectory(void *context, const char *directory, void (*each)(void *, const char *), void *argument)
{
    DIR *opened = opendir(pathOf(context, directory).fileSystemRepresentation);
    if (!opened) return false;
    for (struct dirent *entry; (entry = readdir(opened));) each(argument, entry->d_name);
    closedir(opened);
    return true;
}

static int pathExists(void *context, const char *path)
{
    struct stat info;
    if (lstat(pathOf(context, path).fileSystemRepresentation, &info) == 0) return 1;
    return errno == ENOENT ? 0 : -1;
}

static int64_t readFile(void *context, const char *path, char *to, size_t size)
{
    struct stat info;
    int file = open(pathOf(context, path).fileSystemRepresentation, O_RDONLY | O_NOFOLLOW);
    if (file < 0) return -1;
    bool fits = fstat(file, &info) == 0 && info.st_size <= (off_t)size;
    ssize_t length = fits ? read(file, to, size) : -1;
    close(file);
    return length;
}

static bool makeDirectory(void *context, const char *path) { return mkdir(pathOf(context, path).fileSystemRepresentation, 0755) == 0; }

static bool moveFile(void *context, const char *from, const char *to)
{
    return renamex_np(pathOf(context, from).fileSystemRepresentation, pathOf(context, to).fileSystemRepresentation, RENAME_EXCL) == 0;
}

static bool createFile(void *context, const char *path)
{
    int file = open(pathOf(context, path).fileSystemRepresentation, O_WRONLY | O_CREAT | O_EXCL, 0644);
    ((__bridge Lab *)context).output = file;
    return file >= 0;
}

static bool writeFile(void *context, const char *data, size_t length)
{
    int file = ((__bridge Lab *)context).output;
    while (length > 0) {
        ssize_t written = write(file, data, length);
        if (written <= 0) return false;
        data += written;
        length -= (size_t)written;
    }
    return true;
}

static bool closeFile(void *context)
{
    int file = ((__bridge Lab *)context).output;
    bool onDisk = fcntl(file, F_FULLFSYNC) == 0 || fsync(file) == 0;
    return close(file) == 0 && onDisk;
}

#pragma mark Screen

static void cancelled(CFNotificationCenterRef center, void *observer, CFNotificationName name, const void *object, CFDictionaryRef info)
{
    Lab *lab = (__bridge Lab *)observer;
    dispatch_async(dispatch_get_main_queue(), ^{ lab27_cancel(lab.core); });
}

@implementation Lab

- (void)loadView { self.view = [[Canvas alloc] initWithFrame:UIScreen.mainScreen.bounds]; }

- (void)viewDidLoad
{
    [super viewDidLoad];
    self.device = MTLCreateSystemDefaultDevice();
    self.queue = [self.device newCommandQueue];
    CAMetalLayer *layer = (CAMetalLayer *)self.view.layer;
    layer.device = self.device;
    layer.pixelFormat = MTLPixelFormatBGRA8Unorm;
    layer.opaque = YES;
    self.view.contentScaleFactor = UIScreen.mainScreen.nativeScale;

    self.label = [[UILabel alloc] initWithFrame:CGRectInset(self.view.bounds, 24, 80)];
    self.label.autoresizingMask = UIViewAutoresizingFlexibleWidth | UIViewAutoresizingFlexibleHeight;
    self.label.numberOfLines = 0;
    self.label.textColor = UIColor.whiteColor;
    [self.view addSubview:self.label];
    [self.view addGestureRecognizer:[[UILongPressGestureRecognizer alloc] initWithTarget:self action:@selector(runByHand:)]];

    [self makeDirectories];
    [self startCore];
    [self observe];
    [self every:1 call:@selector(poll)];
}

- (void)every:(NSTimeInterval)seconds call:(SEL)method
{
    [self.timer invalidate];
    self.timer = [NSTimer scheduledTimerWithTimeInterval:seconds target:self selector:method userInfo:nil repeats:YES];
}

- (void)makeDirectories
{
    NSString *documents = NSSearchPathForDirectoriesInDomains(NSDocumentDirectory, NSUserDomainMask, YES).firstObject;
    self.root = [documents stringByAppendingPathComponent:@"lab27"];
    for (NSString *name in @[ @"pending", @"consumed", @"refused", @"runs" ])
        [NSFileManager.defaultManager createDirectoryAtPath:[self.root stringByAppendingPathComponent:name] withIntermediateDirectories:YES attributes:nil error:nil];
}

- (void)startCore
{
    static struct utsname machine; // what the core is given must stay
    static char osVersion[32];
    uname(&machine);
    strlcpy(osVersion, UIDevice.currentDevice.systemVersion.UTF8String, sizeof osVersion);
    mach_timebase_info_data_t timebase;
    mach_timebase_info(&timebase);
    lab27_platform platform = {
        .context = (__bridge void *)self, .mach_absolute = machAbsolute, .mach_continuous = machContinuous, .media_seconds = mediaSeconds,
        .wall_unix_ns = wallUnixNs, .available = available, .thermal_state = thermalState, .usage = usage, .set_rate = setRate, .present = present,
        .delay_main_thread = delayMainThread, .release_workload = releaseWorkload, .list = listDirectory, .exists = pathExists, .read = readFile,
        .make_directory = makeDirectory, .move = moveFile, .create = createFile, .write = writeFile, .close = closeFile};
    lab27_app app = {.bundle_id = strdup(NSBundle.mainBundle.bundleIdentifier.UTF8String),
                     .app_version = strdup([NSBundle.mainBundle.infoDictionary[@"CFBundleShortVersionString"] UTF8String]),
                     .source_digest = LAB27_SOURCE_DIGEST,
                     .device_model = machine.machine,
                     .os_version = osVersion,
                     .pid = getpid(),
                     .maximum_hz = (uint32_t)UIScreen.mainScreen.maximumFramesPerSecond,
                     .simulated = TARGET_OS_SIMULATOR != 0,
                     .timebase_numer = timebase.numer,
                     .timebase_denom = timebase.denom};
    self.core = lab27_init(malloc(lab27_core_size()), &platform, &app); // lives as long as the process: see lab27.h
}

- (void)observe
{
    NSNotificationCenter *center = NSNotificationCenter.defaultCenter;
    [center addObserver:self selector:@selector(leaveForeground) name:UIApplicationWillResignActiveNotification object:nil];
    // These two arrive on a thread of the system's choice.
    [center addObserverForName:NSProcessInfoThermalStateDidChangeNotification object:nil queue:NSOperationQueue.mainQueue usingBlock:^(NSNotification *note) {
        lab27_thermal(self.core, thermalState(NULL));
    }];
    CFNotificationCenterAddObserver(CFNotificationCenterGetDarwinNotifyCenter(), (__bridge void *)self, cancelled, (__bridge CFStringRef)cancelNotification, NULL,
                                    CFNotificationSuspensionBehaviorDeliverImmediately);
}

// The run ends here. Its bundle is sealed in the time that a background task is given.
- (void)leaveForeground
{
    lab27_background(self.core);
    UIApplication *application = UIApplication.sharedApplication;
    __block UIBackgroundTaskIdentifier task = UIBackgroundTaskInvalid;
    void (^end)(void) = ^{
        if (task != UIBackgroundTaskInvalid) [application endBackgroundTask:task];
        task = UIBackgroundTaskInvalid;
    };
    task = [application beginBackgroundTaskWithExpirationHandler:end];
    dispatch_after(dispatch_time(DISPATCH_TIME_NOW, 3 * NSEC_PER_SEC), dispatch_get_main_queue(), end);
}

// Once a second while nothing runs. During a run nothing but the display link does.
- (void)poll
{
    lab27_state before = lab27_get_status(self.core).state, now = lab27_poll(self.core);
    if (before == LAB27_IDLE && now == LAB27_RUNNING) {
        [self.timer invalidate];
        self.label.hidden = YES; // a label that changes would be frames of its own
        UIApplication.sharedApplication.idleTimerDisabled = YES;
        self.link = [CADisplayLink displayLinkWithTarget:self selector:@selector(tick)];
        [self.link addToRunLoop:NSRunLoop.mainRunLoop forMode:NSRunLoopCommonModes];
        return;
    }
    [self showStatus];
}

- (void)tick
{
    lab27_state state = lab27_tick(self.core);
    if (state == LAB27_RUNNING || state == LAB27_DRAINING) return;
    self.label.hidden = NO;
    UIApplication.sharedApplication.idleTimerDisabled = NO;
    [self every:1 call:@selector(poll)];
}

- (void)showStatus
{
    lab27_status status = lab27_get_status(self.core);
    NSString *states[] = {@"waiting for a request", @"running", @"draining", @"sealed", @"failed"};
    NSString *text = [NSString stringWithFormat:@"Lab27: %@ %s %s\n%s\n\nHold to rehearse.", states[status.state], status.run_name, status.reason,
                                                *status.refusal ? status.refusal : ""];
    if (![text isEqualToString:self.label.text]) self.label.text = text;
}

// A run by hand takes the way of every other: a request in pending.
- (void)runByHand:(UILongPressGestureRecognizer *)press
{
    if (press.state != UIGestureRecognizerStateBegan || lab27_get_status(self.core).state != LAB27_IDLE) return;
    NSISO8601DateFormatter *time = [NSISO8601DateFormatter new];
    NSDate *now = NSDate.date;
    NSString *nonce = NSUUID.UUID.UUIDString.lowercaseString;
    NSDictionary *request = @{
        @"schema" : @"lab27.request/1", @"runName" : [@"manual-" stringByAppendingString:nonce], @"recipe" : @"p95-140.v1.rehearsal", @"durationPermille" : @100,
        @"referenceEnabled" : @YES, @"purpose" : @"rehearsal", @"appVersion" : NSBundle.mainBundle.infoDictionary[@"CFBundleShortVersionString"],
        @"sourceDigest" : @LAB27_SOURCE_DIGEST, @"issuedAt" : [time stringFromDate:now], @"expiresAt" : [time stringFromDate:[now dateByAddingTimeInterval:600]],
        @"nonce" : nonce
    };
    NSData *data = [NSJSONSerialization dataWithJSONObject:request options:NSJSONWritingWithoutEscapingSlashes error:nil];
    [data writeToFile:[NSString stringWithFormat:@"%@/pending/%@.json", self.root, nonce] options:NSDataWritingAtomic error:nil];
}

@end

@interface Delegate : UIResponder <UIApplicationDelegate>
@property(nonatomic) UIWindow *window;
@end

@implementation Delegate
- (BOOL)application:(UIApplication *)application didFinishLaunchingWithOptions:(NSDictionary *)options
{
    self.window = [[UIWindow alloc] initWithFrame:UIScreen.mainScreen.bounds];
    self.window.rootViewController = [Lab new];
    [self.window makeKeyAndVisible];
    return YES;
}
@end

int main(int argc, char *argv[])
{
    @autoreleasepool {
        return UIApplicationMain(argc, argv, nil, NSStringFromClass(Delegate.class));
    }
}
