/* When a machine stood still: a virtual machine whose host gives its processors to another one.
 *
 *     cc -O2 -Wall -Wextra -pthread -o standstill bench/standstill.c
 *     ./standstill > FILE    # as root, until it is ended
 *
 * On each processor a thread that goes before all others sleeps for a millisecond at a time. If it
 * wakes up more than 1.5 ms late, a line tells from when to when it did not run: microseconds since
 * 1970, as in QEMU's trace log. */

#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define SLEEP_US 1000
#define LATE_US 1500
#define MOST_PROCESSORS 1024

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static void *watch(void *processor) {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    CPU_SET((size_t)processor, &mine);
    struct sched_param first = {.sched_priority = sched_get_priority_max(SCHED_FIFO)};
    if (sched_setaffinity(0, sizeof mine, &mine) || sched_setscheduler(0, SCHED_FIFO, &first)) {
        perror("standstill");
        exit(1);
    }
    const struct timespec pause = {.tv_nsec = SLEEP_US * 1000};
    for (int64_t before = now_us();;) {
        nanosleep(&pause, NULL);
        int64_t after = now_us();
        if (after - before > SLEEP_US + LATE_US)
            printf("%" PRId64 " %" PRId64 "\n", before, after);
        before = after;
    }
    return NULL;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (processors > MOST_PROCESSORS)
        processors = MOST_PROCESSORS;
    for (long number = 0; number < processors; number++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, watch, (void *)number)) {
            perror("standstill");
            return 1;
        }
    }
    pause();
}
