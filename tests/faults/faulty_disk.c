/* A disk that is full, or a process that is killed, at a chosen change of a folder: loaded before the C library.
 *
 * Every call that changes a file below the armed folder is counted: writes, new files and folders, renames, flushes.
 * The call number `at` (counted from 1) fails with ENOSPC, or writes half of what it should and kills the process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, FULL_FROM, FULL_ONCE, KILL };

static char root[4096];
static long made, fatal;
static int mode;

void faulty_disk_arm(const char *folder, long at, int what) {
    made = 0;
    fatal = at;
    mode = what;
    snprintf(root, sizeof root, "%s/", folder);
}

long faulty_disk_changes(void) { return made; }

static int below(const char *path) {
    if (!root[0] || !path) return 0;
    return path[0] != '/' || strncmp(path, root, strlen(root)) == 0;
}

static int file_is_below(int file) {
    char link[64], path[4096];
    if (!root[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return path[0] == '/' && below(path);
}

/* Whether this change is the fatal one; a kill happens in here, unless the caller does half of its work first. */
static int strikes(int does_half) {
    made++;
    if (!fatal || made < fatal || mode == COUNT) return 0;
    if (mode == KILL) {
        if (made == fatal && !does_half) kill(getpid(), SIGKILL);
        return made == fatal;
    }
    return mode == FULL_FROM || made == fatal;
}

#define REAL(name) ({ static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); real; })
#define FULL(result) do { errno = ENOSPC; return (result); } while (0)

ssize_t write(int file, const void *data, size_t size) {
    if (file_is_below(file) && strikes(1)) {
        if (mode != KILL) FULL(-1);
        REAL(write)(file, data, size / 2);
        kill(getpid(), SIGKILL);
    }
    return REAL(write)(file, data, size);
}

#define WRITE_AT(name, offset_type)                                              \
    ssize_t name(int file, const void *data, size_t size, offset_type offset) {  \
        if (file_is_below(file) && strikes(1)) {                                 \
            if (mode != KILL) FULL(-1);                                          \
            REAL(name)(file, data, size / 2, offset);                            \
            kill(getpid(), SIGKILL);                                             \
        }                                                                        \
        return REAL(name)(file, data, size, offset);                             \
    }
WRITE_AT(pwrite, off_t)
WRITE_AT(pwrite64, off64_t)

ssize_t writev(int file, const struct iovec *parts, int count) {
    if (file_is_below(file) && strikes(1)) {
        if (mode != KILL) FULL(-1);
        REAL(writev)(file, parts, count / 2);
        kill(getpid(), SIGKILL);
    }
    return REAL(writev)(file, parts, count);
}

#define FLUSH(name)                                      \
    int name(int file) {                                 \
        if (file_is_below(file) && strikes(0)) FULL(-1); \
        return REAL(name)(file);                         \
    }
FLUSH(fsync)
FLUSH(fdatasync)

static int makes_file(int flags, const char *path) {
    return (flags & O_CREAT) && below(path) && access(path, F_OK) != 0;
}

#define OPEN(name)                                             \
    int name(const char *path, int flags, ...) {               \
        va_list rest;                                          \
        va_start(rest, flags);                                 \
        mode_t permissions = va_arg(rest, mode_t);             \
        va_end(rest);                                          \
        if (makes_file(flags, path) && strikes(0)) FULL(-1);   \
        return REAL(name)(path, flags, permissions);           \
    }
OPEN(open)
OPEN(open64)

int mkdir(const char *path, mode_t permissions) {
    if (below(path) && access(path, F_OK) != 0 && strikes(0)) FULL(-1);
    return REAL(mkdir)(path, permissions);
}

int rename(const char *from, const char *to) {
    if (below(to) && strikes(0)) FULL(-1);
    return REAL(rename)(from, to);
}

int ftruncate64(int file, off64_t size) {
    struct stat status;
    int grows = fstat(file, &status) == 0 && size > status.st_size;
    if (grows && file_is_below(file) && strikes(0)) FULL(-1);
    return REAL(ftruncate64)(file, size);
}
