/* Preloaded library that fails calls which need space on a disk, counted from the moment it is armed.

   Only calls on files below one folder are counted. A call is failed with the given error number, and so are all
   later ones unless only one is to fail, as on a disk on which another process frees space meanwhile. A sparse file that
   is mapped for writing needs space, too: as the system does at the first write to a page without room, its failure
   ends the process with SIGBUS. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#undef open
#undef openat

static char root[PATH_MAX];
static atomic_long fail_at = -1, seen, failed;
static int once, number;
static char kinds[1 << 16]; /* first letter of the name of each counted call, or 'S' for a sparse map */

void no_space_arm(const char *folder, long at, int only_one, int error) {
    strncpy(root, folder, sizeof root - 1);
    once = only_one;
    number = error;
    atomic_store(&seen, 0);
    atomic_store(&failed, 0);
    atomic_store(&fail_at, at);
}

void no_space_disarm(void) { atomic_store(&fail_at, -1); }
long no_space_seen(void) { return atomic_load(&seen); }
long no_space_failed(void) { return atomic_load(&failed); }
const char *no_space_kinds(void) { return kinds; }

static int inside(const char *path) {
    size_t length = strlen(root);
    return strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int descriptor_inside(int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return inside(path);
}

static int path_inside(int folder, const char *path) {
    return path[0] == '/' || folder == AT_FDCWD ? inside(path) : descriptor_inside(folder);
}

static int counted(const char *name) {
    long call = atomic_fetch_add(&seen, 1);
    if (call < (long)sizeof kinds) kinds[call] = *name;
    if (call < fail_at || (once && call > fail_at)) return 0;
    atomic_fetch_add(&failed, 1);
    errno = number;
    return 1;
}

static int armed(void) { return atomic_load(&fail_at) >= 0; }
static int fails(const char *name, int file) { return armed() && descriptor_inside(file) && counted(name); }
static int fails_at(const char *name, int folder, const char *path) {
    return armed() && path_inside(folder, path) && counted(name);
}

static int grows(int descriptor, off_t size) {
    struct stat now;
    return fstat(descriptor, &now) == 0 && size > now.st_size;
}

static int creates(int folder, const char *path, int flags) {
    if (!armed() || !(flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE)) return 0;
    int before = errno, exists = !(flags & O_CREAT) ? 0 : faccessat(folder, path, F_OK, 0) == 0;
    errno = before;
    return !exists && path_inside(folder, path) && counted("open");
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list list; va_start(list, flags); mode = va_arg(list, mode_t); va_end(list); \
    }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        MODE(flags) \
        return creates(AT_FDCWD, path, flags) ? -1 : REAL(name)(path, flags, mode); \
    }
#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        MODE(flags) \
        return creates(folder, path, flags) ? -1 : REAL(name)(folder, path, flags, mode); \
    }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)

#define ON_FILE(kind, name, parameters, arguments) \
    kind name parameters { return fails(#name, file) ? -1 : REAL(name) arguments; }
ON_FILE(ssize_t, write, (int file, const void *data, size_t size), (file, data, size))
ON_FILE(ssize_t, writev, (int file, const struct iovec *data, int count), (file, data, count))
ON_FILE(ssize_t, pwrite, (int file, const void *data, size_t size, off_t at), (file, data, size, at))
ON_FILE(ssize_t, pwrite64, (int file, const void *data, size_t size, off64_t at), (file, data, size, at))
ON_FILE(int, fsync, (int file), (file))
ON_FILE(int, fdatasync, (int file), (file))
ON_FILE(int, fallocate, (int file, int mode, off_t at, off_t size), (file, mode, at, size))
ON_FILE(int, fallocate64, (int file, int mode, off64_t at, off64_t size), (file, mode, at, size))
ON_FILE(ssize_t, sendfile, (int file, int from, off_t *at, size_t size), (file, from, at, size))
ON_FILE(ssize_t, sendfile64, (int file, int from, off64_t *at, size_t size), (file, from, at, size))

ssize_t copy_file_range(int from, off64_t *at, int file, off64_t *to, size_t size, unsigned flags) {
    return fails("copy", file) ? -1 : REAL(copy_file_range)(from, at, file, to, size, flags);
}
int posix_fallocate(int file, off_t at, off_t size) {
    return fails("allocate", file) ? number : REAL(posix_fallocate)(file, at, size);
}
int posix_fallocate64(int file, off64_t at, off64_t size) {
    return fails("allocate", file) ? number : REAL(posix_fallocate64)(file, at, size);
}
int ftruncate(int file, off_t size) {
    return armed() && grows(file, size) && fails("truncate", file) ? -1 : REAL(ftruncate)(file, size);
}
int ftruncate64(int file, off64_t size) {
    return armed() && grows(file, size) && fails("truncate", file) ? -1 : REAL(ftruncate64)(file, size);
}

static void map(int protection, int flags, int file, size_t size, off64_t at) {
    struct stat now;
    if (!armed() || file < 0 || !(protection & PROT_WRITE) || !(flags & MAP_SHARED) || fstat(file, &now)) return;
    if (now.st_blocks * 512 < at + (off64_t)size && fails("Sparse", file)) raise(SIGBUS);
}
void *mmap(void *place, size_t size, int protection, int flags, int file, off_t at) {
    map(protection, flags, file, size, at);
    return REAL(mmap)(place, size, protection, flags, file, at);
}
void *mmap64(void *place, size_t size, int protection, int flags, int file, off64_t at) {
    map(protection, flags, file, size, at);
    return REAL(mmap64)(place, size, protection, flags, file, at);
}

#define ON_NAME(name, parameters, folder, path, arguments) \
    int name parameters { return fails_at(#name, folder, path) ? -1 : REAL(name) arguments; }
ON_NAME(mkdir, (const char *path, mode_t mode), AT_FDCWD, path, (path, mode))
ON_NAME(mkdirat, (int folder, const char *path, mode_t mode), folder, path, (folder, path, mode))
ON_NAME(link, (const char *from, const char *to), AT_FDCWD, to, (from, to))
ON_NAME(linkat, (int a, const char *from, int b, const char *to, int flags), b, to, (a, from, b, to, flags))
ON_NAME(symlink, (const char *from, const char *to), AT_FDCWD, to, (from, to))
ON_NAME(rename, (const char *from, const char *to), AT_FDCWD, to, (from, to))
ON_NAME(renameat, (int a, const char *from, int b, const char *to), b, to, (a, from, b, to))
