/* What bench gang runs: so much work on each rank, all of them meeting after each grain of it; with PLAIN defined without
 * MPI, each of them sleeping instead, as for a disk.
 * gang ITERATIONS GRAIN FOLDER NAME; GRAIN 0: they never meet. Begins when there is FOLDER/go; writes FOLDER/NAME.RANK:
 * start, end, CPU time, in ns; ends when there is no FOLDER/stay. */
#define _GNU_SOURCE
#ifndef PLAIN
#include <mpi.h>
#endif
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#ifdef PLAIN
static int begin(int *argc, char ***argv) {
  const char *rank = getenv("SLURM_PROCID");
  (void)argc, (void)argv;
  return rank ? atoi(rank) : 0;
}
static void meet(void) { usleep(5000); }
static void end(void) {}
#else
static int begin(int *argc, char ***argv) {
  int rank;
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
static void meet(void) { MPI_Barrier(MPI_COMM_WORLD); }
static void end(void) {
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}
#endif

static long long now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv) {
  long long left = atoll(argv[1]), grain = atoll(argv[2]);
  char path[4096], ready[4096], go[4096], stay[4096];
  int rank = begin(&argc, &argv);
  volatile unsigned long long x = 88172645463325252ULL;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(rank % (int)sysconf(_SC_NPROCESSORS_ONLN), &cpus);
  sched_setaffinity(0, sizeof cpus, &cpus);
  snprintf(path, sizeof path, "%s/%s", argv[3], argv[4]);
  snprintf(ready, sizeof ready, "%s.ready.%d", path, rank);
  snprintf(go, sizeof go, "%s/go", argv[3]);
  snprintf(stay, sizeof stay, "%s/stay", argv[3]);
  meet();
  fclose(fopen(ready, "w"));
  while (access(go, F_OK) != 0) usleep(500);
  if (grain > 0) meet();
  long long start = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
  while (left > 0) {
    long long step = grain > 0 && grain < left ? grain : left;
    for (long long i = 0; i < step; i++) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; }
    left -= step;
    if (grain > 0) meet();
  }
  long long done = now(CLOCK_MONOTONIC);
  cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  snprintf(ready, sizeof ready, "%s.part.%d", path, rank);
  FILE *out = fopen(ready, "w");
  fprintf(out, "%lld %lld %lld\n", start, done, cpu);
  fclose(out);
  snprintf(path, sizeof path, "%s/%s.%d", argv[3], argv[4], rank);
  rename(ready, path);
  while (access(stay, F_OK) == 0) usleep(5000);
  end();
  return 0;
}
