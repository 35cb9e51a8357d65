/*
 * libulnet: LNet, the network layer of Lustre, in user space.
 *
 * Made from host/libulnet/src/abi; not to be edited. libulnet(3) is the introduction.
 *
 * Results: functions that return int return 0 (or what they say), or a negative error number; then
 * ulnet_last_error() has the text, for this thread. Results behind pointers are written on success only.
 *
 * Handles (ulnet_node *, ...) may be used by any thread, each also by several at once. They are looked
 * up, never followed: NULL is an error (EINVAL), and so is a handle that is closed or of another kind
 * (EBADF). The program ends each of them; ending one twice is an error.
 *
 * Strings end with NUL, are UTF-8, and are not kept. Structures are not kept. A structure that is all 0
 * is the default, and fields called reserved must be 0.
 *
 * Memory given to ulnet_put or ulnet_get is the program's again when the call returns; given to
 * ulnet_put_start or ulnet_get_start, when the event is taken or the queue closed; given to ulnet_attach,
 * when ulnet_detach has returned. It is never copied. After fork, the child must not use the library.
 */

#ifndef ULNET_H
#define ULNET_H

#include <stddef.h>
#include <stdint.h>

/**
 * Bytes of a NID as text, its NUL included.
 */
#define ULNET_NID_SIZE 64

/**
 * The target acknowledges a PUT, and the operation ends with that.
 */
#define ULNET_ACK 1

/**
 * The entry stands before those that the portal has, else behind them.
 */
#define ULNET_MATCH_FIRST 1

/**
 * Messages that find no buffer posted are dropped; otherwise they wait, and their senders with them.
 */
#define ULNET_INBOX_DROP 1

/**
 * PUTs may match.
 */
#define ULNET_ATTACH_PUT 1

/**
 * GETs may match.
 */
#define ULNET_ATTACH_GET 2

/**
 * The initiator chooses the offset.
 */
#define ULNET_ATTACH_MANAGE_REMOTE 4

/**
 * Longer messages are cut to what fits; otherwise they are dropped.
 */
#define ULNET_ATTACH_TRUNCATE 8

/**
 * No PUT is acknowledged.
 */
#define ULNET_ATTACH_NO_ACK 16

/**
 * The usual options of memory that peers read from: GET, MANAGE_REMOTE and TRUNCATE.
 */
#define ULNET_ATTACH_SHELF 14

/**
 * The operation did not fail at a stage, or did not fail.
 */
#define ULNET_STAGE_NONE 0

/**
 * No interface, peer interface or route leads to the target.
 */
#define ULNET_STAGE_NO_PATH 1

/**
 * The target, or a router, refused the connection.
 */
#define ULNET_STAGE_REFUSED 2

/**
 * The request was not transmitted.
 */
#define ULNET_STAGE_TRANSMISSION 3

/**
 * The target answered with an error.
 */
#define ULNET_STAGE_ANSWER 4

/**
 * No answer came: nothing matched at the target's portal, or a message was lost.
 */
#define ULNET_STAGE_NO_ANSWER 5

/**
 * What has happened.
 */
typedef enum ulnet_event_kind {
  /**
   * A PUT that was started has ended; its memory is the program's again.
   */
  ULNET_EVENT_PUT_DONE = 1,
  /**
   * A GET that was started has ended; its memory is the program's again.
   */
  ULNET_EVENT_GET_DONE = 2,
  /**
   * An inbox has received a message.
   */
  ULNET_EVENT_MESSAGE = 3,
  /**
   * A PUT has arrived in attached memory.
   */
  ULNET_EVENT_PUT = 4,
  /**
   * A GET has read attached memory.
   */
  ULNET_EVENT_GET = 5,
  /**
   * Attached memory is used up or detached.
   */
  ULNET_EVENT_UNLINK = 6,
  /**
   * The last event of an inbox or attachment: the node has stopped, or the memory is used up. The
   * handle still has to be closed.
   */
  ULNET_EVENT_CLOSED = 7,
} ulnet_event_kind;

/**
 * Memory of the program at a portal. Made by ulnet_attach.
 */
typedef struct ulnet_attachment ulnet_attachment;

/**
 * What a node starts with. Made by ulnet_config_new.
 */
typedef struct ulnet_config ulnet_config;

/**
 * Buffers that receive without end. Made by ulnet_inbox_open.
 */
typedef struct ulnet_inbox ulnet_inbox;

/**
 * A message that an inbox has received. Comes with ULNET_EVENT_MESSAGE.
 */
typedef struct ulnet_message ulnet_message;

/**
 * A node on a thread of its own. Made by ulnet_node_start.
 */
typedef struct ulnet_node ulnet_node;

/**
 * An event queue. Made by ulnet_queue_new or ulnet_queue_serve.
 */
typedef struct ulnet_queue ulnet_queue;

/**
 * A local interface. All 0 is the default. Fields called reserved must be 0.
 */
typedef struct ulnet_ni_options {
  /**
   * The device or alias that it follows; NULL: whatever device has the address.
   */
  const char *interface;
  /**
   * Concurrent sends; 0: 256.
   */
  uint32_t credits;
  /**
   * Concurrent sends for each peer interface; 0: 8.
   */
  uint32_t peer_credits;
  /**
   * Bulk connections each way for each peer, at most 127; 0: by the device's speed.
   */
  uint32_t conns_per_peer;
  /**
   * Type of service, at most 255; 0: the system's choice.
   */
  uint32_t tos;
  /**
   * Limit of one transmission, milliseconds; 0: derived from the node's tunables.
   */
  uint32_t timeout_ms;
  /**
   * Must be 0.
   */
  uint32_t reserved32;
  /**
   * Must be 0.
   */
  uint64_t reserved[2];
} ulnet_ni_options;

/**
 * A NID as text, such as 10.0.0.1@tcp.
 */
typedef struct ulnet_nid {
  /**
   * Ends with NUL.
   */
  char text[ULNET_NID_SIZE];
} ulnet_nid;

/**
 * A peer, from ulnet_ping or ulnet_discover.
 */
typedef struct ulnet_peer {
  /**
   * The NID that it is known by.
   */
  struct ulnet_nid primary;
  /**
   * Whether it is Multi-Rail: 0 or 1.
   */
  uint32_t multi_rail;
  /**
   * How many NIDs it has.
   */
  uint32_t nids;
} ulnet_peer;

/**
 * An event.
 */
typedef struct ulnet_event {
  /**
   * What has happened.
   */
  enum ulnet_event_kind kind;
  /**
   * 0, or a negative error number: then ulnet_last_error has the text for the thread that took the event.
   */
  int32_t status;
  /**
   * ULNET_STAGE_...: how far an operation came that failed.
   */
  uint32_t stage;
  /**
   * Portal of a message that came.
   */
  uint32_t portal;
  /**
   * Match bits of a message that came.
   */
  uint64_t match_bits;
  /**
   * 64 bits of the initiator of a PUT that came.
   */
  uint64_t hdr_data;
  /**
   * Where in attached memory, bytes.
   */
  uint64_t offset;
  /**
   * Bytes asked for.
   */
  uint32_t requested;
  /**
   * Bytes moved.
   */
  uint32_t length;
  /**
   * The word given when the operation was started, the inbox opened or the memory attached.
   */
  void *user;
  /**
   * The bytes of a message that came: of an inbox until its message is freed, of attached memory in
   * place. NULL where there are none.
   */
  const void *data;
  /**
   * ULNET_EVENT_MESSAGE: to be given to ulnet_message_free. Otherwise NULL.
   */
  struct ulnet_message *message;
  /**
   * Process id of the initiator; 12345 for Lustre services.
   */
  uint32_t initiator_pid;
  /**
   * 0.
   */
  uint32_t reserved;
  /**
   * The peer that began the operation: its primary NID. Replies go there.
   */
  struct ulnet_nid initiator;
} ulnet_event;

/**
 * Is given each event of a queue, on the queue's own thread. The event is valid until it returns; its
 * message is the program's. It must not close its own queue, and no exception may leave it.
 */
typedef void (*ulnet_callback)(const struct ulnet_event *event, void *user);

/**
 * How a PUT or GET is done. All 0 is the default. Fields called reserved must be 0.
 */
typedef struct ulnet_options {
  /**
   * ULNET_ACK or 0.
   */
  uint32_t flags;
  /**
   * Where the bytes go to or come from, for targets that leave the offset to the initiator.
   */
  uint32_t offset;
  /**
   * PUT: 64 bits that the target's event shows.
   */
  uint64_t hdr_data;
  /**
   * The own NID to send from; NULL: the node chooses.
   */
  const char *source;
  /**
   * Limit on sending, retries included, milliseconds; 0: the node's transaction_timeout.
   */
  uint32_t send_timeout_ms;
  /**
   * Limit on the answer, milliseconds; 0: as for sending.
   */
  uint32_t response_timeout_ms;
  /**
   * Must be 0.
   */
  uint64_t reserved[2];
} ulnet_options;

/**
 * Which messages match.
 */
typedef struct ulnet_match {
  /**
   * Bits that a message must carry.
   */
  uint64_t bits;
  /**
   * Those of the bits that do not count.
   */
  uint64_t ignore_bits;
  /**
   * The NID that it must come from; NULL: any.
   */
  const char *from;
  /**
   * ULNET_MATCH_FIRST or 0.
   */
  uint32_t flags;
  /**
   * Must be 0.
   */
  uint32_t reserved;
} ulnet_match;

/**
 * The ring of an inbox. All 0 is the default. Fields called reserved must be 0.
 */
typedef struct ulnet_inbox_options {
  /**
   * Bytes of each buffer; 0: 1 MiB. Longer messages are dropped; LNet has none of more than 1 MiB.
   */
  size_t buffer_bytes;
  /**
   * Buffers; 0: 4.
   */
  uint32_t buffers;
  /**
   * Most messages in one buffer; 0: 16384.
   */
  uint32_t messages_per_buffer;
  /**
   * ULNET_INBOX_DROP or 0.
   */
  uint32_t flags;
  /**
   * Must be 0.
   */
  uint32_t reserved32;
  /**
   * Must be 0.
   */
  uint64_t reserved[2];
} ulnet_inbox_options;

/**
 * Where the buffers of an inbox are.
 */
typedef struct ulnet_inbox_state {
  /**
   * Buffers of the ring.
   */
  size_t buffers;
  /**
   * Of these, posted: messages can land. The others hold messages that were not freed.
   */
  size_t posted;
  /**
   * Messages that have arrived and are in no event yet.
   */
  size_t unread;
  /**
   * How often the last posted buffer became full.
   */
  uint64_t exhausted;
} ulnet_inbox_state;

/**
 * How attached memory is used. Fields called reserved must be 0.
 */
typedef struct ulnet_attach_options {
  /**
   * ULNET_ATTACH_..., at least one of PUT and GET.
   */
  uint32_t flags;
  /**
   * Bound of each message, bytes, and the memory is used up when that much is not left; 0: none.
   */
  uint32_t max_size;
  /**
   * Operations until it is used up; 0: no limit.
   */
  uint32_t threshold;
  /**
   * Events that may wait in the queue; with as many the memory is detached. 0: 65536.
   */
  uint32_t events_max;
  /**
   * Must be 0.
   */
  uint64_t reserved[2];
} ulnet_attach_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The text of the last call on this thread that failed, or of the last event with a status: field,
 * value and what was expected, or what the node says. An empty string if there was none. Valid until the
 * next failure on this thread.
 */
const char *ulnet_last_error(void);

/**
 * ULNET_STAGE_... of the last call on this thread that failed.
 */
uint32_t ulnet_last_stage(void);

/**
 * The version of the library, such as "0.1.0".
 */
const char *ulnet_version(void);

/**
 * Makes a configuration without interfaces, with the defaults of a profile: "default" (or NULL),
 * "documents", "kernel", "pre-2.13" or "off". ulnet_config_free ends it.
 */
int ulnet_config_new(const char *profile, struct ulnet_config **config);

/**
 * Sets a tunable by its name, such as "transaction_timeout"; units and bounds as lnetctl(8) has them.
 * INT64_MIN as "retry_count" is what is written "paths" there.
 */
int ulnet_config_set(struct ulnet_config *config,
                     const char *name,
                     int64_t value);

/**
 * The TCP port that all interfaces listen on, and that peers are expected to listen on: 988 if this is
 * not called, which needs CAP_NET_BIND_SERVICE.
 */
int ulnet_config_port(struct ulnet_config *config,
                      uint16_t port);

/**
 * Fixes all random choices of the node. From the system if this is not called.
 */
int ulnet_config_seed(struct ulnet_config *config, uint64_t seed);

/**
 * How long the node's thread looks for work before it sleeps, microseconds: less latency for more
 * processor time.
 */
int ulnet_config_spin(struct ulnet_config *config, uint64_t microseconds);

/**
 * Adds an interface on a TCP network, such as 10.0.0.1@tcp or fd00::1@tcp1: the address is listened on
 * and connected from. options may be NULL.
 */
int ulnet_config_add_ni(struct ulnet_config *config,
                        const char *nid,
                        const struct ulnet_ni_options *options);

/**
 * Ends a configuration. Nodes that were started from it go on.
 */
int ulnet_config_free(struct ulnet_config *config);

/**
 * Starts a node on a thread of its own. The configuration can be used again, and freed. ulnet_node_stop
 * ends the node.
 */
int ulnet_node_start(struct ulnet_config *config,
                     struct ulnet_node **node);

/**
 * Stops a node and ends its handle: operations may finish within grace_ms, then they fail with
 * ESHUTDOWN; inboxes and attachments get ULNET_EVENT_CLOSED. Returns when its sockets are closed and it
 * uses no memory of the program any more. Handles of its inboxes and attachments still have to be closed.
 */
int ulnet_node_stop(struct ulnet_node *node,
                    uint32_t grace_ms);

/**
 * Adds an interface to a running node. options may be NULL.
 */
int ulnet_node_add_ni(struct ulnet_node *node,
                      const char *nid,
                      const struct ulnet_ni_options *options);

/**
 * Removes an interface.
 */
int ulnet_node_del_ni(struct ulnet_node *node, const char *nid);

/**
 * The own NIDs: writes number index, from 0, to nid. -ENOENT behind the last.
 */
int ulnet_node_nid(struct ulnet_node *node, size_t index, struct ulnet_nid *nid);

/**
 * Sets a tunable of a running node, as ulnet_config_set does.
 */
int ulnet_node_set(struct ulnet_node *node, const char *name, int64_t value);

/**
 * Writes the value of a tunable to value.
 */
int ulnet_node_value(struct ulnet_node *node, const char *name, int64_t *value);

/**
 * Adds a peer with its primary NID and count further NIDs. Peers need not be added: they are discovered
 * when they are first sent to.
 */
int ulnet_node_add_peer(struct ulnet_node *node,
                        const char *primary,
                        const char *const *nids,
                        size_t count);

/**
 * Removes a peer with all its NIDs.
 */
int ulnet_node_del_peer(struct ulnet_node *node, const char *primary);

/**
 * Adds a route to a network, such as "tcp7", by a gateway on a local network. hops from 1 to 255, 0 for
 * unknown; priority 0 is best.
 */
int ulnet_node_add_route(struct ulnet_node *node,
                         const char *net,
                         const char *gateway,
                         uint32_t hops,
                         uint32_t priority);

/**
 * Removes a route.
 */
int ulnet_node_del_route(struct ulnet_node *node, const char *net, const char *gateway);

/**
 * Asks a node for its interfaces, within timeout_ms (0: 180 s), and writes what is known to peer, and the
 * first of its NIDs to nids, at most max. nids may be NULL if max is 0.
 */
int ulnet_ping(struct ulnet_node *node,
               const char *target,
               uint32_t timeout_ms,
               struct ulnet_peer *peer,
               struct ulnet_nid *nids,
               size_t max);

/**
 * Discovers the peer that has a NID, as ulnet_ping does but with the outcome remembered: all its NIDs
 * are used from then on. With force not 0 also if nothing seems to have changed.
 */
int ulnet_discover(struct ulnet_node *node,
                   const char *target,
                   int force,
                   struct ulnet_peer *peer,
                   struct ulnet_nid *nids,
                   size_t max);

/**
 * Makes a queue from which events are taken with ulnet_queue_next. ulnet_queue_close ends it.
 */
int ulnet_queue_new(struct ulnet_queue **queue);

/**
 * Makes a queue whose events are given to callback, one by one and with user, on a thread of its own.
 * ulnet_queue_close ends it.
 */
int ulnet_queue_serve(ulnet_callback callback,
                      void *user,
                      struct ulnet_queue **queue);

/**
 * A descriptor that polls readable (POLLIN) while there may be events: take them with ulnet_queue_next
 * and a timeout of 0 until it returns 0. Not to be read from or closed; it is valid until the queue is
 * closed. Returns the descriptor.
 */
int ulnet_queue_fd(struct ulnet_queue *queue);

/**
 * Takes the next event, waiting at most timeout_ms; 0: does not wait, negative: for ever. Returns 1 with
 * an event, 0 without one, -ESHUTDOWN when another thread has closed the queue.
 */
int ulnet_queue_next(struct ulnet_queue *queue,
                     int timeout_ms,
                     struct ulnet_event *event);

/**
 * Closes a queue and ends its handle. Events that were not taken are gone, with their messages;
 * operations whose end was not taken are cancelled; inboxes and attachments stay, without events. Returns
 * when no thread is in the callback and no operation uses memory of the program: that may take as long as
 * a transmission. In the queue's own callback it fails with EDEADLK.
 */
int ulnet_queue_close(struct ulnet_queue *queue);

/**
 * Sends len bytes at data to a portal of target, and waits until they are sent, or with ULNET_ACK until
 * the target has acknowledged them. options may be NULL. Bytes that were sent, or that the target took,
 * are written to moved if that is not NULL.
 */
int ulnet_put(struct ulnet_node *node,
              const char *target,
              uint32_t portal,
              uint64_t match_bits,
              const void *data,
              size_t len,
              const struct ulnet_options *options,
              size_t *moved);

/**
 * Fetches at most len bytes from a portal of target to the memory at to, and waits for them. options may
 * be NULL. How many came is written to moved if that is not NULL.
 */
int ulnet_get(struct ulnet_node *node,
              const char *target,
              uint32_t portal,
              uint64_t match_bits,
              void *to,
              size_t len,
              const struct ulnet_options *options,
              size_t *moved);

/**
 * Starts a PUT, which ends with ULNET_EVENT_PUT_DONE in queue. The bytes at data are not copied: they
 * must stay, and stay the same, until that event has been taken or the queue is closed.
 */
int ulnet_put_start(struct ulnet_node *node,
                    const char *target,
                    uint32_t portal,
                    uint64_t match_bits,
                    const void *data,
                    size_t len,
                    const struct ulnet_options *options,
                    struct ulnet_queue *queue,
                    void *user);

/**
 * Starts a GET, which ends with ULNET_EVENT_GET_DONE in queue. The memory at to must stay, and not be
 * touched, until that event has been taken or the queue is closed.
 */
int ulnet_get_start(struct ulnet_node *node,
                    const char *target,
                    uint32_t portal,
                    uint64_t match_bits,
                    void *to,
                    size_t len,
                    const struct ulnet_options *options,
                    struct ulnet_queue *queue,
                    void *user);

/**
 * Opens an inbox at a portal, for PUTs that match: a ring of buffers that are posted again by themselves.
 * Each message is a ULNET_EVENT_MESSAGE in queue, with user. options may be NULL. ulnet_inbox_close ends
 * it.
 */
int ulnet_inbox_open(struct ulnet_node *node,
                     uint32_t portal,
                     const struct ulnet_match *match,
                     const struct ulnet_inbox_options *options,
                     struct ulnet_queue *queue,
                     void *user,
                     struct ulnet_inbox **inbox);

/**
 * Writes where the buffers of an inbox are to state: how far the program is behind its senders.
 */
int ulnet_inbox_get_state(struct ulnet_inbox *inbox, struct ulnet_inbox_state *state);

/**
 * Closes an inbox and ends its handle: nothing is received any more, and no event of it follows but one
 * that another thread is taking now. Messages that were taken stay until they are freed.
 */
int ulnet_inbox_close(struct ulnet_inbox *inbox);

/**
 * Frees a message: its bytes must not be read any more. When all messages of a buffer are freed, the
 * buffer is posted again, so keep copies of what has to stay for long.
 */
int ulnet_message_free(struct ulnet_message *message);

/**
 * Attaches len bytes of the program's memory to a portal, for messages that match. Each message is an
 * event in queue, with user; messages without ULNET_ATTACH_MANAGE_REMOTE land one behind the other.
 * options may be NULL: PUTs. The memory must stay until ulnet_detach has returned; what a
 * ULNET_EVENT_PUT names may be read before, the rest must not be touched. To receive without end, use an
 * inbox.
 */
int ulnet_attach(struct ulnet_node *node,
                 uint32_t portal,
                 const struct ulnet_match *match,
                 void *memory,
                 size_t len,
                 const struct ulnet_attach_options *options,
                 struct ulnet_queue *queue,
                 void *user,
                 struct ulnet_attachment **attachment);

/**
 * Copies len bytes at offset of attached memory to the memory at to, as they are between two messages:
 * for memory whose offsets the initiators choose.
 */
int ulnet_attachment_read(struct ulnet_attachment *attachment,
                          uint64_t offset,
                          void *to,
                          size_t len);

/**
 * Changes len bytes at offset of attached memory, between two messages. Bytes that have been delivered by
 * an event can't be changed.
 */
int ulnet_attachment_write(struct ulnet_attachment *attachment,
                           uint64_t offset,
                           const void *data,
                           size_t len);

/**
 * Detaches memory and ends the handle. Returns when no message uses the memory any more: that may take as
 * long as a transmission. No event of it follows but one that another thread is taking now.
 */
int ulnet_detach(struct ulnet_attachment *attachment);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ULNET_H */
