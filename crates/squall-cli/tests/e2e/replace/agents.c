/* Members that find each other again, as torchrun's elastic agents do: all connect to rank 0, which adds their ranks up in
 * rounds. A member that is lost is waited for, while the others stay. Ends when a file exists: "rank 2 of 3 is right".
 * Use: agents PORT FILE-OF-STARTS FILE-THAT-ENDS-IT */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define MEMBERS 64
enum { ROUND, OVER };

static int whole(int fd, int *number) { return recv(fd, number, sizeof *number, MSG_WAITALL) == sizeof *number; }
static int say(int fd, int number) { return send(fd, &number, sizeof number, MSG_NOSIGNAL) == sizeof number; }

/* Lets a further member in, whose first word is its rank. */
static void admit(int door, int *members) {
    int rank, fd = accept(door, NULL, NULL);
    if (fd >= 0 && whole(fd, &rank) && rank > 0 && rank < MEMBERS) members[rank] = fd;
}

/* Asks all members for their ranks. Returns their sum; -1: a member is missing. */
static int sum_of(int *members, int size) {
    int sum = 0, number;
    for (int rank = 1; rank < size; rank++) {
        if (say(members[rank], ROUND) && whole(members[rank], &number)) {
            sum += number;
        } else {
            close(members[rank]);
            members[rank] = -1;
            return -1;
        }
    }
    return sum;
}

static int lead(struct sockaddr_in *at, int size, const char *end) {
    int members[MEMBERS], on = 1, sum = -1, wrong = 0, door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(door, (void *)at, sizeof *at) || listen(door, MEMBERS)) return 1;
    for (int rank = 0; rank < size; rank++) members[rank] = -1;
    while (sum < 0 || access(end, F_OK)) {
        for (int rank = 1; rank < size; rank++)
            while (members[rank] < 0) admit(door, members);
        sum = sum_of(members, size);
        wrong |= sum >= 0 && sum != size * (size - 1) / 2;
        usleep(10000);
    }
    for (int rank = 1; rank < size; rank++) say(members[rank], OVER);
    return wrong;
}

static int follow(struct sockaddr_in *at, int rank) {
    int word, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (connect(fd, (void *)at, sizeof *at)) usleep(20000);
    say(fd, rank);
    while (whole(fd, &word)) {
        if (word == OVER) return 0;
        say(fd, rank);
    }
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int rank = atoi(getenv("SLURM_PROCID")), size = atoi(getenv("SLURM_NTASKS"));
    const char *again = getenv("SQUALL_STEP_RESTART");
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    FILE *starts = fopen(argv[2], "a");
    fprintf(starts, "%d %s %s %s\n", rank, getenv("SLURM_NODEID"), getenv("SLURMD_NODENAME"), again ? again : "0");
    fclose(starts);
    int wrong = rank == 0 ? lead(&at, size, argv[3]) : follow(&at, rank);
    printf("rank %d of %d is %s\n", rank, size, wrong ? "wrong" : "right");
    return wrong;
}
