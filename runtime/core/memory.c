/* memory.c - the arena of a rank, and what memory the machine has. */
#include "runtime/core/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

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

/* Present when the trainer is linked with a BLAS. */
extern void cblas_sgemm(int order, int a_turned, int b_turned, int m, int n, int k, float alpha,
                        const float *a, int a_row, const float *b, int b_row, float beta, float *c,
                        int c_row) __attribute__((weak));

/* A BLAS takes its packing buffers when they are first needed, and touches of them what the product
 * fills: of all products of a step most, that with most rows. Few columns do, and no memory is
 * written for the operands. */
static void blas_warm(int64_t rows, int64_t inner)
{
    enum { MOST_ROWS = 1 << 17, MOST_INNER = 384, COLUMNS = 16, ROWS_FIRST = 101, AS_IT_IS = 111 };
    int m = (int)(rows < MOST_ROWS ? rows : MOST_ROWS);
    int k = (int)(inner < MOST_INNER ? inner : MOST_INNER);
    size_t left = (size_t)m * (size_t)k, right = (size_t)k * COLUMNS, out = (size_t)m * COLUMNS;
    float *a = cblas_sgemm && m > 0 && k > 0 ? calloc(left + right + out, sizeof *a) : NULL;
    if (!a)
        return;
    cblas_sgemm(ROWS_FIRST, AS_IT_IS, AS_IT_IS, m, COLUMNS, k, 1, a, k, a + left, COLUMNS, 0,
                a + left + right, COLUMNS);
    free(a);
}

/* Pages of [at, at + bytes) that are in memory, in bytes; -1 if unknown. */
static int64_t resident_bytes(const unsigned char *at, int64_t bytes, int64_t page)
{
    enum { CHUNK = 4096 };
    unsigned char in_memory[CHUNK];
    int64_t resident = 0;
    for (int64_t done = 0; done < bytes; done += CHUNK * page) {
        int64_t left = bytes - done, length = left < CHUNK * page ? left : CHUNK * page;
        if (mincore((void *)(uintptr_t)(at + done), (size_t)length, (void *)in_memory) != 0)
            return -1;
        for (int64_t i = 0; i < (length + page - 1) / page; i++)
            resident += (in_memory[i] & 1) * page;
    }
    return resident;
}

int64_t lp_memory_resident(const unsigned char *arena, int64_t bytes)
{
    int64_t page = sysconf(_SC_PAGESIZE);
    return page <= 0 ? -1 : resident_bytes(arena, round_up(bytes > 0 ? bytes : 1), page);
}

int64_t lp_memory_outside(const unsigned char *arena, int64_t arena_bytes, int64_t rows,
                          int64_t inner)
{
    blas_warm(rows, inner);
    int64_t page = sysconf(_SC_PAGESIZE);
    FILE *file = fopen("/proc/self/statm", "r");
    long long pages = -1;
    if (!file || page <= 0 || fscanf(file, "%*d %lld", &pages) != 1)
        pages = -1;
    if (file)
        fclose(file);
    int64_t inside = lp_memory_resident(arena, arena_bytes);
    return pages < 0 || inside < 0 ? -1 : pages * page - inside;
}

int64_t lp_memory_peak(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (int64_t)usage.ru_maxrss * 1024;
}
