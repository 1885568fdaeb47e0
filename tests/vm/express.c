/* Preloaded into a stock qemu-system-x86_64: edits the PCI config space of emulated Express functions.
 *
 * QEMU hard-wires Device Control's MaxReadReq to 0 and gives switch ports no ACS, so a guest cannot change what
 * hardware lets it change. QEMU keeps five arrays of 4096 bytes for each Express function, allocated one after
 * the other with g_malloc0: values, check mask, write mask, write-1-to-clear mask, used. This library remembers
 * them and, when the main loop first turns (all devices are complete then), applies the lines of
 * $UNCORK_VM_EXPRESS:
 *
 *     VENDOR:DEVICE NUMBER OFFSET WIDTH VALUE WRITABLE     NUMBER counts functions of that id in order, * is all
 *     VENDOR:DEVICE NUMBER cap ID VERSION OFFSET           appends an extended capability
 *
 * OFFSET may be exp+N, from the start of the PCI Express capability; VENDOR:DEVICE may be any. Numbers are hex.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_SIZE = 4096, ARRAYS = 5, VALUES = 0, WRITABLE = 2, MAX_FUNCTIONS = 128, NEAR = 512 };

struct function { uint8_t *arrays[ARRAYS]; uint32_t id; };
static struct function functions[MAX_FUNCTIONS];
static int count, applied;
static __thread struct { uint8_t *arrays[ARRAYS]; uintptr_t callers[ARRAYS]; int length; } run;

void *g_malloc0(size_t size) {
    static void *(*next)(size_t);
    if (!next) next = dlsym(RTLD_NEXT, "g_malloc0");
    void *memory = next(size);
    if (size != CONFIG_SIZE) {
        run.length = 0;
        return memory;
    }
    /* Five calls in a row from one stretch of code are pci_config_alloc(); others restart the run. */
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);
    if (run.length && (caller <= run.callers[run.length - 1] || caller - run.callers[0] > NEAR)) run.length = 0;
    run.arrays[run.length] = memory;
    run.callers[run.length++] = caller;
    if (run.length == ARRAYS) {
        run.length = 0;
        if (count < MAX_FUNCTIONS) memcpy(functions[count++].arrays, run.arrays, sizeof run.arrays);
    }
    return memory;
}

static uint32_t get(const uint8_t *at, int width) {
    uint32_t value = 0;
    memcpy(&value, at, width);
    return value;
}

static int express(const uint8_t *config) {
    for (int at = config[0x34], steps = 0; at && steps < 48; at = config[at + 1], steps++)
        if (config[at] == 0x10) return at;
    return 0;
}

static void append(uint8_t *config, unsigned id, unsigned version, unsigned offset) {
    unsigned last = 0x100;
    if (get(config + last, 4)) {
        while (get(config + last, 4) >> 20) last = get(config + last, 4) >> 20;
        uint32_t header = (get(config + last, 4) & 0xfffff) | offset << 20;
        memcpy(config + last, &header, 4);
    } else {
        offset = last;
    }
    uint32_t header = id | version << 16;
    memcpy(config + offset, &header, 4);
}

static void edit(struct function *function, const char *what, const unsigned *numbers) {
    uint8_t *config = function->arrays[VALUES];
    int start = express(config);
    if (!start) return;
    if (!strcmp(what, "cap")) {
        append(config, numbers[0], numbers[1], numbers[2]);
        return;
    }
    unsigned offset = strncmp(what, "exp+", 4) ? strtoul(what, NULL, 16) : start + strtoul(what + 4, NULL, 16);
    unsigned width = numbers[0] / 8;
    if (width > 4 || offset + width > CONFIG_SIZE) return;
    memcpy(config + offset, &numbers[1], width);
    uint32_t mask = get(function->arrays[WRITABLE] + offset, width) | numbers[2];
    memcpy(function->arrays[WRITABLE] + offset, &mask, width);
}

static void apply(void) {
    const char *path = getenv("UNCORK_VM_EXPRESS");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256], id[32], number[16], what[32];
    unsigned numbers[3];
    if (!file) return;
    for (int i = applied; i < count; i++) functions[i].id = get(functions[i].arrays[VALUES], 4);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%31s %15s %31s %x %x %x", id, number, what, &numbers[0], &numbers[1], &numbers[2]) != 6)
            continue;
        unsigned vendor = 0, device = 0, nth = 0;
        int any = !strcmp(id, "any");
        if (!any && sscanf(id, "%x:%x", &vendor, &device) != 2) continue;
        for (int i = 0; i < count; i++) {
            if (!any && functions[i].id != (vendor | device << 16)) continue;
            int chosen = number[0] == '*' || nth == strtoul(number, NULL, 10);
            nth++;
            if (chosen && i >= applied) edit(&functions[i], what, numbers);
        }
    }
    fclose(file);
    applied = count;
}

int g_main_context_prepare(void *context, int *priority) {
    static int (*next)(void *, int *);
    if (!next) next = dlsym(RTLD_NEXT, "g_main_context_prepare");
    if (applied < count) apply();
    return next(context, priority);
}
