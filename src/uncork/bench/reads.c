/* The reads of the load generator in C: see reads.py, which says what they are and has the same in Python.
 *
 * Per socket it knows the bytes around the text of a plain token event (plain.py), or that it knows none. Of the plain
 * events that a read begins with only the stamp is kept; what comes behind them is left to the caller.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#ifndef SO_TIMESTAMPNS
#define SO_TIMESTAMPNS 35
#endif

enum { READ_BYTES = 65536, EVENTS = 512, DATA_BYTES = 32 * READ_BYTES, TURNS = 4096 };
static const int64_t MS = 1000000, SHORTEST_SLEEP = 50000;

struct stamp { int64_t seconds, nanoseconds; };                /* of CLOCK_REALTIME; seconds 0: CLOCK_MONOTONIC */
struct turn { struct stamp first; int64_t back, length; };     /* length: for how long nobody had looked */
struct left { int32_t fd; uint32_t mask; int32_t length, error; struct stamp stamp; };   /* length -1: not read */
struct answer { char *around; int before, suffix; struct stamp *stamps; int64_t count, room; };

struct reads {
    int32_t left_count, turn_count;
    int64_t back;                                              /* when it last came back from waiting */
    struct left left[EVENTS];
    struct turn turns[TURNS];
    char data[DATA_BYTES];                                     /* of what is left, one behind the other */
    int epoll, answer_count, data_used;
    struct answer *answers;                                    /* by file descriptor */
    struct epoll_event ready[EVENTS];
};

/* How `struct reads` begins, in bytes: the counts, what is left, the turns, the data. reads.py goes by it. */
const int64_t uk_layout[4] = {
    offsetof(struct reads, left), sizeof(struct left[EVENTS]), sizeof(struct turn[TURNS]), DATA_BYTES,
};

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 * MS + t.tv_nsec;
}

static int sleep_until(int64_t at) {
    struct timespec t = {at / (1000 * MS), at % (1000 * MS)};
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

struct reads *uk_open(int epoll) {
    struct reads *r = calloc(1, sizeof *r);
    if (r) {
        r->epoll = epoll;
        r->back = now();
    }
    return r;
}

void uk_close(struct reads *r) {
    for (int fd = 0; fd < r->answer_count; fd++) {
        free(r->answers[fd].around);
        free(r->answers[fd].stamps);
    }
    free(r->answers);
    free(r);
}

/* `around` is the bytes before the text and those behind it; both 0: nothing is plain there any more. */
int uk_arm(struct reads *r, int fd, const char *around, int before, int suffix) {
    if (fd >= r->answer_count) {
        struct answer *more = realloc(r->answers, (fd + 64) * sizeof *more);
        if (!more)
            return -1;
        memset(more + r->answer_count, 0, (fd + 64 - r->answer_count) * sizeof *more);
        r->answers = more;
        r->answer_count = fd + 64;
    }
    struct answer *a = &r->answers[fd];
    char *copy = NULL;
    if (before + suffix && !(copy = malloc(before + suffix)))
        return -1;
    if (copy)
        memcpy(copy, around, before + suffix);
    free(a->around);
    *a = (struct answer){copy, before, suffix, a->stamps, 0, a->room};
    return 0;
}

/* The stamps since the last time; valid until the next call. */
int64_t uk_take(struct reads *r, int fd, struct stamp **stamps) {
    struct answer *a = &r->answers[fd];
    int64_t count = a->count;
    *stamps = a->stamps;
    a->count = 0;
    return count;
}

static int keep(struct answer *a, struct stamp stamp, int64_t times) {
    if (a->count + times > a->room) {
        int64_t room = 2 * (a->count + times) + 64;
        struct stamp *more = realloc(a->stamps, room * sizeof *more);
        if (!more)
            return -1;
        a->stamps = more;
        a->room = room;
    }
    while (times--)
        a->stamps[a->count++] = stamp;
    return 0;
}

static int hex(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* How many plain events these bytes begin with, each a chunk of its own; `*rest` is what comes behind them. */
static int64_t plain_events(const struct answer *a, const char *data, int64_t length, const char **rest) {
    const char *end = data + length;
    int64_t events = 0;
    for (*rest = data; data < end; *rest = data) {
        int64_t size = 0;
        const char *at = data;
        while (at < end && at - data < 6 && hex(*at) >= 0)
            size = size * 16 + hex(*at++);
        if (at == data || end - at < 2 || at[0] != '\r' || at[1] != '\n')
            return events;
        at += 2;
        int64_t text = size + 2 - a->before - a->suffix;       /* the suffix ends with the chunk's own CRLF */
        if (text < 0 || end - at < size + 2 || memcmp(at, a->around, a->before) ||
            memcmp(at + a->before + text, a->around + a->before, a->suffix) || memchr(at + a->before, '"', text))
            return events;
        data = at + size + 2;
        events++;
    }
    return events;
}

static void leave(struct reads *r, const struct epoll_event *e, int length, int error, struct stamp stamp) {
    r->left[r->left_count++] = (struct left){e->data.fd, e->events, length, error, stamp};
    if (length > 0)
        r->data_used += length;
}

static struct stamp stamp_of(struct msghdr *message) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS) {
            struct timespec t;
            memcpy(&t, CMSG_DATA(c), sizeof t);
            return (struct stamp){t.tv_sec, t.tv_nsec};
        }
    return (struct stamp){0, now()};
}

/* One look at a socket. Epoll names an arrival once: where a read may have left something it is asked again. */
static struct stamp read_one(struct reads *r, const struct epoll_event *e) {
    struct stamp none = {0, 0};
    struct answer *a = e->data.fd < r->answer_count ? &r->answers[e->data.fd] : NULL;
    if (!a || !a->around || e->events != EPOLLIN || DATA_BYTES - r->data_used < READ_BYTES) {
        leave(r, e, -1, 0, none);
        return none;
    }
    char control[64], *data = r->data + r->data_used;
    struct iovec io = {data, READ_BYTES};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t length;
    while ((length = recvmsg(e->data.fd, &message, 0)) < 0 && errno == EINTR)
        ;
    if (length <= 0) {
        leave(r, e, 0, length < 0 ? errno : 0, none);
        return none;
    }
    struct stamp stamp = stamp_of(&message);
    if (length == READ_BYTES) {
        struct epoll_event again = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = e->data.fd};
        epoll_ctl(r->epoll, EPOLL_CTL_MOD, e->data.fd, &again);
    }
    const char *rest, *end = data + length;
    if (keep(a, stamp, plain_events(a, data, length, &rest)) < 0)
        rest = data;
    if (rest < end) {
        memmove(data, rest, end - rest);
        leave(r, e, (int)(end - rest), 0, stamp);
    }
    return stamp;
}

/* Wait until `until_ns` at most and read what comes, again and again as long as nothing is left to the caller.
 * With `tick_ns` it looks away for so long after each look that found something. */
void uk_turn(struct reads *r, int64_t until_ns, int64_t tick_ns) {
    r->left_count = r->turn_count = r->data_used = 0;
    for (;;) {
        int64_t called = now(), wait_ns = until_ns - called;
        if (wait_ns > 0 && wait_ns < MS) {                     /* epoll counts in whole milliseconds */
            if (sleep_until(until_ns))
                return;
            wait_ns = 0;
        }
        int count = epoll_wait(r->epoll, r->ready, EVENTS, wait_ns > 0 ? (int)(wait_ns / MS) : 0);
        int64_t length = called - r->back;
        r->back = now();
        if (count < 0)
            return;                                            /* a signal, which Python wants to see */
        struct stamp first = {0, 0};
        for (int i = 0; i < count; i++) {
            struct stamp stamp = read_one(r, &r->ready[i]);
            if (!first.nanoseconds)
                first = stamp;
        }
        if (count)
            r->turns[r->turn_count++] = (struct turn){first, r->back, length};
        if (r->left_count || r->turn_count == TURNS || r->back >= until_ns)
            return;
        int64_t away = r->back + tick_ns < until_ns ? r->back + tick_ns : until_ns;
        if (count && tick_ns && away - now() > SHORTEST_SLEEP && sleep_until(away))
            return;
    }
}
