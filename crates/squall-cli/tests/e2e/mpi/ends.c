/* Ends in the way of the first argument at the rank of the second. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *way = argv[1];
    int me = atoi(getenv("SLURM_PROCID")) == atoi(argv[2]);
    if (me && !strcmp(way, "before")) return 0;
    if (me && !strcmp(way, "late")) sleep(600);
    MPI_Init(&argc, &argv);
    /* The others must not find out by themselves before the step is ended. */
    MPI_Barrier(MPI_COMM_WORLD);
    if (!me && strcmp(way, "late") && strcmp(way, "before") && strcmp(way, "twice")) pause();
    if (me && !strcmp(way, "abort")) MPI_Abort(MPI_COMM_WORLD, 7);
    if (me && !strcmp(way, "leave")) _exit(0);
    if (me && !strcmp(way, "crash")) abort();
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    if (me && !strcmp(way, "twice")) MPI_Finalize();
    return 0;
}
