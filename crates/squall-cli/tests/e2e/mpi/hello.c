/* Who am I, who shares my node, and do messages arrive: one line for each rank. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, size, shared, sum, from, ends[2];
    MPI_Comm node;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &shared);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    ends[0] = (rank + 1) % size;
    ends[1] = (rank + size - 1) % size;
    MPI_Sendrecv(&rank, 1, MPI_INT, ends[0], 0, &from, 1, MPI_INT, ends[1], 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("%d of %d on %s shared %d sum %d from %d\n", rank, size, getenv("SLURMD_NODENAME"), shared, sum, from);
    MPI_Finalize();
    return 0;
}
