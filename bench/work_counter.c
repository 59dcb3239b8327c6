/* A TCG plugin of QEMU (docs/devel/tcg-plugins): counts the instructions that an emulated machine
 * executes, in a file that the machine can read as the memory of an ivshmem device. The first eight
 * bytes are the number, the next eight say that it is one.
 *
 *     gcc -O2 -Wall -Wextra -shared -fPIC -o work_counter.so bench/work_counter.c
 *     qemu-system-x86_64 -plugin work_counter.so,count=FILE ...
 *         -object memory-backend-file,id=work,mem-path=FILE,size=1M,share=on
 *         -device ivshmem-plain,memdev=work
 *
 * A block of code counts as a whole when it begins, also if an exception ends it early, and `rep movs`
 * counts once for each repetition. What QEMU itself does for an instruction does not count: entering
 * a guest, walking page tables, translating code.
 *
 * For machines with one CPU: several would add to the counter at once. The declarations are those
 * of qemu-plugin.h, for which Debian has no package, in version 1 of the interface (to QEMU 8.2). */

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define ADD_U64 0 /* enum qemu_plugin_op */
#define SIZE (1 << 20)

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);

EXPORTED int qemu_plugin_version = 1;

static uint64_t *counter;

static void translated(plugin_id id, struct qemu_plugin_tb *block) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, counter, qemu_plugin_tb_n_insns(block));
}

EXPORTED int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
    (void)info;
    if (argc != 1 || strncmp(argv[0], "count=", 6) != 0)
        return -1;
    int file = open(argv[0] + 6, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, SIZE) != 0) {
        perror(argv[0]);
        return -1;
    }
    counter = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (counter == MAP_FAILED) {
        perror("mmap");
        return -1;
    }
    memcpy(counter + 1, "vdl-work", 8);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
