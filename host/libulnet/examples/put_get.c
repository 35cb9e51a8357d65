/*
 * Two nodes in one program, over two loopback addresses: PUT with ACK into an inbox, its message, and
 * GET from attached memory.
 *
 *   cc put_get.c $(pkg-config --cflags --libs ulnet) -o put_get && ./put_get
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ulnet.h>

/* A portal and match bits that both sides know. */
enum { PORTAL = 10, BITS = 0x17 };

/* Ends the program if a call has failed. */
static int done(const char *what, int result)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s (%d)\n", what, ulnet_last_error(), result);
        exit(1);
    }
    return result;
}

static ulnet_node *node(const char *nid, uint16_t port)
{
    ulnet_config *config;
    ulnet_node *node;

    done("config", ulnet_config_new("default", &config));
    done("port", ulnet_config_port(config, port));
    done("transaction_timeout", ulnet_config_set(config, "transaction_timeout", 10));
    done(nid, ulnet_config_add_ni(config, nid, NULL));
    done("node", ulnet_node_start(config, &node));
    done("config", ulnet_config_free(config));
    return node;
}

int main(int argc, char **argv)
{
    const char hello[] = "hello, bob", book[] = "a book on bob's shelf";
    uint16_t port = argc > 1 ? (uint16_t)atoi(argv[1]) : 7988;
    ulnet_node *alice = node("127.0.0.2@tcp", port);
    ulnet_node *bob = node("127.0.0.3@tcp", port);
    ulnet_queue *events;
    ulnet_inbox *inbox;
    ulnet_attachment *shelf;
    ulnet_match match = {.bits = BITS};
    ulnet_event event;
    size_t moved;

    /* Bob receives, without end, and puts something on a shelf that others read from. */
    char memory[sizeof book];
    ulnet_attach_options to_read = {.flags = ULNET_ATTACH_SHELF};
    memcpy(memory, book, sizeof book);
    done("queue", ulnet_queue_new(&events));
    done("inbox", ulnet_inbox_open(bob, PORTAL, &match, NULL, events, NULL, &inbox));
    match.bits = BITS + 1;
    done("shelf", ulnet_attach(bob, PORTAL, &match, memory, sizeof memory, &to_read, events, memory,
                               &shelf));

    /* Alice sends, and waits for the ACK. */
    ulnet_options acked = {.flags = ULNET_ACK, .hdr_data = 42};
    done("put", ulnet_put(alice, "127.0.0.3@tcp", PORTAL, BITS, hello, strlen(hello), &acked, &moved));
    printf("alice: bob took %zu bytes\n", moved);

    /* Bob reads the message in place, and gives its buffer back. */
    if (done("message", ulnet_queue_next(events, 5000, &event)) == 0 ||
        event.kind != ULNET_EVENT_MESSAGE)
        return fprintf(stderr, "no message came\n"), 1;
    printf("bob: \"%.*s\" from %s, header data %" PRIu64 "\n", (int)event.length,
           (const char *)event.data, event.initiator.text, event.hdr_data);
    done("free", ulnet_message_free(event.message));

    /* Alice fetches what is on the shelf; bob sees that it was read. */
    char read[64];
    done("get", ulnet_get(alice, "127.0.0.3@tcp", PORTAL, BITS + 1, read, sizeof read, NULL, &moved));
    printf("alice: read \"%.*s\"\n", (int)strnlen(read, moved), read);
    if (done("event", ulnet_queue_next(events, 5000, &event)) == 0 || event.kind != ULNET_EVENT_GET ||
        event.user != memory)
        return fprintf(stderr, "the shelf was not read\n"), 1;

    done("detach", ulnet_detach(shelf));
    done("inbox", ulnet_inbox_close(inbox));
    done("queue", ulnet_queue_close(events));
    done("alice", ulnet_node_stop(alice, 1000));
    done("bob", ulnet_node_stop(bob, 1000));
    return 0;
}
