/* replay MODE PLAN TARGET LIMIT [DELAY LOG [again]]: does the requests of a plan on a disk or file.
 *
 * MODE is `timed` (each request when it was due, but not before its barrier, the first requests that had ended in
 * the recording, have ended here) or `fast` (each as soon as all requests that had ended before
 * it in the recording have ended here, and its recorded think time has passed). No request begins more than
 * LIMIT seconds after the start. With DELAY and LOG the start is DELAY seconds after the call, and LOG gets a
 * line for each request: microseconds due, microseconds taken (-1: never done), kind, bytes. With `again` the
 * plan begins again at its end until LIMIT. SIGINT ends the run: LIMIT is then this moment.
 *
 * PLAN (little-endian): the text VDLPLAN2, the number of requests, the largest one's bytes, the depth of the
 * recording and its length in microseconds, as 64-bit numbers; then for each request, by due time, 64 bits offset and 32 bits each of: due and
 * think in microseconds, length, after (how many must have ended), rank (its place by recorded end), barrier
 * (how many must have ended in `timed`, 0: none), kind.
 *
 * Each thread has one request in flight, as fio's psync has: the kernel completes it the moment it is done, and
 * nothing is reaped late. An idle thread takes the next request and sleeps until it is due, so no thread has to
 * wake another for it. In `timed`, requests that the client submitted at once are submitted at once by one thread, by
 * Linux AIO. Threads of their own would begin them in another order, and 0.4 ms apart (emulated).
 *
 * Latency counts from the due moment in `timed`; in `fast` from the moment at which the request was allowed to begin.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

enum kind { READ, WRITE, FLUSH, DISCARD, ZEROES, FORCED, KINDS };

static const char *const names[] = {"read", "write", "flush", "discard", "zeroes", "forced", "late"};

enum { LATE = KINDS, HISTOGRAMS };
enum { FEWEST_THREADS = 16, MOST_THREADS = 256, MOST_FASTER = 8, SUB_BITS = 6, BINS = 64 << SUB_BITS };
enum { MOST_CPUS = 256, MOST_TOGETHER = 32, READ_TOGETHER = 128 << 10 };

#define SECOND 1000000000ull
#define NEVER UINT64_MAX
#define COMPUTED (5 * SECOND / 1000)
#define AT_ONCE_US 50

struct __attribute__((packed)) request {
    uint64_t offset;
    uint32_t due, think, length, after, rank, barrier, kind;
};

struct header {
    char magic[8];
    uint64_t count, largest, depth, span;
};

/* A request of the plan, or of one of its repetitions. */
struct job {
    uint64_t offset, due, think, after, rank, barrier;
    uint32_t length, kind;
};

struct histogram {
    uint64_t count, bytes, sum, most, bins[BINS];
};

static const struct request *plan;
static uint64_t planned, span; /* requests in the plan, and its length in microseconds */
static uint64_t count, start, limit;
static uint64_t page, piece; /* bytes: of a page of memory, and what buffers are a multiple of */
static int timed, target, is_device, is_direct;

/* By request: when it was allowed to begin, when it began, when it ended. */
static uint64_t *allowed, *begun, *ended;
/* By number of requests that have ended, in the recording's order: when so many had. */
static uint64_t *reached;
static uint8_t *has_ended;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static uint64_t next_request, prefix;
static int idle, stopped, in_flight, deepest;

/* A thread: where it reads to, what it submits by, and in `timed` the request that it holds back, and the barrier of
 * this. */
struct worker {
    char *in;
    aio_context_t context;
    int is_held;
    uint64_t number, barrier;
    pthread_cond_t may_begin;
};

static struct worker *workers;
static unsigned threads;
static uint64_t room; /* bytes of each thread's place to read to */
static int no_aio;    /* why there is no AIO (errno), 0 if there is */

/* Whether the disk has several queues, and by processor the one that takes its requests, -1 if it may not be used. */
static int has_queues, queue_of[MOST_CPUS];
static cpu_set_t usable;

static char *out;
static uint64_t out_size;
static uint64_t refused, failed;
static char failure[160];

static struct job job(uint64_t number) {
    uint64_t turn = number / planned;
    const struct request *r = &plan[number % planned];
    struct job found = {r->offset,
                        r->due + turn * span,
                        r->think,
                        r->after + turn * planned,
                        r->rank + turn * planned,
                        r->barrier ? r->barrier + turn * planned : 0,
                        r->length,
                        r->kind};
    return found;
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

/* A short think time is a client that computes: as it does, the thread keeps its processor. A guest that sleeps
 * instead gives it back to the host, and has to wait for it: on a busy host for milliseconds. */
static void wait_until(uint64_t moment) {
    struct timespec t = {moment / SECOND, moment % SECOND};
    uint64_t before = now();
    if (!timed && before < moment && moment - before <= COMPUTED) {
        while (now() < moment)
            sched_yield();
        return;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

static void die(const char *what) {
    fprintf(stderr, "replay: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int whole(ssize_t done, uint32_t length) {
    if (done == (ssize_t)length)
        return 0;
    if (done >= 0)
        errno = EIO; /* beyond the end of the disk */
    return -1;
}

static int give_back(const struct job *r) {
    uint64_t range[2] = {r->offset, r->length};
    if (is_device)
        return ioctl(target, r->kind == DISCARD ? BLKDISCARD : BLKZEROOUT, range);
    int mode = r->kind == DISCARD ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE;
    return fallocate(target, mode | FALLOC_FL_KEEP_SIZE, r->offset, r->length);
}

/* The processor on which alone the thread runs, -1 if on any. */
static __thread int its_cpu = -1;

static void stay_on(int cpu) {
    cpu_set_t only;
    if (!has_queues || cpu < 0 || cpu == its_cpu)
        return;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    sched_setaffinity(0, sizeof only, &only);
    its_cpu = cpu;
}

static void go_anywhere(void) {
    if (its_cpu >= 0)
        sched_setaffinity(0, sizeof usable, &usable);
    its_cpu = -1;
}

/* A processor whose queue does no flush, this one if possible; -1 if all do one. */
static int processor_to_flush(const uint8_t *flushes) {
    int here = sched_getcpu();
    if (here >= 0 && here < MOST_CPUS && queue_of[here] >= 0 && !flushes[queue_of[here]])
        return here;
    for (int cpu = 0; cpu < MOST_CPUS; cpu++)
        if (queue_of[cpu] >= 0 && !flushes[queue_of[cpu]])
            return cpu;
    return -1;
}

/* One at a time in each queue: the kernel would join those that wait there. In different queues they run side by
 * side (block/blk-flush.c, struct blk_flush_queue), as a recording may have them. */
static int flush(void) {
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t fewer = PTHREAD_COND_INITIALIZER;
    static uint8_t flushes[MOST_CPUS];
    int cpu;
    pthread_mutex_lock(&turn);
    while ((cpu = processor_to_flush(flushes)) < 0)
        pthread_cond_wait(&fewer, &turn);
    uint8_t *mine = &flushes[queue_of[cpu]];
    *mine = 1;
    pthread_mutex_unlock(&turn);
    stay_on(cpu);
    int problem = fdatasync(target), why = errno;
    pthread_mutex_lock(&turn);
    *mine = 0;
    pthread_cond_signal(&fewer);
    pthread_mutex_unlock(&turn);
    errno = why;
    return problem;
}

static char *random_bytes(uint64_t number, uint64_t length) {
    return out + number % ((out_size - length) / page + 1) * page;
}

static int perform(const struct job *r, uint64_t number, void *in) {
    switch (r->kind) {
    case READ:
        return whole(pread(target, in, r->length, r->offset), r->length);
    case WRITE:
        return whole(pwrite(target, random_bytes(number, r->length), r->length, r->offset), r->length);
    case FLUSH:
        return flush();
    default:
        return give_back(r);
    }
}

static void note_failure(const struct job *r) {
    int why = errno;
    pthread_mutex_lock(&lock);
    if ((r->kind == DISCARD || r->kind == ZEROES) && (why == EOPNOTSUPP || why == ENOTTY || why == EINVAL)) {
        refused++;
    } else if (!failed++) {
        snprintf(failure, sizeof failure, "%s of %u bytes at %llu: %s", names[r->kind], r->length,
                 (unsigned long long)r->offset, strerror(why));
        stopped = 1;
    }
    pthread_mutex_unlock(&lock);
}

/* True if the next request may begin as soon as its think time has passed. The lock is held. */
static int is_eligible(void) {
    return next_request < count && (timed || job(next_request).after <= prefix);
}

static void note_end(uint64_t number, uint64_t moment) {
    in_flight--;
    has_ended[job(number).rank] = 1;
    while (prefix < count && has_ended[prefix])
        reached[++prefix] = moment;
}

/* The first of the requests that are due and held back though their barrier has been reached, NULL if none is. The
 * lock is held. */
static struct worker *first_held(void) {
    struct worker *first = NULL;
    for (struct worker *w = workers; w < workers + threads; w++)
        if (w->is_held && w->barrier <= prefix && (!first || w->number < first->number))
            first = w;
    return first;
}

/* Wakes one thread, and no other: under emulation each wake-up delays the requests that are due. */
static void wake_first_held(void) {
    struct worker *first = timed ? first_held() : NULL;
    if (first)
        pthread_cond_signal(&first->may_begin);
}

/* Returns when the request may begin; 0 if another thread begins it. Requests that one end releases begin in their
 * order: a read that came after a flush is not to come before it. The lock is held. */
static int await_barrier(struct worker *self, uint64_t number, uint64_t barrier) {
    self->number = number;
    self->barrier = barrier;
    self->is_held = 1;
    while (!stopped && self->is_held && first_held() != self)
        pthread_cond_wait(&self->may_begin, &lock);
    if (!self->is_held)
        return 0;
    self->is_held = 0;
    wake_first_held();
    return 1;
}

/* Takes the first request that may begin from the thread that holds it, as a client goes on with the next one when one
 * has ended: no other thread has to be woken for it. The number is NEVER if there is none. The lock is held. */
static uint64_t take_over(void) {
    struct worker *first = timed && !stopped ? first_held() : NULL;
    if (!first)
        return NEVER;
    first->is_held = 0;
    pthread_cond_signal(&first->may_begin);
    wake_first_held();
    return first->number;
}

static int is_move(const struct job *r) {
    return r->kind == READ || r->kind == WRITE || r->kind == FORCED;
}

static uint64_t whole_pages(uint64_t bytes) {
    return (bytes + page - 1) / page * page;
}

/* How many requests, from this one on, the client submitted at once: within 50 µs, and none waited for more than the
 * first did. One thread begins them. Without direct I/O the kernel would do them one after another. */
static unsigned together(uint64_t first) {
    struct job r = job(first), next;
    uint64_t read = r.kind == READ ? whole_pages(r.length) : 0;
    unsigned number = 1;
    if (!timed || !is_direct || no_aio || !is_move(&r))
        return 1;
    for (; number < MOST_TOGETHER && first + number < count; number++) {
        next = job(first + number);
        if (!is_move(&next) || next.due > r.due + AT_ONCE_US || next.barrier > r.barrier)
            break;
        if (next.kind == READ && (read += whole_pages(next.length)) > room)
            break;
    }
    return number;
}

/* Takes the next request, and returns when it may begin; NEVER if there is none. The lock is held. */
static uint64_t await_next(struct worker *self) {
    for (;;) {
        while (!stopped && next_request < count && !is_eligible()) {
            idle++;
            pthread_cond_wait(&more, &lock);
            idle--;
        }
        if (stopped || next_request >= count)
            return NEVER;
        uint64_t number = next_request;
        next_request += together(number);
        struct job r = job(number);
        uint64_t moment = timed ? allowed[number] : reached[r.after] + r.think * 1000;
        if (idle && is_eligible())
            pthread_cond_signal(&more);
        pthread_mutex_unlock(&lock);
        allowed[number] = moment;
        if (moment > start + limit)
            moment = start + limit;
        /* Before the request is due, as it takes time. */
        if (r.kind == FLUSH)
            stay_on(sched_getcpu());
        else
            go_anywhere();
        wait_until(moment);
        pthread_mutex_lock(&lock);
        if (!timed || await_barrier(self, number, r.barrier))
            return number;
    }
}

/* A forced write is sent as a file system sends it: one request with FUA, of which the kernel makes a write and a flush
 * for a disk without FUA. pwritev2 with RWF_DSYNC would send a flush of its own after it (generic_write_sync). */
static struct iocb submission(uint64_t number, char *in) {
    struct job r = job(number);
    struct iocb request = {0};
    request.aio_data = number;
    request.aio_lio_opcode = r.kind == READ ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE;
    request.aio_rw_flags = r.kind == FORCED ? RWF_DSYNC : 0;
    request.aio_fildes = target;
    request.aio_buf = (uintptr_t)(r.kind == READ ? in : random_bytes(number, r.length));
    request.aio_nbytes = r.length;
    request.aio_offset = r.offset;
    return request;
}

static void note_result(uint64_t number, ssize_t result) {
    struct job r = job(number);
    errno = result < 0 ? -result : 0;
    if (result < 0 || whole(result, r.length))
        note_failure(&r);
}

/* Begins the next `number` requests from `first` on, in their order; returns how many are in flight. */
static unsigned submit(const struct worker *self, struct iocb **requests, uint64_t first, unsigned number) {
    unsigned sent = 0, refusals = 0;
    while (sent < number) {
        long done = no_aio ? -1 : syscall(SYS_io_submit, self->context, number - sent, requests + sent);
        if (done > 0) {
            sent += done;
            continue;
        }
        note_result(first + sent, -(no_aio ? no_aio : errno));
        pthread_mutex_lock(&lock);
        note_end(first + sent, ended[first + sent] = now());
        pthread_mutex_unlock(&lock);
        sent++, refusals++;
    }
    return number - refusals;
}

/* Those of the requests that are due begin, all if not `timed`; returns how many. */
static unsigned begin_due(uint64_t first, unsigned number) {
    unsigned due = 0;
    pthread_mutex_lock(&lock);
    uint64_t begin = now();
    if (begin >= start + limit)
        stopped = 1;
    while (!stopped && due < number && (!timed || allowed[first + due] <= begin))
        begun[first + due++] = begin;
    in_flight += due;
    deepest = in_flight > deepest ? in_flight : deepest;
    pthread_mutex_unlock(&lock);
    return due;
}

/* Waits until a request has ended, or until `moment`. What this releases another thread begins, if requests of this
 * thread are left. Returns how many have ended. */
static unsigned reap(const struct worker *self, uint64_t moment, unsigned left) {
    struct io_event events[MOST_TOGETHER];
    uint64_t before = now(), wait = moment > before ? moment - before : 0;
    struct timespec most = {wait / SECOND, wait % SECOND};
    long number = syscall(SYS_io_getevents, self->context, 1, MOST_TOGETHER, events, moment == NEVER ? NULL : &most);
    uint64_t end = now();
    for (long i = 0; i < number; i++)
        note_result(events[i].data, events[i].res);
    pthread_mutex_lock(&lock);
    for (long i = 0; i < number; i++)
        note_end(events[i].data, ended[events[i].data] = end);
    if (number > 0 && number < left)
        wake_first_held();
    pthread_mutex_unlock(&lock);
    return number > 0 ? number : 0;
}

/* Does so many requests from `first` on; returns when all have ended. */
static void perform_together(const struct worker *self, uint64_t first, unsigned number) {
    struct iocb all[MOST_TOGETHER], *requests[MOST_TOGETHER];
    unsigned sent = 0, running = 0;
    char *in = self->in;
    for (unsigned i = 0; i < number; i++) {
        all[i] = submission(first + i, in);
        requests[i] = &all[i];
        in += all[i].aio_lio_opcode == IOCB_CMD_PREAD ? whole_pages(all[i].aio_nbytes) : 0;
    }
    do {
        unsigned due = begin_due(first + sent, number - sent);
        running += submit(self, requests + sent, first + sent, due);
        sent += due;
        if (stopped)
            number = sent;
        uint64_t next = sent < number ? allowed[first + sent] : NEVER;
        if (running || next != NEVER)
            running -= reap(self, next, running + number - sent);
    } while (running || sent < number);
}

/* What a thread reads goes to a place of its own: a file system that verifies what it reads (btrfs) verifies it in the
 * reader's memory, and takes another read that lands there meanwhile for damage on the disk. */
static void *work(void *of) {
    struct worker *self = of;
    uint64_t taken = NEVER;
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    pthread_mutex_lock(&lock);
    for (;;) {
        uint64_t number = taken == NEVER ? await_next(self) : taken;
        uint64_t begin = now();
        if (begin >= start + limit)
            stopped = 1;
        if (stopped || number == NEVER)
            break;
        struct job r = job(number);
        unsigned requests = together(number);
        if (requests > 1 || r.kind == FORCED) {
            pthread_mutex_unlock(&lock);
            perform_together(self, number, requests);
            pthread_mutex_lock(&lock);
        } else {
            if (++in_flight > deepest)
                deepest = in_flight;
            pthread_mutex_unlock(&lock);
            begun[number] = begin;
            if (perform(&r, number, self->in))
                note_failure(&r);
            uint64_t end = ended[number] = now();
            pthread_mutex_lock(&lock);
            note_end(number, end);
        }
        taken = take_over();
    }
    pthread_cond_broadcast(&more);
    for (unsigned i = 0; i < threads; i++)
        pthread_cond_signal(&workers[i].may_begin);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* The bins are as wide as 1/64 to 1/128 of their values, as fio's are. */
static unsigned bin_of(uint64_t value) {
    if (value < 1u << SUB_BITS)
        return value;
    unsigned shift = 63 - __builtin_clzll(value) - SUB_BITS;
    unsigned bin = ((shift + 1) << SUB_BITS) + (unsigned)((value >> shift) - (1u << SUB_BITS));
    return bin < BINS ? bin : BINS - 1;
}

static void add(struct histogram *h, uint64_t value, uint64_t bytes) {
    h->count++;
    h->bytes += bytes;
    h->sum += value;
    h->most = value > h->most ? value : h->most;
    h->bins[bin_of(value)]++;
}

static void print_histogram(const char *name, const struct histogram *h) {
    printf("kind %s %llu %llu %llu %llu\n", name, (unsigned long long)h->count, (unsigned long long)h->bytes,
           (unsigned long long)h->sum, (unsigned long long)h->most);
    for (unsigned bin = 0; bin < BINS; bin++)
        if (h->bins[bin])
            printf("bin %s %u %llu\n", name, bin, (unsigned long long)h->bins[bin]);
}

static int by_value(const void *a, const void *b) {
    uint64_t one = *(const uint64_t *)a, two = *(const uint64_t *)b;
    return (one > two) - (one < two);
}

/* The longest time in which a request waited and none ended, up to the moment `last`. */
static uint64_t longest_stall(uint64_t last) {
    uint64_t *ends = malloc((count + 1) * sizeof *ends), some = 0, oldest = 0, before = start, longest = 0;
    if (!ends)
        die("memory");
    for (uint64_t i = 0; i < count; i++)
        if (ended[i] != NEVER)
            ends[some++] = ended[i];
    qsort(ends, some, sizeof *ends, by_value);
    ends[some++] = last;
    for (uint64_t i = 0; i < some; i++) {
        while (oldest < count && ended[oldest] <= before)
            oldest++;
        if (oldest == count)
            break;
        uint64_t from = allowed[oldest] > before ? allowed[oldest] : before;
        if (allowed[oldest] != NEVER && ends[i] > from && ends[i] - from > longest)
            longest = ends[i] - from;
        before = ends[i];
    }
    free(ends);
    return longest;
}

static void print_seconds(uint64_t last) {
    /* By the clock, a run of 5 seconds may end after 4.999. */
    uint64_t whole_seconds = (last - start + SECOND / 200) / SECOND;
    for (int direction = READ; direction <= WRITE; direction++) {
        uint64_t *bytes = calloc(whole_seconds + 1, sizeof *bytes), all = 0;
        if (!bytes)
            die("memory");
        for (uint64_t i = 0; i < count; i++) {
            struct job r = job(i);
            int moves = direction == READ ? r.kind == READ : r.kind == WRITE || r.kind == FORCED;
            if (moves && ended[i] != NEVER) {
                bytes[(ended[i] - start) / SECOND] += r.length;
                all += r.length;
            }
        }
        for (uint64_t second = 0; all && second < whole_seconds; second++)
            printf("second %s %llu\n", names[direction], (unsigned long long)bytes[second]);
        free(bytes);
    }
}

static void print_log(const char *name) {
    FILE *log = fopen(name, "w");
    if (!log)
        die(name);
    for (uint64_t i = 0; i < count; i++) {
        struct job r = job(i);
        uint64_t from = allowed[i];
        if (from == NEVER)
            continue;
        long long took = ended[i] == NEVER ? -1 : (long long)((ended[i] - from) / 1000);
        fprintf(log, "%llu %lld %u %u\n", (unsigned long long)((from - start) / 1000), took, r.kind, r.length);
    }
    if (fclose(log))
        die(name);
}

static void print_queue(const char *setting) {
    struct stat about;
    char name[96], value[64] = "";
    if (fstat(target, &about) || !S_ISBLK(about.st_mode))
        return;
    snprintf(name, sizeof name, "/sys/dev/block/%u:%u/queue/%s", major(about.st_rdev), minor(about.st_rdev), setting);
    FILE *file = fopen(name, "r");
    if (file && fgets(value, sizeof value, file))
        printf("%s %.*s\n", setting, (int)strcspn(value, "\n"), value);
    if (file)
        fclose(file);
}

static void report(uint64_t real_start) {
    static struct histogram all[HISTOGRAMS];
    uint64_t done = 0, last = start, first = NEVER, stop = start + limit;
    for (uint64_t i = 0; i < count; i++)
        if (ended[i] != NEVER) {
            done++;
            last = ended[i] > last ? ended[i] : last;
            first = begun[i] < first ? begun[i] : first;
        }
    if (done < count && last < stop)
        last = stop;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t from = allowed[i];
        struct job r = job(i);
        if (ended[i] != NEVER) {
            add(&all[r.kind], ended[i] - from, r.length);
            add(&all[LATE], begun[i] - from, 0);
        } else if (timed && from < last) {
            /* It has waited at least until the end. */
            add(&all[r.kind], last - from, 0);
            add(&all[LATE], last - from, 0);
        }
    }
    printf("vdisklab-replay 1\nmode %s\nrequests %llu\ndone %llu\nrefused %llu\n", timed ? "timed" : "fast",
           (unsigned long long)count, (unsigned long long)done, (unsigned long long)refused);
    printf("nanoseconds %llu\nstarted %llu\ndirect %d\nthreads %u\ndeepest %d\nstall %llu\n",
           (unsigned long long)(last - start), (unsigned long long)real_start, is_direct, threads, deepest,
           (unsigned long long)longest_stall(last));
    print_queue("nomerges");
    print_queue("fua");
    for (int kind = 0; kind < HISTOGRAMS; kind++)
        if (all[kind].count)
            print_histogram(names[kind], &all[kind]);
    print_seconds(last);
    puts("end");
}

/* A request in few segments stays whole in a queue, as the recording has it. Of pages of 4 KiB that takes huge pages of
 * 2 MiB. Larger pages need none: their huge pages have 32 or 512 MiB. */
static void measure_pages(void) {
    page = getpagesize();
    piece = page == 4096 ? 2ul << 20 : page;
}

static void *buffer(uint64_t size) {
    char *place = mmap(NULL, size + piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED)
        die("memory");
    place += piece - (uintptr_t)place % piece;
    if (piece > page)
        madvise(place, size, MADV_HUGEPAGE);
    return place;
}

static void make_buffers(uint64_t largest) {
    out_size = (largest + 2 * piece - 1) / piece * piece;
    out = buffer(out_size);
    uint64_t state = 0x9e3779b97f4a7c15ull;
    for (uint64_t *word = (uint64_t *)out; word < (uint64_t *)(out + out_size); word++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        *word = state;
    }
}

/* Places for what is read, of `room` bytes, one by one behind another: for the largest read, or some smaller ones. */
static char *read_buffers(void) {
    uint64_t largest = 1;
    for (uint64_t i = 0; i < planned; i++)
        if (plan[i].kind == READ && plan[i].length > largest)
            largest = plan[i].length;
    room = whole_pages(largest > 1 && largest < READ_TOGETHER ? READ_TOGETHER : largest);
    char *place = buffer(threads * room);
    memset(place, 1, threads * room);
    return place;
}

static uint64_t *moments(uint64_t number) {
    uint64_t *place = malloc(number * sizeof *place);
    if (!place)
        die("memory");
    memset(place, 0xff, number * sizeof *place); /* NEVER, and the pages exist before the clock runs */
    return place;
}

static uint64_t read_plan(const char *name) {
    struct stat about;
    int file = open(name, O_RDONLY);
    if (file < 0 || fstat(file, &about))
        die(name);
    const struct header *head = mmap(NULL, about.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
    if (head == MAP_FAILED)
        die(name);
    planned = head->count;
    span = head->span;
    if (memcmp(head->magic, "VDLPLAN2", 8) || !planned || !span ||
        (uint64_t)about.st_size != sizeof *head + planned * sizeof *plan) {
        errno = EINVAL;
        die(name);
    }
    plan = (const struct request *)(head + 1);
    make_buffers(head->largest);
    close(file);
    return head->depth;
}

/* A processor is in more than one list where reads or polling have queues of their own: these come last. A file, or a
 * disk that tells nothing, has one queue. */
static void find_queues(void) {
    struct stat about;
    if (sched_getaffinity(0, sizeof usable, &usable) || fstat(target, &about))
        die("queues");
    memset(queue_of, 0xff, sizeof queue_of); /* -1 */
    int highest = -1;
    for (int number = 0; is_device; number++) {
        char name[96];
        snprintf(name, sizeof name, "/sys/dev/block/%u:%u/mq/%d/cpu_list", major(about.st_rdev), minor(about.st_rdev),
                 number);
        FILE *file = fopen(name, "r");
        if (!file)
            break;
        for (int cpu; fscanf(file, "%d%*[, ]", &cpu) == 1;)
            if (cpu >= 0 && cpu < MOST_CPUS && CPU_ISSET(cpu, &usable) && queue_of[cpu] < 0)
                queue_of[cpu] = highest = number;
        fclose(file);
    }
    has_queues = highest > 0;
    if (!has_queues)
        memset(queue_of, 0, sizeof queue_of);
}

static void open_target(const char *name) {
    struct stat about;
    is_direct = 1;
    target = open(name, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (target < 0 && errno == EINVAL) {
        is_direct = 0; /* a file system without direct I/O */
        target = open(name, O_RDWR | O_CLOEXEC);
    }
    if (target < 0 || fstat(target, &about))
        die(name);
    is_device = S_ISBLK(about.st_mode);
}

struct results {
    uint64_t real_start;
    const char *log;
};

/* Only once: the threads may end at the moment of a signal. */
static void finish(const struct results *r) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&once);
    if (failed) {
        fprintf(stderr, "replay: %llu requests failed; the first was the %s\n", (unsigned long long)failed, failure);
        exit(1);
    }
    report(r->real_start);
    if (r->log)
        print_log(r->log);
    exit(0);
}

/* Threads that sleep until a request is due are not woken, and one may wait for storage that does not answer. */
static void *await_signal(void *results) {
    int number;
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    sigwait(&interrupt, &number);
    pthread_mutex_lock(&lock);
    stopped = 1;
    if (now() - start < limit)
        limit = now() > start ? now() - start : 0;
    finish(results); /* with the lock held: no request begins any more */
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: replay timed|fast PLAN TARGET LIMIT [DELAY LOG [again]]\n");
        return 2;
    }
    measure_pages();
    timed = !strcmp(argv[1], "timed");
    limit = (uint64_t)(atof(argv[4]) * SECOND);
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    signal(SIGINT, SIG_DFL); /* an ignored one would not be waited for */
    pthread_sigmask(SIG_BLOCK, &interrupt, NULL); /* for all threads: one waits for it */
    uint64_t depth = read_plan(argv[2]), begin = now();
    int repeats = argc > 7;
    uint64_t turns = repeats ? limit / 1000 / span + 1 : 1;
    /* As fast as it goes the plan may end sooner than it was recorded. */
    count = planned * (repeats && !timed ? turns * MOST_FASTER : turns);
    open_target(argv[3]);
    find_queues();
    allowed = moments(count + 1), begun = moments(count + 1), ended = moments(count + 1);
    reached = moments(count + 1);
    has_ended = calloc(count + 1, 1);
    threads = depth * 2 < FEWEST_THREADS ? FEWEST_THREADS : depth * 2 > MOST_THREADS ? MOST_THREADS : depth * 2;
    pthread_t *pool = calloc(threads, sizeof *pool);
    char *in = read_buffers();
    workers = calloc(threads, sizeof *workers);
    pthread_attr_t small;
    if (!has_ended || !pool || !workers || pthread_attr_init(&small) || pthread_attr_setstacksize(&small, 128 << 10))
        die("memory");
    for (unsigned i = 0; i < threads && !no_aio; i++)
        if (syscall(SYS_io_setup, MOST_TOGETHER, &workers[i].context))
            no_aio = errno;
    struct timespec real;
    uint64_t delay = argc > 5 ? (uint64_t)(atof(argv[5]) * SECOND) : 0;
    uint64_t soon = now() + SECOND / 50;
    start = begin + delay > soon ? begin + delay : soon;
    clock_gettime(CLOCK_REALTIME, &real);
    uint64_t real_start = real.tv_sec * SECOND + real.tv_nsec + (start - now());
    reached[0] = start;
    for (uint64_t i = 0; timed && i < count; i++)
        allowed[i] = start + job(i).due * 1000;
    struct results results = {real_start, argc > 6 ? argv[6] : NULL};
    pthread_t awaiting;
    int problem = pthread_create(&awaiting, &small, await_signal, &results);
    if (problem) {
        errno = problem;
        die("a thread");
    }
    for (unsigned i = 0; i < threads; i++) {
        workers[i].in = in + i * room;
        pthread_cond_init(&workers[i].may_begin, NULL);
        problem = pthread_create(&pool[i], &small, work, &workers[i]);
        if (problem) {
            errno = problem;
            die("a thread");
        }
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(pool[i], NULL);
    finish(&results);
}
