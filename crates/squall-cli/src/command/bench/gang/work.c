/* What bench gang runs: so much work on each rank, all of them meeting after each grain of it.
 * gang ITERATIONS GRAIN FOLDER NAME; GRAIN 0: they never meet. Begins when there is FOLDER/go; writes FOLDER/NAME.RANK:
 * start, end, CPU time, in ns; ends when there is no FOLDER/stay. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static long long now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv) {
  long long left = atoll(argv[1]), grain = atoll(argv[2]);
  char path[4096], ready[4096], go[4096], stay[4096];
  int rank;
  volatile unsigned long long x = 88172645463325252ULL;
  cpu_set_t cpus;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  CPU_ZERO(&cpus);
  CPU_SET(rank % (int)sysconf(_SC_NPROCESSORS_ONLN), &cpus);
  sched_setaffinity(0, sizeof cpus, &cpus);
  snprintf(path, sizeof path, "%s/%s", argv[3], argv[4]);
  snprintf(ready, sizeof ready, "%s.ready.%d", path, rank);
  snprintf(go, sizeof go, "%s/go", argv[3]);
  snprintf(stay, sizeof stay, "%s/stay", argv[3]);
  MPI_Barrier(MPI_COMM_WORLD);
  fclose(fopen(ready, "w"));
  while (access(go, F_OK) != 0) usleep(500);
  if (grain > 0) MPI_Barrier(MPI_COMM_WORLD);
  long long start = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
  while (left > 0) {
    long long step = grain > 0 && grain < left ? grain : left;
    for (long long i = 0; i < step; i++) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; }
    left -= step;
    if (grain > 0) MPI_Barrier(MPI_COMM_WORLD);
  }
  long long end = now(CLOCK_MONOTONIC);
  cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  snprintf(ready, sizeof ready, "%s.part.%d", path, rank);
  FILE *out = fopen(ready, "w");
  fprintf(out, "%lld %lld %lld\n", start, end, cpu);
  fclose(out);
  snprintf(path, sizeof path, "%s/%s.%d", argv[3], argv[4], rank);
  rename(ready, path);
  while (access(stay, F_OK) == 0) usleep(5000);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
