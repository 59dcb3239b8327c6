/* Fails, or stops the process at, the Nth call of one kind; bench/faults.py preloads and arms it.
 *
 * Calls count if they concern a file below the armed directory; allocations, if SQLite makes them.
 * Only the process that armed it is concerned: its children load the library and never arm it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NONE, WRITE, SYNC, ALLOCATION, LOCK };
enum { ONCE, FROM_THEN_ON, STOP };
static int kind, error, mode;
static long nth, count;
static pid_t armed;
static char directory[4096];
static unsigned long sqlite_begin, sqlite_end;

static int find(struct dl_phdr_info *info, size_t size, void *data) {
    if (!strstr(info->dlpi_name, "libsqlite3")) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        unsigned long end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && end > sqlite_end) sqlite_end = end;
    }
    sqlite_begin = info->dlpi_addr;
    return 1;
}

void faults_arm(int k, long n, int e, int m, const char *below) {
    dl_iterate_phdr(find, NULL);
    strncpy(directory, below, sizeof directory - 1);
    nth = n, error = e, mode = m, count = 0, armed = getpid();
    kind = k;
}

long faults_counted(void) { return count; }

/* True if the call is to fail. */
static int reached(int k, int descriptor) {
    if (kind != k || getpid() != armed) return 0;
    if (descriptor >= 0) {
        char link[32] = "/proc/self/fd/", digits[12], target[4096];
        int at = 12, left = descriptor, saved = errno;
        digits[--at] = 0;
        do digits[--at] = '0' + left % 10; while (left /= 10);
        strcat(link, digits + at);
        ssize_t length = readlink(link, target, sizeof target - 1);
        errno = saved;
        if (length < 0 || strncmp(target, directory, strlen(directory))) return 0;
    }
    count++;
    if (count != nth && !(mode == FROM_THEN_ON && nth && count > nth)) return 0;
    if (mode == STOP) return raise(SIGSTOP), 0;
    errno = error;
    return 1;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)
ssize_t write(int fd, const void *b, size_t n) { REAL(write); return reached(WRITE, fd) ? -1 : real(fd, b, n); }
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t o) { REAL(pwrite64); return reached(WRITE, fd) ? -1 : real(fd, b, n, o); }
ssize_t pwrite(int fd, const void *b, size_t n, off_t o) { REAL(pwrite); return reached(WRITE, fd) ? -1 : real(fd, b, n, o); }
int ftruncate(int fd, off_t n) { REAL(ftruncate); return reached(WRITE, fd) ? -1 : real(fd, n); }
int ftruncate64(int fd, off64_t n) { REAL(ftruncate64); return reached(WRITE, fd) ? -1 : real(fd, n); }
int fsync(int fd) { REAL(fsync); return reached(SYNC, fd) ? -1 : real(fd); }
int fdatasync(int fd) { REAL(fdatasync); return reached(SYNC, fd) ? -1 : real(fd); }
static int lock(int (*real)(int, int, ...), int fd, int command, void *argument) {
    if ((command == F_SETLK || command == F_OFD_SETLK) && reached(LOCK, fd)) return -1;
    return real(fd, command, argument);
}
#define ARGUMENT va_list more; va_start(more, command); void *argument = va_arg(more, void *); va_end(more)
int fcntl(int fd, int command, ...) { REAL(fcntl); ARGUMENT; return lock(real, fd, command, argument); }
int fcntl64(int fd, int command, ...) { REAL(fcntl64); ARGUMENT; return lock(real, fd, command, argument); }

extern void *__libc_malloc(size_t), *__libc_realloc(void *, size_t);
static int refused(void *caller) {
    unsigned long at = (unsigned long)caller;
    return kind == ALLOCATION && at >= sqlite_begin && at < sqlite_end && reached(ALLOCATION, -1);
}
void *malloc(size_t n) { return refused(__builtin_return_address(0)) ? NULL : __libc_malloc(n); }
void *realloc(void *p, size_t n) { return refused(__builtin_return_address(0)) ? NULL : __libc_realloc(p, n); }
