/* What a C program can do right and wrong with libulnet. The argument is a free port. */

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ulnet.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s: last error: %s\n", __LINE__, #what, ulnet_last_error()); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define SAYS(text) CHECK(strstr(ulnet_last_error(), text) != NULL)

enum { PORTAL = 10 };
static const char *const ALICE = "127.0.0.4@tcp", *const BOB = "127.0.0.5@tcp";
static uint16_t port;

static ulnet_node *start(const char *nid)
{
    ulnet_config *config;
    ulnet_node *node;

    CHECK(ulnet_config_new(NULL, &config) == 0);
    CHECK(ulnet_config_port(config, port) == 0);
    CHECK(ulnet_config_seed(config, 7) == 0);
    CHECK(ulnet_config_spin(config, 0) == 0);
    CHECK(ulnet_config_add_ni(config, nid, NULL) == 0);
    CHECK(ulnet_node_start(config, &node) == 0);
    CHECK(ulnet_config_free(config) == 0);
    return node;
}

/* The next event, which has to come. */
static ulnet_event next(ulnet_queue *queue)
{
    ulnet_event event;

    CHECK(ulnet_queue_next(queue, 20000, &event) == 1);
    return event;
}

static void arguments_are_checked(ulnet_node *alice)
{
    ulnet_config *config;
    ulnet_node *node;
    ulnet_queue *queue;
    ulnet_event event;
    ulnet_inbox *inbox;
    ulnet_match match = {.bits = 1};
    ulnet_options options = {.flags = 2};
    ulnet_inbox_options ring = {.reserved = {0, 9}};
    ulnet_ni_options ni = {.tos = 256};
    int64_t value;

    CHECK(ulnet_config_new("kernle", &config) == -EINVAL);
    SAYS("profile 'kernle': expected one of default, documents, kernel, pre-2.13, off");
    CHECK(ulnet_config_new(NULL, NULL) == -EINVAL);
    CHECK(ulnet_config_new(NULL, (ulnet_config **)((char *)&config + 1)) == -EINVAL);
    SAYS("must be aligned to 8");
    CHECK(ulnet_config_new("kernel", &config) == 0);
    CHECK(ulnet_config_set(config, "retry_cuont", 1) == -ENOENT);
    CHECK(ulnet_config_set(config, "health_sensitivity", 5000) == -EINVAL);
    SAYS("health_sensitivity 5000: expected 0 to 1000");
    CHECK(ulnet_config_set(config, NULL, 1) == -EINVAL);
    CHECK(ulnet_config_set(config, "\xff", 1) == -EINVAL);
    CHECK(ulnet_config_port(config, 0) == -EINVAL);
    CHECK(ulnet_config_add_ni(config, "10.0.0.300@tcp", NULL) == -EINVAL);
    SAYS("nid '10.0.0.300@tcp'");
    CHECK(ulnet_config_add_ni(config, ALICE, &ni) == -EINVAL);
    SAYS("tos 256: expected 0 to 255");
    CHECK(ulnet_config_add_ni(config, "7@gni", NULL) == 0);
    CHECK(ulnet_node_start(config, &node) == -EINVAL);
    SAYS("7@gni: not an address of a TCP network");

    /* Handles: none, of another kind, closed. */
    CHECK(ulnet_config_set(NULL, "retry_count", 1) == -EINVAL);
    SAYS("config NULL: must be a handle");
    CHECK(ulnet_node_stop((ulnet_node *)config, 0) == -EBADF);
    CHECK(ulnet_node_stop((ulnet_node *)&config, 0) == -EBADF);
    CHECK(ulnet_config_free(config) == 0);
    CHECK(ulnet_config_free(config) == -EBADF);
    CHECK(ulnet_node_start(config, &node) == -EBADF);
    CHECK(ulnet_queue_close(NULL) == -EINVAL && ulnet_inbox_close(NULL) == -EINVAL);
    CHECK(ulnet_detach(NULL) == -EINVAL && ulnet_message_free(NULL) == -EINVAL);
    CHECK(ulnet_queue_fd(NULL) == -EINVAL && ulnet_queue_next(NULL, 0, &event) == -EINVAL);

    CHECK(ulnet_put(NULL, BOB, PORTAL, 1, "x", 1, NULL, NULL) == -EINVAL);
    CHECK(ulnet_put(alice, NULL, PORTAL, 1, "x", 1, NULL, NULL) == -EINVAL);
    CHECK(ulnet_put(alice, BOB, PORTAL, 1, NULL, 1, NULL, NULL) == -EINVAL);
    SAYS("data NULL: must be 1 bytes");
    CHECK(ulnet_put(alice, BOB, PORTAL, 1, "x", (size_t)-1, NULL, NULL) == -EINVAL);
    CHECK(ulnet_put(alice, BOB, PORTAL, 1, "x", 1, &options, NULL) == -EINVAL);
    SAYS("ulnet_options, flags 0x2: 0x2 must be 0");
    options.flags = ULNET_ACK;
    CHECK(ulnet_get(alice, BOB, PORTAL, 1, &value, 8, &options, NULL) == -EINVAL);
    CHECK(ulnet_put_start(alice, BOB, PORTAL, 1, "x", 1, NULL, NULL, NULL) == -EINVAL);
    CHECK(ulnet_queue_new(&queue) == 0);
    CHECK(ulnet_queue_next(queue, 0, NULL) == -EINVAL);
    CHECK(ulnet_inbox_open(alice, PORTAL, NULL, NULL, queue, NULL, &inbox) == -EINVAL);
    CHECK(ulnet_inbox_open(alice, PORTAL, &match, &ring, queue, NULL, &inbox) == -EINVAL);
    SAYS("ulnet_inbox_options, reserved field 0x9: must be 0");
    CHECK(ulnet_inbox_open(alice, 1000000, &match, NULL, queue, NULL, &inbox) < 0);
    CHECK(ulnet_queue_close(queue) == 0);
    CHECK(ulnet_queue_next(queue, 0, &event) == -EBADF);
    CHECK(ulnet_node_value(alice, "no_such", &value) == -ENOENT);
}

static void nodes_are_configured(ulnet_node *alice)
{
    ulnet_nid nid, nids[4];
    ulnet_peer peer;
    const char *more[] = {"10.77.0.2@tcp"};
    int64_t value = 0;

    CHECK(ulnet_node_set(alice, "retry_count", 5) == 0);
    CHECK(ulnet_node_value(alice, "retry_count", &value) == 0 && value == 5);
    CHECK(ulnet_node_set(alice, "retry_count", -1) == -EINVAL);
    CHECK(ulnet_node_nid(alice, 0, &nid) == 0 && strcmp(nid.text, ALICE) == 0);
    CHECK(ulnet_node_nid(alice, 1, &nid) == -ENOENT);
    CHECK(ulnet_node_add_ni(alice, "127.0.0.6@tcp", NULL) == 0);
    CHECK(ulnet_node_add_ni(alice, "127.0.0.6@tcp", NULL) < 0);
    CHECK(ulnet_node_nid(alice, 1, &nid) == 0 && strcmp(nid.text, "127.0.0.6@tcp") == 0);
    CHECK(ulnet_node_del_ni(alice, "127.0.0.6@tcp") == 0);
    CHECK(ulnet_node_del_ni(alice, "127.0.0.6@tcp") == -ENOENT);
    CHECK(ulnet_node_add_peer(alice, "10.77.0.1@tcp", more, 1) == 0);
    CHECK(ulnet_node_del_peer(alice, "10.77.0.1@tcp") == 0);
    CHECK(ulnet_node_del_peer(alice, "10.77.0.1@tcp") < 0);
    CHECK(ulnet_node_add_route(alice, "tcp7", BOB, 1, 0) == 0);
    CHECK(ulnet_node_del_route(alice, "tcp7", BOB) == 0);
    CHECK(ulnet_node_del_route(alice, "tcp7", BOB) < 0);
    CHECK(ulnet_node_add_route(alice, "nonet", BOB, 1, 0) == -EINVAL);

    CHECK(ulnet_ping(alice, BOB, 5000, &peer, nids, 4) == 0);
    CHECK(peer.nids == 1 && strcmp(nids[0].text, BOB) == 0 && strcmp(peer.primary.text, BOB) == 0);
    CHECK(ulnet_discover(alice, BOB, 1, &peer, NULL, 0) == 0 && peer.multi_rail == 1);
    CHECK(ulnet_discover(alice, BOB, 1, &peer, NULL, 1) == -EINVAL);
    CHECK(ulnet_ping(alice, "127.0.0.99@tcp", 2000, &peer, NULL, 0) < 0);
    SAYS("ping 127.0.0.99@tcp: ");
}

static void started_operations_end_in_the_queue(ulnet_node *alice, ulnet_node *bob)
{
    ulnet_queue *mine, *his;
    ulnet_inbox *inbox;
    ulnet_inbox_state state;
    ulnet_match match = {.bits = 1};
    ulnet_inbox_options ring = {.buffers = 2, .buffer_bytes = 4096};
    ulnet_options acked = {.flags = ULNET_ACK, .hdr_data = 11};
    ulnet_event event;
    struct pollfd ready = {.events = POLLIN};
    char text[] = "by the descriptor";
    int i, ends = 0, messages = 0;

    CHECK(ulnet_queue_new(&mine) == 0 && ulnet_queue_new(&his) == 0);
    CHECK(ulnet_inbox_open(bob, PORTAL, &match, &ring, his, &his, &inbox) == 0);
    ready.fd = ulnet_queue_fd(his);
    CHECK(ready.fd >= 0 && ulnet_queue_fd(his) == ready.fd);
    /* The inbox is looked at once, finds nothing, and then the descriptor is silent. */
    CHECK(ulnet_queue_next(his, 0, &event) == 0 && poll(&ready, 1, 0) == 0);
    for (i = 0; i < 100; i++)
        CHECK(ulnet_put_start(alice, BOB, PORTAL, 1, text, sizeof text, &acked, mine, &text) == 0);
    while (messages < 100) {
        CHECK(poll(&ready, 1, 20000) == 1);
        while (ulnet_queue_next(his, 0, &event) == 1) {
            CHECK(event.kind == ULNET_EVENT_MESSAGE && event.status == 0 && event.user == &his);
            CHECK(event.length == sizeof text && memcmp(event.data, text, sizeof text) == 0);
            CHECK(event.hdr_data == 11 && event.portal == PORTAL && event.match_bits == 1);
            CHECK(strcmp(event.initiator.text, ALICE) == 0 && event.initiator_pid == 12345);
            CHECK(ulnet_message_free(event.message) == 0);
            CHECK(ulnet_message_free(event.message) == -EBADF);
            messages++;
        }
    }
    for (; ends < 100; ends++) {
        event = next(mine);
        CHECK(event.kind == ULNET_EVENT_PUT_DONE && event.status == 0 && event.user == &text);
        CHECK(event.length == sizeof text && event.data == NULL && event.message == NULL);
    }
    CHECK(ulnet_queue_next(mine, 10, &event) == 0);
    CHECK(ulnet_inbox_get_state(inbox, &state) == 0);
    CHECK(state.buffers == 2 && state.unread == 0);

    /* A failure has its text and stage. */
    CHECK(ulnet_get_start(alice, "127.0.0.99@tcp", PORTAL, 1, text, 1, NULL, mine, NULL) == 0);
    event = next(mine);
    CHECK(event.kind == ULNET_EVENT_GET_DONE && event.status < 0 && event.stage != ULNET_STAGE_NONE);
    CHECK(event.stage == ulnet_last_stage());
    SAYS("GET to 127.0.0.99@tcp, portal 10: ");

    CHECK(ulnet_inbox_close(inbox) == 0 && ulnet_inbox_close(inbox) == -EBADF);
    CHECK(ulnet_queue_next(his, 0, &event) == 0);
    CHECK(ulnet_queue_close(mine) == 0 && ulnet_queue_close(his) == 0);
}

static void closing_a_queue_cancels_and_gives_the_memory_back(ulnet_node *alice)
{
    ulnet_queue *queue;
    char *memory = malloc(1 << 20);
    ulnet_options patient = {.response_timeout_ms = 600000};

    CHECK(memory != NULL && ulnet_queue_new(&queue) == 0);
    /* Nothing matches there, so no answer comes. */
    CHECK(ulnet_get_start(alice, BOB, 40, 1, memory, 1 << 20, &patient, queue, NULL) == 0);
    CHECK(ulnet_queue_close(queue) == 0);
    /* No writer has it any more: an address sanitizer or valgrind would report one. */
    free(memory);
}

static void *wait_for_the_end(void *queue)
{
    ulnet_event event;
    /* Its handle may be gone already. */
    int result = ulnet_queue_next(queue, -1, &event);

    CHECK(result == -ESHUTDOWN || result == -EBADF);
    return NULL;
}

static void a_thread_that_waits_is_woken_by_the_close(void)
{
    ulnet_queue *queue;
    pthread_t thread;
    struct timespec moment = {.tv_nsec = 50000000};

    CHECK(ulnet_queue_new(&queue) == 0);
    CHECK(pthread_create(&thread, NULL, wait_for_the_end, queue) == 0);
    nanosleep(&moment, NULL);
    CHECK(ulnet_queue_close(queue) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

struct seen {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    ulnet_queue *queue;
    char bytes[256];
    size_t length;
    int events;
    int closing;
};

static void on_event(const ulnet_event *event, void *user)
{
    struct seen *seen = user;
    int closed;

    pthread_mutex_lock(&seen->lock);
    /* Here it would wait for itself. The last events may come while it is being closed. */
    closed = ulnet_queue_close(seen->queue);
    CHECK(closed == -EDEADLK || (seen->closing && closed == -EBADF));
    if (event->kind == ULNET_EVENT_PUT && event->user == seen->bytes) {
        CHECK((const char *)event->data == seen->bytes + event->offset);
        seen->length += event->length;
    } else {
        /* Where initiators choose the offset, bytes are read by copying. */
        CHECK(event->user == NULL && event->data == NULL);
    }
    seen->events++;
    pthread_cond_signal(&seen->changed);
    pthread_mutex_unlock(&seen->lock);
}

static void attached_memory_fills_and_its_events_go_to_a_callback(ulnet_node *alice, ulnet_node *bob)
{
    static struct seen seen = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, "", 0, 0, 0};
    ulnet_attachment *landing, *shelf;
    ulnet_attach_options managed = {.flags = ULNET_ATTACH_PUT | ULNET_ATTACH_MANAGE_REMOTE};
    ulnet_options acked = {.flags = ULNET_ACK};
    ulnet_match match = {.bits = 2, .from = ALICE, .flags = ULNET_MATCH_FIRST};
    ulnet_event event;
    char copy[8], other[64] = "";

    /* Held while the queue is made, so that its handle is there when the callback asks for it. */
    pthread_mutex_lock(&seen.lock);
    CHECK(ulnet_queue_serve(NULL, NULL, &seen.queue) == -EINVAL);
    CHECK(ulnet_queue_serve(on_event, &seen, &seen.queue) == 0);
    CHECK(ulnet_queue_next(seen.queue, 0, &event) == -EINVAL);
    SAYS("its events go to its callback");
    CHECK(ulnet_attach(bob, PORTAL, &match, seen.bytes, sizeof seen.bytes, NULL, seen.queue,
                       seen.bytes, &landing) == 0);
    CHECK(ulnet_put(alice, BOB, PORTAL, 2, "one,", 4, &acked, NULL) == 0);
    CHECK(ulnet_put(alice, BOB, PORTAL, 2, "two", 3, &acked, NULL) == 0);
    while (seen.length < 7)
        pthread_cond_wait(&seen.changed, &seen.lock);
    CHECK(memcmp(seen.bytes, "one,two", 7) == 0);
    /* What has been delivered stays. */
    CHECK(ulnet_attachment_write(landing, 0, "x", 1) < 0);

    match.bits = 3;
    CHECK(ulnet_attach(bob, PORTAL, &match, other, sizeof other, &managed, seen.queue, NULL,
                       &shelf) == 0);
    acked.offset = 5;
    CHECK(ulnet_put(alice, BOB, PORTAL, 3, "there", 5, &acked, NULL) == 0);
    CHECK(ulnet_attachment_read(shelf, 5, copy, 5) == 0 && memcmp(copy, "there", 5) == 0);
    CHECK(ulnet_attachment_write(shelf, 5, "T", 1) == 0);
    CHECK(ulnet_attachment_read(shelf, 60, copy, 5) == -EINVAL);
    SAYS("range 60..65 of a buffer of 64 bytes");
    pthread_mutex_unlock(&seen.lock);
    CHECK(ulnet_detach(shelf) == 0 && memcmp(other + 5, "There", 5) == 0);
    CHECK(ulnet_detach(landing) == 0 && ulnet_detach(landing) == -EBADF);
    pthread_mutex_lock(&seen.lock);
    seen.closing = 1;
    pthread_mutex_unlock(&seen.lock);
    CHECK(ulnet_queue_close(seen.queue) == 0);
}

static void the_end_of_a_node_is_an_event(ulnet_node *alice, ulnet_node *bob)
{
    ulnet_queue *queue;
    ulnet_inbox *inbox;
    ulnet_attachment *attachment;
    ulnet_match match = {.bits = 4};
    ulnet_event event;
    char memory[16];
    int closed = 0;

    CHECK(ulnet_queue_new(&queue) == 0);
    CHECK(ulnet_inbox_open(bob, PORTAL, &match, NULL, queue, NULL, &inbox) == 0);
    match.bits = 5;
    CHECK(ulnet_attach(bob, PORTAL, &match, memory, sizeof memory, NULL, queue, NULL, &attachment) == 0);
    CHECK(ulnet_node_stop(bob, 0) == 0 && ulnet_node_stop(bob, 0) == -EBADF);
    while (closed < 2) {
        event = next(queue);
        closed += event.kind == ULNET_EVENT_CLOSED;
        CHECK(event.kind == ULNET_EVENT_CLOSED || event.kind == ULNET_EVENT_UNLINK);
    }
    CHECK(ulnet_queue_next(queue, 0, &event) == 0);
    CHECK(ulnet_detach(attachment) == 0 && ulnet_inbox_close(inbox) == 0);
    CHECK(ulnet_queue_close(queue) == 0);
    CHECK(ulnet_node_stop(alice, 0) == 0);
    CHECK(ulnet_put(alice, BOB, PORTAL, 1, "x", 1, NULL, NULL) == -EBADF);
}

int main(int argc, char **argv)
{
    ulnet_node *alice, *bob;

    port = argc > 1 ? (uint16_t)atoi(argv[1]) : 7988;
    CHECK(strcmp(ulnet_last_error(), "") == 0 && ulnet_last_stage() == 0);
    CHECK(strlen(ulnet_version()) >= 5);
    alice = start(ALICE);
    bob = start(BOB);
    arguments_are_checked(alice);
    nodes_are_configured(alice);
    started_operations_end_in_the_queue(alice, bob);
    closing_a_queue_cancels_and_gives_the_memory_back(alice);
    a_thread_that_waits_is_woken_by_the_close();
    attached_memory_fills_and_its_events_go_to_a_callback(alice, bob);
    the_end_of_a_node_is_an_event(alice, bob);
    puts("all checks hold");
    return 0;
}
