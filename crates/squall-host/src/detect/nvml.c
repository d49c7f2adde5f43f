/* Stands for NVIDIA's library in tests: three GPUs, two with links to each other, the third divided in two. */
#include <stdio.h>
#include <string.h>

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, ids[2];
    char bus_id[32];
} pci_t;

static int gpus[3] = {0, 1, 2}, parts[2] = {0, 1};
static int initialised;

static int is_part(void *handle) { return handle == &parts[0] || handle == &parts[1]; }
static int of(void *handle) { return *(int *)handle; }

int nvmlInit_v2(void) { return initialised++; }
int nvmlShutdown(void) { return --initialised; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return !initialised; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = &gpus[index]; return index > 2; }
int nvmlDeviceGetName(void *handle, char *name, unsigned length) {
    snprintf(name, length, is_part(handle) ? "NVIDIA A100-SXM4-40GB MIG 3g.20gb" : "NVIDIA A100-SXM4-40GB");
    return 0;
}
/* The order on the bus is not that of the files. */
int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor) { *minor = of(handle) == 2 ? 2 : 1 - of(handle); return 0; }
int nvmlDeviceGetPciInfo_v3(void *handle, pci_t *pci) {
    memset(pci, 0xff, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", 0x3a + of(handle));
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) {
    rates[0] = 10 * (of(handle) + 1);
    rates[1] = 77;
    return of(handle) == 2 ? 3 : 0;
}
int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *memory) {
    memory[0] = 1 << 30;
    memory[2] = (of(handle) + 1) << 20;
    return of(handle) == 2 ? 4 : 0;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *pending) {
    *pending = 0;
    *now = of(handle) == 2;
    return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) { *count = 7; return of(handle) != 2; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *gpu, unsigned index, void **part) {
    (void)gpu;
    /* Numbers need not be dense. */
    if (index != 1 && index != 3) return 6;
    *part = &parts[index / 2];
    return 0;
}
int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length) {
    snprintf(uuid, length, is_part(handle) ? "MIG-%d" : "GPU-%d", of(handle));
    return 0;
}
int nvmlDeviceGetGpuInstanceId(void *part, unsigned *number) { *number = 1 + of(part); return !is_part(part); }
int nvmlDeviceGetComputeInstanceId(void *part, unsigned *number) { *number = 0; return !is_part(part); }
int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *up) { *up = of(handle) < 2 && link < 2; return link > 3; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, pci_t *pci) {
    (void)link;
    int other = 1 - of(handle);
    return nvmlDeviceGetPciInfo_v3(&other, pci);
}
