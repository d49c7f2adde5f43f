/* Every process adds its number at every other: one line for each, how many there are and the sum. */
#include <shmem.h>
#include <stdio.h>

static long sum = 0;

int main(void) {
    shmem_init();
    int me = shmem_my_pe(), size = shmem_n_pes();
    for (int other = 0; other < size; other++) shmem_long_atomic_add(&sum, me, other);
    shmem_barrier_all();
    printf("%d: %ld\n", size, sum);
    shmem_finalize();
    return 0;
}
