/* An OpenAI-style server whose every token has a known time: the ruler that the client is held against.
 *
 * One thread, one epoll, a heap of due times. Token i of a request is sent at
 *     arrival + ttft + phase + i * itl
 * where arrival is the kernel's receive stamp of the request and phase is drawn from [0, itl) by the seed. It logs
 * CLOCK_MONOTONIC before and after every send and writes the log ("truth") when its stdin ends or at SIGTERM.
 * Only 127.0.0.1 is listened on. The Python twin in fallback.py takes the same options.
 *
 * Truth, native byte order, one block a request:
 *     int64 number, arrival_ns, fault, n; n x { int64 before_ns, after_ns, tokens }
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LIT(s) (s), (int)(sizeof(s) - 1)

#ifndef SO_TIMESTAMPNS
#define SO_TIMESTAMPNS 35
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

enum { NONE, STALL, COALESCE, RESET, TRUNCATE, GARBAGE, BADCHUNK, ERROR, SHORT, EMPTY, LORIS, SPLIT, S429, S503, NOUSAGE, HANG, FAULTS };
static const char *FAULT[FAULTS] = {"none", "stall", "coalesce", "reset", "truncate", "garbage", "bad-chunk", "error", "short",
                                    "empty", "slow-loris", "split", "429", "503", "no-usage", "hang"};

typedef struct { int64_t before, after, tokens; } Sent;

typedef struct {
    int fd, pos; /* pos: place in the heap, -1 none */
    char *in;
    size_t have, room;
    int64_t due, arrival, number;
    int total, done, fault, chat, each_usage, closing, prompt;
    Sent *log;
    int logged;
    char *out; /* slow loris: what is left to send byte by byte */
    size_t out_have, out_at;
} Conn;

static int64_t ttft_ns = 50000000, itl_ns = 20000000, stall_ns = 200000000, offset_ns;
static int per_chunk = 1, cpu = -1, fifo, nfaults, every = 5, listen_fd, ep, close_each, role_alone, mark;
static int fault_list[64];
static uint64_t seed = 1;
static const char *truth_path;
static FILE *truth;
static Conn **conns;
static int conn_room;
static Conn **heap;
static int heap_n, heap_room;
static int64_t numbers, blocked;
static volatile sig_atomic_t stopping;

static int64_t now_ns(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *grow(void *p, size_t n) {
    p = realloc(p, n);
    if (!p) { perror("realloc"); exit(1); }
    return p;
}

static uint64_t mix(uint64_t x) { /* splitmix64 */
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static void heap_swap(int a, int b) {
    Conn *t = heap[a];
    heap[a] = heap[b];
    heap[b] = t;
    heap[a]->pos = a;
    heap[b]->pos = b;
}

static void heap_up(int i) {
    while (i && heap[i]->due < heap[(i - 1) / 2]->due) { heap_swap(i, (i - 1) / 2); i = (i - 1) / 2; }
}

static void heap_down(int i) {
    for (;;) {
        int least = i, left = 2 * i + 1;
        if (left < heap_n && heap[left]->due < heap[least]->due) least = left;
        if (left + 1 < heap_n && heap[left + 1]->due < heap[least]->due) least = left + 1;
        if (least == i) return;
        heap_swap(i, least);
        i = least;
    }
}

static void heap_remove(Conn *c) {
    int i = c->pos;
    if (i < 0) return;
    heap_swap(i, --heap_n);
    c->pos = -1;
    if (i < heap_n) { heap_up(i); heap_down(i); }
}

static void schedule(Conn *c, int64_t due) {
    c->due = due;
    if (c->pos >= 0) { heap_up(c->pos); heap_down(c->pos); return; }
    if (heap_n == heap_room) heap = grow(heap, sizeof *heap * (heap_room = heap_room ? 2 * heap_room : 256));
    heap[heap_n] = c;
    c->pos = heap_n++;
    heap_up(c->pos);
}

static void drop(Conn *c) {
    heap_remove(c);
    if (truth && c->number >= 0) {
        int64_t head[4] = {c->number, c->arrival, c->fault, c->logged};
        fwrite(head, sizeof head, 1, truth);
        fwrite(c->log, sizeof(Sent), c->logged, truth);
    }
    close(c->fd);
    conns[c->fd] = NULL;
    free(c->in);
    free(c->log);
    free(c->out);
    free(c);
}

static void finish(Conn *c) { /* the exchange is over: write its truth, wait for the next request */
    if (truth) {
        int64_t head[4] = {c->number, c->arrival, c->fault, c->logged};
        fwrite(head, sizeof head, 1, truth);
        fwrite(c->log, sizeof(Sent), c->logged, truth);
    }
    c->number = -1;
    c->logged = 0;
    heap_remove(c);
    if (c->closing || close_each) drop(c);
}

static int push(Conn *c, const char *data, size_t n) { /* all of it, waiting for room if need be */
    while (n) {
        ssize_t k = send(c->fd, data, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EAGAIN) {
            struct pollfd p = {c->fd, POLLOUT, 0};
            blocked++;
            if (poll(&p, 1, 1000) <= 0) return -1;
            continue;
        }
        if (k < 0) return -1;
        data += k;
        n -= k;
    }
    return 0;
}

static int chunk(char *to, const char *text, int n) {
    int k = sprintf(to, "%x\r\n", n);
    memcpy(to + k, text, n);
    memcpy(to + k + n, "\r\n", 2);
    return k + n + 2;
}

static int event(Conn *c, char *to, const char *delta, const char *finish, int usage) {
    char text[8192], counts[160] = "";
    if (usage)
        sprintf(counts, ",\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}", c->prompt, c->done,
                c->prompt + c->done);
    int n = snprintf(text, sizeof text,
                     "data: {\"id\":\"ref-%lld\",\"object\":\"%s\",\"created\":1700000000,\"model\":\"reference\",\"choices\":[{"
                     "\"index\":0,%s,\"logprobs\":null,\"finish_reason\":%s}]%s}\n\n",
                     (long long)c->number, c->chat ? "chat.completion.chunk" : "text_completion", delta, finish, counts);
    return chunk(to, text, n);
}

static int words(Conn *c, char *to, int n) { /* one event that carries n tokens */
    char delta[6144];
    int k = sprintf(delta, c->chat ? "\"delta\":{\"content\":\"" : "\"text\":\"");
    for (int i = 0; i < n; i++)
        k += mark && c->done + i == 0 ? sprintf(delta + k, " r%lld", (long long)c->number) : sprintf(delta + k, " tok%d", (c->done + i) % 1000);
    sprintf(delta + k, c->chat ? "\"}" : "\"");
    c->done += n;
    return event(c, to, delta, "null", c->each_usage);
}

static int ending(Conn *c, char *to, const char *reason) {
    char finish_reason[32], text[512];
    sprintf(finish_reason, "\"%s\"", reason);
    int n = event(c, to, c->chat ? "\"delta\":{}" : "\"text\":\"\"", finish_reason, c->each_usage);
    if (c->fault != NOUSAGE) {
        int k = sprintf(text,
                        "data: {\"id\":\"ref-%lld\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"reference\","
                        "\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\n",
                        (long long)c->number, c->prompt, c->done, c->prompt + c->done);
        n += chunk(to + n, text, k);
    }
    n += chunk(to + n, "data: [DONE]\n\n", 14);
    memcpy(to + n, "0\r\n\r\n", 5);
    return n + 5;
}

static void note(Conn *c, int64_t before, int tokens) {
    c->log[c->logged++] = (Sent){before, now_ns(CLOCK_MONOTONIC), tokens};
}

static void hang_up(Conn *c, int hard) {
    if (hard) {
        struct linger l = {1, 0};
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    }
    drop(c);
}

static int broken(Conn *c, char *buf) { /* faults that replace a token; 1 when the exchange is over */
    int half = c->done >= (c->total + 1) / 2;
    if (!half) return 0;
    switch (c->fault) {
    case RESET: hang_up(c, 1); return 1;
    case TRUNCATE: hang_up(c, 0); return 1;
    case HANG: heap_remove(c); return 1;
    case GARBAGE: push(c, buf, chunk(buf, LIT("data: {\"id\": garb\xff\n\n"))); c->fault = -GARBAGE; return 0;
    case BADCHUNK: push(c, LIT("zz\r\nnonsense\r\n")); c->closing = 1; finish(c); return 1;
    case ERROR:
        push(c, buf, chunk(buf, LIT("data: {\"error\":{\"message\":\"out of memory\",\"code\":500}}\n\n")));
        push(c, LIT("0\r\n\r\n"));
        finish(c);
        return 1;
    case SHORT: { int n = ending(c, buf, "stop"); push(c, buf, n); finish(c); return 1; }
    }
    return 0;
}

static void loris(Conn *c) { /* one byte at a time */
    if (push(c, c->out + c->out_at, 1)) { drop(c); return; }
    if (++c->out_at < c->out_have) { schedule(c, c->due + 1000000); return; }
    note(c, now_ns(CLOCK_MONOTONIC), c->total);
    free(c->out);
    c->out = NULL;
    finish(c);
}

static void due(Conn *c) {
    static char buf[65536];
    if (c->out) { loris(c); return; }
    if (c->fault == EMPTY) { push(c, buf, ending(c, buf, "stop")); finish(c); return; }
    if (broken(c, buf)) return;
    int left = c->total - c->done, n = 0, count = per_chunk < left ? per_chunk : left;
    int first = c->done == 0;
    if (c->fault == COALESCE && c->done >= c->total / 2) { /* the second half at once, an event a token */
        int k = left < 100 ? left : 100;
        for (int i = 0; i < k; i++) n += words(c, buf + n, 1);
        count = k;
    } else if (first && c->chat && !role_alone) {
        n += event(c, buf, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}", "null", 0);
        n += words(c, buf + n, count);
    } else
        n += words(c, buf + n, count);
    if (c->done >= c->total) n += ending(c, buf + n, "length");
    if (c->fault == LORIS && !first) {
        c->out = grow(NULL, n);
        memcpy(c->out, buf, n);
        c->out_have = n;
        c->out_at = 0;
        c->total = c->done;
        /* what is sent byte by byte is the rest of the answer */
        if (memcmp(buf + n - 5, "0\r\n\r\n", 5)) { c->out = grow(c->out, n + 2048); c->out_have += ending(c, c->out + n, "length"); }
        loris(c);
        return;
    }
    int64_t before = now_ns(CLOCK_MONOTONIC);
    int failed;
    if (c->fault == SPLIT) { /* the event's end comes 2 ms after its beginning */
        failed = push(c, buf, n / 2);
        struct timespec t = {0, 2000000};
        nanosleep(&t, NULL);
        before = now_ns(CLOCK_MONOTONIC);
        failed |= push(c, buf + n / 2, n - n / 2);
    } else
        failed = push(c, buf, n);
    note(c, before, count);
    if (failed) { drop(c); return; }
    if (c->done >= c->total) { finish(c); return; }
    schedule(c, c->due + itl_ns + (c->fault == STALL && c->done == c->total / 2 ? stall_ns : 0));
}

static int64_t number_after(const char *in, const char *key, int64_t otherwise) {
    const char *at = strstr(in, key);
    return at ? atoll(at + strlen(key)) : otherwise;
}

static void answer_now(Conn *c, const char *status, const char *body) {
    char text[2048];
    int n = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", status,
                     strlen(body), body);
    push(c, text, n);
}

static void begin(Conn *c, int64_t arrival, char *body) {
    static const char HEAD[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
    c->number = numbers++;
    c->arrival = arrival;
    c->chat = strstr(c->in, "/chat/") != NULL;
    c->total = number_after(body, "\"max_tokens\":", number_after(body, "\"max_completion_tokens\":", 16));
    if (c->total < 1) c->total = 1;
    c->each_usage = strstr(body, "\"continuous_usage_stats\":true") != NULL;
    c->done = c->logged = 0;
    c->prompt = 1;
    for (char *s = strstr(body, c->chat ? "\"content\"" : "\"prompt\""); s && *s && *s != '}'; s++) c->prompt += *s == ' ';
    c->fault = nfaults && c->number % every == every - 1 ? fault_list[(c->number / every) % nfaults] : NONE;
    c->log = grow(c->log, sizeof(Sent) * (c->total + 8));
    if (c->fault == S429 || c->fault == S503) {
        answer_now(c, c->fault == S429 ? "429 Too Many Requests" : "503 Service Unavailable", "{\"error\":\"busy\"}");
        finish(c);
        return;
    }
    if (push(c, HEAD, sizeof HEAD - 1)) { drop(c); return; }
    if (role_alone && c->chat) {
        static char buf[1024];
        push(c, buf, event(c, buf, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}", "null", 0));
    }
    int64_t phase = itl_ns ? (int64_t)(mix(seed ^ mix(c->number)) % (uint64_t)itl_ns) : 0;
    schedule(c, arrival + ttft_ns + phase);
}

static void parse(Conn *c, int64_t arrival) {
    char *end = strstr(c->in, "\r\n\r\n");
    if (!end) return;
    char *cl = strcasestr(c->in, "content-length:");
    size_t length = cl && cl < end ? strtoull(cl + 15, NULL, 10) : 0, whole = (end + 4 - c->in) + length;
    if (c->have < whole) return;
    c->closing = strcasestr(c->in, "connection: close") != NULL;
    if (!strncmp(c->in, "GET", 3)) {
        int models = strstr(c->in, "/v1/models") != NULL && strstr(c->in, "/v1/models") < end;
        answer_now(c, models ? "200 OK" : "404 Not Found",
                   models ? "{\"object\":\"list\",\"data\":[{\"id\":\"reference\",\"object\":\"model\"}]}" : "{}");
        if (c->closing) { drop(c); return; }
    } else if (!strstr(c->in, "completions")) {
        answer_now(c, "404 Not Found", "{}");
    } else {
        c->have = 0;
        begin(c, arrival, end + 4);
        return;
    }
    c->have = 0;
}

static void readable(Conn *c) {
    if (c->room - c->have < 16384) c->in = grow(c->in, c->room = 2 * c->room + 32768);
    char control[128];
    struct iovec iov = {c->in + c->have, c->room - c->have - 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(c->fd, &msg, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) { drop(c); return; }
    int64_t arrival = now_ns(CLOCK_MONOTONIC);
    for (struct cmsghdr *m = CMSG_FIRSTHDR(&msg); m; m = CMSG_NXTHDR(&msg, m))
        if (m->cmsg_level == SOL_SOCKET && m->cmsg_type == SO_TIMESTAMPNS) {
            struct timespec *t = (struct timespec *)CMSG_DATA(m);
            arrival = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec - offset_ns;
        }
    c->have += n;
    c->in[c->have] = 0;
    parse(c, arrival);
}

static void take_new(void) {
    for (;;) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
        if (fd >= conn_room) {
            int old = conn_room;
            conns = grow(conns, sizeof *conns * (conn_room = fd + 256));
            memset(conns + old, 0, sizeof *conns * (conn_room - old));
        }
        Conn *c = grow(NULL, sizeof *c);
        memset(c, 0, sizeof *c);
        c->fd = fd;
        c->pos = -1;
        c->number = -1;
        conns[fd] = c;
        struct epoll_event e = {EPOLLIN, {.fd = fd}};
        epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
    }
}

static int wait_events(struct epoll_event *events, int max, int64_t until) {
    static int no_pwait2;
    int64_t wait = until - now_ns(CLOCK_MONOTONIC);
    if (wait < 0) wait = 0;
    if (until && !no_pwait2) {
        struct timespec t = {wait / 1000000000, wait % 1000000000};
        int n = syscall(SYS_epoll_pwait2, ep, events, max, &t, NULL, 0);
        if (n >= 0 || errno != ENOSYS) return n;
        no_pwait2 = 1;
    }
    return epoll_wait(ep, events, max, until ? (int)(wait / 1000000) : -1); /* the last part of a ms is spun */
}

static void on_signal(int s) { (void)s; stopping = 1; }

static void options(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *k = argv[i], *v = argv[i + 1];
        if (!strcmp(k, "--ttft-us")) ttft_ns = atoll(v) * 1000;
        else if (!strcmp(k, "--itl-us")) itl_ns = atoll(v) * 1000;
        else if (!strcmp(k, "--stall-us")) stall_ns = atoll(v) * 1000;
        else if (!strcmp(k, "--per-chunk")) per_chunk = atoi(v) < 1 ? 1 : atoi(v) > 64 ? 64 : atoi(v);
        else if (!strcmp(k, "--seed")) seed = strtoull(v, NULL, 10);
        else if (!strcmp(k, "--truth")) truth_path = v;
        else if (!strcmp(k, "--cpu")) cpu = atoi(v);
        else if (!strcmp(k, "--fifo")) fifo = atoi(v);
        else if (!strcmp(k, "--every")) every = atoi(v) < 1 ? 1 : atoi(v);
        else if (!strcmp(k, "--close-each")) close_each = atoi(v);
        else if (!strcmp(k, "--role-alone")) role_alone = atoi(v);
        else if (!strcmp(k, "--mark")) mark = atoi(v);
        else if (!strcmp(k, "--faults")) {
            char *copy = strdup(v);
            for (char *p = strtok(copy, ","); p && nfaults < 64; p = strtok(NULL, ","))
                for (int f = 0; f < FAULTS; f++)
                    if (!strcmp(p, FAULT[f])) fault_list[nfaults++] = f;
        }
    }
}

int main(int argc, char **argv) {
    options(argc, argv);
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_TIMERSLACK, 1);
    struct rlimit lim;
    getrlimit(RLIMIT_NOFILE, &lim);
    lim.rlim_cur = lim.rlim_max;
    setrlimit(RLIMIT_NOFILE, &lim);
    if (cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    int realtime = 0;
    if (fifo) {
        struct sched_param p = {.sched_priority = 1};
        realtime = sched_setscheduler(0, SCHED_FIFO, &p) == 0;
    }
    if (truth_path && !(truth = fopen(truth_path, "wb"))) { perror(truth_path); return 1; }
    if (truth) setvbuf(truth, malloc(1 << 22), _IOFBF, 1 << 22);
    offset_ns = now_ns(CLOCK_REALTIME) - now_ns(CLOCK_MONOTONIC);
    ep = epoll_create1(EPOLL_CLOEXEC);
    listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listen_fd, (void *)&a, sizeof a) || listen(listen_fd, 4096)) { perror("listen"); return 1; }
    socklen_t len = sizeof a;
    getsockname(listen_fd, (void *)&a, &len);
    struct epoll_event e = {EPOLLIN, {.fd = listen_fd}}, in = {EPOLLIN, {.fd = 0}};
    epoll_ctl(ep, EPOLL_CTL_ADD, listen_fd, &e);
    epoll_ctl(ep, EPOLL_CTL_ADD, 0, &in); /* fails on a plain file, which is fine */
    printf("{\"port\":%d,\"kind\":\"c\",\"realtime\":%s}\n", ntohs(a.sin_port), realtime ? "true" : "false");
    fflush(stdout);
    struct epoll_event events[256];
    while (!stopping) {
        int n = wait_events(events, 256, heap_n ? heap[0]->due : 0);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            char byte;
            if (fd == listen_fd) take_new();
            else if (fd == 0) { if (read(0, &byte, 1) <= 0) stopping = 1; }
            else if (conns[fd]) readable(conns[fd]);
        }
        int64_t now = now_ns(CLOCK_MONOTONIC);
        for (int i = 0; i < 64 && heap_n && heap[0]->due <= now; i++) due(heap[0]);
    }
    for (int fd = 0; fd < conn_room; fd++) if (conns[fd]) drop(conns[fd]);
    if (truth) fclose(truth);
    return 0;
}
