/* Ranks in a ring pass a sum on until a file exists: "ring 2 of 3 is right". Each notes its start when all have started.
 * Use: ring FILE-OF-STARTS FILE-THAT-ENDS-IT */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Waits for a token without taking a CPU meanwhile. */
static void receive(int *token, int from) {
    int here = 0;
    while (!here) {
        usleep(1000);
        MPI_Iprobe(from, 0, MPI_COMM_WORLD, &here, MPI_STATUS_IGNORE);
    }
    MPI_Recv(token, 2, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    int rank, size, wrong = 0, over = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    const char *again = getenv("SQUALL_STEP_RESTART");
    FILE *starts = fopen(argv[1], "a");
    fprintf(starts, "%d %s %s %s\n", rank, getenv("SLURM_NODEID"), getenv("SLURMD_NODENAME"), again ? again : "0");
    fclose(starts);
    while (!over) {
        int token[2] = {rank, 0};
        if (rank == 0) {
            token[1] = access(argv[2], F_OK) == 0;
            MPI_Send(token, 2, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
            receive(token, size - 1);
            wrong |= token[0] != size * (size - 1) / 2;
        } else {
            receive(token, rank - 1);
            token[0] += rank;
            MPI_Send(token, 2, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
        }
        over = token[1];
    }
    MPI_Bcast(&wrong, 1, MPI_INT, 0, MPI_COMM_WORLD);
    printf("rank %d of %d is %s\n", rank, size, wrong ? "wrong" : "right");
    MPI_Finalize();
    return 0;
}
