/* libnvidia-ml.so.1 of a simulated machine.
 *
 * The ABI is NVML's (struct layouts and numbers as in nvidia-ml-py); every answer comes from the machine's query program, which
 * prints "index key value" lines. The answers are read at initialisation and again when they are older than a second. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, SMALL = 7, NOT_LOADED = 9, LOST = 15, UNKNOWN = 999 };
#define MAX_LINES 4096
#define MAX_GPUS 64
#define API __attribute__((visibility("default")))
typedef int ret;
typedef struct handle { int index; } *device;

static struct { int index; char key[40]; char value[120]; } table[MAX_LINES];
static int lines, users, status = UNINITIALIZED;
static time_t taken;
static struct handle handles[MAX_GPUS];

static void take(void) {
    char row[256];
    FILE *pipe = popen(QUERY " dump " VERSION, "r");
    lines = 0;
    status = UNKNOWN;
    if (!pipe) return;
    while (lines < MAX_LINES && fgets(row, sizeof row, pipe)) {
        if (sscanf(row, "%d %39s %119[^\n]", &table[lines].index, table[lines].key, table[lines].value) == 3) lines++;
    }
    if (pclose(pipe) == 0) status = OK;
    taken = time(NULL);
}

static const char *find(int index, const char *key) {
    for (int at = 0; at < lines; at++)
        if (table[at].index == index && !strcmp(table[at].key, key)) return table[at].value;
    return NULL;
}

static ret rc(void) {
    const char *code = find(-1, "rc");
    return status != OK ? status : code ? atoi(code) : UNKNOWN;
}

static ret ready(void) {
    if (!users) return UNINITIALIZED;
    if (time(NULL) > taken + 1) take();
    return rc();
}

static ret check(device dev) {
    ret code = ready();
    if (code) return code;
    if (dev < handles || dev >= handles + MAX_GPUS) return INVALID;
    const char *lost = find(dev->index, "lost");
    if (!lost) return LOST;
    return atoi(lost) ? LOST : OK;
}

static ret text(int index, const char *key, char *out, unsigned size) {
    const char *value = find(index, key);
    if (!value) return NOT_SUPPORTED;
    if (!out) return INVALID;
    if (strlen(value) + 1 > size) return SMALL;
    strcpy(out, value);
    return OK;
}

static ret number(device dev, const char *key, unsigned long long *out) {
    ret code = check(dev);
    if (code) return code;
    const char *value = find(dev->index, key);
    if (!value) return NOT_SUPPORTED;
    *out = strtoull(value, NULL, 0);
    return OK;
}

static ret word(device dev, const char *key, unsigned *out) {
    unsigned long long value;
    ret code = out ? number(dev, key, &value) : INVALID;
    if (code == OK) *out = (unsigned)value;
    return code;
}

static ret set(device dev, const char *key, unsigned first, unsigned second) {
    char command[200];
    ret code = check(dev);
    if (code) return code;
    snprintf(command, sizeof command, QUERY " set %d %s %u %u", dev->index, key, first, second);
    int done = system(command);
    taken = 0;
    return done == -1 ? UNKNOWN : (done >> 8) & 0xff;
}

API ret nvmlInit_v2(void) {
    take();
    ret code = rc();
    if (code == OK) users++;
    return code;
}
API ret nvmlInit(void) { return nvmlInit_v2(); }
API ret nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
API ret nvmlShutdown(void) { if (!users) return UNINITIALIZED; users--; return OK; }

API const char *nvmlErrorString(ret code) {
    switch (code) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case SMALL: return "Insufficient Size";
    case NOT_LOADED: return "Driver Not Loaded";
    case 12: return "NVML Shared Library Not Found";
    case LOST: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

API ret nvmlSystemGetDriverVersion(char *out, unsigned size) { ret code = ready(); return code ? code : text(-1, "driver", out, size); }
API ret nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    const char *major = find(-1, "cuda_major");
    if (!users) return UNINITIALIZED;
    if ((unsigned)snprintf(out, size, "%s.%s", major ? major : "13", VERSION) >= size) return SMALL;
    return OK;
}
API ret nvmlSystemGetCudaDriverVersion(int *out) {
    ret code = ready();
    const char *value = find(-1, "cuda");
    if (code == OK) *out = value ? atoi(value) : 0;
    return code;
}
API ret nvmlSystemGetCudaDriverVersion_v2(int *out) { return nvmlSystemGetCudaDriverVersion(out); }

API ret nvmlDeviceGetCount_v2(unsigned *out) {
    ret code = ready();
    const char *value = find(-1, "count");
    if (code == OK) *out = value ? (unsigned)atoi(value) : 0;
    return code;
}
API ret nvmlDeviceGetCount(unsigned *out) { return nvmlDeviceGetCount_v2(out); }

API ret nvmlDeviceGetHandleByIndex_v2(unsigned index, device *out) {
    unsigned count = 0;
    ret code = nvmlDeviceGetCount_v2(&count);
    if (code) return code;
    if (index >= count || index >= MAX_GPUS) return INVALID;
    handles[index].index = (int)index;
    *out = &handles[index];
    return check(*out);
}
API ret nvmlDeviceGetHandleByIndex(unsigned index, device *out) { return nvmlDeviceGetHandleByIndex_v2(index, out); }

static ret by(const char *key, const char *wanted, device *out) {
    ret code = ready();
    if (code) return code;
    for (int at = 0; at < lines; at++)
        if (!strcmp(table[at].key, key) && !strcmp(table[at].value, wanted)) return nvmlDeviceGetHandleByIndex_v2((unsigned)table[at].index, out);
    return NOT_FOUND;
}
API ret nvmlDeviceGetHandleByUUID(const char *uuid, device *out) { return by("uuid", uuid, out); }
API ret nvmlDeviceGetHandleBySerial(const char *serial, device *out) { return by("serial", serial, out); }
API ret nvmlDeviceGetHandleByPciBusId_v2(const char *pci, device *out) {
    char full[40];
    snprintf(full, sizeof full, "%s%s", strchr(pci, ':') - pci == 4 ? "0000" : "", pci);
    for (char *at = full; *at; at++) if (*at >= 'a' && *at <= 'f') *at = (char)(*at - 32);
    return by("bus_id", full, out);
}

#define TEXT(function, key) API ret function(device dev, char *out, unsigned size) { ret code = check(dev); return code ? code : text(dev->index, key, out, size); }
#define WORD(function, key) API ret function(device dev, unsigned *out) { return word(dev, key, out); }
TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetBoardPartNumber, "board_part")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom")
WORD(nvmlDeviceGetIndex, "minor")
WORD(nvmlDeviceGetMinorNumber, "minor")
WORD(nvmlDeviceGetModuleId, "module")
WORD(nvmlDeviceGetNumaNodeId, "numa")
WORD(nvmlDeviceGetArchitecture, "architecture")
WORD(nvmlDeviceGetBrand, "brand")
WORD(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
WORD(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
WORD(nvmlDeviceGetPowerManagementDefaultLimit, "power_default_mw")
WORD(nvmlDeviceGetPowerUsage, "power_usage_mw")
WORD(nvmlDeviceGetPersistenceMode, "persistence")
WORD(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen")
WORD(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
WORD(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_max_gen")
WORD(nvmlDeviceGetMaxPcieLinkWidth, "pcie_max_width")
WORD(nvmlDeviceGetPcieReplayCounter, "pcie_replay")
WORD(nvmlDeviceGetComputeMode, "compute_mode")
WORD(nvmlDeviceGetPerformanceState, "pstate")

API ret nvmlDeviceGetCudaComputeCapability(device dev, int *major, int *minor) {
    unsigned value = 0;
    ret code = word(dev, "compute_capability", &value);
    if (code == OK) { *major = (int)value / 10; *minor = (int)value % 10; }
    return code;
}
API ret nvmlDeviceGetPowerManagementLimitConstraints(device dev, unsigned *low, unsigned *high) {
    ret code = word(dev, "power_min_mw", low);
    return code ? code : word(dev, "power_max_mw", high);
}
static const char *const clock_keys[4] = {"graphics", "sm", "mem", "video"};
static ret clock_of(device dev, const char *kind, unsigned type, unsigned *out) {
    char key[40];
    if (type > 3) return INVALID;
    snprintf(key, sizeof key, "%s_%s_mhz", kind, clock_keys[type]);
    return word(dev, key, out);
}
API ret nvmlDeviceGetClockInfo(device dev, unsigned type, unsigned *out) { return clock_of(dev, "clock", type, out); }
API ret nvmlDeviceGetMaxClockInfo(device dev, unsigned type, unsigned *out) { return clock_of(dev, "clock_max", type, out); }
API ret nvmlDeviceGetClock(device dev, unsigned type, unsigned id, unsigned *out) {
    return clock_of(dev, id == 3 ? "clock_max" : "clock", type, out);
}
API ret nvmlDeviceGetTemperature(device dev, unsigned sensor, unsigned *out) { return sensor ? INVALID : word(dev, "temperature", out); }
struct temperature { unsigned version; unsigned sensor; int celsius; };
API ret nvmlDeviceGetTemperatureV(device dev, struct temperature *out) {
    unsigned value = 0;
    ret code = word(dev, "temperature", &value);
    out->celsius = (int)value;
    return code;
}
API ret nvmlDeviceGetTemperatureThreshold(device dev, unsigned kind, unsigned *out) {
    ret code = check(dev);
    static const unsigned limits[4] = {92, 89, 95, 87};
    if (code == OK) { if (kind > 3) return NOT_SUPPORTED; *out = limits[kind]; }
    return code;
}

struct pci { char legacy[16]; unsigned domain, bus, slot, id, subsystem; char bus_id[32]; };
API ret nvmlDeviceGetPciInfo_v3(device dev, struct pci *out) {
    ret code = check(dev);
    if (code) return code;
    memset(out, 0, sizeof *out);
    text(dev->index, "bus_id", out->bus_id, sizeof out->bus_id);
    snprintf(out->legacy, sizeof out->legacy, "%.12s", out->bus_id + 4);
    sscanf(out->bus_id, "%x:%x:%x", &out->domain, &out->bus, &out->slot);
    word(dev, "device_id", &out->id);
    return word(dev, "subsystem_id", &out->subsystem);
}
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
API ret nvmlDeviceGetMemoryInfo(device dev, struct memory *out) {
    ret code = number(dev, "memory_bytes", &out->total);
    if (code == OK) { number(dev, "memory_used_bytes", &out->used); out->free = out->total - out->used; }
    return code;
}
API ret nvmlDeviceGetMemoryInfo_v2(device dev, struct memory_v2 *out) {
    ret code = number(dev, "memory_bytes", &out->total);
    if (code == OK) {
        number(dev, "memory_reserved_bytes", &out->reserved);
        number(dev, "memory_used_bytes", &out->used);
        out->free = out->total - out->used - out->reserved;
    }
    return code;
}
API ret nvmlDeviceGetUtilizationRates(device dev, unsigned *out) {
    ret code = check(dev);
    if (code == OK) out[0] = out[1] = 0;
    return code;
}
API ret nvmlDeviceGetEccMode(device dev, unsigned *now, unsigned *pending) {
    ret code = word(dev, "ecc_mode", now);
    if (code == OK) *pending = *now;
    return code;
}
static ret ecc(device dev, unsigned error, unsigned counter, unsigned long long *out) {
    char key[40];
    if (error > 1 || counter > 1) return INVALID;
    snprintf(key, sizeof key, "ecc_%s_%s", counter ? "aggregate" : "volatile", error ? "uncorrected" : "corrected");
    return number(dev, key, out);
}
API ret nvmlDeviceGetTotalEccErrors(device dev, unsigned error, unsigned counter, unsigned long long *out) { return ecc(dev, error, counter, out); }
API ret nvmlDeviceGetMemoryErrorCounter(device dev, unsigned error, unsigned counter, unsigned place, unsigned long long *out) {
    ret code = ecc(dev, error, counter, out);
    if (code == OK && place != 2 && place != 6) *out = 0;
    return code;
}
API ret nvmlDeviceGetRemappedRows(device dev, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed) {
    ret code = word(dev, "remap_correctable", correctable);
    if (code) return code;
    word(dev, "remap_uncorrectable", uncorrectable);
    word(dev, "remap_pending", pending);
    return word(dev, "remap_failure", failed);
}
static ret link_value(device dev, const char *what, unsigned link, unsigned *out) {
    char key[40];
    ret code = check(dev);
    if (code) return code;
    snprintf(key, sizeof key, "link%u_%s", link, what);
    code = word(dev, key, out);
    return code == NOT_SUPPORTED ? INVALID : code;
}
API ret nvmlDeviceGetNvLinkState(device dev, unsigned link, unsigned *out) { return link_value(dev, "active", link, out); }
API ret nvmlDeviceGetNvLinkVersion(device dev, unsigned link, unsigned *out) { return link_value(dev, "version", link, out); }
API ret nvmlDeviceGetNvLinkErrorCounter(device dev, unsigned link, unsigned kind, unsigned long long *out) {
    unsigned value = 0;
    ret code = link_value(dev, kind == 0 ? "replay" : "crc", link, &value);
    *out = value;
    return code;
}
API ret nvmlDeviceGetMigMode(device dev, unsigned *now, unsigned *pending) {
    ret code = check(dev);
    if (code == OK) *now = *pending = 0;
    return code;
}
API ret nvmlDeviceGetCurrentClocksEventReasons(device dev, unsigned long long *out) { return number(dev, "clock_events", out); }
API ret nvmlDeviceGetCurrentClocksThrottleReasons(device dev, unsigned long long *out) { return number(dev, "clock_events", out); }
API ret nvmlDeviceGetRetiredPagesPendingStatus(device dev, unsigned *out) { (void)out; ret code = check(dev); return code ? code : NOT_SUPPORTED; }

struct fabric { unsigned char cluster[16]; ret status; unsigned clique; unsigned char state; };
struct fabric_v { unsigned version; unsigned char cluster[16]; ret status; unsigned clique; unsigned char state; unsigned mask; unsigned char summary; };
API ret nvmlDeviceGetGpuFabricInfo(device dev, struct fabric *out) {
    unsigned state = 0;
    ret code = word(dev, "fabric_state", &state);
    if (code) return code;
    memset(out, 0, sizeof *out);
    out->state = (unsigned char)state;
    return OK;
}
API ret nvmlDeviceGetGpuFabricInfoV(device dev, struct fabric_v *out) {
    unsigned state = 0;
    ret code = word(dev, "fabric_state", &state);
    if (code) return code;
    memset(out->cluster, 0, sizeof out->cluster);
    out->status = OK;
    out->clique = 0;
    out->state = (unsigned char)state;
    out->mask = 0;
    if ((out->version >> 24) >= 3) out->summary = 0;
    return OK;
}

struct field { unsigned id, scope; long long stamp, latency; unsigned type; ret code; union { double d; unsigned u; unsigned long ul; unsigned long long ull; } value; };
static ret field_of(device dev, struct field *field, unsigned *out) {
    switch (field->id) {
    case 84: case 90: case 164: return link_value(dev, "speed", field->id == 164 ? field->scope : 0, out);
    case 165: return link_value(dev, "active", field->scope, out);
    case 91: return word(dev, "link_count", out);
    case 94: return word(dev, "pcie_replay", out);
    case 142: return word(dev, "remap_correctable", out);
    case 143: return word(dev, "remap_uncorrectable", out);
    case 144: return word(dev, "remap_pending", out);
    case 145: return word(dev, "remap_failure", out);
    case 230: return word(dev, "recovery_action", out);
    default: return NOT_SUPPORTED;
    }
}
API ret nvmlDeviceGetFieldValues(device dev, int count, struct field *fields) {
    ret code = check(dev);
    if (code) return code;
    for (int at = 0; at < count; at++) {
        unsigned value = 0;
        fields[at].code = field_of(dev, &fields[at], &value);
        fields[at].type = 1;
        fields[at].stamp = (long long)time(NULL) * 1000000;
        fields[at].value.ull = value;
    }
    return OK;
}

API ret nvmlDeviceSetPersistenceMode(device dev, unsigned mode) { return set(dev, "persistence", mode, 0); }
API ret nvmlDeviceSetPowerManagementLimit(device dev, unsigned milliwatts) { return set(dev, "power_limit_mw", milliwatts, 0); }
API ret nvmlDeviceSetGpuLockedClocks(device dev, unsigned low, unsigned high) { return set(dev, "locked_clocks", low, high); }
API ret nvmlDeviceResetGpuLockedClocks(device dev) { return set(dev, "reset_clocks", 0, 0); }
