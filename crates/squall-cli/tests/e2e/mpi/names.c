/* The last rank publishes a port under a name; rank 0 looks it up, and with an argument they connect by it. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank, size, connects = argc > 1, mine, theirs = -1;
    char port[MPI_MAX_PORT_NAME] = "a;port=of$mine";
    MPI_Comm other;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    mine = 100 + rank;
    if (rank == size - 1) {
        if (connects) MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Publish_name("somewhere", MPI_INFO_NULL, port);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        strcpy(port, "?");
        MPI_Lookup_name("somewhere", MPI_INFO_NULL, port);
        if (!connects) printf("found %s\n", port);
    }
    if (connects && (rank == 0 || rank == size - 1)) {
        if (rank == 0) MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
        else MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
        MPI_Sendrecv(&mine, 1, MPI_INT, 0, 0, &theirs, 1, MPI_INT, 0, 0, other, MPI_STATUS_IGNORE);
        printf("%d heard %d\n", rank, theirs);
        MPI_Comm_disconnect(&other);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1) MPI_Unpublish_name("somewhere", MPI_INFO_NULL, port);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        if (MPI_Lookup_name("somewhere", MPI_INFO_NULL, port) != MPI_SUCCESS) printf("gone\n");
    }
    MPI_Finalize();
    return 0;
}
