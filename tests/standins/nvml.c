/* A stand-in for libnvidia-ml.so.1: the part of NVML that uncork calls, answered from a text file.
 *
 * $UNCORK_NVML_STATE names the file; it is read again at every call, so a test may change it under a running
 * program. One setting a line, the last one wins:
 *
 *     system KEY VALUE          count, driver, library, cuda, init, ...
 *     gpu INDEX|* KEY VALUE     name, bdf, persistence, power_limit, ... (see the table of getters below)
 *     link INDEX|* LINK KEY VALUE     state, remote, crc, replay, recovery
 *     pair A B KEY VALUE        read, write, nvlink, atomics, pci, level
 *
 * A value `!N` makes the getter return error N; a key that is not there answers NVML_ERROR_NOT_SUPPORTED
 * unless the getter has a default. Setters append `NAME INDEX VALUE` to $UNCORK_NVML_LOG and the new setting to
 * the state file; `gpu N deny 4` makes every setter answer error 4.
 *
 * Build: cc -shared -fPIC -o libnvidia-ml.so.1 nvml.c
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef int Return;
typedef struct device { int index; } *Device;
enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 6, TOO_SMALL = 7 };
#define MAX_GPUS 32
#define TEXT 256

static struct device devices[MAX_GPUS];
static int users;

/* The last line of the state file that starts with `scope` (or its wildcard form) and `key`. */
static int find(const char *scope, const char *wild, const char *key, char *out) {
    const char *path = getenv("UNCORK_NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[2 * TEXT];
    int found = 0;
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        size_t length = strlen(scope);
        if (strncmp(line, scope, length)) {
            length = wild ? strlen(wild) : 0;
            if (!length || strncmp(line, wild, length)) continue;
        }
        char name[TEXT], value[TEXT] = "";
        if (sscanf(line + length, " %255s %255[^\n]", name, value) >= 1 && !strcmp(name, key)) {
            strcpy(out, value);
            found = 1;
        }
    }
    fclose(file);
    return found;
}

static Return text_of(const char *scope, const char *wild, const char *key, const char *otherwise, char *out) {
    if (!users) return UNINITIALIZED;
    if (!find(scope, wild, key, out)) {
        if (!otherwise) return NOT_SUPPORTED;
        strcpy(out, otherwise);
    }
    return out[0] == '!' ? atoi(out + 1) : SUCCESS;
}

static Return gpu_text(Device device, const char *key, const char *otherwise, char *out) {
    char scope[32];
    if (!users) return UNINITIALIZED;
    if (device < devices || device >= devices + MAX_GPUS) return INVALID_ARGUMENT;
    sprintf(scope, "gpu %d ", device->index);
    Return lost = text_of(scope, "gpu * ", "lost", "0", out);
    if (lost) return lost;
    return text_of(scope, "gpu * ", key, otherwise, out);
}

static Return gpu_number(Device device, const char *key, const char *otherwise, unsigned long long *out) {
    char text[TEXT];
    Return answer = gpu_text(device, key, otherwise, text);
    if (!answer) *out = strtoull(text, NULL, 0);
    return answer;
}

static Return copy(const char *text, char *buffer, unsigned length) {
    if (strlen(text) + 1 > length) return TOO_SMALL;
    strcpy(buffer, text);
    return SUCCESS;
}

static Return system_text(const char *key, const char *otherwise, char *buffer, unsigned length) {
    char text[TEXT];
    Return answer = text_of("system ", NULL, key, otherwise, text);
    return answer ? answer : copy(text, buffer, length);
}

static int count(void) {
    char text[TEXT];
    return find("system ", NULL, "count", text) ? atoi(text) : 1;
}

/* ---- the library ---- */

Return nvmlInitWithFlags(unsigned flags) {
    char text[TEXT];
    (void)flags;
    if (find("system ", NULL, "init", text) && atoi(text)) return atoi(text);
    for (int i = 0; i < MAX_GPUS; i++) devices[i].index = i;
    users++;
    return SUCCESS;
}
Return nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
Return nvmlShutdown(void) { return users ? (users--, SUCCESS) : UNINITIALIZED; }
const char *nvmlErrorString(Return code) {
    switch (code) {
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}
Return nvmlSystemGetDriverVersion(char *b, unsigned n) { return system_text("driver", "580.82.09", b, n); }
Return nvmlSystemGetNVMLVersion(char *b, unsigned n) { return system_text("library", "13.580.82.09", b, n); }
Return nvmlSystemGetCudaDriverVersion_v2(int *out) {
    char text[TEXT];
    Return answer = text_of("system ", NULL, "cuda", "13000", text);
    if (!answer) *out = atoi(text);
    return answer;
}
Return nvmlSystemGetCudaDriverVersion(int *out) { return nvmlSystemGetCudaDriverVersion_v2(out); }
typedef struct { unsigned environment, feature, tools; } ConfCompute;
Return nvmlSystemGetConfComputeState(ConfCompute *out) {
    char text[TEXT];
    Return answer = text_of("system ", NULL, "confidential", NULL, text);
    memset(out, 0, sizeof *out);
    if (!answer) out->feature = atoi(text);
    return answer;
}
Return nvmlSystemGetNvlinkBwMode(unsigned *out) {
    char text[TEXT];
    Return answer = text_of("system ", NULL, "nvlink_bw_mode", NULL, text);
    if (!answer) *out = atoi(text);
    return answer;
}

/* ---- devices ---- */

Return nvmlDeviceGetCount_v2(unsigned *out) { return users ? (*out = count(), SUCCESS) : UNINITIALIZED; }
Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *out) {
    char text[TEXT];
    if (!users) return UNINITIALIZED;
    if ((int)index >= count() || index >= MAX_GPUS) return INVALID_ARGUMENT;
    *out = &devices[index];
    return gpu_text(*out, "handle", "", text);
}
static void bus_id(Device device, char *out, int digits) {
    char text[TEXT];
    unsigned domain = 0, bus = 0x10 * (device->index + 1), slot = 0;
    if (!gpu_text(device, "bdf", NULL, text)) sscanf(text, "%x:%x:%x", &domain, &bus, &slot);
    sprintf(out, "%0*X:%02X:%02X.0", digits, domain, bus, slot);
}
Return nvmlDeviceGetHandleByPciBusId_v2(const char *wanted, Device *out) {
    char with_8[32], with_4[32];
    for (int i = 0; i < count(); i++) {
        bus_id(&devices[i], with_8, 8), bus_id(&devices[i], with_4, 4);
        if (!strcasecmp(wanted, with_8) || !strcasecmp(wanted, with_4)) return *out = &devices[i], SUCCESS;
    }
    return NOT_FOUND;
}
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } PciInfo;
Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo *out) {
    unsigned long long id = 0, subsystem = 0;
    char text[TEXT];
    Return answer = gpu_text(device, "pci", "", text);
    if (answer) return answer;
    memset(out, 0, sizeof *out);
    gpu_number(device, "id", "0x2bb510de", &id);
    gpu_number(device, "subsystem", "0x204e10de", &subsystem);
    out->id = id, out->subsystem = subsystem;
    bus_id(device, out->bus_id, 8), bus_id(device, out->legacy, 4);
    sscanf(out->bus_id, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    return SUCCESS;
}
Return nvmlDeviceGetName(Device d, char *b, unsigned n) {
    char text[TEXT];
    Return answer = gpu_text(d, "name", "NVIDIA RTX PRO 6000 Blackwell Server Edition", text);
    return answer ? answer : copy(text, b, n);
}
Return nvmlDeviceGetUUID(Device d, char *b, unsigned n) {
    char text[TEXT], otherwise[64];
    sprintf(otherwise, "GPU-00000000-0000-0000-0000-%012d", d->index);
    Return answer = gpu_text(d, "uuid", otherwise, text);
    return answer ? answer : copy(text, b, n);
}
Return nvmlDeviceGetHandleByUUID(const char *wanted, Device *out) {
    char text[TEXT];
    for (int i = 0; i < count(); i++)
        if (!nvmlDeviceGetUUID(&devices[i], text, TEXT) && !strcmp(wanted, text))
            return *out = &devices[i], SUCCESS;
    return NOT_FOUND;
}
#define TEXT_GETTER(function, key, otherwise) \
    Return function(Device d, char *b, unsigned n) { \
        char text[TEXT]; \
        Return answer = gpu_text(d, key, otherwise, text); \
        return answer ? answer : copy(text, b, n); \
    }
TEXT_GETTER(nvmlDeviceGetVbiosVersion, "vbios", "98.02.52.00.02")
Return nvmlDeviceGetGspFirmwareVersion(Device d, char *b) {
    char text[TEXT];
    Return answer = gpu_text(d, "gsp_version", NULL, text);
    if (!answer) strcpy(b, text);
    return answer;
}

/* One unsigned word out; the default says what a healthy idle card answers, NULL that it is not supported. */
#define GETTER(function, key, otherwise) \
    Return function(Device d, unsigned *out) { \
        unsigned long long value = 0; \
        Return answer = gpu_number(d, key, otherwise, &value); \
        if (!answer) *out = value; \
        return answer; \
    }
GETTER(nvmlDeviceGetMinorNumber, "minor", "0")
GETTER(nvmlDeviceGetNumaNodeId, "numa_node", NULL)
GETTER(nvmlDeviceGetPersistenceMode, "persistence", "1")
GETTER(nvmlDeviceGetComputeMode, "compute_mode", "0")
GETTER(nvmlDeviceGetPerformanceState, "pstate", "8")
GETTER(nvmlDeviceGetPowerState, "pstate", "8")
GETTER(nvmlDeviceGetPowerUsage, "power", "85000")
GETTER(nvmlDeviceGetPowerManagementLimit, "power_limit", "600000")
GETTER(nvmlDeviceGetPowerManagementDefaultLimit, "power_default", "600000")
GETTER(nvmlDeviceGetCurrPcieLinkGeneration, "link_gen", "5")
GETTER(nvmlDeviceGetMaxPcieLinkGeneration, "link_gen_max", "5")
GETTER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "link_gen_device_max", "5")
GETTER(nvmlDeviceGetCurrPcieLinkWidth, "link_width", "16")
GETTER(nvmlDeviceGetMaxPcieLinkWidth, "link_width_max", "16")
GETTER(nvmlDeviceGetPcieReplayCounter, "replays", "0")
GETTER(nvmlDeviceGetDisplayMode, "display_mode", "0")
GETTER(nvmlDeviceGetDisplayActive, "display_active", "0")
GETTER(nvmlDeviceGetVirtualizationMode, "virtualization", "0")
GETTER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending", NULL)
Return nvmlDeviceGetEnforcedPowerLimit(Device d, unsigned *out) {
    unsigned long long value = 0;
    Return answer = gpu_number(d, "power_enforced", NULL, &value);
    if (answer == NOT_SUPPORTED) return nvmlDeviceGetPowerManagementLimit(d, out);
    if (!answer) *out = value;
    return answer;
}
Return nvmlDeviceGetPowerManagementLimitConstraints(Device d, unsigned *low, unsigned *high) {
    unsigned long long a = 0, b = 0;
    Return answer = gpu_number(d, "power_min", "150000", &a);
    if (!answer) answer = gpu_number(d, "power_max", "600000", &b);
    if (!answer) *low = a, *high = b;
    return answer;
}
static Return pair_of_numbers(Device d, const char *first, const char *second, const char *otherwise, unsigned *a,
                              unsigned *b) {
    unsigned long long x = 0, y = 0;
    Return answer = gpu_number(d, first, otherwise, &x);
    if (answer) return answer;
    if (gpu_number(d, second, NULL, &y)) y = x;
    return *a = x, *b = y, SUCCESS;
}
Return nvmlDeviceGetEccMode(Device d, unsigned *a, unsigned *b) { return pair_of_numbers(d, "ecc", "ecc_pending", "1", a, b); }
Return nvmlDeviceGetMigMode(Device d, unsigned *a, unsigned *b) { return pair_of_numbers(d, "mig", "mig_pending", NULL, a, b); }
Return nvmlDeviceGetGspFirmwareMode(Device d, unsigned *a, unsigned *b) { return pair_of_numbers(d, "gsp", "gsp_default", "1", a, b); }
Return nvmlDeviceGetCudaComputeCapability(Device d, int *major, int *minor) {
    char text[TEXT];
    Return answer = gpu_text(d, "compute_capability", "12.0", text);
    if (!answer) sscanf(text, "%d.%d", major, minor);
    return answer;
}
Return nvmlDeviceGetTotalEccErrors(Device d, int kind, int counter, unsigned long long *out) {
    const char *keys[2][2] = {{"ecc_corrected_volatile", "ecc_corrected_aggregate"},
                              {"ecc_uncorrected_volatile", "ecc_uncorrected_aggregate"}};
    return gpu_number(d, keys[kind & 1][counter & 1], "0", out);
}
Return nvmlDeviceGetRemappedRows(Device d, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                 unsigned *failed) {
    const char *keys[4] = {"remap_corrected", "remap_uncorrected", "remap_pending", "remap_failure"};
    unsigned *out[4] = {corrected, uncorrected, pending, failed};
    for (int i = 0; i < 4; i++) {
        unsigned long long value = 0;
        Return answer = gpu_number(d, keys[i], "0", &value);
        if (answer) return answer;
        *out[i] = value;
    }
    return SUCCESS;
}
typedef struct { unsigned version; unsigned long long counts[11]; unsigned exceeded; } SramErrors;
Return nvmlDeviceGetSramEccErrorStatus(Device d, SramErrors *out) {
    unsigned long long value = 0;
    Return answer = gpu_number(d, "sram_exceeded", NULL, &value);
    if (!answer) out->exceeded = value;
    return answer;
}
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
Return nvmlDeviceGetMemoryInfo_v2(Device d, Memory2 *out) {
    unsigned long long total = 0, used = 0, reserved = 0;
    Return answer = gpu_number(d, "memory_mib", "97887", &total);
    if (answer) return answer;
    gpu_number(d, "memory_used_mib", "4", &used), gpu_number(d, "memory_reserved_mib", "632", &reserved);
    out->total = total << 20, out->used = used << 20, out->reserved = reserved << 20;
    out->free = out->total - out->used - out->reserved;
    return SUCCESS;
}
Return nvmlDeviceGetMemoryInfo(Device d, Memory *out) {
    Memory2 all;
    Return answer = nvmlDeviceGetMemoryInfo_v2(d, &all);
    if (!answer) out->total = all.total, out->used = all.used + all.reserved, out->free = all.free;
    return answer;
}
Return nvmlDeviceGetBAR1MemoryInfo(Device d, Memory *out) {
    unsigned long long total = 0, used = 0;
    Return answer = gpu_number(d, "bar1_mib", "131072", &total);
    if (answer) return answer;
    gpu_number(d, "bar1_used_mib", "1", &used);
    out->total = total << 20, out->used = used << 20, out->free = out->total - out->used;
    return SUCCESS;
}
Return nvmlDeviceGetTemperature(Device d, int sensor, unsigned *out) {
    unsigned long long value = 0;
    Return answer = gpu_number(d, "temperature", "34", &value);
    (void)sensor;
    if (!answer) *out = value;
    return answer;
}
typedef struct { unsigned version; int sensor, degrees; } TemperatureV;
Return nvmlDeviceGetTemperatureV(Device d, TemperatureV *out) {
    unsigned value = 0;
    Return answer = nvmlDeviceGetTemperature(d, 0, &value);
    if (!answer) out->degrees = value;
    return answer;
}
Return nvmlDeviceGetTemperatureThreshold(Device d, int which, unsigned *out) {
    const char *keys[] = {"temperature_shutdown", "temperature_slowdown", "temperature_memory_max"};
    unsigned long long value = 0;
    if (which < 0 || which > 2) return NOT_SUPPORTED;
    Return answer = gpu_number(d, keys[which], NULL, &value);
    if (!answer) *out = value;
    return answer;
}
typedef struct { unsigned version; int degrees; } Margin;
Return nvmlDeviceGetMarginTemperature(Device d, Margin *out) {
    unsigned long long value = 0;
    Return answer = gpu_number(d, "temperature_margin", NULL, &value);
    if (!answer) out->degrees = value;
    return answer;
}
static Return clock_of(Device d, const char *graphics, const char *memory, int type, const char *otherwise_graphics,
                       const char *otherwise_memory, unsigned *out) {
    unsigned long long value = 0;
    Return answer = gpu_number(d, type == 2 ? memory : graphics, type == 2 ? otherwise_memory : otherwise_graphics, &value);
    if (!answer) *out = value;
    return answer;
}
Return nvmlDeviceGetClockInfo(Device d, int type, unsigned *out) { return clock_of(d, "sm_clock", "memory_clock", type, "180", "405", out); }
Return nvmlDeviceGetMaxClockInfo(Device d, int type, unsigned *out) { return clock_of(d, "sm_clock_max", "memory_clock_max", type, "2430", "12481", out); }
Return nvmlDeviceGetApplicationsClock(Device d, int type, unsigned *out) { return clock_of(d, "app_sm_clock", "app_memory_clock", type, NULL, NULL, out); }
Return nvmlDeviceGetDefaultApplicationsClock(Device d, int type, unsigned *out) { return clock_of(d, "default_app_sm_clock", "default_app_memory_clock", type, NULL, NULL, out); }
typedef struct { unsigned gpu, memory; } Utilization;
Return nvmlDeviceGetUtilizationRates(Device d, Utilization *out) {
    unsigned long long value = 0;
    Return answer = gpu_number(d, "utilization", "0", &value);
    if (!answer) out->gpu = value, out->memory = 0;
    return answer;
}
Return nvmlDeviceGetCurrentClocksEventReasons(Device d, unsigned long long *out) { return gpu_number(d, "reasons", "1", out); }
Return nvmlDeviceGetCurrentClocksThrottleReasons(Device d, unsigned long long *out) { return nvmlDeviceGetCurrentClocksEventReasons(d, out); }
typedef struct { unsigned version, value; } Addressing;
Return nvmlDeviceGetAddressingMode(Device d, Addressing *out) {
    unsigned long long value = 0;
    Return answer = gpu_number(d, "addressing", NULL, &value);
    if (!answer) out->value = value;
    return answer;
}
typedef struct { unsigned version; unsigned char cluster[16]; Return status; unsigned clique, state, health; } Fabric;
Return nvmlDeviceGetGpuFabricInfoV(Device d, Fabric *out) {
    unsigned long long value = 0;
    Return answer = gpu_number(d, "fabric_state", NULL, &value);
    if (answer) return answer;
    out->state = value, out->status = out->clique = out->health = 0;
    if (!gpu_number(d, "fabric_status", "0", &value)) out->status = value;
    if (!gpu_number(d, "fabric_clique", "0", &value)) out->clique = value;
    if (!gpu_number(d, "fabric_health", "0", &value)) out->health = value;
    return SUCCESS;
}
typedef struct { unsigned id, scope; long long when, latency; int type; Return answer; union { double d; int i; unsigned u; unsigned long ul; unsigned long long ull; long long ll; } value; } Field;
Return nvmlDeviceGetFieldValues(Device d, int many, Field *fields) {
    char text[TEXT], key[64];
    Return gone = gpu_text(d, "fields", "", text);
    if (gone) return gone;
    for (int i = 0; i < many; i++) {
        unsigned long long value = 0;
        sprintf(key, fields[i].scope ? "field.%u.%u" : "field.%u", fields[i].id, fields[i].scope);
        fields[i].answer = gpu_number(d, key, NULL, &value);
        fields[i].type = 3; /* unsigned long long */
        fields[i].value.ull = value;
    }
    return SUCCESS;
}
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } ProcessInfo;
static Return processes(Device d, const char *key, unsigned *many, ProcessInfo *out) {
    char text[TEXT];
    Return answer = gpu_text(d, key, "", text); /* PID:MIB PID:MIB ... */
    unsigned found = 0;
    if (answer) return answer;
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        unsigned pid = 0, mib = 0;
        if (sscanf(word, "%u:%u", &pid, &mib) < 1) continue;
        if (out && found < *many) out[found] = (ProcessInfo){pid, (unsigned long long)mib << 20, ~0u, ~0u};
        found++;
    }
    answer = found > *many || (found && !out) ? TOO_SMALL : SUCCESS;
    *many = found;
    return answer;
}
Return nvmlDeviceGetComputeRunningProcesses_v3(Device d, unsigned *n, ProcessInfo *out) { return processes(d, "compute", n, out); }
Return nvmlDeviceGetGraphicsRunningProcesses_v3(Device d, unsigned *n, ProcessInfo *out) { return processes(d, "graphics", n, out); }

/* ---- links and pairs ---- */

static Return link_number(Device d, unsigned link, const char *key, const char *otherwise, unsigned long long *out) {
    char scope[48], wild[48], text[TEXT];
    if (!users) return UNINITIALIZED;
    sprintf(scope, "link %d %u ", d->index, link), sprintf(wild, "link * %u ", link);
    Return answer = text_of(scope, wild, key, otherwise, text);
    if (!answer) *out = strtoull(text, NULL, 0);
    return answer;
}
Return nvmlDeviceGetNvLinkState(Device d, unsigned link, unsigned *out) {
    unsigned long long value = 0;
    Return answer = link_number(d, link, "state", NULL, &value);
    if (!answer) *out = value;
    return answer;
}
Return nvmlDeviceGetNvLinkVersion(Device d, unsigned link, unsigned *out) {
    unsigned long long value = 0;
    Return answer = link_number(d, link, "version", "4", &value);
    if (!answer) *out = value;
    return answer;
}
Return nvmlDeviceGetNvLinkErrorCounter(Device d, unsigned link, int which, unsigned long long *out) {
    const char *keys[] = {"replay", "recovery", "crc_flit", "crc_data", "ecc"};
    return which < 0 || which > 4 ? INVALID_ARGUMENT : link_number(d, link, keys[which], "0", out);
}
Return nvmlDeviceGetNvLinkRemoteDeviceType(Device d, unsigned link, unsigned *out) {
    unsigned long long value = 0;
    Return answer = link_number(d, link, "remote_type", "0", &value);
    if (!answer) *out = value;
    return answer;
}
Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device d, unsigned link, PciInfo *out) {
    unsigned long long value = 0; /* the remote GPU's index */
    Return answer = link_number(d, link, "remote", NULL, &value);
    return answer ? answer : value < MAX_GPUS ? nvmlDeviceGetPciInfo_v3(&devices[value], out) : INVALID_ARGUMENT;
}
static Return pair_number(Device a, Device b, const char *key, int otherwise, int *out) {
    char scope[48], text[TEXT], number[16];
    sprintf(scope, "pair %d %d ", a->index, b->index), sprintf(number, "%d", otherwise);
    Return answer = text_of(scope, "pair * * ", key, number, text);
    if (!answer) *out = atoi(text);
    return answer;
}
Return nvmlDeviceGetTopologyCommonAncestor(Device a, Device b, int *out) {
    return pair_number(a, b, "level", a == b ? 0 : a->index / 2 == b->index / 2 ? 10 : 50, out);
}
Return nvmlDeviceGetP2PStatus(Device a, Device b, int which, int *out) {
    const char *keys[] = {"read", "write", "nvlink", "atomics", "pci"};
    return which < 0 || which > 4 ? INVALID_ARGUMENT : pair_number(a, b, keys[which], which == 2 ? 5 : 0, out);
}

/* ---- setters ---- */

static Return set(Device d, const char *key, const char *text) {
    unsigned long long denied = 0;
    Return answer = gpu_number(d, "deny", "0", &denied);
    if (answer || denied) return answer ? answer : (Return)denied;
    const char *paths[2] = {getenv("UNCORK_NVML_STATE"), getenv("UNCORK_NVML_LOG")};
    for (int i = 0; i < 2; i++) {
        FILE *file = paths[i] ? fopen(paths[i], "a") : NULL;
        if (!file) continue;
        fprintf(file, i ? "%2$s %1$d %3$s\n" : "gpu %1$d %2$s %3$s\n", d->index, key, text);
        fclose(file);
    }
    return SUCCESS;
}
static Return set_number(Device d, const char *key, unsigned value) {
    char text[32];
    return sprintf(text, "%u", value), set(d, key, text);
}
Return nvmlDeviceSetPersistenceMode(Device d, unsigned mode) { return mode > 1 ? INVALID_ARGUMENT : set_number(d, "persistence", mode); }
Return nvmlDeviceSetComputeMode(Device d, unsigned mode) { return mode > 3 ? INVALID_ARGUMENT : set_number(d, "compute_mode", mode); }
Return nvmlDeviceSetPowerManagementLimit(Device d, unsigned milliwatts) {
    unsigned low = 0, high = 0;
    Return answer = nvmlDeviceGetPowerManagementLimitConstraints(d, &low, &high);
    if (answer) return answer;
    return milliwatts < low || milliwatts > high ? INVALID_ARGUMENT : set_number(d, "power_limit", milliwatts);
}
Return nvmlDeviceSetGpuLockedClocks(Device d, unsigned low, unsigned high) {
    char text[64];
    if (low > high) return INVALID_ARGUMENT;
    return sprintf(text, "%u,%u", low, high), set(d, "locked_clocks", text);
}
Return nvmlDeviceResetGpuLockedClocks(Device d) { return set(d, "locked_clocks", "none"); }
Return nvmlDeviceSetMemoryLockedClocks(Device d, unsigned low, unsigned high) {
    char text[64];
    return sprintf(text, "%u,%u", low, high), set(d, "locked_memory_clocks", text);
}
Return nvmlDeviceResetMemoryLockedClocks(Device d) { return set(d, "locked_memory_clocks", "none"); }
Return nvmlDeviceSetApplicationsClocks(Device d, unsigned memory, unsigned graphics) {
    Return answer = set_number(d, "app_memory_clock", memory);
    return answer ? answer : set_number(d, "app_sm_clock", graphics);
}
Return nvmlDeviceResetApplicationsClocks(Device d) {
    char text[TEXT];
    Return answer = gpu_text(d, "default_app_sm_clock", NULL, text);
    if (!answer) answer = set(d, "app_sm_clock", text);
    if (!answer && !gpu_text(d, "default_app_memory_clock", NULL, text)) answer = set(d, "app_memory_clock", text);
    return answer;
}
