/* A program of the C library alone: all that it may ask a host for, and what it has of it here. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    printf("args");
    for (int i = 0; i < argc; i++) printf(" %s", argv[i]);
    printf("\nenv %s %s\n", getenv("COLOUR"), getenv("HOME") ? "home" : "homeless");
    char line[64];
    while (fgets(line, sizeof line, stdin)) printf("in %s", line);
    printf("\neof %d\n", feof(stdin) != 0);
    printf("tty %d%d%d\n", isatty(0), isatty(1), isatty(2));
    errno = 0;
    printf("open %d", fopen("/etc/passwd", "r") != NULL); printf(" %d\n", errno != 0);
    errno = 0; printf("create %d\n", open("x", O_CREAT | O_WRONLY, 0600) == -1);
    printf("dir %d\n", opendir(".") != NULL);
    struct stat st; printf("stat %d\n", stat("/", &st)); printf("fstat %d\n", fstat(1, &st));
    printf("mkdir %d unlink %d rename %d\n", mkdir("d", 0700), unlink("d"), rename("a", "b"));
    printf("seek %d\n", fseek(stdout, 0, SEEK_CUR));
    struct timespec a, b, nap = {0, 1000000};
    clock_gettime(CLOCK_MONOTONIC, &a); nanosleep(&nap, NULL); clock_gettime(CLOCK_MONOTONIC, &b);
    printf("slept %d\n", (b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec >= 1000000);
    printf("now %d\n", time(NULL) > 1700000000);
    struct pollfd fds[2] = {{0, POLLIN, 0}, {7, POLLIN, 0}};
    printf("poll %d", poll(fds, 1, 1000)); printf(" %d\n", fds[0].revents & POLLIN);
    char noise[300]; memset(noise, 0, sizeof noise);
    printf("entropy %d\n", getentropy(noise, 256));
    void *big = malloc(1 << 20); printf("malloc %d\n", big != NULL); free(big);
    fflush(stdout);
    fprintf(stderr, "bye\n");
    write(1, "raw\n", 4);
    exit(42);
}
