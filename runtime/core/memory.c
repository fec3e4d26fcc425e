/* memory.c - the arena of a rank, and what memory the machine has. */
#include "runtime/core/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define HUGE_BYTES ((int64_t)2 << 20)

static int64_t round_up(int64_t bytes)
{
    return (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
}

unsigned char *lp_arena_map(int64_t bytes)
{
    int64_t size = round_up(bytes > 0 ? bytes : 1);
    unsigned char *raw = mmap(NULL, (size_t)(size + HUGE_BYTES), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    int64_t head = (int64_t)(-(uintptr_t)raw & (uintptr_t)(HUGE_BYTES - 1));
    if (head > 0)
        munmap(raw, (size_t)head);
    if (head < HUGE_BYTES)
        munmap(raw + head + size, (size_t)(HUGE_BYTES - head));
#ifdef MADV_HUGEPAGE
    /* Most systems give huge pages on demand only; a refusal costs speed, not truth. */
    (void)madvise(raw + head, (size_t)size, MADV_HUGEPAGE);
#endif
    return raw + head;
}

void lp_arena_unmap(unsigned char *arena, int64_t bytes)
{
    munmap(arena, (size_t)round_up(bytes > 0 ? bytes : 1));
}

/* The number after `key` in a file of /proc or /sys; -1 if there is none. */
static int64_t read_number(const char *path, const char *key)
{
    FILE *file = fopen(path, "r");
    char line[256];
    int64_t value = -1;
    if (!file)
        return -1;
    while (value < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0) {
            char *end = NULL;
            const char *text = line + strlen(key);
            long long number = strtoll(text, &end, 10);
            if (end != text)
                value = number;
        }
    fclose(file);
    return value;
}

int64_t lp_memory_available(void)
{
    int64_t available = read_number("/proc/meminfo", "MemAvailable:");
    if (available >= 0)
        available *= 1024;
    int64_t limit = read_number("/sys/fs/cgroup/memory.max", "");
    int64_t used = read_number("/sys/fs/cgroup/memory.current", "");
    int64_t cache = read_number("/sys/fs/cgroup/memory.stat", "inactive_file ");
    if (limit < 0) {
        limit = read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", "");
        used = read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", "");
        cache = read_number("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file ");
    }
    /* File cache counts as used there, but goes when memory is wanted. */
    used -= cache > 0 ? cache : 0;
    if (limit >= 0 && limit - used < available)
        available = limit > used ? limit - used : 0;
    return available;
}

int64_t lp_memory_peak(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (int64_t)usage.ru_maxrss * 1024;
}
