/* Passes a number round, which each rank increases; the first rank prints it. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int c, char **v) {
    int rank, size, x = 0;
    MPI_Init(&c, &v);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 100; i++) {
        if (rank) MPI_Recv(&x, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        x++;
        MPI_Send(&x, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
        if (rank) continue;
        MPI_Recv(&x, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("%d\n", x);
        fflush(stdout);
        usleep(50000);
    }
    MPI_Finalize();
    return 0;
}
